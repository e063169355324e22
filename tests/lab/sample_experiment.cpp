#include "tests/lab/sample_experiment.h"

#include <cmath>
#include <limits>
#include <utility>

namespace qkv::lab {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr Extents<5> kShape = {2, 2, 3, 4, 5};  // layers, samples, heads, T, S

HeatMapVariant variant(Text name, bool is_broken) {
  HeatMapVariant result{std::move(name), Tensor<float, 5>(kShape), {}};
  float* value = result.values.data();
  for (int layer = 0; layer < 2; ++layer)
    for (int sample = 0; sample < 2; ++sample)
      for (int head = 0; head < 3; ++head)
        for (int query = 0; query < 4; ++query)
          for (int key = 0; key < 5; ++key) {
            const int digits = layer * 10000 + sample * 1000 + head * 100 + query * 10 + key;
            *value++ = static_cast<float>(digits + (is_broken ? 20000 : 0));
          }
  if (is_broken) result.values(0, 0, 0, 1, 1) = std::numeric_limits<float>::quiet_NaN();
  // Causal, one rule for all: axes of size 1 are shared.
  result.seen = Tensor<std::uint8_t, 5>({1, 1, 1, 4, 5});
  for (Index query = 0; query < 4; ++query)
    for (Index key = 0; key < 5; ++key)
      result.seen(0, 0, 0, query, key) = key <= query + (is_broken ? 1 : 0) ? 1 : 0;
  return result;
}

HeatMaps plain_maps() {
  HeatMaps maps;
  maps.key = "maps";
  maps.title = {"Digits of each place", "每个位置的数字"};
  maps.query_labels = {"the", "cat", "<b>", "sat"};
  maps.key_labels = {"the", "cat", "<b>", "sat", "."};
  maps.variants.push_back(variant({"right", "正确"}, false));
  maps.variants.push_back(variant({"off by one", "差一"}, true));
  return maps;
}

HeatMaps asked_maps() {
  HeatMaps maps;
  maps.key = "asked";
  maps.title = {"What comes of it", "结果如何"};
  HeatMapVariant only{{"scores", "得分"}, Tensor<float, 5>({1, 1, 1, 2, 3}), {}};
  float next = -2;
  for (float& value : only.values.elements()) value = next++;
  maps.variants.push_back(std::move(only));
  maps.predict = Text{"Which cell is the largest?", "哪个格子最大？"};
  maps.reveal = Text{"The last one.", "最后一个。"};
  return maps;
}

/// The second head of the second variant comes first.
HeatMaps started_maps() {
  HeatMaps maps;
  maps.key = "started";
  maps.title = {"Two heads", "两个 head"};
  for (const char* name : {"first", "second"}) {
    HeatMapVariant variant{{name, name}, Tensor<float, 5>({1, 1, 2, 1, 1}), {}};
    variant.values(0, 0, 0, 0, 0) = *name == 'f' ? 1 : 3;
    variant.values(0, 0, 1, 0, 0) = *name == 'f' ? 2 : 4;
    maps.variants.push_back(std::move(variant));
  }
  maps.start = {.head = 1, .shown = 1, .beside = 0};
  return maps;
}

Chart sample_chart() {
  Chart chart;
  chart.key = "curves";
  chart.title = {"Loss over width", "损失随宽度的变化"};
  chart.x = {{"width Dk", "宽度 Dk"}, true};
  chart.y = {{"loss", "损失"}, true};
  chart.series.push_back({{"with a spread", "带区间"},
                          {1, 4, 16, 64},
                          {8, 2, 0.5, 0.125},
                          {6, 1.5, 0.25, 0.0625},
                          {10, 2.5, 1, 0.25}});
  // A logarithmic axis has no place for the 0; NaN is a gap.
  chart.series.push_back({{"bare", "无区间"}, {1, 4, 16, 64}, {1, 0, std::nan(""), 3}, {}, {}});
  return chart;
}

Table sample_table() {
  Table table;
  table.key = "numbers";
  table.title = {"Cells of every kind", "各种单元格"};
  table.columns = {{"case", {"case", "情形"}, {}},
                   {"time", {"time", "时间"}, {"ms", "毫秒"}},
                   {"count", {"parameters", "参数量"}, {}},
                   {"words", {"verdict", "结论"}, {}}};
  table.rows.push_back(
      {std::string("plain"), Measured{0.25, {}, {}}, std::int64_t{1234567}, Text{"works", "正常"}});
  table.rows.push_back(
      {std::string("</script>"), Measured{2, 1.5, 2.5}, std::int64_t{0}, Text{"breaks", "出错"}});
  table.rows.push_back({std::string("none"), Measured{kInfinity, {}, {}}, std::int64_t{-7},
                        Text{"is no number", "不是数"}});
  return table;
}

}  // namespace

std::vector<Experiment> sample_experiments() {
  Experiment everything;
  everything.name = "everything";
  everything.section = 2;
  everything.title = {"One of everything", "样样都有"};
  everything.explanation = {"First paragraph.\nSecond paragraph.", "第一段。\n第二段。"};
  everything.tables.push_back(sample_table());
  everything.charts.push_back(sample_chart());
  everything.heat_maps.push_back(plain_maps());
  everything.heat_maps.push_back(asked_maps());
  everything.effects.push_back({"holds", {"It holds.", "成立。"}, {"By 2 %.", "相差 2 %。"}, true});
  everything.effects.push_back(
      {"fails", {"It fails.", "不成立。"}, {"By 90 %.", "相差 90 %。"}, false});
  everything.seen = {"That `numbers` arrive.", "`数字`都到了。"};

  Experiment little;
  little.name = "little";
  little.section = 9;
  little.title = {"Hardly anything", "几乎没有"};
  little.explanation = {"Words only.", "只有文字。"};
  little.heat_maps.push_back(started_maps());
  little.token_maps.push_back(
      {"tokens",
       {"Which tokens", "哪些 token"},
       {"the", "<b>", "sat"},
       {{{"a method", "某方法"}, {0, 2, -1}}, {{"no number", "不是数"}, {std::nan(""), 0, 0}}}});
  little.seen = {"Nothing.", "什么也没有。"};
  return {std::move(everything), std::move(little)};
}

}  // namespace qkv::lab
