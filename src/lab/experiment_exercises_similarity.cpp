#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "lab/experiment_exercises_parts.h"
#include "lab/similarity.h"
#include "lab/text_style.h"

namespace qkv::lab {
namespace {

constexpr Index kWidth = 64;

struct SimilarityRow {
  Text name;
  double flops = 0;  ///< a pair of a query and a key
  double tanhs = 0;  ///< a pair
  double seconds = 0;
  double lowest = 0;  ///< score
  double highest = 0;
};

std::vector<SimilarityRow> measure(Index tokens, const ExperimentOptions& options) {
  NormalNumbers numbers(options.seed);
  const MatchingInputs inputs{
      numbers.tensor<float, 2>({tokens, kWidth}), numbers.tensor<float, 2>({tokens, kWidth}),
      numbers.tensor<float, 1>({kWidth}, 1 / std::sqrt(static_cast<double>(kWidth)))};
  const engine::Options threads = engine_options(options);
  Tensor<float, 2> scores({tokens, tokens});
  const auto row = [&](Text name, double flops, double tanhs, const std::function<void()>& match) {
    const double seconds = fastest_seconds(match, options);
    const auto [low, high] = std::ranges::minmax_element(std::as_const(scores).elements());
    return SimilarityRow{
        std::move(name),           flops, tanhs, seconds, static_cast<double>(*low),
        static_cast<double>(*high)};
  };
  const auto d = static_cast<double>(kWidth);
  return {row({"dot product: q·k/√Dh", "点积：q·k/√Dh"}, 2 * d + 1, 0,
              [&] { match_by_dot_product(inputs, scores, threads); }),
          row({"cosine: q·k/(|q|·|k|)", "余弦：q·k/(|q|·|k|)"}, 2 * d, 0,
              [&] { match_by_cosine(inputs, scores, threads); }),
          row({"additive: w·tanh(q + k)", "加性：w·tanh(q + k)"}, 3 * d, d,
              [&] { match_additively(inputs, scores); })};
}

Table similarity_table(const std::vector<SimilarityRow>& rows, Index tokens) {
  Table table{
      "similarities",
      {fmt::format("Scores of {} queries and {} keys of width {}, float32", tokens, tokens, kWidth),
       fmt::format("{} 个 query 与 {} 个 key 的分数，宽 {}，float32", tokens, tokens, kWidth)},
      {{"matching", {"matching", "匹配方式"}, {}},
       {"flops", {"operations a pair", "每对的运算"}, {}},
       {"tanhs", {"and hyperbolic tangents", "以及 tanh 次数"}, {}},
       {"seconds", {"time", "耗时"}, same("s")},
       {"ratio", {"ratio", "倍数"}, {}},
       {"lowest", {"smallest score", "最小分数"}, {}},
       {"highest", {"largest score", "最大分数"}, {}}},
      {}};
  for (const SimilarityRow& row : rows) {
    const auto number = [](double value) { return Measured{value, {}, {}}; };
    table.rows.push_back({row.name, number(row.flops), number(row.tanhs), number(row.seconds),
                          number(row.seconds / rows[0].seconds), number(row.lowest),
                          number(row.highest)});
  }
  return table;
}

}  // namespace

void add_similarities(const ExperimentOptions& options, Experiment& experiment) {
  report(options, "dot product, cosine and additive matching", 0.6);
  const Index tokens = options.quick ? 256 : 1024;
  const std::vector<SimilarityRow> rows = measure(tokens, options);
  experiment.tables.push_back(similarity_table(rows, tokens));
  const SimilarityRow& dot = rows[0];
  const SimilarityRow& cosine = rows[1];
  const SimilarityRow& additive = rows[2];
  experiment.effects.push_back(
      {"dot_product_is_a_matrix_product",
       {"5. All dot products are one matrix product, which processors compute fastest; additive "
        "matching needs a hyperbolic tangent for each "
        "component of each pair.",
        "5. 所有点积合起来就是一次矩阵乘法，是处理器算得最快的；加性匹配要对每一对的每个分量算一次 "
        "tanh。"},
       {fmt::format("{} against {} for cosine and {} for additive matching with one tanh after the "
                    "other, {} times as long.",
                    duration(dot.seconds), duration(cosine.seconds), duration(additive.seconds),
                    short_number(additive.seconds / dot.seconds)),
        fmt::format("点积 {}，余弦 {}，加性 {}（tanh 逐个计算），是点积的 {} 倍。",
                    duration(dot.seconds), duration(cosine.seconds), duration(additive.seconds),
                    short_number(additive.seconds / dot.seconds))},
       additive.seconds > dot.seconds});
  experiment.effects.push_back(
      {"cosine_is_bounded",
       {"A cosine lies between −1 and 1: without a scale that is learned or large, its softmax "
        "cannot single out a key.",
        "余弦在 −1 与 1 之间：若没有可学习的或较大的缩放，softmax 就选不出某一个 key。"},
       {fmt::format("Scores from {} to {}; of {} keys none can get more than {} of the weight. Dot "
                    "products go from {} to {}.",
                    short_number(cosine.lowest), short_number(cosine.highest), tokens,
                    percent(std::exp(2.0) / (std::exp(2.0) + static_cast<double>(tokens - 1))),
                    short_number(dot.lowest), short_number(dot.highest)),
        fmt::format("分数在 {} 到 {} 之间；{} 个 key 中任何一个的权重都不会超过 {}。点积则在 {} 到 "
                    "{} 之间。",
                    short_number(cosine.lowest), short_number(cosine.highest), tokens,
                    percent(std::exp(2.0) / (std::exp(2.0) + static_cast<double>(tokens - 1))),
                    short_number(dot.lowest), short_number(dot.highest))},
       cosine.lowest >= -1.001 && cosine.highest <= 1.001 && dot.highest > 1.5});
}

}  // namespace qkv::lab
