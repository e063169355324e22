#include "explain/attributions.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "explain/attention_attributions.h"

namespace qkv::explain {
namespace {

Text name_of(Occlusion how) {
  switch (how) {
    case Occlusion::HideKey:
      return {"key hidden", "屏蔽 key"};
    case Occlusion::ZeroValue:
      return {"value zeroed", "value 置零"};
    case Occlusion::RemoveToken:
      return {"token removed", "删除 token"};
    case Occlusion::ReplaceToken:
      return {"token replaced by the baseline", "替换为基线 token"};
    case Occlusion::SwapToken:
      return {"token swapped", "换成别的 token"};
  }
  return {};
}

std::string source_of(Occlusion how) {
  return how == Occlusion::SwapToken ? "Geiger et al. (2021)" : "Zeiler and Fergus (2014)";
}

void add_from_weights(const ExplainedModel& model, std::vector<Attribution>& list) {
  const Records records = model.record();
  const ExplainedText& text = model.text();
  const Gradients gradients = plain_gradients(model);
  const Index last = model.sizes().layers - 1;
  const auto add = [&](std::string key, Text name, std::string source, std::vector<double> scores) {
    list.push_back({std::move(key), std::move(name), std::move(source), false, std::move(scores)});
  };
  add("raw_attention_last", {"raw attention, last layer", "原始注意力（最后一层）"},
      "Bahdanau, Cho and Bengio (2015)", raw_attention(records, text, last));
  add("raw_attention", {"raw attention, mean of layers", "原始注意力（各层平均）"},
      "Bahdanau, Cho and Bengio (2015)", raw_attention(records, text));
  add("attention_times_norm", {"attention × norm of the value", "注意力 × value 范数"},
      "Kobayashi et al. (2020)", attention_times_norm(records, text));
  add("attention_rollout", {"rollout", "rollout"}, "Abnar and Zuidema (2020)",
      attention_rollout(records, text));
  add("attention_flow", {"attention flow", "注意力流"}, "Abnar and Zuidema (2020)",
      attention_flow(records, text));
  add("gradient_times_attention", {"gradient × attention, last layer", "梯度 × 注意力（最后一层）"},
      "Barkan et al. (2021)", gradient_times_attention(records, gradients, last));
  add("gradient_attention_rollout",
      {"gradient × attention, propagated", "梯度 × 注意力（逐层传播）"},
      "Chefer, Gur and Wolf (2021)", gradient_attention_rollout(records, gradients, text));
  add("gradient_times_input", {"gradient × input", "梯度 × 输入"}, "Shrikumar et al. (2016)",
      gradient_times_input(gradients, text));
}

}  // namespace

Attributions attributions(const ExplainedModel& model, const AttributionOptions& options,
                          const Progress& progress) {
  Attributions result;
  add_from_weights(model, result.list);
  const double half = options.interventions ? 0.5 : 1;
  result.integrated = complete_integrated_gradients(
      model, options.completeness, part_of(progress, "integrated gradients", 0, half));
  result.list.push_back({"integrated_gradients",
                         {"integrated gradients", "积分梯度"},
                         "Sundararajan, Taly and Yan (2017)",
                         false,
                         result.integrated.scores});
  if (!options.interventions) return result;
  double begin = half;
  for (const Occlusion how : kOcclusions) {
    if (!can_take_away(model.text(), how)) continue;
    const double end = begin + 0.5 / kOcclusions.size();
    result.list.push_back(
        {std::string(key_of(how)), name_of(how), source_of(how), true,
         occlusion(model, how,
                   part_of(progress, "one token after the other taken away", begin, end))});
    begin = end;
  }
  return result;
}

const Attribution& find(const std::vector<Attribution>& list, std::string_view key) {
  const auto found = std::ranges::find(list, key, &Attribution::key);
  if (found == list.end()) {
    throw std::invalid_argument(fmt::format("explain: no attribution is called {}", key));
  }
  return *found;
}

}  // namespace qkv::explain
