// Dropout: Philox's published words, the same weights dropped whatever the tiling, and the gradients of what is left.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <omp.h>

#include "kernels/philox.h"
#include "qkv/kv_cache.h"
#include "tests/engine/bits.h"
#include "tests/engine/simd_targets.h"
#include "tests/reference/run.h"

namespace qkv {
namespace {

using cases::same_bits;
using testing::HasSubstr;
using testing::ThrowsMessage;

std::array<std::uint32_t, 4> words(std::array<std::uint32_t, 4> counter, std::uint32_t key0,
                                   std::uint32_t key1) {
  std::uint32_t state[4][1] = {{counter[0]}, {counter[1]}, {counter[2]}, {counter[3]}};
  kernels::philox(state, key0, key1);
  return {state[0][0], state[1][0], state[2][0], state[3][0]};
}

/// The known answers that come with the authors' Random123.
TEST(Philox, GivesThePublishedWords) {
  using Words = std::array<std::uint32_t, 4>;
  EXPECT_EQ(words({0, 0, 0, 0}, 0, 0), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(words({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, 0xffffffff, 0xffffffff),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(words({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0xa4093822, 0x299f31d0),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

constexpr engine::Dropout kDropout{.probability = 0.3, .seed = 0x0123456789abcdef, .offset = 5};
constexpr cases::CaseShape kShape{2, 4, 2, 60, 600, 7, 5};

/// What stays of weight (b,h,t,s), by the documentation.
double factor(Index b, Index h, Index t, Index s) {
  const auto random = words({static_cast<std::uint32_t>(s / 4), static_cast<std::uint32_t>(t),
                             static_cast<std::uint32_t>(b * kShape.heads + h), kDropout.offset},
                            0x89abcdef, 0x01234567);
  return random[static_cast<std::size_t>(s % 4)] < 0.3 * 0x1p32 ? 0 : 1 / 0.7;
}

class DropoutOn : public testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Simd, DropoutOn, testing::ValuesIn(test::simd_targets()),
                         [](const auto& target) { return target.param; });

engine::Options options_on(const std::string& target, int threads = 1) {
  engine::Options options;
  options.target = target;
  options.threads = threads;
  options.dropout = kDropout;
  return options;
}

TEST_P(DropoutOn, LeavesOutWhatTheWordsSay) {
  const auto data = cases::make_case<double>({kShape, {cases::Feature::CausalBottomRight}});
  const cases::Outputs oracle = cases::run_forward(data.inputs());
  const auto got = cases::run_engine(data.inputs(), options_on(GetParam()), true);
  for (Index b = 0; b < kShape.batch; ++b) {
    for (Index h = 0; h < kShape.heads; ++h) {
      for (Index t = 0; t < kShape.queries; ++t) {
        for (Index d = 0; d < kShape.value_width; ++d) {
          double sum = 0;
          for (Index s = 0; s < kShape.keys; ++s) {
            sum += oracle.weights(b, h, t, s) * factor(b, h, t, s) * data.value(b, h / 2, s, d);
          }
          EXPECT_NEAR(got.context(b, h, t, d), sum, 1e-13);
        }
        EXPECT_NEAR(got.log_sum_exp(b, h, t), oracle.log_sum_exp(b, h, t), 1e-13);
        EXPECT_NEAR(got.weights(b, h, t, 0), oracle.weights(b, h, t, 0), 1e-15);  // before dropout
      }
    }
  }
}

/// The loss Σ context·u as the oracle sees it: context is linear in the dropped weights p·f, so that dv = (p·f)ᵀ·u, and the
/// rest follows from a weights' gradient of f·(u·vᵀ) with no gradient of the context.
TEST_P(DropoutOn, TheBackwardPassDropsTheSame) {
  omp_set_num_threads(1);
  const auto data = cases::make_case<double>({kShape, {cases::Feature::Softcap}});
  const cases::Outputs oracle = cases::run_forward(data.inputs());
  const auto u = cases::random_tensor<double, 4>(
      {kShape.batch, kShape.heads, kShape.queries, kShape.value_width}, 7);
  const Tensor<double, 4> none(u.shape());
  Tensor<double, 4> weights_gradient(oracle.weights.shape());
  Tensor<double, 4> value_gradient(data.value.shape());
  for (Index b = 0; b < kShape.batch; ++b) {
    for (Index h = 0; h < kShape.heads; ++h) {
      for (Index t = 0; t < kShape.queries; ++t) {
        for (Index s = 0; s < kShape.keys; ++s) {
          const double f = factor(b, h, t, s);
          for (Index d = 0; d < kShape.value_width; ++d) {
            weights_gradient(b, h, t, s) += f * u(b, h, t, d) * data.value(b, h / 2, s, d);
            value_gradient(b, h / 2, s, d) += f * oracle.weights(b, h, t, s) * u(b, h, t, d);
          }
        }
      }
    }
  }
  const auto expected = cases::run_backward(
      data.inputs(), {.context = none.view(), .weights = std::as_const(weights_gradient).view()});
  const auto got = cases::run_engine_backward<double>(data.inputs(), {.context = u.view()},
                                                      options_on(GetParam(), 2));
  EXPECT_LE(
      cases::difference<double>(got.query.elements(), std::as_const(expected.query).elements()),
      1e-13);
  EXPECT_LE(cases::difference<double>(got.key.elements(), std::as_const(expected.key).elements()),
            1e-12);
  EXPECT_LE(
      cases::difference<double>(got.value.elements(), std::as_const(value_gradient).elements()),
      1e-12);
}

TEST_P(DropoutOn, DropsTheSameForAnyThreadsAndDivision) {
  const auto data = cases::make_case<float>({kShape, {cases::Feature::CausalBottomRight}});
  const auto whole = cases::run_engine(data.inputs(), options_on(GetParam()));
  for (const int threads : {2, 3, 7}) {
    EXPECT_TRUE(
        same_bits(whole, cases::run_engine(data.inputs(), options_on(GetParam(), threads))));
  }
}

TEST(Dropout, IsRefusedWhereItIsNoProbability) {
  const auto data = cases::make_case<float>({kShape, {}});
  for (const double probability : {-0.1, 1.0, std::nan("")}) {
    engine::Options options;
    options.dropout = engine::Dropout{.probability = probability};
    EXPECT_THAT(
        [&] { cases::run_engine(data.inputs(), options); },
        ThrowsMessage<std::invalid_argument>(HasSubstr(
            "engine::forward: dropout: expected a probability of at least 0 and below 1, got")));
  }
}

}  // namespace
}  // namespace qkv
