#include "io/file_map.h"
#include "model/generation.h"
#include "model/tasks.h"

namespace qkv {

std::string read_text(const std::string& path) {
  const FileBytes file = map_file(path);
  return {reinterpret_cast<const char*>(file.bytes.data()), file.bytes.size()};
}

std::vector<Index> tokens_of(std::string_view text) {
  std::vector<Index> tokens;
  for (const char c : text) tokens.push_back(Index{static_cast<unsigned char>(c)});
  return tokens;
}

std::string text_of(std::span<const Index> tokens) {
  std::string text;
  for (const Index token : tokens) text += static_cast<char>(static_cast<unsigned char>(token));
  return text;
}

}  // namespace qkv
