// Everything that `qkv trace` shows of one attention call: shapes and strides step by step, masks
// as tensors, the numbers, what a model recorded, and what usually goes wrong.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "qkv/mask.h"
#include "qkv/multi_head_attention.h"
#include "qkv/tensor.h"

namespace qkv::lab {

/// A module and what goes into it.
struct ModuleCall {
  MultiHeadAttention<double> module;
  Tensor<double, 3> input;                     ///< x [B,T,D]
  std::optional<Tensor<double, 3>> key_input;  ///< [B,S,D]; x where absent (self attention)
  std::optional<Tensor<Index, 2>> positions;   ///< [B,T], for rotary positions
};

/// Query, key and value as they enter the scores.
struct HeadTensors {
  Tensor<double, 4> query;  ///< [B,H,T,Dk]
  Tensor<double, 4> key;    ///< [B,Hkv,S,Dk]
  Tensor<double, 4> value;  ///< [B,Hkv,S,Dv]
  std::optional<double> scale;
};

/// What a model computed, to hold our results against. Each is compared where it is there.
struct Recorded {
  std::optional<Tensor<double, 4>> query_before_rotary;  ///< [B,H,T,Dk]
  std::optional<Tensor<double, 4>> key_before_rotary;    ///< [B,Hkv,S,Dk]
  std::optional<Tensor<double, 4>> query;                ///< [B,H,T,Dk]
  std::optional<Tensor<double, 4>> key;                  ///< [B,Hkv,S,Dk]
  std::optional<Tensor<double, 4>> value;                ///< [B,Hkv,S,Dv]
  std::optional<Tensor<double, 4>> weights;              ///< [B,H,T,S]
  std::optional<Tensor<double, 3>> context;              ///< [B,T,H·Dv]
  std::optional<Tensor<double, 3>> output;               ///< [B,T,D]
};

struct TraceInput {
  std::string source;  ///< where the numbers come from, for the first line
  std::variant<HeadTensors, ModuleCall> call;
  Mask mask;
  std::optional<Tensor<double, 4>> bias;          ///< broadcasts to [B,H,T,S]
  std::optional<Tensor<bool, 2>> padded_queries;  ///< [B,T], true where the token is padding
  std::vector<std::vector<std::string>> tokens;   ///< [B][T] and, in self attention, [B][S]
  Recorded recorded;
};

/// What making a tensor did to memory.
enum class Storage : std::uint8_t {
  Computed,  ///< new memory, new numbers
  View,      ///< no new memory: other strides on the same numbers
  Copy,      ///< new memory, the same numbers in another order
  Given,     ///< read as it is
  Absent,    ///< not in the input, so there is nothing to show but the shape
};

/// "computed", "view", "copy", "given" or "absent".
std::string_view name_of(Storage storage);

/// One tensor on the way through attention.
struct LayoutRow {
  std::string step;     ///< projection, split, rotary, scores, weights, context or merge
  std::string tensors;  ///< "Q, K, V" where all three have this layout
  Index count = 1;      ///< how many tensors that are
  std::vector<Index> shape;
  std::vector<Index> strides;  ///< in elements
  bool contiguous = false;
  Index bytes = 0;  ///< elements of one tensor times 8 (float64)
  Storage storage = Storage::Computed;
  std::string reason;
};

/// One step of the demonstration that a transposed tensor cannot be viewed as merged.
struct ViewStep {
  std::string call;
  std::vector<Index> shape;
  std::vector<Index> strides;
  bool contiguous = false;
  Storage storage = Storage::View;
};

/// context [B,H,T,Dv] → [B,T,H·Dv], each way.
struct ViewDemonstration {
  ViewStep context;
  ViewStep transposed;
  std::vector<Index> target;                  ///< [B,T,H·Dv]
  std::optional<std::vector<Index>> strides;  ///< of a plain view, where one is possible
  std::string refusal;                        ///< else what view_as said
  ViewStep contiguous_copy;
  ViewStep view_of_copy;
};

/// One rule of the mask, or all of them, as the additive tensor M that it stands for.
struct MaskTrace {
  std::string rule;      ///< "causal (top-left)"
  Extents<4> shape{};    ///< before broadcasting: [1,1,T,S], [B,1,1,S], …
  Extents<4> strides{};  ///< after broadcasting to [B,H,T,S]: 0 on the axes that repeat
  BoundMask bound;
};

/// A recorded tensor beside ours.
struct Comparison {
  std::string tensor;
  double largest_difference = 0;  ///< NaN where one of the two is NaN and the other is not
  Index compared = 0;             ///< elements that were compared
  Index left_out = 0;             ///< elements of rows that see no key
  bool within_tolerance = false;
};

inline constexpr double kRecordedTolerance = 1e-5;

/// Something that usually goes wrong with attention. Codes (for machines) are row-sees-nothing,
/// padded-queries-computed, mask-axis-ambiguous and weights-do-not-sum-to-one.
struct Warning {
  std::string code;
  std::string text;
};

struct Trace {
  std::string source;
  MaskShape sizes;
  Index kv_heads = 0;
  Index head_width = 0;        ///< Dk
  Index value_head_width = 0;  ///< Dv
  std::optional<Index> model_width;
  double scale = 0;
  bool self_attention = true;
  std::vector<std::vector<std::string>> tokens;
  std::optional<Tensor<bool, 2>> padded_queries;

  std::vector<LayoutRow> layout;
  ViewDemonstration view;
  std::vector<MaskTrace> masks;  ///< one a rule
  MaskTrace mask;                ///< their intersection
  std::optional<Tensor<double, 4>> bias;

  Tensor<double, 4> query;                  ///< [B,H,T,Dk], as it enters the scores
  Tensor<double, 4> key;                    ///< [B,Hkv,S,Dk]
  Tensor<double, 4> value;                  ///< [B,Hkv,S,Dv]
  Tensor<double, 4> scores;                 ///< [B,H,T,S], scaled, before bias and mask
  Tensor<double, 4> weights;                ///< [B,H,T,S]
  Tensor<double, 4> context;                ///< [B,H,T,Dv]
  Tensor<double, 3> log_sum_exp;            ///< [B,H,T]
  Tensor<double, 3> merged;                 ///< [B,T,H·Dv]
  std::optional<Tensor<double, 3>> output;  ///< [B,T,D]

  std::vector<Comparison> comparisons;
  std::vector<Warning> warnings;
};

/// Runs the call and looks at everything. Throws std::invalid_argument where arguments do not fit
/// together, or where more than `memory_limit` bytes would be needed (before they are allocated).
Trace trace(const TraceInput& input, double memory_limit);

/// Sizes of a call, to know its memory before anything is allocated.
struct TraceSizes {
  MaskShape shape;
  Index kv_heads = 0;
  Index head_width = 0;
  Index value_head_width = 0;
  Index model_width = 0;  ///< 0 without projections
};

/// Bytes that a trace of these sizes holds at once, about.
double needed_bytes(const TraceSizes& sizes);

/// Throws std::invalid_argument that states both numbers where needed_bytes is above the limit.
void check_memory(const TraceSizes& sizes, double memory_limit);

}  // namespace qkv::lab
