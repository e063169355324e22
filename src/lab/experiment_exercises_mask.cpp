// Where a late mask, renormalised, stops being equal to one before the softmax.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "lab/experiment_exercises_parts.h"
#include "lab/hand_written.h"
#include "lab/text_style.h"

namespace qkv::lab {
namespace {

const double kRight = std::exp(1.0) / (1 + std::exp(1.0));  // of the second visible key

/// Two visible keys with logits 0 and 1 and a hidden one with `logit`.
struct LateCall {
  double query = 1;
  double key[3] = {0, 1, 0};
  double value[3] = {0, 0, 0};
  bool hides[3] = {false, false, true};

  explicit LateCall(double logit) : key{0, 1, logit} {}

  Tensor<double, 4> weights(MaskedBy masked_by, DType dtype) const {
    HandWritten call{.query = {&query, {1, 1, 1, 1}},
                     .key = {key, {1, 1, 3, 1}},
                     .value = {value, {1, 1, 3, 1}}};
    call.hides = TensorView<const bool, 4>(hides, {1, 1, 1, 3});
    call.masked_by = masked_by;
    call.dtype = dtype;
    return attend_by_hand(call).weights;
  }
};

struct LimitRow {
  DType dtype = DType::Float64;
  double logit = 0;
  double sum = 0;      ///< after the mask
  double divided = 0;  ///< weight of the key with logit 1, rows divided by their sums
  double right = 0;    ///< the same with the mask before the softmax

  double error() const { return std::fabs(divided - right) / right; }
};

LimitRow measure(DType dtype, double logit) {
  const LateCall call(logit);
  const Tensor<double, 4> late = call.weights(MaskedBy::Multiplying, dtype);
  return {dtype, logit, late(0, 0, 0, 0) + late(0, 0, 0, 1),
          call.weights(MaskedBy::Renormalizing, dtype)(0, 0, 0, 1),
          call.weights(MaskedBy::Filling, dtype)(0, 0, 0, 1)};
}

Table limit_table(const std::vector<LimitRow>& rows) {
  Table table{"late_limits",
              {"Two visible keys with logits 0 and 1, a hidden one with the logit below, masked "
               "after the softmax",
               "两个可见 key 的 logits 为 0 和 1，隐藏 key 的 logit 如下，在 softmax 之后屏蔽"},
              {{"dtype", {"dtype", "数据类型"}, {}},
               {"logit", {"hidden logit", "隐藏的 logit"}, {}},
               {"sum", {"row sum after the mask", "屏蔽后的行和"}, {}},
               {"divided", {"second weight, divided by the sum", "归一后第二个权重"}, {}},
               {"right", {"right: masked before", "正确值：前置 mask"}, {}}},
              {}};
  for (const LimitRow& row : rows) {
    table.rows.push_back({std::string(name_of(row.dtype)), Measured{row.logit, {}, {}},
                          Measured{row.sum, {}, {}}, Measured{row.divided, {}, {}},
                          Measured{row.right, {}, {}}});
  }
  return table;
}

constexpr Index kLargestLogit = 1000;

/// The smallest hidden logit, in steps of 1, at which what is left of the row is 0 and its division gives NaN; kLargestLogit where
/// none is.
Index first_failure(DType dtype) {
  Index logit = 0;
  while (logit < kLargestLogit && !std::isnan(measure(dtype, static_cast<double>(logit)).divided)) {
    ++logit;
  }
  return logit;
}

}  // namespace

void add_late_mask_limits(const ExperimentOptions& options, Experiment& experiment) {
  report(options, "late masks", 0.2);
  std::vector<LimitRow> rows;
  for (const DType dtype : {DType::Float64, DType::Float32, DType::Float16}) {
    for (const double logit : {0.0, 2.0, 10.0, 16.0, 30.0, 100.0, 120.0, 800.0})
      rows.push_back(measure(dtype, logit));
  }
  experiment.tables.push_back(limit_table(rows));
  const LimitRow& usual = rows[1];
  const bool below_one = std::ranges::all_of(rows, [](const LimitRow& row) { return row.sum < 1; });
  const Index half = first_failure(DType::Float16);
  const Index single = first_failure(DType::Float32);
  const Index full = first_failure(DType::Float64);
  experiment.effects.push_back(
      {"late_sums_below_one",
       {"2. Multiplied in after the softmax, a mask leaves sums below one; divided by them, the "
        "weights are those of a mask before it.",
        "2. softmax 之后再乘 mask，概率和小于 1；再除以这个和，就等价于前置 mask。"},
       {fmt::format("Hidden logit 2, float64: the row sums to {}; divided, it is off by {:.1e}.",
                    short_number(usual.sum), usual.error()),
        fmt::format("隐藏 logit 为 2、float64：行和 {}；归一后误差 {:.1e}。",
                    short_number(usual.sum), usual.error())},
       below_one && usual.error() < 1e-15});
  experiment.effects.push_back(
      {"renormalising_fails",
       {"Even that fails where the hidden logit is so large that the visible weights vanish: 0/0.",
        "若隐藏的 logit 大到让可见权重下溢为 0，连归一也失败：0/0。"},
       {fmt::format("NaN from a hidden logit of {} in float16, {} in float32, {} in float64; "
                    "before the softmax the mask is right for any.",
                    half, single, full),
        fmt::format("隐藏 logit 达到 {}（float16）、{}（float32）、{}（float64）时得到 NaN；前置 "
                    "mask 则始终正确。",
                    half, single, full)},
       half < single && single < full && full < kLargestLogit &&
           std::ranges::all_of(
               rows, [](const LimitRow& row) { return std::fabs(row.right - kRight) < 1e-3; })});
}

}  // namespace qkv::lab
