// Experiments in a terminal.
#include "lab/experiment_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "tests/lab/sample_experiment.h"

namespace qkv::lab {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(ExperimentText, AlignsTablesAndMarksEffects) {
  const std::string text = experiment_text(sample_experiments()[0], {false, 80});
  EXPECT_THAT(text, StartsWith("§2  everything: One of everything\n\n"
                               "  First paragraph.\n\n"
                               "  Second paragraph.\n\n"));
  EXPECT_THAT(text, HasSubstr("  Cells of every kind\n\n"
                              "  case          time (ms)  parameters  verdict\n"
                              "  plain              0.25   1,234,567  works\n"
                              "  </script>  2 [1.5, 2.5]           0  breaks\n"
                              "  none                  ∞          -7  is no number\n"));
  EXPECT_THAT(text, HasSubstr("  ✓ It holds.\n    By 2 %.\n"
                              "  ✗ It fails.\n    By 90 %.\n\n"
                              "  You should have seen: That `numbers` arrive.\n  This time 1 of 2 "
                              "was not there: see ✗ above.\n"));
}

TEST(ExperimentText, BreaksWideTablesIntoBlocksThatKeepTheirRowsApart) {
  Experiment experiment;
  experiment.name = "wide";
  Table table;
  table.columns = {{"a", {"first", ""}, {}}, {"b", {"second", ""}, {}}};
  for (int c = 0; c < 8; ++c) table.columns.push_back({"c", {"aaaaaaaaa bbbbbbbbbbbb", ""}, {}});
  for (const char* name : {"x", "y"}) {
    std::vector<Cell> row = {std::string("same"), std::string(name)};
    row.resize(10, std::int64_t{1234567});
    table.rows.push_back(row);
  }
  experiment.tables.push_back(table);
  const std::string text = experiment_text(experiment, {false, 80});
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(display_width(line), 80U) << line;
  EXPECT_THAT(
      text, HasSubstr("  first  second     aaaaaaaaa     aaaaaaaaa     aaaaaaaaa     aaaaaaaaa\n"
                      "                 bbbbbbbbbbbb  bbbbbbbbbbbb  bbbbbbbbbbbb  bbbbbbbbbbbb\n"
                      "  same   x          1,234,567     1,234,567     1,234,567     1,234,567\n"));
  std::size_t rows = 0;
  for (std::size_t at = 0; (at = text.find("same   y", at)) != std::string::npos; ++at) ++rows;
  EXPECT_EQ(rows, 2U);  // four of the eight columns in each block
}

TEST(ExperimentText, WrapsLongWordsOfACell) {
  Experiment experiment;
  experiment.name = "long";
  Table table;
  table.columns = {{"a", {"what", ""}, {}}, {"b", {"n", ""}, {}}};
  table.rows.push_back(
      {Text{"a sentence that takes more than one line of its column", ""}, std::int64_t{1}});
  experiment.tables.push_back(table);
  EXPECT_THAT(experiment_text(experiment, {false, 80}),
              HasSubstr("  what                                 n\n"
                        "  a sentence that takes more than one  1\n"
                        "  line of its column\n"));
}

TEST(ExperimentText, KeepsControlCharactersAwayFromTheTerminal) {
  Experiment experiment;
  Table table;
  table.columns = {{"a", {"token", ""}, {}}};
  table.rows.push_back({std::string("\x1b[2J")});
  experiment.tables.push_back(table);
  EXPECT_THAT(experiment_text(experiment, {false, 80}),
              AllOf(HasSubstr("?[2J"), Not(HasSubstr("\x1b"))));
}

}  // namespace
}  // namespace qkv::lab
