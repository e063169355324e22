// The bits of a query's results: the same for any threads, in any batch, in any division of the queries into calls.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "tests/engine/bits.h"
#include "tests/engine/simd_targets.h"

namespace qkv {
namespace {

/// What is switched on. Offsets of the diagonal, lengths and documents differ by sample.
struct Features {
  std::string name;
  Index heads = 4;
  Index kv_heads = 2;
  bool causal = false;
  bool prefix = false;
  std::optional<std::array<Index, 2>> window = std::nullopt;
  bool lengths = false;
  bool padding = false;
  bool documents = false;
  bool boolean = false;
  bool bias = false;
  bool alibi = false;
  bool sink = false;
  std::optional<double> softcap = std::nullopt;
  std::optional<double> scale = std::nullopt;
};

constexpr Index kBatch = 2;
constexpr Index kQueries = 70;
constexpr Index kKeys = 3 * 256 + 1;

std::vector<Features> all_features() {
  using Sides = std::array<Index, 2>;
  return {{.name = "no mask"},
          {.name = "causal", .causal = true},
          {.name = "one head a group", .heads = 3, .kv_heads = 3, .causal = true},
          {.name = "one group", .heads = 8, .kv_heads = 1, .causal = true, .alibi = true},
          {.name = "prefix", .prefix = true},
          {.name = "window behind", .window = Sides{300, 0}, .sink = true},
          {.name = "narrow window", .window = Sides{3, 2}},
          {.name = "lengths", .lengths = true, .softcap = 1.5},
          {.name = "padding", .causal = true, .padding = true},
          {.name = "documents", .causal = true, .documents = true},
          {.name = "boolean tensor", .boolean = true, .scale = -0.7},
          {.name = "bias", .causal = true, .bias = true},
          {.name = "softcap, bias, ALiBi and sink",
           .window = Sides{260, 5},
           .documents = true,
           .bias = true,
           .alibi = true,
           .sink = true,
           .softcap = 2.5}};
}

/// Queries [first, last) of some samples against their first `keys` keys.
struct Part {
  std::vector<Index> samples;
  Index first = 0;
  Index last = kQueries;
  Index keys = kKeys;
};

template <class Element, int Rank>
Tensor<Element, Rank> samples_of(const Tensor<Element, Rank>& whole,
                                 const std::vector<Index>& samples) {
  Extents<Rank> shape = whole.shape();
  const Index step = element_count(std::span<const Index>(shape).subspan(1));
  shape[0] = static_cast<Index>(samples.size());
  Tensor<Element, Rank> result(shape);
  Element* to = result.data();
  for (const Index b : samples) to = std::copy_n(whole.data() + b * step, step, to);
  return result;
}

template <class T>
class Sequences {
 public:
  explicit Sequences(const Features& features) : features_(features) {
    constexpr Index kWidth = 5;
    constexpr Index kValueWidth = 9;
    const auto random = [](Index h, Index rows, Index width, std::uint64_t seed) {
      return cases::random_tensor<T, 4>({kBatch, h, rows, width}, seed);
    };
    query_ = random(features.heads, kQueries, kWidth, 1);
    key_ = random(features.kv_heads, kKeys, kWidth, 2);
    value_ = random(features.kv_heads, kKeys, kValueWidth, 3);
    sink_ = cases::random_tensor<T, 1>({features.heads}, 4);
    bias_ = random(features.heads, kQueries, kKeys, 5);
    for (std::size_t i = 0; i < bias_.elements().size(); i += 7) {
      bias_.elements()[i] = static_cast<T>(-std::numeric_limits<double>::infinity());
    }
    const auto hash = [](Index i) {
      return static_cast<std::uint64_t>(i) * 0x9E3779B97F4A7C15U >> 60;
    };
    Index i = 0;
    for (bool& keep : padding_.elements()) keep = hash(i++) < 13;
    keep_ = Tensor<bool, 4>({kBatch, features.heads, kQueries, kKeys});
    for (bool& keep : keep_.elements()) keep = hash(i++) < 9;
    for (Index b = 0; b < kBatch; ++b) {
      for (Index s = 0; s < kKeys; ++s) key_documents_(b, s) = (s + 11 * b) / 290;
      for (Index t = 0; t < kQueries; ++t) {
        query_documents_(b, t) = std::max<Index>(0, key_documents_(b, t + offset(b)) - t % 2);
      }
    }
  }

  cases::EngineOutputs<engine::Arithmetic<T>> run(const Part& part,
                                                  const engine::Options& options) const {
    AttentionInputs<T> inputs;
    const auto query = samples_of(query_, part.samples);
    const auto key = samples_of(key_, part.samples);
    const auto value = samples_of(value_, part.samples);
    std::optional<Tensor<T, 4>> bias;
    inputs.query = query.view().slice(2, part.first, part.last);
    inputs.key = key.view().slice(2, 0, part.keys);
    inputs.value = value.view().slice(2, 0, part.keys);
    if (features_.bias) {
      bias = samples_of(bias_, part.samples);
      inputs.bias =
          std::as_const(*bias).view().slice(2, part.first, part.last).slice(3, 0, part.keys);
    }
    if (features_.sink) inputs.sink = sink_.view();
    inputs.softcap = features_.softcap;
    inputs.scale = features_.scale;
    if (features_.alibi) {
      inputs.alibi = Alibi{standard_alibi_slopes(features_.heads), diagonal(part)};
    }
    inputs.mask = mask(part);
    return cases::run_engine(inputs, options);
  }

