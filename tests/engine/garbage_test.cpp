// NaN and infinity: where nobody may see them they change no bit, where someone may they reach exactly the rows that
// see them.
#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <limits>
#include <vector>

#include "base/broadcast.h"
#include "tests/engine/bits.h"
#include "tests/engine/simd_targets.h"
#include "tests/reference/run.h"

namespace qkv {
namespace {

using cases::AttentionCase;
using cases::CaseData;
using cases::CaseShape;
using cases::Feature;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// A few rows with every pair of features, and several tiles and segments with every feature alone.
std::vector<AttentionCase> garbage_cases() {
  std::vector<AttentionCase> result = cases::alone_and_in_pairs({2, 4, 2, 5, 21, 3, 7});
  for (const Feature feature : cases::all_features()) {
    result.push_back({{2, 4, 2, 50, 530, 3, 7}, {feature}, 7});
  }
  return result;
}

template <class T>
void fill_row(Tensor<T, 4>& tensor, Index b, Index h, Index row, double value) {
  for (Index d = 0; d < tensor.shape(3); ++d) tensor(b, h, row, d) = static_cast<T>(value);
}

/// Which pairs the mask shows, and which remain where a bias of −∞ hides some.
template <class T>
struct Visible {
  explicit Visible(const AttentionInputs<T>& inputs)
      : by_mask({inputs.query.shape(0), inputs.query.shape(1), inputs.query.shape(2),
                 inputs.key.shape(2)}),
        in_all(by_mask.shape()) {
    const auto [batch, heads, queries, keys] = by_mask.shape();
    const BoundMask mask = inputs.mask.bind("test", {batch, heads, queries, keys});
    for (Index b = 0; b < batch; ++b) {
      for (Index h = 0; h < heads; ++h) {
        for (Index t = 0; t < queries; ++t) {
          for (Index s = 0; s < keys; ++s) {
            const bool shown = mask.visible(b, h, t, s);
            by_mask(b, h, t, s) = shown;
            in_all(b, h, t, s) =
                shown && !(inputs.bias && static_cast<double>(broadcast_at(*inputs.bias, b, h, t,
                                                                           s)) == -kInfinity);
          }
        }
      }
    }
  }
  bool row(Index b, Index h, Index t) const {
    for (Index s = 0; s < in_all.shape(3); ++s) {
      if (in_all(b, h, t, s)) return true;
    }
    return false;
  }
  Tensor<bool, 4> by_mask;
  Tensor<bool, 4> in_all;
};

/// Garbage wherever nobody looks: queries of rows that see nothing, keys and values that no query of the group sees, biases
/// of hidden pairs.
template <class T>
void spoil_hidden(CaseData<T>& data, double garbage) {
  const Visible<T> visible(data.inputs());
  const auto [batch, heads, queries, keys] = visible.in_all.shape();
  const Index group = heads / data.key.shape(1);
  Tensor<bool, 4> key_seen({batch, data.key.shape(1), keys, 1});
  Tensor<bool, 4> bias_seen(data.bias ? data.bias->shape() : Extents<4>{});
  for (Index b = 0; b < batch; ++b) {
    for (Index h = 0; h < heads; ++h) {
      for (Index t = 0; t < queries; ++t) {
        for (Index s = 0; s < keys; ++s) {
          if (visible.in_all(b, h, t, s)) key_seen(b, h / group, s, 0) = true;
          if (data.bias && visible.by_mask(b, h, t, s)) {
            broadcast_at(bias_seen.view(), b, h, t, s) = true;
          }
        }
        if (!visible.row(b, h, t)) fill_row(data.query, b, h, t, garbage);
      }
    }
    for (Index h = 0; h < data.key.shape(1); ++h) {
      for (Index s = 0; s < keys; ++s) {
        if (key_seen(b, h, s, 0)) continue;
        fill_row(data.key, b, h, s, garbage);
        fill_row(data.value, b, h, s, garbage);
      }
    }
  }
  for (std::size_t i = 0; i < bias_seen.elements().size(); ++i) {
    if (!bias_seen.elements()[i]) data.bias->elements()[i] = static_cast<T>(garbage);
  }
}

class HiddenGarbage : public testing::TestWithParam<std::string> {
 protected:
  template <class T>
  void hold() {
    for (const AttentionCase& one : garbage_cases()) {
      const auto clean = cases::make_case<T>(one);
      const auto without_weights = cases::run_engine(clean.inputs(), options_);
      const auto with_weights = cases::run_engine(clean.inputs(), options_, true);
      for (const double garbage : {kNaN, kInfinity, -kInfinity}) {
        CaseData<T> dirty = clean;
        spoil_hidden(dirty, garbage);
        EXPECT_TRUE(same_bits(cases::run_engine(dirty.inputs(), options_), without_weights))
            << one.name() << ": " << garbage;
        EXPECT_TRUE(same_bits(cases::run_engine(dirty.inputs(), options_, true), with_weights))
            << one.name() << ": " << garbage << ", with weights";
      }
    }
  }

