// Holds every #include against the layer map in docs/architecture.md.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace qkv {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kPublicLayer = "include/qkv";

struct Source {
  std::string path;  // from the root of the repository
  std::string text;
};

std::string read_file(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

// The directories of the first table of the document, top to bottom: rows are "| `src/base` | … |".
std::vector<std::string> layer_map(const std::string& document) {
  static const std::regex row(R"(^\| `([a-z/]+)` \|)");
  std::vector<std::string> layers;
  std::istringstream lines(document);
  for (std::string line; std::getline(lines, line);) {
    std::smatch match;
    if (std::regex_search(line, match, row)) {
      layers.push_back(match[1]);
    } else if (!layers.empty()) {
      break;
    }
  }
  return layers;
}

// The row of the layer that a path lies in.
std::optional<std::size_t> row_of(const std::vector<std::string>& layers, const std::string& path) {
  for (std::size_t row = 0; row < layers.size(); ++row) {
    if (path.starts_with(layers[row] + "/")) return row;
  }
  return std::nullopt;
}

// Where an included name lies: public headers below include/, internal ones below src/ or the root.
std::optional<std::size_t> row_of_include(const std::vector<std::string>& layers,
                                          const std::string& name) {
  for (const char* root : {"include/", "src/", ""}) {
    if (const auto row = row_of(layers, root + name)) return row;
  }
  return std::nullopt;
}

// One line a violation, in the order of the sources.
std::vector<std::string> violations(const std::vector<std::string>& layers,
                                    const std::vector<Source>& sources) {
  static const std::regex include(R"(^\s*#\s*include\s*([<"])([^>"]+)[>"])");
  std::vector<std::string> found;
  for (const Source& source : sources) {
    const auto row = row_of(layers, source.path);
    if (!row) {
      found.push_back(fmt::format("{}: lies in no layer", source.path));
      continue;
    }
    std::istringstream lines(source.text);
    for (std::string line; std::getline(lines, line);) {
      std::smatch match;
      if (!std::regex_search(line, match, include)) continue;
      const bool quoted = match[1] == "\"";
      const std::string name = match[2];
      const auto target = row_of_include(layers, name);
      if (target && *target > *row) {
        found.push_back(fmt::format("{}: includes {}, which lies in {}, below {}", source.path,
                                    name, layers[*target], layers[*row]));
      } else if (!target && quoted) {
        found.push_back(fmt::format("{}: includes {}, which lies in no layer", source.path, name));
      } else if (!target && layers[*row] == kPublicLayer &&
                 name.find_first_of("./") != std::string::npos) {
        found.push_back(fmt::format("{}: a public header includes {}", source.path, name));
      }
    }
  }
  return found;
}

std::vector<Source> repository_sources() {
  const fs::path root = QKV_SOURCE_DIR;
  std::vector<Source> sources;
  for (const char* top : {"include", "src", "cli", "python", "peers", "tests", "bench"}) {
    if (!fs::exists(root / top)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(root / top)) {
      const auto extension = entry.path().extension();
      if (extension != ".h" && extension != ".cpp") continue;
      sources.push_back(
          {fs::relative(entry.path(), root).generic_string(), read_file(entry.path())});
    }
  }
  std::sort(sources.begin(), sources.end(),
            [](const Source& a, const Source& b) { return a.path < b.path; });
  return sources;
}

std::vector<std::string> documented_layers() {
  return layer_map(read_file(fs::path(QKV_SOURCE_DIR) / "docs" / "architecture.md"));
}

TEST(Layers, EveryIncludePointsUpOrIntoItsOwnLayer) {
  EXPECT_THAT(violations(documented_layers(), repository_sources()), IsEmpty());
}

TEST(Layers, EveryLayerOfTheDocumentHoldsSources) {
  const auto layers = documented_layers();
  std::set<std::size_t> used;
  for (const Source& source : repository_sources()) {
    if (const auto row = row_of(layers, source.path)) used.insert(*row);
  }
  ASSERT_THAT(layers, ::testing::Contains(kPublicLayer));
  for (std::size_t row = 0; row < layers.size(); ++row) {
    EXPECT_TRUE(used.contains(row)) << layers[row] << " is in the document and holds no source";
  }
}

TEST(Layers, MapIsTheFirstTable) {
  EXPECT_THAT(layer_map("# Title\n\n| layer | holds |\n|---|---|\n| `include/qkv` | x |\n"
                        "| `src/base` | y |\n\ntext\n\n| `src/lab` | another table |\n"),
              ElementsAre("include/qkv", "src/base"));
}

class MadeUpSources : public ::testing::Test {
 protected:
  std::vector<std::string> check(const std::string& path, const std::string& text) const {
    return violations({"include/qkv", "src/base", "src/reference", "cli"}, {{path, text}});
  }
};

TEST_F(MadeUpSources, ArrowsUpAndSidewaysPass) {
  EXPECT_THAT(check("src/reference/forward.cpp",
                    "#include \"reference/rows.h\"\n#include \"base/validate.h\"\n"
                    "#include \"qkv/mask.h\"\n#include <vector>\n#include <fmt/format.h>\n"),
              IsEmpty());
}

TEST_F(MadeUpSources, ArrowDownIsFound) {
  EXPECT_THAT(
      check("src/base/mask.cpp", "  # include \"reference/rows.h\" // why not\n"),
      ElementsAre("src/base/mask.cpp: includes reference/rows.h, which lies in src/reference, "
                  "below src/base"));
  EXPECT_THAT(check("include/qkv/mask.h", "#include <base/validate.h>\n"),
              ElementsAre(HasSubstr("which lies in src/base, below include/qkv")));
  EXPECT_THAT(check("src/base/mask.cpp", "#include \"cli/commands.h\"\n"),
              ElementsAre(HasSubstr("which lies in cli, below src/base")));
}

TEST_F(MadeUpSources, DependencyInPublicHeaderIsFound) {
  for (const std::string header :
       {"cblas.h", "hwy/highway.h", "immintrin.h", "omp.h", "fmt/core.h"}) {
    EXPECT_THAT(check("include/qkv/mask.h", "#include <" + header + ">\n"),
                ElementsAre("include/qkv/mask.h: a public header includes " + header));
  }
}

TEST_F(MadeUpSources, FileOrIncludeOutsideTheMapIsFound) {
  EXPECT_THAT(check("src/kernels/exp.cpp", ""),
              ElementsAre("src/kernels/exp.cpp: lies in no layer"));
  EXPECT_THAT(check("src/base/mask.cpp", "#include \"validate.h\"\n"),
              ElementsAre("src/base/mask.cpp: includes validate.h, which lies in no layer"));
}

}  // namespace
}  // namespace qkv
