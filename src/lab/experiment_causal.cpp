// §9: what a model learns that may look ahead.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "lab/experiment_causal_measure.h"
#include "lab/experiment_runs.h"
#include "lab/text_style.h"

namespace qkv::lab {
namespace {

constexpr Index kTokens = 32;
constexpr std::size_t kShownBytes = 320;  // of what a model writes

struct CausalRow {
  Text name;
  TrainedVariant variant;
  double as_used = 0;   ///< held-out loss where later tokens are not there yet
  double in_words = 0;  ///< part of its own text that is in words
  std::string text;     ///< that it wrote
  Tensor<double, 2> influence;
};

struct CausalKind {
  Text name;
  std::optional<AttentionBug> bug;
};

std::vector<CausalKind> kinds() {
  return {{{"right", "正确"}, std::nullopt},
          {{"off by one: j ≤ i + 1", "差一位：j ≤ i + 1"}, AttentionBug::CausalOffByOne},
          {{"off", "关闭"}, AttentionBug::CausalDropped}};
}

TrainingSetup setup_of(const Task& task, const std::optional<AttentionBug>& bug, bool quick) {
  TrainingSetup setup = setup_for(task);
  setup.decoder.changes.emplace_back().bug = bug;
  setup.decoder.positions = PositionKind::Rotary;
  setup.training.schedule.peak = 1e-2;
  setup.training.steps = quick ? 200 : 800;
  setup.training.evaluate_every = setup.training.steps / 6;
  return setup;
}

std::vector<CausalRow> measure(const ExperimentOptions& options) {
  const std::string corpus = training_text(options);
  const Task task = text_task(corpus, kTokens);
  std::vector<CausalRow> rows;
  for (const CausalKind& kind : kinds()) {
    const auto done = static_cast<double>(rows.size());
    TrainedVariant variant = train_variant(
        kind.name, setup_of(task, kind.bug, options.quick), options.quick ? 1 : 2, options,
        {fmt::format("causal mask {}", kind.name.english), done / 3, (done + 0.9) / 3});
    const Decoder<float>& decoder = variant.runs.front().decoder;
    CausalRow row;
    row.name = variant.name;
    row.as_used = evaluate(with_changes(decoder, {}), task, 16, 4).loss;
    row.text = written_text(decoder, options.seed);
    row.in_words = part_in_words(row.text, corpus);
    row.influence = influences(decoder, task, options.seed);
    row.variant = std::move(variant);
    rows.push_back(std::move(row));
  }
  return rows;
}

Table loss_table(const std::vector<CausalRow>& rows) {
  Table table{
      "losses",
      {"A byte model trained with each mask", "用各种 mask 训练的字节模型"},
      {{"mask", {"causal mask", "因果 mask"}, {}},
       {"held_out", {"held-out loss, as trained", "留出集损失（按训练时的 mask）"}, same("nat")},
       {"as_used",
        {"held-out loss without the future, as used", "留出集损失（没有未来，实际使用时）"},
        same("nat")},
       {"in_words", {"part of what it writes that is in words", "所写文字中成词的比例"}, {}},
       {"future", {"largest influence of a later token", "后面 token 的最大影响"}, {}},
       {"text", {"what it writes", "它写出的文字"}, {}}},
      {}};
  for (const CausalRow& row : rows) {
    table.rows.push_back({row.name, row.variant.loss(), Measured{row.as_used, {}, {}},
                          Measured{row.in_words, {}, {}},
                          Measured{largest_of_future(row.influence), {}, {}},
                          printable(row.text.substr(0, kShownBytes))});
  }
  return table;
}

Table influence_table(const std::vector<CausalRow>& rows) {
  Table table{
      "influence",
      {"How far the logits of a position move when a later token changes: exactly 0 is right",
       "改动后面的 token 时，某位置的 logits 变化多少：恰为 0 才正确"},
      {{"position", {"position", "位置"}, {}}},
      {}};
  const std::vector<std::string> keys = {"right", "off_by_one", "off"};
  for (std::size_t i = 0; i < rows.size(); ++i)
    table.columns.push_back({keys[i], rows[i].name, {}});
  for (Index t = 0; t + 1 < kInfluenceTokens; ++t) {
    std::vector<Cell> cells = {t};
    for (const CausalRow& row : rows)
      cells.emplace_back(Measured{largest_of_future(row.influence, t), {}, {}});
    table.rows.push_back(std::move(cells));
  }
  return table;
}

HeatMaps influence_maps(const std::vector<CausalRow>& rows) {
  HeatMaps maps;
  maps.key = "influence";
  maps.title = {"How far the logits of a row move when the token of a column changes",
                "改动某列的 token 时，某行的 logits 变化多少"};
  for (const CausalRow& row : rows) {
    const TensorView<const double, 4> influence(row.influence.data(),
                                                {1, 1, kInfluenceTokens, kInfluenceTokens});
    maps.variants.push_back(heat_map_variant(row.name, influence));
  }
  maps.predict = {
      "The mask lets each query see one token too many. After two layers, how far ahead does a "
      "position look?",
      "mask 让每个 query 多看一个 token。经过两层之后，一个位置能看到多远的未来？"};
  maps.reveal = {"Two tokens: each layer adds one.", "两个 token：每层多一个。"};
  return maps;
}

/// How many tokens ahead some position is influenced from.
Index reach(const Tensor<double, 2>& influence) {
  Index furthest = 0;
  for (Index t = 0; t < kInfluenceTokens; ++t) {
    for (Index s = t + 1; s < kInfluenceTokens; ++s) {
      if (influence(t, s) != 0) furthest = std::max(furthest, s - t);
    }
  }
  return furthest;
}

std::vector<Effect> effects_of(const std::vector<CausalRow>& rows) {
  const CausalRow& right = rows[0];
  const CausalRow& near = rows[1];
  const CausalRow& off = rows[2];
  const auto loss = [](const CausalRow& row) { return row.variant.loss().value; };
  return {
      {"loss_is_too_good",
       {"A model that sees the next token needs only copy it: its loss is too good.",
        "能看到下一个 token 的模型只需照抄，损失好得不真实。"},
       {fmt::format("Held-out loss {:.2f} with the right mask, {:.2f} off by one, {:.2f} without.",
                    loss(right), loss(near), loss(off)),
        fmt::format("留出集损失：正确 {:.2f}，差一位 {:.2f}，关闭 {:.2f}。", loss(right),
                    loss(near), loss(off))},
       loss(near) < 0.5 * loss(right) && loss(off) < 0.5 * loss(right)},
      {"useless_without_the_future",
       {"Where the future is not there yet, it has learned nothing of use: loss and text are bad.",
        "没有未来可看时，它什么有用的也没学到：损失高，文字差。"},
       {fmt::format("Loss as used: {:.2f} with the right mask, {:.2f} off by one, {:.2f} without. "
                    "Of what they write {}, {} and {} is in words.",
                    right.as_used, near.as_used, off.as_used, percent(right.in_words),
                    percent(near.in_words), percent(off.in_words)),
        fmt::format("实际使用时的损失：正确 {:.2f}，差一位 {:.2f}，关闭 "
                    "{:.2f}。所写文字成词的比例：{}、{}、{}。",
                    right.as_used, near.as_used, off.as_used, percent(right.in_words),
                    percent(near.in_words), percent(off.in_words))},
       near.as_used > right.as_used + 0.5 && off.as_used > right.as_used + 0.5 &&
           right.in_words > std::max(near.in_words, off.in_words)},
      {"influence_is_exactly_zero",
       {"With the right mask a later token has no influence at all, not a small one.",
        "mask 正确时，后面的 token 毫无影响，而不是影响很小。"},
       {fmt::format("Largest influence of a later token: {} with the right mask, {} off by one (up "
                    "to {} tokens ahead, one a layer), {} without.",
                    short_number(largest_of_future(right.influence)),
                    short_number(largest_of_future(near.influence)), reach(near.influence),
                    short_number(largest_of_future(off.influence))),
        fmt::format(
            "后面 token 的最大影响：正确 {}，差一位 {}（最远 {} 个 token，每层一个），关闭 {}。",
            short_number(largest_of_future(right.influence)),
            short_number(largest_of_future(near.influence)), reach(near.influence),
            short_number(largest_of_future(off.influence)))},
       largest_of_future(right.influence) == 0 && reach(near.influence) == 2 &&
           reach(off.influence) == kInfluenceTokens - 1}};
}

}  // namespace

Experiment run_causal(const ExperimentOptions& options) {
  const std::vector<CausalRow> rows = measure(options);
  Experiment experiment;
  experiment.name = "causal";
  experiment.section = 9;
  experiment.title = {"Does it see the future?", "它偷看未来了吗？"};
  experiment.explanation = {
      "A small byte model is trained on a text with the right causal mask, with one that is off by "
      "one, and with none. Three questions show "
      "a mask that leaks: is the loss too good? Is the model any good where the future is not "
      "there yet, as when it writes? And does changing "
      "a token move anything before it? The last one needs no training and no threshold: the "
      "answer must be exactly 0.",
      "在一段文字上训练一个小的字节模型，因果 mask 分别为正确、差一位、关闭。三个问题能揭穿泄漏的 "
      "mask：损失是不是好得不真实？没有未来可看时（例如写作时）模型还行"
      "不行？改动一个 token 会不会影响它前面的位置？最后一问无需训练、也无需阈值：答案必须恰好是 "
      "0。"};
  experiment.tables = {loss_table(rows), influence_table(rows)};
  experiment.charts.push_back(
      loss_chart("loss", {"Held-out loss, each with its own mask", "留出集损失，各用自己的 mask"},
                 rows, &CausalRow::variant));
  experiment.heat_maps.push_back(influence_maps(rows));
  experiment.effects = effects_of(rows);
  experiment.seen = {
      "A leaking mask gives a loss that is too good, text that is bad, and an influence of later "
      "tokens that is not 0.",
      "泄漏的 mask：损失好得不真实，写出的文字很差，后面的 token 有不为 0 的影响。"};
  report(options, "done", 1);
  return experiment;
}

}  // namespace qkv::lab
