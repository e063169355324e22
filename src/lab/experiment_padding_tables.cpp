#include "lab/experiment_padding_tables.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <utility>

namespace qkv::lab {

Text form_name(PaddingForm form) {
  switch (form) {
    case PaddingForm::Head:
      return {"on the head axis, [B,T,1,1]", "放在 head 轴，[B,T,1,1]"};
    case PaddingForm::Query:
      return {"on the query axis, [B,1,T,1]", "放在 query 轴，[B,1,T,1]"};
    default:
      return {"on the key axis, [B,1,1,T] (right)", "放在 key 轴，[B,1,1,T]（正确）"};
  }
}

Text with_fill(const Text& name, double fill) {
  const char* filled = std::isinf(fill) ? "−∞" : "−1e9";
  return {name.english + ", " + filled, name.chinese + "，" + filled};
}

Table broadcast_table(const std::vector<BroadcastRow>& rows) {
  Table table{"broadcast",
              {"What a padding mask broadcasts to", "padding mask 广播之后的形状"},
              {{"heads", same("H"), {}},
               {"tokens", same("T"), {}},
               {"mask", {"mask", "mask"}, {}},
               {"weights", {"weights by hand", "手写实现得到的权重"}, {}},
               {"library", {"the library takes it", "本库是否接受"}, {}}},
              {}};
  for (const BroadcastRow& row : rows) {
    const Extents<4> scores = {2, row.sizes.heads, row.sizes.tokens, row.sizes.tokens};
    Cell became = Text{"error: " + row.error, "报错：" + row.error};
    if (row.weights) {
      const std::string shape = to_string(*row.weights);
      became = *row.weights == scores
                   ? Cell(shape)
                   : Cell(Text{shape + ", grown from " + to_string(scores),
                               shape + "，由 " + to_string(scores) + " 膨胀而来"});
    }
    table.rows.push_back(
        {row.sizes.heads, row.sizes.tokens, form_name(row.form), std::move(became),
         row.library_takes_it ? Cell(Text{"yes", "是"}) : Cell(Text{"no, an error", "否，报错"})});
  }
  return table;
}

Table cell_table(const PaddedBatch& batch) {
  Table table{"cells",
              {"What each form hides in the sample with two valid tokens, T = H = 4",
               "只有两个有效 token 的样本里，各写法屏蔽了什么（T = H = 4）"},
              {{"mask", {"mask", "mask"}, {}},
               {"hidden", {"cells hidden", "屏蔽的格子数"}, {}},
               {"valid_hidden", {"of valid keys", "其中有效 key 的格子"}, {}},
               {"padding_seen", {"cells of padding still seen", "仍可见的补齐格子"}, {}},
               {"heads", {"heads hidden whole", "整个被屏蔽的 head"}, {}},
               {"rows", {"queries hidden in every head", "在所有 head 中都被屏蔽的 query"}, {}}},
              {}};
  for (const PaddingForm form : kPaddingForms) {
    const HiddenCells cells = hidden_cells(batch, form);
    const auto list = [](const std::vector<Index>& numbers) {
      return numbers.empty() ? std::string("–") : fmt::format("{}", fmt::join(numbers, ", "));
    };
    table.rows.push_back({form_name(form), cells.hidden, cells.valid_hidden, cells.padding_seen,
                          list(cells.blind_heads), list(cells.blind_rows)});
  }
  return table;
}

Table outcome_table(const std::vector<OutcomeRow>& rows) {
  Table table{
      "outcome",
      {"What comes out in rows of valid tokens, and who would notice (T = H = 4)",
       "有效 token 各行的结果，以及谁能察觉（T = H = 4）"},
      {{"mask", {"mask", "mask"}, {}},
       {"shape", {"shape right", "形状正确"}, {}},
       {"nan", {"part NaN", "NaN 比例"}, {}},
       {"sums", {"part of rows that sum to 1", "行和为 1 的比例"}, {}},
       {"padding_weight", {"mean weight of the padding", "补齐得到的平均权重"}, {}},
       {"error", {"error of the context", "输出误差"}, {"of its largest entry", "相对最大元素"}},
       {"full_error", {"error of the sample without padding", "无补齐样本的误差"}, {}},
       {"diagnosis", {"named by qkv check", "qkv check 的诊断"}, {}}},
      {}};
  for (const OutcomeRow& row : rows) {
    const auto number = [](double value) { return Cell(Measured{value, {}, {}}); };
    const PaddingOutcome& one = row.outcome;
    table.rows.push_back(
        {with_fill(form_name(row.form), row.fill),
         one.right_shape ? Cell(Text{"yes", "是"}) : Cell(Text{"no", "否"}), number(one.nan_part),
         number(one.sums_to_one), number(one.padding_weight), number(one.error),
         number(one.full_sample_error),
         one.diagnosis.empty() ? Cell(Text{"nothing wrong", "无误"}) : Cell(one.diagnosis)});
  }
  return table;
}

Table side_table(const std::vector<SideRow>& rows) {
  Table table{"sides",
              {"Error of the valid tokens' rows, by the side of the padding",
               "补齐在左或在右时，有效 token 各行的误差"},
              {{"rule", {"attention", "注意力"}, {}},
               {"side", {"padding", "补齐"}, {}},
               {"missing", {"no padding mask", "不加 padding mask"}, {}},
               {"head", {"[B,T,1,1], −1e9", "[B,T,1,1]，−1e9"}, {}},
               {"query", {"[B,1,T,1], −1e9", "[B,1,T,1]，−1e9"}, {}}},
              {}};
  for (const SideRow& row : rows) {
    const auto number = [](double value) { return Measured{value, {}, {}}; };
    table.rows.push_back({row.causal ? Text{"causal", "因果"} : Text{"both ways", "双向"},
                          row.left ? Text{"on the left", "在左"} : Text{"on the right", "在右"},
                          number(row.missing), number(row.head), number(row.query)});
  }
  return table;
}

}  // namespace qkv::lab
