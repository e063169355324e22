// Experiments as JSON.
#include "lab/experiment_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "tests/lab/sample_experiment.h"

namespace qkv::lab {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

json sample_json(const ExperimentOptions& options = {}) {
  return json::parse(experiments_json(sample_experiments(), options));
}

TEST(ExperimentJson, SaysWhatWasAskedFor) {
  ExperimentOptions options;
  options.quick = true;
  options.seed = 18446744073709551615U;
  options.inject = "M2";
  const json result = sample_json(options);
  EXPECT_EQ(result["quick"], true);
  EXPECT_EQ(result["seed"], 18446744073709551615U);
  EXPECT_EQ(result["text"], nullptr);
  EXPECT_EQ(result["inject"], "M2");
  EXPECT_EQ(result["experiments"].size(), 2U);
}

TEST(ExperimentJson, NamesTheCellsOfARow) {
  const json table = sample_json()["experiments"][0]["tables"][0];
  EXPECT_EQ(table["columns"][1],
            json::parse(R"({"key": "time", "name": {"en": "time", "zh": "时间"},
                                                 "unit": {"en": "ms", "zh": "毫秒"}})"));
  EXPECT_EQ(table["rows"][0], json::parse(R"({"case": "plain", "time": 0.25, "count": 1234567,
                                              "words": {"en": "works", "zh": "正常"}})"));
  EXPECT_EQ(table["rows"][1]["time"], json::parse(R"({"value": 2, "low": 1.5, "high": 2.5})"));
  EXPECT_EQ(table["rows"][2]["time"], "Infinity");
}

TEST(ExperimentJson, HasEveryPointOfASeries) {
  const json chart = sample_json()["experiments"][0]["charts"][0];
  EXPECT_EQ(chart["x"],
            json::parse(R"({"name": {"en": "width Dk", "zh": "宽度 Dk"}, "logarithmic": true})"));
  EXPECT_EQ(chart["series"][0]["high"], json::parse("[10, 2.5, 1, 0.25]"));
  EXPECT_EQ(chart["series"][1]["y"], json::parse(R"([1, 0, "NaN", 3])"));
  EXPECT_EQ(chart["series"][1]["low"], json::array());
}

TEST(ExperimentJson, HasHeatMapsInOneListWithTheirShape) {
  const json maps = sample_json()["experiments"][0]["heat_maps"][0];
  EXPECT_EQ(maps["shape"], json::parse("[2, 2, 3, 4, 5]"));
  const json& broken = maps["variants"][1];
  EXPECT_EQ(broken["values"].size(), 2U * 2 * 3 * 4 * 5);
  EXPECT_EQ(broken["values"][1 * 5 + 1], "NaN");
  EXPECT_EQ(broken["values"].back(), 20000 + 11234);
  EXPECT_EQ(broken["seen_shape"], json::parse("[1, 1, 1, 4, 5]"));
  EXPECT_EQ(broken["seen"][4], 0);
  EXPECT_EQ(maps["predict"], nullptr);
  const json asked = sample_json()["experiments"][0]["heat_maps"][1];
  EXPECT_EQ(asked["variants"][0]["seen"], nullptr);
  EXPECT_EQ(asked["reveal"]["zh"], "最后一个。");
}

TEST(ExperimentJson, WritesFloatsWithNoMoreDigitsThanTheyHave) {
  Experiment experiment;
  experiment.name = "digits";
  HeatMaps maps;
  maps.variants.push_back({{"a", "a"}, Tensor<float, 5>({1, 1, 1, 1, 1}), {}});
  maps.variants.front().values(0, 0, 0, 0, 0) = 0.1F;
  experiment.heat_maps.push_back(std::move(maps));
  EXPECT_THAT(experiments_json({&experiment, 1}, {}), HasSubstr("\"values\":[0.1]"));
}

TEST(ExperimentJson, RefusesARowThatDoesNotFitItsColumns) {
  std::vector<Experiment> experiments = sample_experiments();
  experiments[0].tables[0].rows[1].pop_back();
  try {
    experiments_json(experiments, {});
    FAIL() << "nothing was thrown";
  } catch (const std::logic_error& error) {
    EXPECT_STREQ(error.what(), "lab: everything: table numbers: cells of a row: expected 4, got 3");
  }
}

TEST(ExperimentJson, RefusesPartsThatDoNotFitEachOther) {
  const auto is_refused = [](auto change) {
    std::vector<Experiment> experiments = sample_experiments();
    change(experiments[0]);
    EXPECT_THROW(experiments_json(experiments, {}), std::logic_error);
  };
  is_refused([](Experiment& e) { e.charts[0].series[0].y.pop_back(); });
  is_refused([](Experiment& e) { e.charts[0].series[0].low.pop_back(); });
  is_refused([](Experiment& e) { e.charts[0].series[0].high.clear(); });
  is_refused([](Experiment& e) { e.heat_maps[0].key_labels.pop_back(); });
  is_refused([](Experiment& e) { e.heat_maps[0].variants.clear(); });
  is_refused([](Experiment& e) {
    e.heat_maps[0].variants[1].values = Tensor<float, 5>({2, 2, 3, 4, 4});
  });
  is_refused([](Experiment& e) {
    e.heat_maps[0].variants[1].seen = Tensor<std::uint8_t, 5>({1, 1, 1, 4, 4});
  });
  is_refused([](Experiment& e) { e.heat_maps[0].start.head = 3; });
  is_refused([](Experiment& e) { e.heat_maps[0].start.beside = 2; });
  is_refused([](Experiment& e) { e.effects[1].key = "holds"; });
}

}  // namespace
}  // namespace qkv::lab
