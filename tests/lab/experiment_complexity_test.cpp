// Mutations that each made a test below fail: block_flops with half of P·V: CostsAsCountedByHand; train_materialized without the row sums of
// the softmax's derivative: TrainingAgreesWithTheOracle; a cache that gets the keys as values (lab/experiment_complexity_decode.cpp):
// IsWellFormedAndHolds.
#include <gtest/gtest.h>

#include "lab/experiment_complexity_parts.h"
#include "lab/experiment_runs.h"
#include "lab/materialized_attention.h"
#include "qkv/reference.h"
#include "tests/lab/experiment_results.h"

namespace qkv {
namespace {

using test::named;
using test::number;

const lab::Experiment& complexity() {
  static const lab::Experiment experiment = lab::run_complexity(test::quick_options());
  return experiment;
}

// What the clock says is not asserted.
TEST(ComplexityExperiment, IsWellFormedAndHolds) {
  test::expect_well_formed(complexity());
  test::expect_effects(complexity(),
                       {"linear_layers_dominate", "probabilities_fill_memory", "tiles_are_exact",
                        "cache_is_exact", "cache_saves_and_grows"});
}

// T = 3, D = 4, H = 2 by hand: a product of [3,4] and [4,12] is 3·4·12 multiply-adds, and so on.
TEST(ComplexityExperiment, CostsAsCountedByHand) {
  const lab::BlockCosts flops = lab::block_flops({3, 4, 2});
  EXPECT_EQ(flops.qkv, 2 * 3 * 4 * 12);
  EXPECT_EQ(flops.scores, 2 * (2 * 3 * 3 * 2));  // 2 heads of width 2
  EXPECT_EQ(flops.softmax, 5 * 2 * 3 * 3);
  EXPECT_EQ(flops.aggregation, flops.scores);
  EXPECT_EQ(flops.output, 2 * 3 * 4 * 4);
  EXPECT_EQ(flops.ffn, 2 * (2 * 3 * 4 * 16));
  const lab::BlockCosts bytes = lab::block_bytes({3, 4, 2});
  EXPECT_EQ(bytes.qkv, 4 * (12 + 48 + 36));
  EXPECT_EQ(bytes.scores, 4 * (12 + 12 + 18));
  EXPECT_EQ(bytes.softmax, 4 * (18 + 18));
  EXPECT_EQ(bytes.aggregation, 4 * (18 + 12 + 12));
  EXPECT_EQ(bytes.output, 4 * (12 + 16 + 12));
  EXPECT_EQ(bytes.ffn, 4 * ((12 + 64 + 48) + (48 + 64 + 12)));
}

TEST(ComplexityExperiment, Crossovers) {
  const lab::Table& table = named(complexity().tables, "crossovers");
  for (std::size_t row = 0; row < table.rows.size(); ++row) {
    const double width = number(table, row, "model_width");
    EXPECT_EQ(number(table, row, "with_qkv"), 1.5 * width);
    EXPECT_EQ(number(table, row, "with_projections"), 2 * width);
    EXPECT_EQ(number(table, row, "with_all"), 6 * width);
  }
}

TEST(ComplexityExperiment, TrainingAgreesWithTheOracle) {
  lab::NormalNumbers numbers(5);
  const Extents<4> shape = {2, 2, 37, 8};
  const lab::TrainingInputs inputs{numbers.tensor<float, 4>(shape), numbers.tensor<float, 4>(shape),
                                   numbers.tensor<float, 4>(shape),
                                   numbers.tensor<float, 4>(shape)};
  const AttentionInputs<float> views{
      .query = inputs.query.view(), .key = inputs.key.view(), .value = inputs.value.view()};
  Tensor<double, 4> context(shape);
  reference::forward(views, {.context = context.view()});
  Tensor<double, 4> output_gradient(shape);
  std::ranges::copy(inputs.context_gradient.elements(), output_gradient.elements().begin());
  Tensor<double, 4> query(shape);
  Tensor<double, 4> key(shape);
  Tensor<double, 4> value(shape);
  reference::backward(views, {.context = std::as_const(output_gradient).view()},
                      {.query = query.view(), .key = key.view(), .value = value.view()});
  const auto expect_near = [](const Tensor<float, 4>& got, const Tensor<double, 4>& expected) {
    const Tensor<double, 4> widened = [&] {
      Tensor<double, 4> copy(got.shape());
      std::ranges::copy(got.elements(), copy.elements().begin());
      return copy;
    }();
    EXPECT_LT(lab::relative_difference(widened.elements(), expected.elements()), 1e-5);
  };
  for (const lab::TrainingResults& results :
       {lab::train_materialized(inputs, {}), lab::train_tiled(inputs, {})}) {
    expect_near(results.context, context);
    expect_near(results.query_gradient, query);
    expect_near(results.key_gradient, key);
    expect_near(results.value_gradient, value);
  }
}

TEST(ComplexityExperiment, PartOfTheProbabilities) {
  const lab::Table& table = named(complexity().tables, "training");
  for (std::size_t row = 0; row < table.rows.size(); ++row) {
    const double tokens = number(table, row, "tokens");
    EXPECT_NEAR(number(table, row, "part"), tokens / (tokens + 4 * 64),
                1e-12);  // H·T² of H·T² + 4·T·H·64
  }
}

}  // namespace
}  // namespace qkv
