// The bits of gradients: the same for any number of threads and for a sample alone or in a batch; of a query's also for any
// division of the queries.
#include <gtest/gtest.h>
#include <omp.h>

#include "tests/engine/bits.h"
#include "tests/engine/simd_targets.h"

namespace qkv {
namespace {

using cases::CaseShape;
using cases::EngineGradients;
using cases::Feature;
using cases::same_bits;

/// Large enough for several threads, several chunks of keys and several tiles of rows.
constexpr CaseShape kShape{2, 4, 2, 70, 1200, 9, 5};

class GradientBits : public testing::TestWithParam<std::string> {
 protected:
  engine::Options options(int threads = 1) const { return cases::options_on(GetParam(), threads); }
};

INSTANTIATE_TEST_SUITE_P(Simd, GradientBits, testing::ValuesIn(test::simd_targets()),
                         [](const auto& target) { return target.param; });

const std::vector<std::vector<Feature>>& feature_sets() {
  static const std::vector<std::vector<Feature>> sets{
      {},
      {Feature::CausalBottomRight},
      {Feature::Window, Feature::Sink},
      {Feature::KeyPadding, Feature::Softcap},
      {Feature::BiasFull},
      {Feature::BiasBroadcast, Feature::CausalBottomRight},
      {Feature::BiasHiding, Feature::AlibiBottomRight}};
  return sets;
}

Tensor<float, 4> context_gradient() {
  return cases::random_tensor<float, 4>(
      {kShape.batch, kShape.heads, kShape.queries, kShape.value_width}, 9);
}

template <class T, int Rank>
bool same_bits_of(const std::optional<Tensor<T, Rank>>& a,
                  const std::optional<Tensor<T, Rank>>& b) {
  return a.has_value() == b.has_value() &&
         (!a || same_bits<T>(std::as_const(*a).elements(), std::as_const(*b).elements()));
}

bool same_gradients(const EngineGradients<float>& a, const EngineGradients<float>& b) {
  return same_bits<float>(a.query.elements(), b.query.elements()) &&
         same_bits<float>(a.key.elements(), b.key.elements()) &&
         same_bits<float>(a.value.elements(), b.value.elements()) && same_bits_of(a.bias, b.bias) &&
         same_bits_of(a.sink, b.sink);
}

TEST_P(GradientBits, DoNotDependOnThreads) {
  const Tensor<float, 4> upstream = context_gradient();
  for (const auto& features : feature_sets()) {
    const cases::AttentionCase one{kShape, features, 5};
    const auto data = cases::make_case<float>(one);
    const auto run = [&](int threads) {
      return cases::run_engine_backward<float>(data.inputs(), {.context = upstream.view()},
                                               options(threads));
    };
    const EngineGradients<float> expected = run(1);
    for (const int threads : {2, 3, 7}) {
      EXPECT_TRUE(same_gradients(run(threads), expected)) << one.name() << ", " << threads;
    }
  }
}

TEST_P(GradientBits, DoNotDependOnTheRestOfTheBatch) {
  const Tensor<float, 4> upstream = context_gradient();
  const auto data = cases::make_case<float>({kShape, {Feature::CausalBottomRight}, 5});
  const EngineGradients<float> whole =
      cases::run_engine_backward<float>(data.inputs(), {.context = upstream.view()}, options(2));
  AttentionInputs<float> alone = data.inputs();
  alone.query = alone.query.slice(0, 1, 2);
  alone.key = alone.key.slice(0, 1, 2);
  alone.value = alone.value.slice(0, 1, 2);
  const auto got = cases::run_engine_backward<float>(
      alone, {.context = std::as_const(upstream).view().slice(0, 1, 2)}, options());
  const auto second_half = [](const Tensor<float, 4>& tensor) {
    return tensor.elements().subspan(tensor.elements().size() / 2);
  };
  EXPECT_TRUE(same_bits<float>(got.query.elements(), second_half(whole.query)));
  EXPECT_TRUE(same_bits<float>(got.key.elements(), second_half(whole.key)));
  EXPECT_TRUE(same_bits<float>(got.value.elements(), second_half(whole.value)));
}

TEST_P(GradientBits, OfQueriesDoNotDependOnTheirDivision) {
  const Tensor<float, 4> upstream = context_gradient();
  const auto data = cases::make_case<float>({kShape, {}, 5});
  AttentionInputs<float> inputs = data.inputs();
  const Index offset = kShape.keys - kShape.queries;
  inputs.mask = Mask::causal(Corner::at({offset}));
  const EngineGradients<float> whole =
      cases::run_engine_backward<float>(inputs, {.context = upstream.view()}, options(2));
  for (Index begin = 0; begin < kShape.queries; begin += 23) {
    const Index end = std::min(begin + 23, kShape.queries);
    AttentionInputs<float> part = inputs;
    part.query = inputs.query.slice(2, begin, end);
    part.mask = Mask::causal(Corner::at({offset + begin}));
    const auto got = cases::run_engine_backward<float>(
        part, {.context = std::as_const(upstream).view().slice(2, begin, end)}, options());
    const Tensor<float, 4> expected =
        contiguous_copy(std::as_const(whole.query).view().slice(2, begin, end));
    EXPECT_TRUE(same_bits<float>(got.query.elements(), expected.elements())) << begin;
  }
}

}  // namespace
}  // namespace qkv
