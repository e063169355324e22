#include "lab/experiment_mask_fills.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "lab/experiment_mask_parts.h"
#include "lab/text_style.h"

namespace qkv::lab {
namespace {

Table fill_table(const std::vector<FillRow>& rows) {
  Table table{"fills",
              {"The largest weight that a hidden key gets (0 is right)",
               "隐藏的 key 得到的最大权重（应为 0）"},
              {{"dtype", {"dtype", "数据类型"}, {}},
               {"fill", {"hidden scores become", "被屏蔽的分数改为"}, {}},
               {"stored", {"stored as", "实际存成"}, {}},
               {"usual", {"rows that see something", "看得见某些 key 的行"}, {}},
               {"blind", {"rows that see nothing", "什么都看不见的行"}, {}},
               {"two_masks",
                {"rows that see nothing, causal and padding added",
                 "什么都看不见的行，因果与 padding 两个 mask 相加"},
                {}},
               {"far_below", {"visible logits at -20,000", "可见 logits 约为 -20,000"}, {}},
               {"garbage",
                {"NaN in a hidden value reaches the output", "隐藏位置 value 中的 NaN 进入输出"},
                {}}},
              {}};
  for (const FillRow& row : rows) {
    const auto number = [](double value) { return Cell(Measured{value, {}, {}}); };
    table.rows.push_back(
        {std::string(name_of(row.dtype)),
         row.engine ? Cell(Text{"nothing: the library's mask", "不改：本库的 mask"})
                    : Cell(row.fill),
         row.engine ? Cell(std::string("–")) : Cell(short_number(row.stored)),
         number(row.result.one_mask.seeing), number(row.result.one_mask.blind),
         number(row.result.two_masks.blind), number(row.result.far_below.seeing),
         row.result.spreads_garbage ? Cell(Text{"yes", "是"}) : Cell(Text{"no", "否"})});
  }
  return table;
}

template <class Condition>
bool every(const std::vector<FillRow>& rows, bool engine, Condition condition) {
  return std::all_of(rows.begin(), rows.end(),
                     [&](const FillRow& row) { return row.engine != engine || condition(row); });
}

std::vector<Effect> fill_effects(const std::vector<FillRow>& rows) {
  const bool ours = every(rows, true, [](const FillRow& row) {
    const FillResult& result = row.result;
    return result.one_mask.seeing == 0 && result.one_mask.blind == 0 &&
           result.far_below.seeing == 0 && !result.spreads_garbage;
  });
  const bool usual =
      every(rows, false, [](const FillRow& row) { return row.result.one_mask.seeing == 0; });
  const bool blind = every(rows, false, [](const FillRow& row) {
    const double leak = row.result.one_mask.blind;
    return std::isinf(row.stored) ? std::isnan(leak) : leak == 1.0 / kFillTokens;
  });
  const bool garbage =
      every(rows, false, [](const FillRow& row) { return row.result.spreads_garbage; });
  const auto find = [&](DType dtype, const std::string& fill) -> const FillRow& {
    return *std::find_if(rows.begin(), rows.end(), [&](const FillRow& row) {
      return row.dtype == dtype && row.fill.starts_with(fill);
    });
  };
  const FillRow& half = find(DType::Float16, "-1e9");
  const FillRow& single = find(DType::Float32, "lowest");
  const FillRow& loser = find(DType::Float32, "-1e4");
  return {
      {"library_hides_exactly",
       {"A mask that is no number hides exactly.", "不是数值的 mask，屏蔽得毫无泄漏。"},
       {fmt::format("The library: weight {} for hidden keys in every dtype and row, and NaN behind "
                    "the mask stays there.",
                    short_number(rows.back().result.one_mask.blind)),
        fmt::format("本库：各种数据类型、各行中隐藏 key 的权重都是 {}，mask 后面的 NaN 不会泄漏。",
                    short_number(rows.back().result.one_mask.blind))},
       ours},
      {"finite_fill_is_enough_in_usual_rows",
       {"At usual logits any of the fills does in a row that sees something: that is why nobody "
        "notices.",
        "logits 大小正常时，在看得见某些 key 的行里，哪种填充值都管用，所以没人察觉问题。"},
       {fmt::format("The largest weight of a hidden key over all dtypes and fills: {}.",
                    short_number(single.result.one_mask.seeing)),
        fmt::format("所有数据类型与填充值中，隐藏 key 的最大权重：{}。",
                    short_number(single.result.one_mask.seeing))},
       usual},
      {"blind_rows_break",
       {"In a row that sees nothing, −∞ gives NaN and a finite number gives every hidden key the "
        "same weight.",
        "在什么都看不见的行里，−∞ 得到 NaN，有限数则让所有隐藏的 key 平分权重。"},
       {fmt::format("float32: {} with −∞, {} = 1/{} with {}.",
                    short_number(find(DType::Float32, "-∞").result.one_mask.blind),
                    short_number(single.result.one_mask.blind), kFillTokens,
                    short_number(single.stored)),
        fmt::format("float32：用 −∞ 得 {}，用 {} 得 {} = 1/{}。",
                    short_number(find(DType::Float32, "-∞").result.one_mask.blind),
                    short_number(single.stored), short_number(single.result.one_mask.blind),
                    kFillTokens)},
       blind},
      {"fills_overflow",
       {"\"A very negative number\" may turn out to be −∞: −1e9 in float16, and the sum of two "
        "masks "
        "of the lowest number where both hide.",
        "“一个很负的数”可能变成 −∞：float16 里的 −1e9，以及两个最低值 mask 都屏蔽之处的和。"},
       {fmt::format(
            "−1e9 is stored as {} in float16. Two masks of {} in float32: in a row that sees "
            "nothing, the keys that only one of them hides share the weight, {} each at most "
            "in place of {}.",
            short_number(half.stored), short_number(single.stored),
            short_number(single.result.two_masks.blind),
            short_number(single.result.one_mask.blind)),
        fmt::format("float16 中 −1e9 存成 {}。float32 中两个 {} 的 mask "
                    "相加：什么都看不见的行里，只被其中一个屏蔽的 "
                    "key 平分权重，最多各得 {}，而不是 {}。",
                    short_number(half.stored), short_number(single.stored),
                    short_number(single.result.two_masks.blind),
                    short_number(single.result.one_mask.blind))},
       std::isinf(half.stored) && std::isnan(half.result.one_mask.blind) &&
           single.result.two_masks.blind > single.result.one_mask.blind},
      {"weak_fill_loses",
       {"A fill that is not below every visible logit hands the row to the hidden keys.",
        "填充值若高于可见的 logits，整行权重就会交给隐藏的 key。"},
       {fmt::format("Visible logits at −20,000, fill −1e4, float32: a hidden key gets weight {}.",
                    short_number(loser.result.far_below.seeing)),
        fmt::format("可见 logits 约 −20,000、填充 −1e4、float32：某个隐藏 key 得到权重 {}。",
                    short_number(loser.result.far_below.seeing))},
       loser.result.far_below.seeing > 0.1},
      {"zero_weight_does_not_stop_nan",
       {"A weight of 0 does not hide a value that is NaN: 0·NaN is NaN.",
        "权重为 0 挡不住 NaN：0·NaN 还是 NaN。"},
       {"By hand, NaN in the padding's values reaches every row, whatever the fill; in the library "
        "none.",
        "手写实现里，无论填充什么，padding 的 value 中的 NaN 都会进入各行输出；本库则不会。"},
       garbage && ours}};
}

}  // namespace

void add_fills(const ExperimentOptions& options, Experiment& experiment) {
  report(options, "fills in four dtypes", 0);
  const std::vector<FillRow> rows = measure_fills(options.seed, engine_options(options));
  experiment.tables.push_back(fill_table(rows));
  for (Effect& effect : fill_effects(rows)) experiment.effects.push_back(std::move(effect));
}

}  // namespace qkv::lab
