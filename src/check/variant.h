// A computation of attention, stage by stage, as a list of knobs. The default of every knob is what a Dump means; a class of
// bugs turns one or a few of them, and so two classes can be turned together.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>

#include "qkv/tensor.h"

namespace qkv {

/// q, k and v, as indices of arrays of three.
inline constexpr std::size_t kQuery = 0;
inline constexpr std::size_t kKey = 1;
inline constexpr std::size_t kValue = 2;

enum class Activation : std::uint8_t { None, Relu, Gelu, Tanh, Silu, Sigmoid };

/// x·Wᵀ + b of q, k and v.
struct ProjectionVariant {
  std::array<std::size_t, 3> weight{kQuery, kKey, kValue};  ///< whose weight each takes
  std::array<std::size_t, 3> bias{kQuery, kKey, kValue};    ///< 3: none
  std::array<bool, 3> transposed{};                         ///< x·W
  std::array<Activation, 3> activation{};
  /// How the rows of the packed weight are read: the order of the three parts, and whether they repeat for each head.
  std::optional<std::array<std::size_t, 3>> packed_order;
  bool packed_by_head = false;
  bool from_input = false;  ///< x·Wᵀ even where the dump has q, k and v
  bool operator==(const ProjectionVariant&) const = default;
};

/// How elements of a token become heads, or heads a token.
enum class HeadOrder : std::uint8_t {
  Right,        ///< (h d), with the transpose
  View,         ///< [T,H·D] read as [H,T,D]
  Interleaved,  ///< (d h)
};

struct NormVariant {
  bool missing = false;
  bool unweighted = false;
  bool order_exchanged = false;  ///< of norm and rotary positions
  bool operator==(const NormVariant&) const = default;
};

struct RotaryVariant {
  bool missing = false;
  bool pairing_exchanged = false;
  bool over_heads = false;  ///< turned by the number of the head
  bool counted = false;     ///< positions 0, 1, 2, … in place of those given
  bool backward = false;    ///< the opposite angle
  bool twice = false;
  std::optional<double> base;
  std::optional<Index> width;
  Index shift = 0;
  Index reset = 0;    ///< positions modulo this; 0: never
  double factor = 1;  ///< of the positions
  bool operator==(const RotaryVariant&) const = default;
};

/// Which head stands for a head.
enum class HeadMap : std::uint8_t { Own, Modulo, First };

enum class SoftcapOrder : std::uint8_t {
  Intended,
  Missing,
  AfterBias,    ///< cap of score + bias
  AfterMask,    ///< cap of everything, the mask's −∞ included
  BeforeScale,  ///< cap of the product, then the scale
};
enum class BiasOrder : std::uint8_t { Intended, Missing, Scaled };
/// Whose rule is taken for sample b and head h.
enum class SampleMap : std::uint8_t {
  Own,
  First,  ///< sample 0
  Tiled,  ///< (b·H + h) mod B
  Head,   ///< sample h
  Next,   ///< (b + 1) mod B
};

struct CornerVariant {
  std::optional<Index> offset;  ///< the key position of query 0
  bool by_length = false;       ///< the sample's length less T
};

/// Whose slope a head takes.
enum class AlibiHead : std::uint8_t { Own, Reversed, First };

/// What is added to the product or done to it before the mask.
struct ScoreVariant {
  std::optional<double> scale;
  std::optional<double> softcap;  ///< another cap, or one that was not meant
  SoftcapOrder softcap_order = SoftcapOrder::Intended;
  BiasOrder bias_order = BiasOrder::Intended;
  double bias_factor = 1;
  SampleMap bias_sample = SampleMap::Own;
  bool bias_transposed = false;
  double alibi_factor = 1;  ///< 0: missing
  AlibiHead alibi_head = AlibiHead::Own;
  CornerVariant alibi_corner;
  /// A product beyond the largest float16 becomes infinite, or that number.
  bool overflow = false;
  bool saturate = false;
};

/// The rules that bugs bend one by one. A prefix belongs to the causal rule, lengths to the padding.
inline constexpr std::size_t kCausal = 0;
inline constexpr std::size_t kWindow = 1;
inline constexpr std::size_t kPadding = 2;
inline constexpr std::size_t kBoolean = 3;
inline constexpr std::size_t kDocuments = 4;
inline constexpr std::size_t kRules = 5;

enum class Application : std::uint8_t {
  Hide,          ///< −∞
  Fill,          ///< the score becomes `value`
  Add,           ///< `value` is added to the score
  AddToOthers,   ///< `value` is added to the scores that no such rule hides
  AfterSoftmax,  ///< the weight becomes 0, and the others stay
};

enum class PaddingAxis : std::uint8_t { Key, Query, Head };

struct RuleVariant {
  bool dropped = false;
  bool complement = false;
  SampleMap sample = SampleMap::Own;
  Application application = Application::Hide;
  double value = 0;
};

enum class Triangle : std::uint8_t { Intended, Strict, Upper };

struct VisibilityVariant {
  std::array<RuleVariant, kRules> rules;
  bool complement = false;  ///< of all rules together
  Triangle triangle = Triangle::Intended;
  bool prefix_dropped = false;
  CornerVariant causal_corner;
  CornerVariant window_corner;
  bool window_changed = false;
  std::optional<Index> window_left;  ///< where changed
  std::optional<Index> window_right;
  PaddingAxis padding_axis = PaddingAxis::Key;
  bool boolean_transposed = false;
  std::optional<Index> unmeant_causal;  ///< key position of query 0 by a causal rule nobody meant
};

/// What a row gives that has nothing to attend to.
enum class EmptyPolicy : std::uint8_t {
  Intended,
  Zero,
  NaN,
  Mean,        ///< of all values
  MeanOfRest,  ///< of those that the rules of position leave
  Softmax,     ///< of all scores
  SoftmaxOfRest,
  /// Softmax of scores to which every rule that hides added the lowest number of the dtype.
  AddedLowest,
  AddedLowestFloat32,
};

enum class SoftmaxAxis : std::uint8_t { Keys, Queries, Heads, Batch };
/// What the keys of a query are.
enum class Attended : std::uint8_t { Keys, Heads, Batch };
enum class HeadMean : std::uint8_t { None, Context, Weights };

struct SoftmaxVariant {
  SoftmaxAxis axis = SoftmaxAxis::Keys;
  double exponent = 1;  ///< ln 2 where 2^s stands for e^s
  double tail = 0;      ///< scores of 0 that are counted beside the keys
  bool sink_missing = false;
  double weight_factor = 1;
  bool transposed = false;  ///< Aᵀ·v
};

struct OutputVariant {
  HeadOrder merge = HeadOrder::Right;
  bool projection_missing = false;
  bool projection_transposed = false;
  double bias_factor = 1;         ///< 0: missing
  bool projection_extra = false;  ///< projected where the dump says that it is not
  Activation activation = Activation::None;
};

struct Variant {
  ProjectionVariant projection;
  std::array<HeadOrder, 3> split{};
  std::array<NormVariant, 2> norm{};      ///< of q and k
  std::array<RotaryVariant, 2> rotary{};  ///< of q and k
  std::array<HeadMap, 3> head{};          ///< of q, k and v
  ScoreVariant score;
  VisibilityVariant visibility;
  EmptyPolicy empty = EmptyPolicy::Intended;
  Attended attended = Attended::Keys;
  HeadMean head_mean = HeadMean::None;
  SoftmaxVariant softmax;
  OutputVariant output;
};

}  // namespace qkv
