// Checks the arguments of an attention call once, at the public edge, before any work.
#pragma once

#include <span>
#include <string_view>

#include "base/cached_tokens.h"
#include "base/few.h"
#include "base/overlap.h"
#include "qkv/attention.h"

namespace qkv {

/// The sizes of a call whose arguments fit together.
struct AttentionShape {
  Index batch = 0;        // B
  Index heads = 0;        // H
  Index kv_heads = 0;     // Hkv
  Index queries = 0;      // T
  Index keys = 0;         // S
  Index key_width = 0;    // Dk
  Index value_width = 0;  // Dv

  Index group() const noexcept { return kv_heads == 0 ? 0 : heads / kv_heads; }
};

/// A checked call: sizes, defaults filled in, the mask and the ALiBi corner applied to them. Refers to the inputs.
struct AttentionPlan {
  AttentionShape shape;
  double scale = 0;
  BoundMask mask;
  Diagonal alibi_offset;  // of each sample
};

/// Throws std::invalid_argument "operation: argument: expected …, got …".
template <class T>
AttentionPlan validate_inputs(std::string_view operation, const AttentionInputs<T>& inputs);

/// The part of that which is not about query, key and value: scale, softcap, bias, ALiBi, sink and mask against sizes. Queries
/// may be the last tokens of a cache: the mask is narrowed to what they see, and ALiBi without a corner takes their positions.
template <class T>
AttentionPlan validate_options(std::string_view operation, const AttentionInputs<T>& inputs,
                               const AttentionShape& shape, const CachedTokens* tokens = nullptr);

/// A view by name, for checks of shape, memory and overlap.
struct NamedView {
  std::string_view name;
  Footprint view;
};

/// Every output has the expected shape (checked by expect_shape), does not repeat an element and shares no
/// memory with another output or an input.
void validate_outputs(std::string_view operation, std::span<const NamedView> outputs,
                      std::span<const NamedView> inputs);

/// What a forward call writes fits its sizes and is apart from what it reads. R is the element of the results.
template <class T, class R>
void validate_outputs(std::string_view operation, const AttentionInputs<T>& inputs,
                      const AttentionShape& shape, const AttentionOutputs<R>& outputs);

/// The same for a backward call: what it reads besides the inputs, and what it writes. A gradient of a bias or sink
/// needs that bias or sink. `also_read` is apart from the results too.
template <class T, class R>
void validate_gradients(std::string_view operation, const AttentionInputs<T>& inputs,
                        const AttentionShape& shape,
                        const AttentionOutputGradients<R>& output_gradients,
                        const AttentionInputGradients<R>& input_gradients,
                        std::span<const NamedView> also_read = {});

/// Throws unless the view has this shape, addresses that can be computed without overflow, and data
/// where it is not empty.
void expect_shape(std::string_view operation, const NamedView& argument,
                  std::span<const Index> expected);

/// The tensors of a call: 5 of its inputs, 5 more of a backward call.
using NamedViews = Few<NamedView, 12>;

/// The tensors that a call reads, by name.
template <class T>
NamedViews named_inputs(const AttentionInputs<T>& inputs);

}  // namespace qkv
