// Shapes, parameters, and what position 0 sees.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "lab/experiment_exercises_parts.h"
#include "lab/text_style.h"
#include "lab/trace.h"
#include "lab/trace_source.h"

namespace qkv::lab {
namespace {

constexpr Index kModelWidth = 768;
constexpr Index kHeads = 12;
constexpr double kMemoryLimit = 1e9;

Index parameter_count(const MultiHeadAttentionOptions& options) {
  const auto parameters = zero_parameters<float>(options);
  Index count = 0;
  for (const Tensor<float, 2>* weight : {&parameters.query_weight, &parameters.key_weight,
                                         &parameters.value_weight, &parameters.output_weight}) {
    count += static_cast<Index>(weight->elements().size());
  }
  return count;
}

/// Of D = 768 with H heads: as many kv heads and D/H wide where not given.
Index count_with(Index heads, std::optional<Index> kv_heads, std::optional<Index> head_width) {
  MultiHeadAttentionOptions options;
  options.model_width = kModelWidth;
  options.heads = heads;
  options.kv_heads = kv_heads;
  options.head_width = head_width;
  return parameter_count(options);
}

MultiHeadAttention<double> draw_module(NormalNumbers& numbers, Index width, Index heads) {
  MultiHeadAttentionOptions options;
  options.model_width = width;
  options.heads = heads;
  auto parameters = zero_parameters<double>(options);
  for (Tensor<double, 2>* weight : {&parameters.query_weight, &parameters.key_weight,
                                    &parameters.value_weight, &parameters.output_weight}) {
    *weight = numbers.tensor<double, 2>(weight->shape(), 1 / std::sqrt(static_cast<double>(width)));
  }
  return {options, std::move(parameters)};
}

constexpr Index kTokens = 6;
constexpr Index kPrefix = 3;

/// How far the output of position 0 moves when one token changes, for each token: exactly 0 where it cannot be seen.
std::vector<double> influence_on_first(const MultiHeadAttention<double>& module,
                                       const Tensor<double, 3>& x, const Mask& mask) {
  const auto output = [&](const Tensor<double, 3>& input) {
    MultiHeadAttentionInputs<double> inputs;
    inputs.query = input.view();
    inputs.mask = mask;
    return module.forward(inputs).output;
  };
  const Tensor<double, 3> before = output(x);
  std::vector<double> influence;
  for (Index token = 0; token < x.shape(1); ++token) {
    Tensor<double, 3> changed = x;
    for (Index d = 0; d < x.shape(2); ++d) changed(0, token, d) += 1;
    const Tensor<double, 3> after = output(changed);
    double largest = 0;
    for (Index d = 0; d < x.shape(2); ++d)
      largest = std::max(largest, std::fabs(after(0, 0, d) - before(0, 0, d)));
    influence.push_back(largest);
  }
  return influence;
}

/// Whether exactly the first `seen` tokens have an influence.
bool sees_first(const std::vector<double>& influence, Index seen) {
  for (std::size_t token = 0; token < influence.size(); ++token) {
    if ((influence[token] != 0) != (static_cast<Index>(token) < seen)) return false;
  }
  return true;
}

}  // namespace

void add_shapes(const ExperimentOptions& options, Experiment& experiment) {
  report(options, "shapes", 0);
  SizeOptions sizes;
  sizes.model_width = kModelWidth;
  sizes.heads = kHeads;
  sizes.seed = options.seed;
  const Trace trace = lab::trace(trace_sizes(sizes, kMemoryLimit), kMemoryLimit);
  Table table{"shapes",
              {fmt::format("B = {}, T = {}, D = {}, H = {}: every tensor on the way", sizes.batch,
                           sizes.tokens, kModelWidth, kHeads),
               fmt::format("B = {}，T = {}，D = {}，H = {}：一路上的每个张量", sizes.batch,
                           sizes.tokens, kModelWidth, kHeads)},
              {{"step", {"step", "步骤"}, {}},
               {"tensors", {"tensors", "张量"}, {}},
               {"shape", {"shape", "形状"}, {}},
               {"strides", {"strides", "stride"}, {}}},
              {}};
  for (const LayoutRow& row : trace.layout) {
    table.rows.push_back({row.step, row.tensors, to_string(row.shape), to_string(row.strides)});
  }
  experiment.tables.push_back(std::move(table));
  const Extents<4> scores = trace.scores.shape();
  experiment.effects.push_back(
      {"head_width_is_64",
       {"1. D = 768, H = 12: Dh is 64, and the scores end in [T,T].",
        "1. D = 768、H = 12 时 Dh = 64，分数最后两维是 [T,T]。"},
       {fmt::format("Dh = {}; scores {}.", trace.head_width, to_string(scores)),
        fmt::format("Dh = {}；分数 {}。", trace.head_width, to_string(scores))},
       trace.head_width == 64 &&
           scores == Extents<4>{sizes.batch, kHeads, sizes.tokens, sizes.tokens}});
}

void add_parameter_counts(const ExperimentOptions& options, Experiment& experiment) {
  report(options, "parameters", 0.3);
  Table table{"parameters",
              {fmt::format("Parameters of the four projections, D = {}", kModelWidth),
               fmt::format("四个投影的参数量，D = {}", kModelWidth)},
              {{"heads", same("H"), {}},
               {"head_width", {"Dh = D/H", "Dh = D/H"}, {}},
               {"parameters", {"parameters", "参数量"}, {}},
               {"one_kv_head", {"with one kv head", "只用一个 kv head"}, {}},
               {"fixed_width", {"with heads of 64", "每头固定 64 维"}, {}}},
              {}};
  bool equal = true;
  Index least = 0;
  Index most = 0;
  const Index expected = 4 * kModelWidth * kModelWidth;
  for (const Index heads : {1, 2, 4, 8, 12, 24, 96}) {
    const Index count = count_with(heads, std::nullopt, std::nullopt);
    equal = equal && count == expected;
    least = count_with(heads, 1, std::nullopt);
    most = count_with(heads, std::nullopt, 64);
    table.rows.push_back({heads, kModelWidth / heads, count, least, most});
  }
  experiment.tables.push_back(std::move(table));
  experiment.effects.push_back(
      {"heads_cost_no_parameters",
       {"3. With D fixed, more heads mean no more parameters: the matrices are only read as more "
        "heads. Heads that share keys and values have "
        "fewer; heads of a fixed width have more.",
        "3. 总 D 不变时，头数增加不会增加参数：矩阵只是被重排为更多的头。共享 K/V "
        "的头参数更少；每头宽度固定则参数更多。"},
       {fmt::format("{} = 4·D² for every H; with 96 heads, one kv head: {}, heads of 64: {}.",
                    grouped_number(expected), grouped_number(least), grouped_number(most)),
        fmt::format("任何 H 都是 {} = 4·D²；96 个头时，只用一个 kv head 为 {}，每头 64 维为 {}。",
                    grouped_number(expected), grouped_number(least), grouped_number(most))},
       equal && least < expected && most > expected});
}

void add_first_position(const ExperimentOptions& options, Experiment& experiment) {
  report(options, "what position 0 sees", 0.4);
  NormalNumbers numbers(options.seed);
  const MultiHeadAttention<double> module = draw_module(numbers, 16, 4);
  const auto x = numbers.tensor<double, 3>({1, kTokens, 16});
  const std::vector<std::pair<Text, Mask>> masks = {
      {{"causal", "因果"}, Mask::causal()},
      {{fmt::format("causal, prefix of {}", kPrefix), fmt::format("因果，前缀长 {}", kPrefix)},
       Mask::prefix_causal({kPrefix})},
      {{"none", "无 mask"}, {}}};
  Table table{"first_position",
              {"How far the output of position 0 moves when a token changes",
               "改动某个 token 时，第 0 个位置的输出变化多少"},
              {{"mask", {"mask", "mask"}, {}}},
              {}};
  for (Index token = 0; token < kTokens; ++token) {
    table.columns.push_back({fmt::format("token_{}", token),
                             {fmt::format("token {}", token), fmt::format("token {}", token)},
                             {}});
  }
  std::vector<std::vector<double>> influences;
  for (const auto& [name, mask] : masks) {
    influences.push_back(influence_on_first(module, x, mask));
    std::vector<Cell> row = {name};
    for (const double influence : influences.back()) row.emplace_back(Measured{influence, {}, {}});
    table.rows.push_back(std::move(row));
  }
  experiment.tables.push_back(std::move(table));
  experiment.effects.push_back(
      {"first_position_sees_itself",
       {"4. Position 0 of a causal model sees itself, and the prefix where the model has one.",
        "4. 因果模型的第 0 个位置只能看到自身，以及模型约定的前缀。"},
       {fmt::format("Changing token 1 moves it by exactly {}; with a prefix of {} by {}, and token "
                    "{} by exactly {}.",
                    short_number(influences[0][1]), kPrefix, short_number(influences[1][1]),
                    kPrefix, short_number(influences[1][kPrefix])),
        fmt::format("改动 token 1，它的变化恰为 {}；前缀长 {} 时变化 {}，而改动 token {} 恰为 {}。",
                    short_number(influences[0][1]), kPrefix, short_number(influences[1][1]),
                    kPrefix, short_number(influences[1][kPrefix]))},
       sees_first(influences[0], 1) && sees_first(influences[1], kPrefix) &&
           sees_first(influences[2], kTokens)});
}

}  // namespace qkv::lab
