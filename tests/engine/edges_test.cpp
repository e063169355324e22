// Sizes, numbers and rows at the edges: nothing to see, one key, any width, far too many of one thing, logits and
// magnitudes out of the ordinary.
#include <gtest/gtest.h>
#include <omp.h>

#include <array>
#include <cmath>
#include <limits>
#include <thread>

#include "tests/engine/agreement.h"
#include "tests/engine/simd_targets.h"

namespace qkv {
namespace {

using cases::CaseData;
using cases::CaseShape;
using cases::expect_agreement;
using cases::Feature;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

class Edges : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { omp_set_num_threads(1); }  // the oracle's; the sizes are tiny

  /// `change` the data of a case in both precisions and hold the results against the oracle.
  template <class Change>
  void hold(const cases::AttentionCase& one, const std::string& what, const Change& change) {
    auto in_float64 = cases::make_case<double>(one);
    change(in_float64);
    expect_agreement(in_float64, options_, one.name() + " float64 " + what);
    auto in_float32 = cases::make_case<float>(one);
    change(in_float32);
    expect_agreement(in_float32, options_, one.name() + " float32 " + what);
  }
  void hold(const cases::AttentionCase& one) {
    hold(one, "", [](auto&) {});
  }

  engine::Options options_{.threads = 2, .target = GetParam()};
};

INSTANTIATE_TEST_SUITE_P(Simd, Edges, testing::ValuesIn(test::simd_targets()),
                         [](const auto& target) { return target.param; });

TEST_P(Edges, RowsThatSeeNothing) {
  for (const Index queries : {5, 40}) {
    auto data = cases::make_case<float>({{3, 4, 2, queries, 300, 3, 7}, {}});
    data.options.mask = Mask::key_lengths({0, 1, 300}) & Mask::causal(Corner::at({300, 300, -2}));
    const auto got = cases::run_engine(data.inputs(), options_, true);
    for (Index h = 0; h < 4; ++h) {
      for (Index t = 0; t < queries; ++t) {
        EXPECT_EQ(got.log_sum_exp(0, h, t), -kInfinity);
        for (Index d = 0; d < 7; ++d) {
          EXPECT_EQ(got.context(0, h, t, d), 0);
          EXPECT_EQ(got.context(1, h, t, d), data.value(1, h / 2, 0, d))
              << "one key has all the weight";
        }
        for (Index s = 0; s < 300; ++s) EXPECT_EQ(got.weights(0, h, t, s), 0);
        EXPECT_EQ(got.weights(1, h, t, 0), 1);
      }
      EXPECT_EQ(got.log_sum_exp(2, h, 1), -kInfinity);
      EXPECT_EQ(got.context(2, h, 1, 0), 0);
      EXPECT_EQ(got.weights(2, h, 2, 0), 1);
    }
    expect_agreement(data, options_, "rows that see nothing");
    data.sink = cases::random_tensor<float, 1>({4}, 8);
    expect_agreement(data, options_, "rows that see nothing but a sink");
  }
}

TEST_P(Edges, TheBiasOfARowThatSeesNothingIsNotRead) {
  for (const Feature feature : {Feature::BiasFull, Feature::BiasBroadcast}) {
    auto data = cases::make_case<float>({{1, 2, 1, 10, 300, 3, 4}, {feature}});
    data.options.mask = Mask::causal(Corner::at({-2}));
    const auto expected = cases::run_forward(data.inputs());
    // On a new stack, where an address that nobody set is null.
    std::thread([&] {
      const auto got = cases::run_engine(data.inputs(), {.threads = 1, .target = GetParam()});
      EXPECT_LE(cases::difference<float>(got.context.elements(), expected.context.elements()), 1e-5)
          << name_of(feature);
    }).join();
  }
}

TEST_P(Edges, AnyWidth) {
  constexpr std::array<Index, 20> kWidths{1,  2,  3,  5,  8,   15,  16,  17,  31,  32,
                                          33, 63, 64, 65, 127, 129, 255, 257, 511, 512};
  for (std::size_t i = 0; i < kWidths.size(); ++i) {
    const Index other = kWidths[(7 * i + 3) % kWidths.size()];
    hold({{1, 2, 1, 14, 70, kWidths[i], other}, {Feature::CausalBottomRight}, i + 1});
  }
}

TEST_P(Edges, ManyMoreKeysThanQueriesAndTheOtherWayRound) {
  for (const auto& [queries, keys] : std::vector<std::array<Index, 2>>{{1, 1},
                                                                       {1, 2},
                                                                       {1, 3000},
                                                                       {2, 1500},
                                                                       {25, 1100},
                                                                       {700, 1},
                                                                       {600, 3},
                                                                       {300, 17},
                                                                       {513, 255}}) {
    for (const Feature feature : {Feature::CausalTopLeft, Feature::CausalBottomRight,
                                  Feature::Window, Feature::AlibiBottomRight}) {
      hold({{1, 2, 1, queries, keys, 3, 5}, {feature}, 3});
    }
  }
}

TEST_P(Edges, SizesOfZero) {
  for (const CaseShape& shape : {CaseShape{0, 4, 2, 5, 6, 3, 7},
                                 {2, 4, 2, 0, 6, 3, 7},
                                 {2, 4, 2, 5, 0, 3, 7},
                                 {2, 4, 2, 50, 0, 3, 7},
                                 {2, 4, 2, 5, 6, 0, 7},
                                 {2, 4, 2, 50, 300, 0, 7},
                                 {2, 4, 2, 5, 6, 3, 0},
                                 {2, 4, 2, 50, 300, 3, 0},
                                 {2, 0, 0, 5, 6, 3, 7}}) {
    hold({shape, {}});
    hold({shape, {Feature::Sink}});
  }
}

TEST_P(Edges, ScalesOfZeroAndBelow) {
  for (const double scale : {0.0, -0.0, -0.5, -3.0}) {
    for (const auto& features : std::vector<std::vector<Feature>>{{}, {Feature::Softcap}}) {
      hold({{1, 2, 1, 20, 300, 5, 4}, features}, "scale " + std::to_string(scale),
           [&](auto& data) { data.options.scale = scale; });
    }
  }
}

TEST_P(Edges, LargeLogits) {
  for (const Feature feature : {Feature::CausalBottomRight, Feature::Sink, Feature::AlibiTopLeft}) {
    for (const double size : {1e2, 1e4}) {
      hold({{1, 2, 1, 20, 600, 4, 3}, {feature}}, "logits of " + std::to_string(size),
           [&](auto& data) {
             for (auto& x : data.query.elements()) x *= static_cast<float>(size);
           });
    }
  }
  // All of one sign: whatever is subtracted has to bring them back.
  for (const double sign : {1.0, -1.0}) {
    hold({{1, 1, 1, 30, 300, 1, 3}, {}}, "one sign", [&](auto& data) {
      for (auto& x : data.query.elements()) x = static_cast<float>(100 * sign);
      for (auto& x : data.key.elements()) x = 100 + x / 64;
    });
  }
}

TEST_P(Edges, SubnormalNumbers) {
  const auto subnormal = [](auto& tensor) {
    using T = std::remove_reference_t<decltype(tensor.elements()[0])>;
    for (T& x : tensor.elements()) x *= std::numeric_limits<T>::min() / 8;
  };
  const cases::AttentionCase one{{1, 2, 1, 20, 300, 5, 4}, {}};
  hold(one, "queries", [&](auto& data) { subnormal(data.query); });
  hold(one, "keys", [&](auto& data) { subnormal(data.key); });
  hold(one, "values", [&](auto& data) { subnormal(data.value); });
}

TEST_P(Edges, SoftcapsOfAnyMagnitude) {
  for (const double softcap : {1e-300, 1e-30, 1e-3, 50.0, 1e30, 1e300}) {
    hold({{1, 2, 1, 20, 300, 5, 4}, {}}, "softcap " + std::to_string(softcap),
         [&](auto& data) { data.options.softcap = softcap; });
  }
}

TEST_P(Edges, DistancesOfAlibiThatFloat32CannotHold) {
  // Positions far beyond 2^24: distances are small all the same.
  auto data = cases::make_case<float>({{1, 2, 1, 4, 300, 3, 4}, {}});
  data.options.alibi = Alibi{{0.5, 0.25}, Corner::at({296})};
  expect_agreement(data, options_, "ALiBi");
  data.options.alibi = Alibi{{1e-6, 1e-7}, Corner::at({-(Index{1} << 26)})};
  expect_agreement(data, options_, "ALiBi from afar");
}

}  // namespace
}  // namespace qkv
