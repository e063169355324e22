// The table of attention cases: one list of shapes, masks and modifiers that feeds the tests of values, of
// gradients and the benchmarks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "qkv/attention.h"

namespace qkv::cases {

struct CaseShape {
  Index batch = 1;
  Index heads = 1;
  Index kv_heads = 1;
  Index queries = 1;
  Index keys = 1;
  Index key_width = 1;
  Index value_width = 1;
};

/// Every rule of visibility and every score modifier of the library, in one form or several.
enum class Feature : std::uint8_t {
  CausalTopLeft,
  CausalBottomRight,
  CausalOffsets,   // a diagonal of its own for each sample
  PrefixCausal,    // a prefix of its own for each sample
  Window,          // both sides, bottom-right
  WindowLeft,      // left side only, top-left
  KeyLengths,      // another for each sample; the last sample sees everything
  KeyPadding,      // on the right, ragged
  KeyPaddingLeft,  // on the left, ragged: causal rows may then see nothing
  Documents,
  BooleanFull,       // [B,H,T,S]
  BooleanBroadcast,  // [1,H,1,S]
  Scale,
  Softcap,
  BiasFull,       // [B,H,T,S]
  BiasBroadcast,  // [1,H,T,1]
  BiasHiding,     // [B,1,T,S] with -inf entries
  AlibiTopLeft,
  AlibiBottomRight,
  Sink,
};

std::string name_of(Feature feature);
std::vector<Feature> all_features();

struct AttentionCase {
  CaseShape shape;
  std::vector<Feature> features;
  std::uint64_t seed = 1;

  std::string name() const;
};

/// The shape with no feature, with each feature alone and with each pair of features that can be set
/// together (two biases, for one, cannot).
std::vector<AttentionCase> alone_and_in_pairs(const CaseShape& shape);

/// A case with its tensors: values N(0,1), reproducible from the seed.
template <class T>
struct CaseData {
  Tensor<T, 4> query;
  Tensor<T, 4> key;
  Tensor<T, 4> value;
  std::optional<Tensor<T, 4>> bias;
  std::optional<Tensor<T, 1>> sink;
  AttentionInputs<T> options;  // all but the tensors

  /// Views of the tensors above, which must outlive them.
  AttentionInputs<T> inputs() const;
};

template <class T>
CaseData<T> make_case(const AttentionCase& attention_case);

/// A tensor of N(0,1) values, reproducible from the seed on every platform.
template <class T, int Rank>
Tensor<T, Rank> random_tensor(const Extents<Rank>& shape, std::uint64_t seed);

}  // namespace qkv::cases