  engine::Options options_{.threads = 2, .target = GetParam()};
};

INSTANTIATE_TEST_SUITE_P(Simd, HiddenGarbage, testing::ValuesIn(test::simd_targets()),
                         [](const auto& target) { return target.param; });

TEST_P(HiddenGarbage, ChangesNoBitOfFloat32) { hold<float>(); }
TEST_P(HiddenGarbage, ChangesNoBitOfFloat64) { hold<double>(); }
TEST_P(HiddenGarbage, ChangesNoBitOfFloat16) { hold<Float16>(); }

class VisibleGarbage : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { omp_set_num_threads(1); }  // the sizes are tiny

  /// The results agree with the oracle, NaN for NaN and infinity for infinity, and rows that do not see the
  /// spoiled number have the bits that they had.
  template <class T, class Sees>
  void hold(const CaseData<T>& clean, const CaseData<T>& dirty, bool with_weights, const Sees& sees,
            const std::string& what) {
    using A = engine::Arithmetic<T>;
    const auto before = cases::run_engine(clean.inputs(), options_, with_weights);
    const auto after = cases::run_engine(dirty.inputs(), options_, with_weights);
    const cases::Outputs expected = cases::run_forward(dirty.inputs());
    constexpr double kTolerance = std::is_same_v<A, double> ? 1e-12 : 1e-5;
    EXPECT_LE(cases::difference<A>(after.context.elements(), expected.context.elements()),
              kTolerance)
        << what << ": context";
    EXPECT_LE(cases::difference<A>(after.log_sum_exp.elements(), expected.log_sum_exp.elements()),
              20 * kTolerance)
        << what << ": log_sum_exp";
    if (with_weights) {
      EXPECT_LE(cases::difference<A>(after.weights.elements(), expected.weights.elements()),
                kTolerance)
          << what << ": weights";
    }
    const auto [batch, heads, queries, width] = after.context.shape();
    for (Index b = 0; b < batch; ++b) {
      for (Index h = 0; h < heads; ++h) {
        for (Index t = 0; t < queries; ++t) {
          if (sees(b, h, t)) continue;
          const auto bytes = static_cast<std::size_t>(width) * sizeof(A);
          EXPECT_EQ(std::memcmp(&after.context(b, h, t, 0), &before.context(b, h, t, 0), bytes), 0)
              << what << ": row " << b << ' ' << h << ' ' << t;
        }
      }
    }
  }

  template <class T>
  void hold_all(const AttentionCase& one) {
    const auto clean = cases::make_case<T>(one);
    const Visible<T> visible(clean.inputs());
    const CaseShape& shape = one.shape;
    const Index group = shape.heads / shape.kv_heads;
    const Index b = shape.batch - 1;
    const Index kv = shape.kv_heads - 1;
    const Index key = shape.keys / 3;
    for (const double garbage : {kNaN, kInfinity, -kInfinity}) {
      for (const bool with_weights : {false, true}) {
        const std::string what = one.name() + ": " + std::to_string(garbage);
        const auto sees_key = [&](Index sample, Index h, Index t) {
          return sample == b && h / group == kv && visible.in_all(sample, h, t, key);
        };
        CaseData<T> dirty = clean;
        dirty.key(b, kv, key, 1) = static_cast<T>(garbage);
        hold<T>(clean, dirty, with_weights, sees_key, what + " in a key");
        dirty = clean;
        dirty.value(b, kv, key, 2) = static_cast<T>(garbage);
        hold<T>(clean, dirty, with_weights, sees_key, what + " in a value");
        dirty = clean;
        dirty.query(b, 1, 2, 0) = static_cast<T>(garbage);
        hold<T>(
            clean, dirty, with_weights,
            [&](Index sample, Index h, Index t) {
              return sample == b && h == 1 && t == 2 && visible.row(b, h, t);
            },
            what + " in a query");
        if (!clean.sink) continue;
        dirty = clean;
        (*dirty.sink)(1) = static_cast<T>(garbage);
        hold<T>(
            clean, dirty, with_weights,
            [&](Index sample, Index h, Index t) { return h == 1 && visible.row(sample, h, t); },
            what + " in a sink");
      }
    }
  }

  engine::Options options_{.threads = 1, .target = GetParam()};
};

INSTANTIATE_TEST_SUITE_P(Simd, VisibleGarbage, testing::ValuesIn(test::simd_targets()),
                         [](const auto& target) { return target.param; });

TEST_P(VisibleGarbage, ReachesExactlyTheRowsThatSeeIt) {
  const std::vector<std::vector<Feature>> features{
      {},
      {Feature::CausalBottomRight, Feature::KeyLengths},
      {Feature::CausalOffsets, Feature::Sink},
      {Feature::Window},
      {Feature::Documents},
      {Feature::Softcap, Feature::CausalBottomRight},
      {Feature::BiasFull, Feature::KeyPaddingLeft},
      {Feature::BiasHiding, Feature::Sink},
      {Feature::AlibiBottomRight, Feature::BooleanFull}};
  for (const CaseShape& shape :
       {CaseShape{2, 4, 2, 5, 21, 3, 7}, CaseShape{2, 2, 1, 20, 300, 3, 7}}) {
    for (const auto& list : features) {
      hold_all<float>({shape, list, 3});
      hold_all<double>({shape, list, 3});
    }
  }
}

}  // namespace
}  // namespace qkv
