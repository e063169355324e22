// §9: the padding mask as [B,T,1,1] instead of [B,1,1,T].
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <limits>
#include <stdexcept>
#include <utility>

#include "lab/experiment_padding_tables.h"
#include "lab/experiment_padding_training.h"
#include "lab/experiment_runs.h"
#include "lab/text_style.h"

namespace qkv::lab {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kFinite = -1e9;
constexpr double kRounding = 1e-12;

std::vector<BroadcastRow> measure_broadcasts(std::uint64_t seed) {
  std::vector<BroadcastRow> rows;
  for (const BatchSizes sizes : {BatchSizes{4, 6}, BatchSizes{4, 4}, BatchSizes{1, 4}}) {
    const PaddedBatch batch = draw_padded(sizes, seed);
    for (const PaddingForm form : kPaddingForms) {
      BroadcastRow row{sizes, form, {}, {}, {}, true};
      try {
        const HandWrittenResults results = attend_padded(batch, form, -kInfinity);
        row.weights = results.weights.shape();
        row.context = results.context.shape();
      } catch (const std::invalid_argument& error) {
        row.error = error.what();
      }
      const Tensor<bool, 4> flags = hides(batch, form);
      try {
        Mask::boolean(flags.view(), Polarity::Drop)
            .bind("attention", {2, sizes.heads, sizes.tokens, sizes.tokens});
      } catch (const std::invalid_argument&) {
        row.library_takes_it = false;
      }
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

std::vector<OutcomeRow> measure_outcomes(const PaddedBatch& batch) {
  std::vector<OutcomeRow> rows;
  for (const PaddingForm form : kPaddingForms) {
    for (const double fill : {-kInfinity, kFinite})
      rows.push_back({form, fill, outcome(batch, form, fill)});
  }
  return rows;
}

std::vector<SideRow> measure_sides(std::uint64_t seed) {
  std::vector<SideRow> rows;
  for (const bool causal : {false, true}) {
    for (const bool left : {false, true}) {
      const PaddedBatch batch = draw_padded({.heads = 4, .tokens = 4, .padded_left = left}, seed);
      rows.push_back({causal, left, error_without_mask(batch, causal),
                      outcome(batch, PaddingForm::Head, kFinite, causal).error,
                      outcome(batch, PaddingForm::Query, kFinite, causal).error});
    }
  }
  return rows;
}

HeatMaps weight_maps(const PaddedBatch& batch) {
  HeatMaps maps;
  maps.key = "weights";
  maps.title = {"Weights with the padding mask on each axis; sample 0 has two valid tokens",
                "padding mask 放在各轴时的权重；样本 0 只有两个有效 token"};
  for (const PaddingForm form : kPaddingForms) {
    const Tensor<bool, 4> flags = hides(batch, form);
    for (const double fill : {-kInfinity, kFinite}) {
      maps.variants.push_back(heat_map_variant(with_fill(form_name(form), fill),
                                               attend_padded(batch, form, fill).weights.view(),
                                               Mask::boolean(flags.view(), Polarity::Drop)));
    }
  }
  maps.predict = {
      "Tokens 2 and 3 of sample 0 are padding. With the mask as [B,T,1,1] and T = H = 4, which "
      "cells of which head are masked?",
      "样本 0 的 token 2、3 是补齐。mask 写成 [B,T,1,1] 且 T = H = 4 时，哪些 head "
      "的哪些格子会被屏蔽？"};
  maps.reveal = {
      "Heads 2 and 3 lose every cell: the tokens' flags landed on the head axis. Heads 0 and 1 "
      "lose none and attend to the padding.",
      "head 2 和 3 的所有格子都被屏蔽：token 的标志落在了 head 轴上。head 0 和 1 "
      "一个格子也没屏蔽，照样关注补齐。"};
  maps.start = {.head = 2, .shown = 1, .beside = 3};  // finite fills: right, and on the head axis
  return maps;
}

HeatMaps grown_maps(std::uint64_t seed) {
  const PaddedBatch batch = draw_padded({.heads = 1, .tokens = 4}, seed);
  HeatMaps maps;
  maps.key = "grown";
  maps.title = {"One head, mask [B,T,1,1]: four heads that nobody asked for",
                "只有一个 head，mask 为 [B,T,1,1]：凭空多出四个 head"};
  for (const double fill : {-kInfinity, kFinite}) {
    maps.variants.push_back(
        heat_map_variant(with_fill(form_name(PaddingForm::Head), fill),
                         attend_padded(batch, PaddingForm::Head, fill).weights.view()));
  }
  maps.start.head = 3;
  return maps;
}

const BroadcastRow& find(const std::vector<BroadcastRow>& rows, const BatchSizes& sizes) {
  for (const BroadcastRow& row : rows) {
    if (row.form == PaddingForm::Head && row.sizes.heads == sizes.heads &&
        row.sizes.tokens == sizes.tokens)
      return row;
  }
  throw std::logic_error("lab: padding: no such sizes");
}

std::vector<Effect> broadcast_effects(const std::vector<BroadcastRow>& rows) {
  const BroadcastRow& error = find(rows, {4, 6});
  const BroadcastRow& silent = find(rows, {4, 4});
  const BroadcastRow& grown = find(rows, {1, 4});
  const auto shape_of = [](const std::optional<Extents<4>>& shape) {
    return shape ? to_string(*shape) : std::string("–");
  };
  return {
      {"error_where_t_is_not_h",
       {"With T ≠ H the wrong mask is an error.", "T ≠ H 时，写错的 mask 会报错。"},
       {error.error, error.error},
       !error.weights},
      {"silent_where_t_is_h",
       {"With T = H it broadcasts silently.", "T = H 时，它悄悄地广播成功。"},
       {"Weights " + shape_of(silent.weights) + ", as they should be.",
        "权重形状 " + shape_of(silent.weights) + "，看上去完全正常。"},
       silent.weights == Extents<4>{2, 4, 4, 4}},
      {"grows_where_one_head",
       {"With one head the scores grow to [B,T,T,T].", "只有一个 head 时，分数膨胀成 [B,T,T,T]。"},
       {fmt::format("Weights {} in place of [2, 1, 4, 4], context {}: merging the heads fails, "
                    "averaging them does not. The library "
                    "refuses such a mask.",
                    shape_of(grown.weights), shape_of(grown.context)),
        fmt::format("权重成了 {}，而非 [2, 1, 4, 4]，输出成了 {}：合并 head 会报错，对 head "
                    "取平均却不会。本库拒绝这样的 mask。",
                    shape_of(grown.weights), shape_of(grown.context))},
       grown.weights == Extents<4>{2, 4, 4, 4} && !grown.library_takes_it}};
}

std::vector<Effect> outcome_effects(const PaddedBatch& batch, const std::vector<OutcomeRow>& rows) {
  const HiddenCells right = hidden_cells(batch, PaddingForm::Key);
  const HiddenCells cells = hidden_cells(batch, PaddingForm::Head);
  const PaddingOutcome& infinite = rows[2].outcome;
  const PaddingOutcome& finite = rows[3].outcome;
  const PaddingOutcome& on_query = rows[5].outcome;
  return {
      {"head_axis_hides_heads",
       {"On the head axis whole heads are hidden, and the others see the padding.",
        "放在 head 轴上时，整个整个的 head 被屏蔽，其余 head 能看见补齐。"},
       {fmt::format("Heads {} lose all their cells; {} cells of padding stay in sight. As many "
                    "cells are hidden as should be: {} and {}.",
                    fmt::join(cells.blind_heads, " and "), cells.padding_seen, cells.hidden,
                    right.hidden),
        fmt::format("head {} 的格子全部被屏蔽；补齐仍有 {} "
                    "个格子可见。屏蔽的格子总数与正确写法一样：{} 与 {}。",
                    fmt::join(cells.blind_heads, "、"), cells.padding_seen, cells.hidden,
                    right.hidden)},
       cells.blind_heads == std::vector<Index>{2, 3} && cells.padding_seen == 16 &&
           cells.hidden == right.hidden},
      {"infinity_makes_nan",
       {"With −∞ the hidden heads are NaN: that is noticed.",
        "用 −∞ 时，被屏蔽的 head 全是 NaN：会被发现。"},
       {fmt::format("{} of the context of valid tokens is NaN.", percent(infinite.nan_part)),
        fmt::format("有效 token 的输出有 {} 是 NaN。", percent(infinite.nan_part))},
       infinite.nan_part == 0.5},
      {"finite_fill_hides_the_bug",
       {"With a finite fill nothing looks wrong: the shape is right, rows sum to 1, everything is "
        "finite, a sample without padding is right.",
        "用有限的填充值时，一切看起来都正常：形状正确、行和为 1、没有 "
        "NaN，没有补齐的样本结果也对。"},
       {fmt::format("{} of the rows sum to 1, {} is NaN, the full sample is off by {}; yet padding "
                    "gets {} of the weight and the context is off by {}.",
                    percent(finite.sums_to_one), percent(finite.nan_part),
                    short_number(finite.full_sample_error), percent(finite.padding_weight),
                    percent(finite.error)),
        fmt::format(
            "{} 的行和为 1，NaN 占 {}，无补齐样本误差 {}；但补齐拿走了 {} 的权重，输出误差 {}。",
            percent(finite.sums_to_one), percent(finite.nan_part),
            short_number(finite.full_sample_error), percent(finite.padding_weight),
            percent(finite.error))},
       finite.right_shape && finite.sums_to_one == 1 && finite.nan_part == 0 &&
           finite.full_sample_error < kRounding && finite.padding_weight > 0.2 &&
           finite.error > 0.1},
      {"query_axis_sees_padding",
       {"On the query axis the rows of padding are hidden, which nobody reads, and valid tokens "
        "see all of it.",
        "放在 query 轴上时，被屏蔽的是没人读的补齐行，有效 token 反而看得见全部补齐。"},
       {fmt::format("Padding gets {} of the valid tokens' weight; no NaN there even with −∞, and "
                    "the context is off by {}.",
                    percent(on_query.padding_weight), percent(on_query.error)),
        fmt::format("补齐拿走有效 token {} 的权重；即使用 −∞ 这些行也没有 NaN，输出误差 {}。",
                    percent(on_query.padding_weight), percent(on_query.error))},
       on_query.error > 0.1 && on_query.padding_weight > 0.2 && rows[4].outcome.nan_part == 0},
      {"check_names_it",
       {"Held against the oracle, the bug has a name.", "与参考实现对照，就能说出错误的名字。"},
       {fmt::format(
            "qkv check: {} on the head axis, {} on the query axis, nothing on the key axis.",
            finite.diagnosis, on_query.diagnosis),
        fmt::format("qkv check：head 轴为 {}，query 轴为 {}，key 轴无误。", finite.diagnosis,
                    on_query.diagnosis)},
       finite.diagnosis == "M13" && on_query.diagnosis == "M2" &&
           rows[1].outcome.diagnosis.empty()}};
}

Effect side_effect(const std::vector<SideRow>& rows) {
  const SideRow& causal_right = rows[2];
  const SideRow& causal_left = rows[3];
  return {"causal_hides_the_bug",
          {"Under a causal mask padding on the right is in the valid tokens' future: leaving the "
           "mask out, or putting it on the query axis, "
           "changes none of them. On the left it does.",
           "因果 mask 下，右侧的补齐都在有效 token 的未来：漏掉 padding mask 或放到 query "
           "轴上，都不影响它们；左侧补齐则会。"},
          {fmt::format("Causal, padding on the right: error {} without the mask, {} on the query "
                       "axis; on the left {} and {}.",
                       short_number(causal_right.missing), short_number(causal_right.query),
                       short_number(causal_left.missing), short_number(causal_left.query)),
           fmt::format(
               "因果、右侧补齐：不加 mask 误差 {}，放到 query 轴误差 {}；左侧补齐分别为 {} 和 {}。",
               short_number(causal_right.missing), short_number(causal_right.query),
               short_number(causal_left.missing), short_number(causal_left.query))},
          causal_right.missing == 0 && causal_right.query < kRounding &&
              causal_left.missing > 0.1 && causal_left.query > 0.1};
}

}  // namespace

Experiment run_padding(const ExperimentOptions& options) {
  report(options, "shapes", 0);
  const std::vector<BroadcastRow> broadcasts = measure_broadcasts(options.seed);
  const PaddedBatch batch = draw_padded({.heads = 4, .tokens = 4}, options.seed);
  report(options, "the mask on each axis", 0.2);
  const std::vector<OutcomeRow> outcomes = measure_outcomes(batch);
  report(options, "padding on the left and on the right", 0.4);
  const std::vector<SideRow> sides = measure_sides(options.seed);

  Experiment experiment;
  experiment.name = "padding";
  experiment.section = 9;
  experiment.title = {"The padding mask on the wrong axis", "padding mask 放错了轴"};
  experiment.explanation = {
      "A batch of two samples: the first has two valid tokens and is padded to the length of the "
      "second. The flags [B,T] belong on the "
      "key axis of the scores [B,H,T,T], as [B,1,1,T]. Written as [B,T,1,1] they land on the head "
      "axis, as [B,1,T,1] on the query axis. "
      "Whether anybody notices depends on the sizes, on the number that hidden scores are filled "
      "with, and on where the padding is.\n"
      "Scores are filled by hand, as PyTorch's masked_fill does, and held against the library's "
      "mask. `qkv check` is shown the results "
      "and asked what is wrong. Last, a model is trained with each mask.",
      "一批两个样本：第一个只有两个有效 token，被补齐到与第二个一样长。标志 [B,T] 应放在分数 "
      "[B,H,T,T] 的 key 轴上，即 [B,1,1,T]。写成 "
      "[B,T,1,1] 就落到 head 轴，写成 [B,1,T,1] 则落到 query "
      "轴。能不能被发现，取决于各个尺寸、填充用的数，以及补齐在哪一侧。\n"
      "这里像 PyTorch 的 masked_fill 那样手写填充，与本库的 mask 对照，再把结果交给 `qkv "
      "check`，问它错在哪里。最后用每种 mask 各训练一个模型。"};
  experiment.tables = {broadcast_table(broadcasts), cell_table(batch), outcome_table(outcomes),
                       side_table(sides)};
  experiment.heat_maps.push_back(weight_maps(batch));
  experiment.heat_maps.push_back(grown_maps(options.seed));
  experiment.effects = broadcast_effects(broadcasts);
  for (Effect& effect : outcome_effects(batch, outcomes))
    experiment.effects.push_back(std::move(effect));
  experiment.effects.push_back(side_effect(sides));
  add_padding_training(options, experiment);
  experiment.seen = {
      "With T = H the wrong axis hides whole heads and lets the others see padding; with a finite "
      "fill every usual check passes, and only "
      "comparing numbers on a padded sample shows it.",
      "T = H 时放错轴会屏蔽整个 head，而其余 head "
      "看得见补齐；用有限填充时常规检查全部通过，只有拿带补齐的样本对数字才能发现。"};
  report(options, "done", 1);
  return experiment;
}

}  // namespace qkv::lab
