// §9: the same width, divided into more and more heads.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "lab/experiment_runs.h"
#include "lab/experiment_training.h"
#include "lab/matrix_rank.h"

namespace qkv::lab {
namespace {

constexpr Index kModelWidth = 64;
constexpr Index kTokens = 32;      // of a training sequence
constexpr Index kRankTokens = 64;  // at least as many as a head is wide

struct HeadRow {
  Index heads = 1;
  TrainedVariant variant;
  double tokens_a_second = 0;
  Index parameters = 0;
  Index rank = 0;  ///< of one head's scores [T,T]

  Index width() const noexcept { return kModelWidth / heads; }
};

TrainingSetup setup_of(const Task& task, Index heads, bool quick) {
  TrainingSetup setup = setup_for(task);
  setup.decoder.context = kRankTokens;
  setup.decoder.positions = PositionKind::Rotary;
  // A layer norm would take a dimension from what the widest head reads.
  setup.decoder.norm = NormKind::RmsNorm;
  setup.training.schedule.peak = 1e-2;
  setup.decoder.model_width = kModelWidth;
  setup.decoder.heads = heads;
  setup.training.steps = quick ? 100 : 600;
  setup.training.evaluate_every = setup.training.steps / 5;
  return setup;
}

/// Of the first head of the first block: Q·Kᵀ in float64, before mask and softmax.
Index rank_of_scores(const Decoder<float>& decoder, const Task& task, std::uint64_t seed) {
  Random random(seed);
  const DecoderResult<float> result = decoder.forward(task.held_out(1, random));
  const auto& attention = result.blocks.front().attention.module;
  Tensor<double, 2> scores({kRankTokens, kRankTokens});
  for (Index t = 0; t < kRankTokens; ++t) {
    for (Index s = 0; s < kRankTokens; ++s) {
      for (Index d = 0; d < attention.query_heads.shape(3); ++d) {
        scores(t, s) += static_cast<double>(attention.query_heads(0, 0, t, d)) *
                        static_cast<double>(attention.key_heads(0, 0, s, d));
      }
    }
  }
  return matrix_rank(std::move(scores));
}

std::vector<HeadRow> measure(const ExperimentOptions& options) {
  const std::string text = training_text(options);
  const Task task = text_task(text, kTokens);
  const Task longer = text_task(text, kRankTokens);
  const std::vector<Index> counts =
      options.quick ? std::vector<Index>{1, 2, 4, 8} : std::vector<Index>{1, 2, 4, 8, 16, 32};
  std::vector<HeadRow> rows;
  for (const Index heads : counts) {
    const double part = 1.0 / static_cast<double>(counts.size());
    const double begin = part * static_cast<double>(rows.size());
    const TrainingSetup setup = setup_of(task, heads, options.quick);
    HeadRow row;
    row.heads = heads;
    row.variant = train_variant({fmt::format("H = {}", heads), fmt::format("H = {}", heads)}, setup,
                                options.quick ? 2 : 3, options,
                                {fmt::format("{} heads", heads), begin, begin + part});
    double fastest = row.variant.runs.front().seconds;
    for (const TrainedRun& run : row.variant.runs) fastest = std::min(fastest, run.seconds);
    row.tokens_a_second =
        static_cast<double>(setup.training.steps * setup.training.sequences * kTokens) / fastest;
    row.parameters = row.variant.runs.front().decoder.parameter_count();
    row.rank = rank_of_scores(row.variant.runs.front().decoder, longer, options.seed);
    rows.push_back(std::move(row));
  }
  return rows;
}

Table head_table(const std::vector<HeadRow>& rows) {
  Table table{
      "heads",
      {fmt::format("A byte model of two blocks, D = {}, by the number of heads", kModelWidth),
       fmt::format("两个 block 的字节模型，D = {}，按头数比较", kModelWidth)},
      {{"heads", same("H"), {}},
       {"width", {"Dh", "Dh"}, {}},
       {"parameters", {"parameters", "参数量"}, {}},
       {"throughput", {"training throughput", "训练吞吐"}, {"tokens/s", "token/s"}},
       {"loss", {"held-out loss", "留出集损失"}, same("nat")},
       {"rank",
        {fmt::format("rank of a head's scores, T = {}", kRankTokens),
         fmt::format("单头分数矩阵的秩，T = {}", kRankTokens)},
        {}}},
      {}};
  for (const HeadRow& row : rows) {
    table.rows.push_back({row.heads, row.width(), row.parameters,
                          Measured{row.tokens_a_second, {}, {}}, row.variant.loss(), row.rank});
  }
  return table;
}

Chart by_heads(std::string key, Text name, const std::vector<HeadRow>& rows,
               Measured (*number)(const HeadRow&)) {
  Chart chart{std::move(key), name, {{"heads H", "头数 H"}, true}, {name, false}, {}};
  Series series{name, {}, {}, {}, {}};
  for (const HeadRow& row : rows) {
    const Measured measured = number(row);
    series.x.push_back(static_cast<double>(row.heads));
    series.y.push_back(measured.value);
    if (!measured.low || !measured.high) continue;
    series.low.push_back(*measured.low);
    series.high.push_back(*measured.high);
  }
  chart.series.push_back(std::move(series));
  return chart;
}

std::vector<Effect> effects_of(const std::vector<HeadRow>& rows) {
  const bool equal = std::ranges::all_of(
      rows, [&](const HeadRow& row) { return row.parameters == rows.front().parameters; });
  // Factors of float32 have too little precision to tell the last dimensions of a head as wide as there are tokens.
  const bool bounded = std::ranges::all_of(rows, [](const HeadRow& row) {
    return row.rank <= row.width() && (2 * row.width() > kRankTokens || row.rank == row.width());
  });
  const auto loss_of = [](const HeadRow& row) { return row.variant.loss().value; };
  const HeadRow& best = *std::ranges::min_element(rows, {}, loss_of);
  const HeadRow& worst = *std::ranges::max_element(rows, {}, loss_of);
  return {
      {"parameters_do_not_change",
       {"At the same D the number of heads changes no parameter count.",
        "D 不变时，头数不改变参数量。"},
       {fmt::format("{} parameters with every number of heads.", rows.front().parameters),
        fmt::format("无论多少头，参数都是 {} 个。", rows.front().parameters)},
       equal},
      {"rank_is_the_width",
       {"What it changes is the width of a head: its scores are a matrix of rank Dh at most.",
        "变的是每头的宽度：单头分数矩阵的秩最多为 Dh。"},
       {fmt::format("{} with 1 head, {} with {}.", rows.front().rank, rows.back().rank,
                    rows.back().heads),
        fmt::format("1 个头时为 {}，{} 个头时为 {}。", rows.front().rank, rows.back().heads,
                    rows.back().rank)},
       bounded},
      {"quality_differs_little",
       {"The loss hardly depends on it: more heads look at more places, and each is narrower.",
        "损失几乎不受头数影响：头越多，能看的地方越多，但每头越窄。"},
       {fmt::format("Held-out loss from {:.3f} (H = {}) to {:.3f} (H = {}); {:.0f} to {:.0f} "
                    "tokens a second.",
                    loss_of(best), best.heads, loss_of(worst), worst.heads,
                    rows.front().tokens_a_second, rows.back().tokens_a_second),
        fmt::format(
            "留出集损失从 {:.3f}（H = {}）到 {:.3f}（H = {}）；每秒 {:.0f} 到 {:.0f} 个 token。",
            loss_of(best), best.heads, loss_of(worst), worst.heads, rows.front().tokens_a_second,
            rows.back().tokens_a_second)},
       loss_of(worst) < 1.2 * loss_of(best)}};
}

}  // namespace

Experiment run_heads(const ExperimentOptions& options) {
  const std::vector<HeadRow> rows = measure(options);
  Experiment experiment;
  experiment.name = "heads";
  experiment.section = 9;
  experiment.title = {"How many heads?", "要多少个头？"};
  experiment.explanation = {
      "The same model is trained with its width divided into 1, 2, 4, 8 and more heads: the "
      "matrices stay as large and are only read as more "
      "heads, each narrower. Measured are the throughput of the training, the loss on text that it "
      "has not seen, with the spread over seeds, the "
      "parameters, and the rank of the scores of a head, which its width bounds.",
      "同一个模型，把宽度分成 1、2、4、8 "
      "乃至更多个头来训练：矩阵大小不变，只是被读成更多、更窄的头。测量训练吞吐、未见文本上的损失（"
      "含随机种子间的范围）、参数量，以及"
      "受宽度限制的单头分数矩阵的秩。"};
  experiment.tables.push_back(head_table(rows));
  experiment.charts.push_back(
      loss_chart("loss", {"Held-out loss", "留出集损失"}, rows, &HeadRow::variant));
  experiment.charts.push_back(by_heads("loss_by_heads",
                                       {"held-out loss after training", "训练后的留出集损失"}, rows,
                                       [](const HeadRow& row) { return row.variant.loss(); }));
  experiment.charts.push_back(by_heads("throughput",
                                       {"training throughput, tokens/s", "训练吞吐，token/s"}, rows,
                                       [](const HeadRow& row) {
                                         return Measured{row.tokens_a_second, {}, {}};
                                       }));
  experiment.effects = effects_of(rows);
  experiment.seen = {
      "The parameters stay the same, each head's scores lose rank as it narrows, and the loss "
      "hardly differs.",
      "参数量不变；头越窄，单头分数矩阵的秩越低；损失几乎一样。"};
  report(options, "done", 1);
  return experiment;
}

}  // namespace qkv::lab