  /// The part without the keys behind the last one that its queries may see, as decoding would have it.
  Part cut(Part part) const {
    const auto samples = static_cast<Index>(part.samples.size());
    const BoundMask bound =
        mask(part).bind("cut", {samples, features_.heads, part.last - part.first, part.keys});
    Index end = 0;
    for (Index b = 0; b < samples; ++b) {
      for (Index t = 0; t < part.last - part.first; ++t) {
        end = std::max(end, bound.key_range(b, t).end);
      }
    }
    part.keys = end;
    return part;
  }

 private:
  static Index offset(Index sample) { return kKeys - kQueries - 40 * sample; }
  static Corner diagonal(const Part& part) {
    std::vector<Index> offsets;
    for (const Index b : part.samples) offsets.push_back(offset(b) + part.first);
    return Corner::at(offsets);
  }
  Mask mask(const Part& part) const {
    const auto one_a_sample = [&](Index first, Index step) {
      std::vector<Index> lengths;
      for (const Index b : part.samples) lengths.push_back(std::min(first + step * b, part.keys));
      return lengths;
    };
    Mask mask;
    if (features_.causal) mask = mask & Mask::causal(diagonal(part));
    if (features_.prefix) mask = mask & Mask::prefix_causal(one_a_sample(720, 9), diagonal(part));
    if (features_.window) {
      mask = mask &
             Mask::sliding_window({(*features_.window)[0], (*features_.window)[1], diagonal(part)});
    }
    if (features_.lengths) mask = mask & Mask::key_lengths(one_a_sample(511, 3));
    if (features_.padding) {
      const auto padding = samples_of(padding_, part.samples);
      mask = mask & Mask::key_padding(padding.view().slice(1, 0, part.keys), Polarity::Keep);
    }
    if (features_.documents) {
      const auto queries = samples_of(query_documents_, part.samples);
      const auto keys = samples_of(key_documents_, part.samples);
      mask = mask & Mask::documents(queries.view().slice(1, part.first, part.last),
                                    keys.view().slice(1, 0, part.keys));
    }
    if (features_.boolean) {
      const auto keep = samples_of(keep_, part.samples);
      mask =
          mask & Mask::boolean(keep.view().slice(2, part.first, part.last).slice(3, 0, part.keys),
                               Polarity::Keep);
    }
    return mask;
  }

  Features features_;
  Tensor<T, 4> query_;
  Tensor<T, 4> key_;
  Tensor<T, 4> value_;
  Tensor<T, 4> bias_;
  Tensor<T, 1> sink_;
  Tensor<bool, 2> padding_{{kBatch, kKeys}};
  Tensor<bool, 4> keep_;
  Tensor<Index, 2> query_documents_{{kBatch, kQueries}};
  Tensor<Index, 2> key_documents_{{kBatch, kKeys}};
};

/// Whether the results of a part are those rows of the whole's, bit by bit.
template <class A>
bool is_part_of(const cases::EngineOutputs<A>& got, const Part& part,
                const cases::EngineOutputs<A>& whole) {
  const Index heads = whole.context.shape(1);
  const Index width = whole.context.shape(3);
  for (std::size_t b = 0; b < part.samples.size(); ++b) {
    for (Index h = 0; h < heads; ++h) {
      for (Index t = part.first; t < part.last; ++t) {
        const auto sample = static_cast<Index>(b);
        const A* a = &got.context(sample, h, t - part.first, 0);
        const A* e = &whole.context(part.samples[b], h, t, 0);
        if (std::memcmp(a, e, static_cast<std::size_t>(width) * sizeof(A)) != 0 ||
            std::memcmp(&got.log_sum_exp(sample, h, t - part.first),
                        &whole.log_sum_exp(part.samples[b], h, t), sizeof(A)) != 0) {
          return false;
        }
      }
    }
  }
  return true;
}

class Invariance : public testing::TestWithParam<std::string> {
 protected:
  template <class T>
  void hold(const Features& features) {
    SCOPED_TRACE(features.name);
    const Sequences<T> sequences(features);
    const Part all{{0, 1}};
    const auto whole = sequences.run(all, with(1));
    for (const int threads : {2, 3, 7}) {
      EXPECT_TRUE(is_part_of(sequences.run(all, with(threads)), all, whole))
          << threads << " threads";
    }
    for (const Part& part : {Part{{0}}, Part{{1}}, Part{{1, 0, 1}}}) {
      EXPECT_TRUE(is_part_of(sequences.run(part, with(2)), part, whole))
          << "in a batch of " << part.samples.size();
    }
    for (const Index chunk : {1, 7, 64}) {
      for (Index first = 0; first < kQueries; first += chunk) {
        const Part part{{0, 1}, first, std::min(first + chunk, kQueries)};
        const int threads = first % 5 == 0 ? 3 : 1;
        for (const Part& one : {part, sequences.cut(part)}) {
          ASSERT_TRUE(is_part_of(sequences.run(one, with(threads)), one, whole))
              << "queries from " << first << " on, " << chunk << " at a time, " << one.keys
              << " keys";
        }
      }
    }
  }

  /// Every `step`th set of features.
  template <class T>
  void hold_all(std::size_t step = 1) {
    const std::vector<Features> all = all_features();
    for (std::size_t i = 0; i < all.size(); i += step) hold<T>(all[i]);
  }

 private:
  static engine::Options with(int threads) { return {.threads = threads, .target = GetParam()}; }
};

INSTANTIATE_TEST_SUITE_P(Simd, Invariance, testing::ValuesIn(test::simd_targets()),
                         [](const auto& target) { return target.param; });

TEST_P(Invariance, OfFloat32) { hold_all<float>(); }
TEST_P(Invariance, OfFloat64) { hold_all<double>(); }
TEST_P(Invariance, OfFloat16) { hold_all<Float16>(3); }
TEST_P(Invariance, OfBFloat16) { hold_all<BFloat16>(3); }

}  // namespace
}  // namespace qkv
