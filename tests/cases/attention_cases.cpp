#include "tests/cases/attention_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>
#include <random>

namespace qkv::cases {
namespace {

constexpr std::array kFeatures{Feature::CausalTopLeft,
                               Feature::CausalBottomRight,
                               Feature::CausalOffsets,
                               Feature::PrefixCausal,
                               Feature::Window,
                               Feature::WindowLeft,
                               Feature::KeyLengths,
                               Feature::KeyPadding,
                               Feature::KeyPaddingLeft,
                               Feature::Documents,
                               Feature::BooleanFull,
                               Feature::BooleanBroadcast,
                               Feature::Scale,
                               Feature::Softcap,
                               Feature::BiasFull,
                               Feature::BiasBroadcast,
                               Feature::BiasHiding,
                               Feature::AlibiTopLeft,
                               Feature::AlibiBottomRight,
                               Feature::Sink};

bool is_bias(Feature f) {
  return f == Feature::BiasFull || f == Feature::BiasBroadcast || f == Feature::BiasHiding;
}

bool is_alibi(Feature f) { return f == Feature::AlibiTopLeft || f == Feature::AlibiBottomRight; }

bool can_be_set_together(Feature a, Feature b) {
  return !(is_bias(a) && is_bias(b)) && !(is_alibi(a) && is_alibi(b));
}

Tensor<bool, 4> random_flags(const Extents<4>& shape, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Tensor<bool, 4> flags(shape);
  for (bool& flag : flags.elements()) flag = random() % 3 != 0;
  return flags;
}

/// Sample b keeps all but b·S/(B+1) keys on one side, so that the lengths differ.
Tensor<bool, 2> ragged(const CaseShape& shape, bool padding_on_the_left) {
  Tensor<bool, 2> keep({shape.batch, shape.keys});
  for (Index b = 0; b < shape.batch; ++b) {
    const Index hidden = b * shape.keys / (shape.batch + 1);
    for (Index s = 0; s < shape.keys; ++s) {
      keep(b, s) = padding_on_the_left ? s >= hidden : s < shape.keys - hidden;
    }
  }
  return keep;
}

std::vector<Index> per_sample(Index batch, Index first, Index step, Index largest) {
  std::vector<Index> values;
  for (Index b = 0; b < batch; ++b) values.push_back(std::min(first + b * step, largest));
  return values;
}

/// Three documents of about the same length, running along positions.
Tensor<Index, 2> document_numbers(Index batch, Index length) {
  Tensor<Index, 2> numbers({batch, length});
  for (Index b = 0; b < batch; ++b) {
    for (Index i = 0; i < length; ++i) numbers(b, i) = (i + b) * 3 / (length + b);
  }
  return numbers;
}

std::vector<double> slopes(Index heads) {
  std::vector<double> result;
  for (Index h = 0; h < heads; ++h) result.push_back(0.5 / static_cast<double>(h + 1));
  return result;
}

template <class T>
void add_feature(Feature feature, const CaseShape& shape, std::uint64_t seed, CaseData<T>& data) {
  AttentionInputs<T>& options = data.options;
  const Extents<4> full{shape.batch, shape.heads, shape.queries, shape.keys};
  const auto hide = [&](const Mask& rule) { options.mask = options.mask & rule; };
  switch (feature) {
    case Feature::CausalTopLeft:
      return hide(Mask::causal(Corner::top_left()));
    case Feature::CausalBottomRight:
      return hide(Mask::causal(Corner::bottom_right()));
    case Feature::CausalOffsets:
      return hide(Mask::causal(Corner::at(per_sample(shape.batch, -1, 2, shape.keys))));
    case Feature::PrefixCausal:
      return hide(
          Mask::prefix_causal(per_sample(shape.batch, 0, 2, shape.keys), Corner::top_left()));
    case Feature::Window:
      return hide(Mask::sliding_window({shape.keys / 3, 1, Corner::bottom_right()}));
    case Feature::WindowLeft:
      return hide(Mask::sliding_window({shape.keys / 4, std::nullopt, Corner::top_left()}));
    case Feature::KeyLengths:
      return hide(Mask::key_lengths(
          per_sample(shape.batch, shape.keys / 2, std::max<Index>(shape.keys / 4, 1), shape.keys)));
    case Feature::KeyPadding:
      return hide(Mask::key_padding(ragged(shape, false).view(), Polarity::Keep));
    case Feature::KeyPaddingLeft:
      return hide(Mask::key_padding(ragged(shape, true).view(), Polarity::Keep));
    case Feature::Documents:
      return hide(Mask::documents(document_numbers(shape.batch, shape.queries).view(),
                                  document_numbers(shape.batch, shape.keys).view()));
    case Feature::BooleanFull:
      return hide(Mask::boolean(random_flags(full, seed).view(), Polarity::Keep));
    case Feature::BooleanBroadcast:
      return hide(Mask::boolean(random_flags({1, shape.heads, 1, shape.keys}, seed).view(),
                                Polarity::Drop));
    case Feature::Scale:
      options.scale = 0.37;
      return;
    case Feature::Softcap:
      options.softcap = 1.7;
      return;
    case Feature::BiasFull:
      data.bias = random_tensor<T, 4>(full, seed);
      return;
    case Feature::BiasBroadcast:
      data.bias = random_tensor<T, 4>({1, shape.heads, shape.queries, 1}, seed);
      return;
    case Feature::BiasHiding: {
      data.bias = random_tensor<T, 4>({shape.batch, 1, shape.queries, shape.keys}, seed);
      const Tensor<bool, 4> keep =
          random_flags({shape.batch, 1, shape.queries, shape.keys}, seed + 1);
      for (std::size_t i = 0; i < keep.elements().size(); ++i) {
        if (!keep.elements()[i]) {
          data.bias->elements()[i] = static_cast<T>(-std::numeric_limits<double>::infinity());
        }
      }
      return;
    }
    case Feature::AlibiTopLeft:
      options.alibi = Alibi{slopes(shape.heads), Corner::top_left()};
      return;
    case Feature::AlibiBottomRight:
      options.alibi = Alibi{slopes(shape.heads), Corner::bottom_right()};
      return;
    case Feature::Sink:
      data.sink = random_tensor<T, 1>({shape.heads}, seed);
      return;
  }
}

}  // namespace

std::string name_of(Feature feature) {
  switch (feature) {
    case Feature::CausalTopLeft:
      return "CausalTopLeft";
    case Feature::CausalBottomRight:
      return "CausalBottomRight";
    case Feature::CausalOffsets:
      return "CausalOffsets";
    case Feature::PrefixCausal:
      return "PrefixCausal";
    case Feature::Window:
      return "Window";
    case Feature::WindowLeft:
      return "WindowLeft";
    case Feature::KeyLengths:
      return "KeyLengths";
    case Feature::KeyPadding:
      return "KeyPadding";
    case Feature::KeyPaddingLeft:
      return "KeyPaddingLeft";
    case Feature::Documents:
      return "Documents";
    case Feature::BooleanFull:
      return "BooleanFull";
    case Feature::BooleanBroadcast:
      return "BooleanBroadcast";
    case Feature::Scale:
      return "Scale";
    case Feature::Softcap:
      return "Softcap";
    case Feature::BiasFull:
      return "BiasFull";
    case Feature::BiasBroadcast:
      return "BiasBroadcast";
    case Feature::BiasHiding:
      return "BiasHiding";
    case Feature::AlibiTopLeft:
      return "AlibiTopLeft";
    case Feature::AlibiBottomRight:
      return "AlibiBottomRight";
    case Feature::Sink:
      return "Sink";
  }
  return "";
}

std::vector<Feature> all_features() { return {kFeatures.begin(), kFeatures.end()}; }

std::string AttentionCase::name() const {
  std::string text =
      fmt::format("B{}H{}Kv{}T{}S{}Dk{}Dv{}", shape.batch, shape.heads, shape.kv_heads,
                  shape.queries, shape.keys, shape.key_width, shape.value_width);
  for (const Feature feature : features) text += "_" + name_of(feature);
  return text;
}

std::vector<AttentionCase> alone_and_in_pairs(const CaseShape& shape) {
  std::vector<AttentionCase> result{{shape, {}, 1}};
  const std::vector<Feature> features = all_features();
  for (std::size_t i = 0; i < features.size(); ++i) {
    result.push_back({shape, {features[i]}, 100 + i});
    for (std::size_t j = 0; j < i; ++j) {
      if (!can_be_set_together(features[i], features[j])) continue;
      result.push_back({shape, {features[j], features[i]}, 1000 + 100 * i + j});
    }
  }
  return result;
}

template <class T, int Rank>
Tensor<T, Rank> random_tensor(const Extents<Rank>& shape, std::uint64_t seed) {
  // Box-Muller over the engine's own bits: the distributions of the standard library differ by vendor.
  std::mt19937_64 random(seed);
  const auto uniform = [&] { return (static_cast<double>(random() >> 11) + 0.5) * 0x1p-53; };
  Tensor<T, Rank> result(shape);
  for (T& element : result.elements()) {
    const double radius = std::sqrt(-2 * std::log(uniform()));
    element = static_cast<T>(radius * std::cos(2 * std::numbers::pi * uniform()));
  }
  return result;
}

template <class T>
CaseData<T> make_case(const AttentionCase& attention_case) {
  const CaseShape& shape = attention_case.shape;
  const std::uint64_t seed = attention_case.seed * 1'000'003;
  CaseData<T> data;
  data.query =
      random_tensor<T, 4>({shape.batch, shape.heads, shape.queries, shape.key_width}, seed);
  data.key =
      random_tensor<T, 4>({shape.batch, shape.kv_heads, shape.keys, shape.key_width}, seed + 1);
  data.value =
      random_tensor<T, 4>({shape.batch, shape.kv_heads, shape.keys, shape.value_width}, seed + 2);
  std::uint64_t feature_seed = seed + 10;
  for (const Feature feature : attention_case.features) {
    add_feature(feature, shape, feature_seed, data);
    feature_seed += 10;
  }
  return data;
}

template <class T>
AttentionInputs<T> CaseData<T>::inputs() const {
  AttentionInputs<T> result = options;
  result.query = query.view();
  result.key = key.view();
  result.value = value.view();
  if (bias) result.bias = bias->view();
  if (sink) result.sink = sink->view();
  return result;
}

#define QKV_INSTANTIATE(T)                                               \
  template Tensor<T, 1> random_tensor(const Extents<1>&, std::uint64_t); \
  template Tensor<T, 2> random_tensor(const Extents<2>&, std::uint64_t); \
  template Tensor<T, 3> random_tensor(const Extents<3>&, std::uint64_t); \
  template Tensor<T, 4> random_tensor(const Extents<4>&, std::uint64_t); \
  template CaseData<T> make_case(const AttentionCase&);                  \
  template struct CaseData<T>;
QKV_INSTANTIATE(double)
QKV_INSTANTIATE(float)
QKV_INSTANTIATE(Float16)
QKV_INSTANTIATE(BFloat16)
#undef QKV_INSTANTIATE

}  // namespace qkv::cases
