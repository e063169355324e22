#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lab/experiment_implementations_parts.h"
#include "qkv/reference.h"

namespace qkv::lab {
namespace {

constexpr Extents<4> kShape = {2, 4, 96, 32};
constexpr double kFloat64 = 1e-12;  // as `qkv align` and `qkv trace` have them
constexpr double kFloat32 = 1e-5;

struct OracleRow {
  DType dtype = DType::Float64;
  double forward = 0;   ///< relative to the oracle's largest entry
  double gradient = 0;  ///< the worst of query, key and value
};

template <class T>
Tensor<double, 4> widened(const Tensor<T, 4>& tensor) {
  Tensor<double, 4> result(tensor.shape());
  std::ranges::copy(tensor.elements(), result.elements().begin());
  return result;
}

/// Both read the same numbers, those that T holds.
template <class T>
OracleRow measure(const ExperimentOptions& options) {
  NormalNumbers numbers(options.seed);
  const auto query = numbers.tensor<T, 4>(kShape);
  const auto key = numbers.tensor<T, 4>(kShape);
  const auto value = numbers.tensor<T, 4>(kShape);
  const auto context_gradient = numbers.tensor<T, 4>(kShape);
  const AttentionInputs<T> inputs{
      .query = query.view(), .key = key.view(), .value = value.view(), .mask = Mask::causal()};

  Tensor<T, 4> context(kShape);
  Tensor<T, 3> log_sum_exp({kShape[0], kShape[1], kShape[2]});
  Tensor<T, 4> ours[3] = {Tensor<T, 4>(kShape), Tensor<T, 4>(kShape), Tensor<T, 4>(kShape)};
  engine::forward(inputs, {.context = context.view(), .log_sum_exp = log_sum_exp.view()},
                  engine_options(options));
  engine::backward(
      inputs,
      {.context = std::as_const(context).view(), .log_sum_exp = std::as_const(log_sum_exp).view()},
      {.context = context_gradient.view()},
      {.query = ours[0].view(), .key = ours[1].view(), .value = ours[2].view()},
      engine_options(options));

  Tensor<double, 4> expected(kShape);
  Tensor<double, 4> gradients[3] = {expected, expected, expected};
  reference::forward(inputs, {.context = expected.view()});
  const Tensor<double, 4> wide_gradient = widened(context_gradient);
  reference::backward(
      inputs, {.context = wide_gradient.view()},
      {.query = gradients[0].view(), .key = gradients[1].view(), .value = gradients[2].view()});
  OracleRow row{
      dtype_of<T>,
      relative_difference(widened(context).elements(), std::as_const(expected).elements()), 0};
  for (std::size_t i = 0; i < 3; ++i) {
    row.gradient = std::max(
        row.gradient,
        relative_difference(widened(ours[i]).elements(), std::as_const(gradients[i]).elements()));
  }
  return row;
}

}  // namespace

void add_oracle_differences(const ExperimentOptions& options, Experiment& experiment) {
  report(options, "the engine against the oracle", 0);
  const std::vector<OracleRow> rows = {measure<double>(options), measure<float>(options)};
  Table table{
      "oracle",
      {fmt::format("The engine against the oracle, causal {}, relative to the largest entry",
                   to_string(kShape)),
       fmt::format("引擎与参考实现之差，因果 {}，相对最大元素", to_string(kShape))},
      {{"dtype", {"dtype of the engine", "引擎的数据类型"}, {}},
       {"forward", {"forward difference", "前向之差"}, {}},
       {"gradient", {"gradient difference", "梯度之差"}, {}}},
      {}};
  for (const OracleRow& row : rows) {
    table.rows.push_back({std::string(name_of(row.dtype)), Measured{row.forward, {}, {}},
                          Measured{row.gradient, {}, {}}});
  }
  experiment.tables.push_back(std::move(table));
  experiment.effects.push_back(
      {"engine_is_the_oracle",
       {"The engine computes what the formula says, forward and backward.",
        "引擎的前向与反向都与公式一致。"},
       {fmt::format("float64: {:.1e} and {:.1e}; float32: {:.1e} and {:.1e}, of the largest entry.",
                    rows[0].forward, rows[0].gradient, rows[1].forward, rows[1].gradient),
        fmt::format("相对最大元素，float64：{:.1e} 与 {:.1e}；float32：{:.1e} 与 {:.1e}。",
                    rows[0].forward, rows[0].gradient, rows[1].forward, rows[1].gradient)},
       rows[0].forward < kFloat64 && rows[0].gradient < kFloat64 && rows[1].forward < kFloat32 &&
           rows[1].gradient < kFloat32});
}

}  // namespace qkv::lab
