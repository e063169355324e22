#include <algorithm>
#include <array>
#include <string_view>

#include "lab/experiment_explain_tables.h"

namespace qkv::lab {
namespace {

/// What the curves are drawn of: too many lines say nothing.
constexpr std::array<std::string_view, 5> kDrawn = {"raw_attention_last", "attention_rollout",
                                                    "gradient_attention_rollout",
                                                    "integrated_gradients", "swap_token"};

Series curve_series(Text name, const std::vector<std::vector<double>>& by_seed) {
  Series series{std::move(name), {}, {}, {}, {}};
  for (std::size_t i = 0; i < kCurvePoints; ++i) {
    std::vector<double> values;
    values.reserve(by_seed.size());
    for (const std::vector<double>& curve : by_seed) values.push_back(curve[i]);
    const Measured point = over_seeds(values);
    series.x.push_back(static_cast<double>(i) / static_cast<double>(kCurvePoints - 1));
    series.y.push_back(point.value);
    series.low.push_back(point.low.value_or(point.value));
    series.high.push_back(point.high.value_or(point.value));
  }
  return series;
}

}  // namespace

Chart deletion_chart(const TaskFindings& findings) {
  Chart chart{"deletion_" + findings.task.key,
              {"Tokens swapped in the order of an attribution, " + findings.task.name.english,
               "按归因顺序逐个换掉 token（" + findings.task.name.chinese + "）"},
              {{"part of the tokens that is swapped", "被换掉的 token 比例"}, false},
              {{"probability of the right answer", "正确答案的概率"}, false},
              {}};
  for (const std::string_view key : kDrawn) {
    const MethodOnTask& method = findings.method(key);
    chart.series.push_back(curve_series(method.name, method.faith.curve));
  }
  chart.series.push_back(curve_series({"random", "随机"}, findings.random.curve));
  return chart;
}

Chart gap_chart(const GapFindings& gaps) {
  Chart chart{
      "completeness",
      {"Gap of integrated gradients: the midpoint rule's falls with the square of the steps",
       "积分梯度的缺口：中点法则下随步数的平方下降"},
      {{"steps", "步数"}, true},
      {{"gap, of what the scores should sum to", "缺口（占应有总和的比例）"}, true},
      {}};
  Series measured{{"measured", "实测"}, {}, {}, {}, {}};
  Series theory{{"1/steps²", "1/步数²"}, {}, {}, {}, {}};
  for (std::size_t i = 0; i < gaps.steps.size(); ++i) {
    std::vector<double> values;
    values.reserve(gaps.gaps.size());
    for (const std::vector<double>& seed : gaps.gaps) values.push_back(seed[i]);
    const Measured gap = over_seeds(values);
    const auto steps = static_cast<double>(gaps.steps[i]);
    measured.x.push_back(steps);
    measured.y.push_back(gap.value);
    measured.low.push_back(gap.low.value_or(gap.value));
    measured.high.push_back(gap.high.value_or(gap.value));
    theory.x.push_back(steps);
  }
  // Through the last point, where the rule holds best.
  const double last = measured.y.back() * measured.x.back() * measured.x.back();
  for (const double steps : theory.x) theory.y.push_back(last / (steps * steps));
  chart.series = {std::move(measured), std::move(theory)};
  return chart;
}

HeatMaps weight_maps(const TaskFindings& findings) {
  const explain::Report& report = findings.example;
  const auto [tokens, layers, heads, width] = report.sizes;
  HeatMaps maps;
  maps.key = "weights_" + findings.task.key;
  maps.title = {"Attention weights of one question, " + findings.task.name.english,
                "一个问题的注意力权重（" + findings.task.name.chinese + "）"};
  maps.query_labels = report.tokens;
  maps.key_labels = report.tokens;
  HeatMapVariant variant{
      {"weights", "权重"}, Tensor<float, 5>({layers, 1, heads, tokens, tokens}), {}};
  float* next = variant.values.data();
  for (const explain::LayerReport& layer : report.layers) {
    for (const double weight : layer.weights.elements()) *next++ = static_cast<float>(weight);
  }
  maps.variants.push_back(std::move(variant));
  return maps;
}

}  // namespace qkv::lab
