// The whole table of `qkv align`, against PyTorch.
#include <cstdlib>
#include <map>
#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/cli/run_command.h"

namespace qkv {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::UnorderedElementsAre;

template <class Value>
std::set<Value> values_of(const json& table, const std::string& key) {
  std::set<Value> values;
  for (const json& row : table.at("rows")) values.insert(row.at(key).get<Value>());
  return values;
}

void expect_every_row_passes(const json& table) {
  EXPECT_EQ(table.at("failed"), 0);
  EXPECT_EQ(table.at("passed"), table.at("rows").size());
  EXPECT_TRUE(table.at("missing").empty());
  EXPECT_EQ(table.at("peers").size(), 2U);
  EXPECT_GE(table.at("rows").size(), 60U);
  for (const json& row : table.at("rows")) EXPECT_TRUE(row.at("passed").get<bool>()) << row;
}

void expect_promised_tolerance(const json& table) {
  for (const json& row : table.at("rows")) {
    for (const auto& [quantity, one] : row.at("differences").items()) {
      if (!one.contains("difference")) continue;
      const double allowed = one.at("allowed").get<double>();
      if (row.at("dtype") == "float64") {
        EXPECT_EQ(allowed, quantity == "parameter gradient" ? 1e-11 : 1e-12);
      } else {
        EXPECT_EQ(allowed, 2 * one.at("official_error").get<double>() + 0x1p-24);
      }
      EXPECT_LE(one.at("difference").get<double>(), allowed) << row;
    }
  }
}

void expect_lesson_first(const json& table) {
  const json& first = table.at("rows").at(0);
  EXPECT_EQ(first.at("function"), "the lesson's class");
  EXPECT_TRUE(first.at("lesson").get<bool>());
  EXPECT_EQ(first.at("dtype"), "float64");
  EXPECT_EQ(first.at("mask"), "causal");
  EXPECT_EQ(first.at("B"), 2);
  EXPECT_EQ(first.at("T"), 5);
  EXPECT_EQ(first.at("D"), 16);
  EXPECT_EQ(first.at("H"), 4);
  EXPECT_FALSE(first.at("biases").get<bool>());
  EXPECT_EQ(table.at("rows").at(1).at("function"), "nn.MultiheadAttention");
}

void expect_every_function_type_and_size(const json& table) {
  EXPECT_THAT(values_of<std::string>(table, "function"),
              ElementsAre("nn.MultiheadAttention", "the lesson's class",
                          "torch::nn::MultiheadAttention", "torch::scaled_dot_product_attention"));
  EXPECT_THAT(values_of<std::string>(table, "dtype"), UnorderedElementsAre("float32", "float64"));
  EXPECT_THAT(values_of<int>(table, "H"), IsSupersetOf({1, 3, 8}));
  EXPECT_THAT(values_of<int>(table, "T"), IsSupersetOf({1, 5, 65, 513}));
  EXPECT_EQ(values_of<std::string>(table, "mask").size(), 11U);
}

void expect_every_quantity(const json& table) {
  for (const json& row : table.at("rows")) {
    const json& differences = row.at("differences");
    EXPECT_TRUE(differences.contains("forward"));
    EXPECT_TRUE(differences.contains("input gradient"));
    EXPECT_TRUE(differences.contains("parameter gradient"));
    EXPECT_EQ(differences.contains("weights"),
              row.at("function") != "torch::scaled_dot_product_attention");
  }
}

void expect_nan_only_where_queries_see_nothing(const json& table) {
  std::map<std::string, int> verdicts;
  for (const json& row : table.at("rows")) {
    const std::string verdict = row.at("verdict").get<std::string>();
    ++verdicts[verdict];
    if (verdict == "pass") continue;
    EXPECT_THAT(row.at("mask").get<std::string>(),
                ::testing::AnyOf("one sample all padding", "causal and left padding"));
  }
  EXPECT_GT(verdicts["official is NaN, ours 0"], 0);
}

// One test, for each would run the table anew.
TEST(AlignTable, HoldsEveryCaseToThePromisedTolerance) {
  const CommandResult result =
      run_command({"align", "--json", "--require-peers", "--python", QKV_PYTHON});
  const json table = json::parse(result.output, nullptr, /*allow_exceptions=*/false);
  ASSERT_TRUE(table.is_object()) << result.errors;
  EXPECT_EQ(result.exit_code, 0);
  expect_every_row_passes(table);
  expect_promised_tolerance(table);
  expect_lesson_first(table);
  expect_every_function_type_and_size(table);
  expect_every_quantity(table);
  expect_nan_only_where_queries_see_nothing(table);
}

TEST(AlignTable, IsReadable) {
  const CommandResult result = run_command(
      {"align", "--require-peers", "--python", QKV_PYTHON, "--case", "one sample all padding"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.output, HasSubstr("with PyTorch 2."));
  EXPECT_THAT(result.output,
              HasSubstr("one sample all padding, self: B=4 H=3 T=S=5 D=48, no biases\n"));
  EXPECT_THAT(result.output, HasSubstr("official is NaN, ours 0\n"));
  EXPECT_THAT(result.output, HasSubstr("6 of 6 rows pass, in "));
  EXPECT_EQ(result.errors, "");
  std::size_t width = 0;
  for (const char c : result.output) {
    width = c == '\n' ? 0 : width + 1;
    ASSERT_LE(width, 120U);
  }
}

TEST(AlignTable, WithoutPythonTheOthersAreHeldAndTheReasonIsSaid) {
  ::setenv("QKV_PYTHON", "/nowhere/python", 1);
  const CommandResult result = run_command({"align", "--case", "causal, self: B=2 H=1"});
  const CommandResult strict =
      run_command({"align", "--require-peers", "--case", "causal, self: B=2 H=1"});
  ::unsetenv("QKV_PYTHON");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.output,
              HasSubstr("without PyTorch in Python: /nowhere/python: No such file or directory"));
  EXPECT_THAT(result.output, HasSubstr("torch::nn::MultiheadAttention"));
  EXPECT_EQ(strict.exit_code, 2);
  EXPECT_EQ(strict.errors,
            "qkv: align: PyTorch in Python: /nowhere/python: No such file or directory\n");
}

}  // namespace
}  // namespace qkv
