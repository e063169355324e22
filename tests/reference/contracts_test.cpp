// What the oracle promises beside its values: empty rows, isolation of hidden garbage, reach of visible
// garbage, storage types, strides, sizes of zero, and errors.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "tests/reference/run.h"

namespace qkv {
namespace {

using cases::AttentionCase;
using cases::CaseData;
using cases::Feature;
using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

constexpr cases::CaseShape kShape{.batch = 2,
                                  .heads = 4,
                                  .kv_heads = 2,
                                  .queries = 5,
                                  .keys = 6,
                                  .key_width = 3,
                                  .value_width = 7};

bool same_bits(std::span<const double> a, std::span<const double> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

AttentionOutputGradients<double> context_gradient(const Tensor<double, 4>& gradient) {
  return {gradient.view(), std::nullopt, std::nullopt};
}

Tensor<double, 4> random_context_gradient(const cases::CaseShape& s) {
  return cases::random_tensor<double, 4>({s.batch, s.heads, s.queries, s.value_width}, 9);
}

TEST(EmptyRows, GiveZerosAndMinusInfinity) {
  CaseData<double> data = cases::make_case<double>({kShape, {}});
  data.options.mask = Mask::key_lengths({0, 4});
  const cases::Outputs outputs = cases::run_forward(data.inputs());
  for (Index h = 0; h < 4; ++h) {
    EXPECT_EQ(outputs.log_sum_exp(0, h, 2), -kInfinity);
    EXPECT_EQ(outputs.context(0, h, 2, 1), 0);
    EXPECT_EQ(outputs.weights(0, h, 2, 1), 0);
    EXPECT_GT(outputs.log_sum_exp(1, h, 2), -kInfinity);
  }
  const Tensor<double, 4> seed = random_context_gradient(kShape);
  const cases::Gradients gradients = cases::run_backward(data.inputs(), context_gradient(seed));
  for (const double g : gradients.query.elements().first(4 * 5 * 3)) EXPECT_EQ(g, 0);
  for (const double g : gradients.key.elements().first(2 * 6 * 3)) EXPECT_EQ(g, 0);
  for (const double g : gradients.value.elements().first(2 * 6 * 7)) EXPECT_EQ(g, 0);
}

TEST(EmptyRows, TheSinkIsWhatIsLeft) {
  CaseData<double> data = cases::make_case<double>({kShape, {Feature::Sink}});
  data.options.mask = Mask::key_lengths({0, 4});
  const cases::Outputs outputs = cases::run_forward(data.inputs());
  EXPECT_EQ(outputs.log_sum_exp(0, 3, 1), (*data.sink)(3));
  EXPECT_EQ(outputs.context(0, 3, 1, 0), 0);
  // Sample 1: weights and the sink's share sum to 1.
  double sum = std::exp((*data.sink)(3) - outputs.log_sum_exp(1, 3, 1));
  for (Index s = 0; s < 6; ++s) sum += outputs.weights(1, 3, 1, s);
  EXPECT_NEAR(sum, 1, 1e-15);

  // With only sample 0 contributing, the sink's gradient is zero.
  Tensor<double, 4> seed = random_context_gradient(kShape);
  for (double& g : seed.elements().subspan(4 * 5 * 7)) g = 0;
  const cases::Gradients gradients = cases::run_backward(data.inputs(), context_gradient(seed));
  for (const double g : gradients.sink->elements()) EXPECT_EQ(g, 0);
}

TEST(EmptyRows, ABiasOfMinusInfinityHidesLikeTheMask) {
  CaseData<double> masked = cases::make_case<double>({kShape, {}});
  CaseData<double> biased = masked;
  masked.options.mask = Mask::causal(Corner::at({-1}));  // row 0 sees nothing
  biased.bias.emplace(Extents<4>{1, 1, 5, 6});
  for (Index t = 0; t < 5; ++t) {
    for (Index s = t; s < 6; ++s) (*biased.bias)(0, 0, t, s) = -kInfinity;
  }
  const cases::Outputs a = cases::run_forward(masked.inputs());
  const cases::Outputs b = cases::run_forward(biased.inputs());
  EXPECT_TRUE(same_bits(a.context.elements(), b.context.elements()));
  EXPECT_TRUE(same_bits(a.weights.elements(), b.weights.elements()));
  EXPECT_EQ(b.log_sum_exp(0, 0, 0), -kInfinity);
}

/// Fills what nobody may see with garbage: keys and values that no query sees, queries and output gradients of
/// rows that see nothing, biases of hidden pairs.
template <class Visit>
void for_each_hidden(const CaseData<double>& data, const cases::CaseShape& shape, Visit visit) {
  const BoundMask mask =
      data.options.mask.bind("test", {shape.batch, shape.heads, shape.queries, shape.keys});
  for (Index b = 0; b < shape.batch; ++b) {
    for (Index h = 0; h < shape.heads; ++h) visit(mask, b, h);
  }
}

class HiddenGarbage : public testing::TestWithParam<AttentionCase> {};

TEST_P(HiddenGarbage, ChangesNoBit) {
  omp_set_num_threads(1);  // the sizes are tiny
  const cases::CaseShape& shape = GetParam().shape;
  const CaseData<double> clean = cases::make_case<double>(GetParam());
  const Tensor<double, 4> clean_seed = random_context_gradient(shape);
  const cases::Outputs expected = cases::run_forward(clean.inputs());
  const cases::Gradients expected_gradients =
      cases::run_backward(clean.inputs(), context_gradient(clean_seed));

  for (const double garbage : {kNaN, kInfinity, -kInfinity}) {
    CaseData<double> dirty = clean;
    Tensor<double, 4> seed = clean_seed;
    Tensor<bool, 3> key_is_seen({shape.batch, shape.kv_heads, shape.keys});
    for_each_hidden(clean, shape, [&](const BoundMask& mask, Index b, Index h) {
      for (Index t = 0; t < shape.queries; ++t) {
        bool row_sees = false;
        for (Index s = 0; s < shape.keys; ++s) {
          // A pair is visible where the mask shows it and no bias hides it.
          const bool hidden_by_bias =
              dirty.bias && std::isinf(clean.bias->view()(dirty.bias->shape(0) == 1 ? 0 : b,
                                                          dirty.bias->shape(1) == 1 ? 0 : h, t,
                                                          dirty.bias->shape(3) == 1 ? 0 : s));
          const bool sees = mask.visible(b, h, t, s) && !hidden_by_bias;
          row_sees = row_sees || sees;
          if (sees) key_is_seen(b, h / 2, s) = true;
          const bool bias_is_private = dirty.bias && dirty.bias->shape() == Extents<4>{2, 4, 5, 6};
          if (bias_is_private && !sees) (*dirty.bias)(b, h, t, s) = garbage;
        }
        if (row_sees) continue;
        for (Index d = 0; d < shape.key_width; ++d) dirty.query(b, h, t, d) = garbage;
        for (Index d = 0; d < shape.value_width; ++d) seed(b, h, t, d) = garbage;
      }
    });
    for (Index b = 0; b < shape.batch; ++b) {
      for (Index h = 0; h < shape.kv_heads; ++h) {
        for (Index s = 0; s < shape.keys; ++s) {
          if (key_is_seen(b, h, s)) continue;
          for (Index d = 0; d < shape.key_width; ++d) dirty.key(b, h, s, d) = garbage;
          for (Index d = 0; d < shape.value_width; ++d) dirty.value(b, h, s, d) = garbage;
        }
      }
    }
    const cases::Outputs outputs = cases::run_forward(dirty.inputs());
    EXPECT_TRUE(same_bits(outputs.context.elements(), expected.context.elements()));
    EXPECT_TRUE(same_bits(outputs.weights.elements(), expected.weights.elements()));
    EXPECT_TRUE(same_bits(outputs.log_sum_exp.elements(), expected.log_sum_exp.elements()));
    const cases::Gradients gradients = cases::run_backward(dirty.inputs(), context_gradient(seed));
    EXPECT_TRUE(same_bits(gradients.query.elements(), expected_gradients.query.elements()));
    EXPECT_TRUE(same_bits(gradients.key.elements(), expected_gradients.key.elements()));
    EXPECT_TRUE(same_bits(gradients.value.elements(), expected_gradients.value.elements()));
    if (gradients.bias) {
      EXPECT_TRUE(same_bits(gradients.bias->elements(), expected_gradients.bias->elements()));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AloneAndInPairs, HiddenGarbage,
                         testing::ValuesIn(cases::alone_and_in_pairs(kShape)),
                         [](const auto& instance) { return instance.param.name(); });

/// The rows of the context that hold a NaN.
std::vector<std::array<Index, 3>> poisoned_rows(const Tensor<double, 4>& context) {
  std::vector<std::array<Index, 3>> rows;
  for (Index b = 0; b < context.shape(0); ++b) {
    for (Index h = 0; h < context.shape(1); ++h) {
      for (Index t = 0; t < context.shape(2); ++t) {
        bool poisoned = false;
        for (Index d = 0; d < context.shape(3); ++d) {
          poisoned = poisoned || std::isnan(context(b, h, t, d));
        }
        if (poisoned) rows.push_back({b, h, t});
      }
    }
  }
  return rows;
}

TEST(VisibleNaN, ReachesExactlyTheRowsThatSeeIt) {
  const CaseData<double> clean =
      cases::make_case<double>({kShape, {Feature::CausalTopLeft, Feature::KeyLengths}});
  // Key 3 of kv head 1 in sample 1: seen by query heads 2 and 3 from row 3 on.
  std::vector<std::array<Index, 3>> expected;
  for (Index h = 2; h < 4; ++h) {
    for (Index t = 3; t < 5; ++t) expected.push_back({1, h, t});
  }
  CaseData<double> by_key = clean;
  by_key.key(1, 1, 3, 0) = kNaN;
  EXPECT_EQ(poisoned_rows(cases::run_forward(by_key.inputs()).context), expected);
  CaseData<double> by_value = clean;
  by_value.value(1, 1, 3, 0) = kNaN;
  EXPECT_EQ(poisoned_rows(cases::run_forward(by_value.inputs()).context), expected);
  CaseData<double> by_query = clean;
  by_query.query(0, 2, 4, 1) = kNaN;
  EXPECT_EQ(poisoned_rows(cases::run_forward(by_query.inputs()).context),
            (std::vector<std::array<Index, 3>>{{0, 2, 4}}));
}

template <class T>
class Storage : public testing::Test {};
using StorageTypes = testing::Types<float, Float16, BFloat16>;
TYPED_TEST_SUITE(Storage, StorageTypes);

TYPED_TEST(Storage, ComputesInFloat64OnTheStoredNumbers) {
  const std::vector<Feature> features{Feature::CausalBottomRight, Feature::BiasFull, Feature::Sink,
                                      Feature::Softcap};
  const CaseData<TypeParam> stored = cases::make_case<TypeParam>({kShape, features});
  CaseData<double> exact = cases::make_case<double>({kShape, features});
  const auto widen = [](auto& to, const auto& from) {
    for (std::size_t i = 0; i < to.elements().size(); ++i) {
      to.elements()[i] = static_cast<double>(from.elements()[i]);
    }
  };
  widen(exact.query, stored.query);
  widen(exact.key, stored.key);
  widen(exact.value, stored.value);
  widen(*exact.bias, *stored.bias);
  widen(*exact.sink, *stored.sink);
  const Tensor<double, 4> seed = random_context_gradient(kShape);
  EXPECT_TRUE(same_bits(cases::run_forward(stored.inputs()).context.elements(),
                        cases::run_forward(exact.inputs()).context.elements()));
  const cases::Gradients a = cases::run_backward(stored.inputs(), context_gradient(seed));
  const cases::Gradients b = cases::run_backward(exact.inputs(), context_gradient(seed));
  EXPECT_TRUE(same_bits(a.key.elements(), b.key.elements()));
  EXPECT_TRUE(same_bits(a.bias->elements(), b.bias->elements()));
  EXPECT_TRUE(same_bits(a.sink->elements(), b.sink->elements()));
}

TEST(Strides, AnyLayoutGivesTheSameBits) {
  const CaseData<double> data = cases::make_case<double>({kShape, {Feature::BiasFull}});
  const cases::Outputs expected = cases::run_forward(data.inputs());

  // Heads inside of tokens, as a projection leaves them; and a bias broadcast by stride 0.
  const Tensor<double, 3> merged = merge_heads(data.inputs().query);
  AttentionInputs<double> inputs = data.inputs();
  inputs.query = split_heads(merged.view(), kShape.heads);
  // The same keys stored back to front and read with negative strides.
  Tensor<double, 4> reversed = data.key;
  std::reverse(reversed.elements().begin(), reversed.elements().end());
  inputs.key = {
      reversed.data() + reversed.elements().size() - 1, reversed.shape(), {-36, -18, -3, -1}};
  EXPECT_TRUE(
      same_bits(cases::run_forward(inputs).context.elements(), expected.context.elements()));

  CaseData<double> broadcast = data;
  broadcast.bias = cases::random_tensor<double, 4>({1, 4, 1, 6}, 3);
  AttentionInputs<double> expanded = broadcast.inputs();
  expanded.bias = TensorView<const double, 4>(broadcast.bias->data(), {2, 4, 5, 6}, {0, 6, 0, 1});
  EXPECT_TRUE(same_bits(cases::run_forward(expanded).context.elements(),
                        cases::run_forward(broadcast.inputs()).context.elements()));

  // Results into [B,T,H,Dv] memory.
  Tensor<double, 3> token_major({2, 5, 4 * 7});
  reference::forward(data.inputs(),
                     {split_heads(token_major.view(), 4), std::nullopt, std::nullopt});
  EXPECT_EQ(token_major(1, 2, 3 * 7 + 5), expected.context(1, 3, 2, 5));
}

TEST(Sizes, OfZeroAreWellDefined) {
  for (const cases::CaseShape& shape : {cases::CaseShape{0, 4, 2, 5, 6, 3, 7},
                                        {2, 4, 2, 0, 6, 3, 7},
                                        {2, 4, 2, 5, 0, 3, 7},
                                        {2, 4, 2, 5, 6, 0, 7},
                                        {2, 4, 2, 5, 6, 3, 0},
                                        {2, 0, 0, 5, 6, 3, 7}}) {
    const CaseData<double> data = cases::make_case<double>({shape, {}});
    const cases::Outputs outputs = cases::run_forward(data.inputs());
    const Tensor<double, 4> seed = random_context_gradient(shape);
    const cases::Gradients gradients = cases::run_backward(data.inputs(), context_gradient(seed));
    EXPECT_EQ(gradients.key.shape(), data.key.shape());
    if (shape.keys == 0) {
      for (const double c : outputs.context.elements()) EXPECT_EQ(c, 0);
      for (const double l : outputs.log_sum_exp.elements()) EXPECT_EQ(l, -kInfinity);
    }
    if (shape.key_width == 0) {  // every score is an empty sum: uniform weights
      for (const double w : outputs.weights.elements()) EXPECT_DOUBLE_EQ(w, 1.0 / 6);
    }
  }
}

TEST(Threads, GiveTheSameBits) {
  // Covered further by every other test running on all cores; here sizes that split unevenly.
  const CaseData<double> data =
      cases::make_case<double>({{1, 2, 1, 67, 45, 8, 8}, {Feature::CausalBottomRight}});
  const cases::Outputs first = cases::run_forward(data.inputs());
  const cases::Outputs second = cases::run_forward(data.inputs());
  EXPECT_TRUE(same_bits(first.context.elements(), second.context.elements()));
}

class Refusal : public testing::Test {
 protected:
  void expect_refused(const AttentionInputs<double>& inputs, const std::string& message) {
    const AttentionOutputs<double> outputs{context_.view(), std::nullopt, std::nullopt};
    EXPECT_THAT([&] { reference::forward(inputs, outputs); },
                ThrowsMessage<std::invalid_argument>(
                    HasSubstr(fmt::format("reference::forward: {}", message))));
  }

  CaseData<double> data_ = cases::make_case<double>({kShape, {}});
  AttentionInputs<double> inputs_ = data_.inputs();
  Tensor<double, 4> context_{{2, 4, 5, 7}};
};

TEST_F(Refusal, OfSizesThatDoNotFit) {
  const Tensor<double, 4> three_heads({2, 3, 6, 3});
  inputs_.key = three_heads.view();
  expect_refused(inputs_, "key: expected a number of kv heads that divides H=4, got 3");

  inputs_ = data_.inputs();
  inputs_.value = inputs_.value.slice(2, 0, 5);
  expect_refused(inputs_, "value: expected shape [2, 2, 6, 7], got [2, 2, 5, 7]");

  inputs_ = data_.inputs();
  inputs_.key = inputs_.key.slice(3, 0, 2);
  expect_refused(inputs_, "key: expected shape [2, 2, 6, 3], got [2, 2, 6, 2]");

  inputs_ = data_.inputs();
  inputs_.query = {nullptr, inputs_.query.shape(), inputs_.query.strides()};
  expect_refused(inputs_, "query: expected data for shape [2, 4, 5, 3], got a null pointer");

  inputs_ = data_.inputs();
  inputs_.query = {data_.query.data(), {Index{1} << 40, 4, Index{1} << 30, 3}, {0, 0, 0, 1}};
  expect_refused(inputs_, "query: expected sizes whose product and byte offsets stay below 2^62");

  inputs_.query = {data_.query.data(), {2, 4, -5, 3}, {0, 0, 0, 1}};
  expect_refused(inputs_, "query: expected extents of 0 or more, got [2, 4, -5, 3]");

  // Each fits by itself, the score matrix does not.
  inputs_.query = {data_.query.data(), {1, 1, Index{1} << 31, 3}, {0, 0, 0, 1}};
  inputs_.key = {data_.key.data(), {1, 1, Index{1} << 31, 3}, {0, 0, 0, 1}};
  inputs_.value = {data_.value.data(), {1, 1, Index{1} << 31, 7}, {0, 0, 0, 1}};
  expect_refused(inputs_, "scores: expected a product of sizes below 2^59");
}

TEST_F(Refusal, OfNumbersThatMeanNothing) {
  inputs_.scale = kNaN;
  expect_refused(inputs_, "scale: expected a finite number, got nan");
  inputs_ = data_.inputs();
  inputs_.softcap = 0.0;
  expect_refused(inputs_, "softcap: expected a positive finite number, got 0");
  inputs_ = data_.inputs();
  inputs_.alibi = Alibi{{1, 2}, Corner::top_left()};
  expect_refused(inputs_, "alibi: expected one slope a query head, H=4, got 2");
  inputs_.alibi = Alibi{{1, 2, 3, 4}, std::nullopt};
  expect_refused(inputs_, "alibi: expected a corner");
  inputs_.alibi = Alibi{{1, 2, 3, kNaN}, Corner::top_left()};
  expect_refused(inputs_, "alibi: expected finite slopes, got nan");
  inputs_.alibi = Alibi{{1, 2, 3, 4}, Corner::at({1, 2, 3})};
  expect_refused(inputs_, "alibi: expected 1 or B=2 corner offsets, got 3");
}

TEST_F(Refusal, OfMasksBiasesAndSinksOfTheWrongShape) {
  inputs_.mask = Mask::causal();
  expect_refused(inputs_, "mask: expected a corner");
  inputs_ = data_.inputs();
  const Tensor<double, 4> bias({2, 4, 6, 5});
  inputs_.bias = bias.view();
  expect_refused(
      inputs_,
      "bias: expected a shape that broadcasts to [B,H,T,S]=[2, 4, 5, 6], got [2, 4, 6, 5]");
  inputs_ = data_.inputs();
  const Tensor<double, 1> sink({2});
  inputs_.sink = sink.view();
  expect_refused(inputs_, "sink: expected shape [4], got [2]");
}

TEST_F(Refusal, OfOutputsThatOverlap) {
  Tensor<double, 4> context({2, 4, 5, 7});
  const auto refused = [&](const AttentionOutputs<double>& outputs, const std::string& message) {
    EXPECT_THAT([&] { reference::forward(inputs_, outputs); },
                ThrowsMessage<std::invalid_argument>(
                    HasSubstr(fmt::format("reference::forward: {}", message))));
  };
  refused(
      {TensorView<double, 4>(context.data(), {2, 4, 5, 7}, {140, 0, 7, 1}), {}, {}},
      "context: expected an output whose elements do not overlap, got [2, 4, 5, 7] with strides "
      "[140, 0, 7, 1]");
  refused({TensorView<double, 4>(data_.value.data(), {2, 4, 5, 7}, {140, 35, 7, 1}), {}, {}},
          "context: expected memory apart from the input value, got overlapping views");
  refused({context.view(), TensorView<double, 4>(context.data(), {2, 4, 5, 6}), {}},
          "weights: expected memory apart from the output context, got overlapping views");
  refused({context.view().slice(2, 0, 4), {}, {}},
          "context: expected shape [2, 4, 5, 7], got [2, 4, 4, 7]");
}

TEST_F(Refusal, OfGradientsThatDoNotFit) {
  const Tensor<double, 4> seed({2, 4, 5, 6});
  EXPECT_THAT(
      [&] { cases::run_backward(inputs_, context_gradient(seed)); },
      ThrowsMessage<std::invalid_argument>(HasSubstr(
          "reference::backward: context gradient: expected shape [2, 4, 5, 7], got [2, 4, 5, 6]")));
  const Tensor<double, 4> right = random_context_gradient(kShape);
  Tensor<double, 4> dq({2, 4, 5, 3});
  Tensor<double, 4> dk({2, 2, 6, 3});
  Tensor<double, 4> dv({2, 2, 6, 7});
  Tensor<double, 1> sink({4});
  EXPECT_THAT(
      [&] {
        reference::backward(inputs_, context_gradient(right),
                            {dq.view(), dk.view(), dv.view(), std::nullopt, sink.view()});
      },
      ThrowsMessage<std::invalid_argument>(
          HasSubstr("sink gradient: expected none, as the inputs have no sink, got one")));
}

}  // namespace
}  // namespace qkv
