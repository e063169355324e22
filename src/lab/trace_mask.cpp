#include "lab/trace_mask.h"

#include <array>
#include <limits>
#include <string_view>
#include <utility>
#include <variant>

#include "base/overloaded.h"

namespace qkv::lab {
namespace {

constexpr std::string_view kOperation = "trace";

/// Which axes of [B,H,T,S] a rule's answer depends on.
using Axes = std::array<bool, 4>;

bool one_a_sample(const std::vector<Index>& entries) { return entries.size() > 1; }

bool one_a_sample(const std::optional<Corner>& corner) {
  return corner && one_a_sample(corner->offsets());
}

Axes axes_of(const MaskRule& rule, const MaskShape& shape) {
  using namespace mask_rules;
  return std::visit(
      Overloaded{
          [](const Causal& r) -> Axes {
            return {one_a_sample(r.corner) || one_a_sample(r.prefix_lengths), false, true, true};
          },
          [](const SlidingWindow& r) -> Axes {
            return {one_a_sample(r.window.corner), false, true, true};
          },
          [](const KeyLengths& r) -> Axes {
            return {one_a_sample(r.lengths), false, false, true};
          },
          [&](const KeyPadding& r) -> Axes {
            return {r.keep->shape(0) == shape.batch, false, false, true};
          },
          [&](const Documents& r) -> Axes {
            return {r.query->shape(0) == shape.batch || r.key->shape(0) == shape.batch, false, true,
                    true};
          },
          [&](const BooleanTensor& r) -> Axes {
            const Tensor<bool, 4>& keep = *r.keep;
            return {keep.shape(0) == shape.batch, keep.shape(1) == shape.heads,
                    keep.shape(2) == shape.queries, keep.shape(3) == shape.keys};
          },
      },
      rule);
}

/// A mask of this rule alone.
Mask mask_of(const MaskRule& rule) {
  using namespace mask_rules;
  return std::visit(
      Overloaded{
          [](const Causal& r) {
            return r.prefix_lengths.empty() ? Mask::causal(r.corner)
                                            : Mask::prefix_causal(r.prefix_lengths, r.corner);
          },
          [](const SlidingWindow& r) { return Mask::sliding_window(r.window); },
          [](const KeyLengths& r) { return Mask::key_lengths(r.lengths); },
          [](const KeyPadding& r) { return Mask::key_padding(r.keep->view(), Polarity::Keep); },
          [](const Documents& r) { return Mask::documents(r.query->view(), r.key->view()); },
          [](const BooleanTensor& r) { return Mask::boolean(r.keep->view(), Polarity::Keep); },
      },
      rule);
}

MaskTrace trace_of(const Mask& mask, const Axes& axes, const MaskShape& shape) {
  MaskTrace result;
  result.rule = mask.describe();
  result.bound = mask.bind(kOperation, shape);
  const Extents<4> full{shape.batch, shape.heads, shape.queries, shape.keys};
  for (std::size_t axis = 0; axis < 4; ++axis) result.shape[axis] = axes[axis] ? full[axis] : 1;
  row_major_strides(result.shape, result.strides);
  for (std::size_t axis = 0; axis < 4; ++axis) {
    if (!axes[axis]) result.strides[axis] = 0;
  }
  return result;
}

}  // namespace

std::vector<MaskTrace> trace_rules(const Mask& mask, const MaskShape& shape) {
  std::vector<MaskTrace> result;
  for (const MaskRule& rule : mask.rules()) {
    result.push_back(trace_of(mask_of(rule), axes_of(rule, shape), shape));
  }
  return result;
}

MaskTrace trace_mask(const Mask& mask, const MaskShape& shape) {
  Axes axes{};
  for (const MaskRule& rule : mask.rules()) {
    const Axes more = axes_of(rule, shape);
    for (std::size_t axis = 0; axis < 4; ++axis) axes[axis] = axes[axis] || more[axis];
  }
  return trace_of(mask, axes, shape);
}

double additive(const MaskTrace& mask, Index b, Index h, Index t, Index s) {
  return mask.bound.visible(b, h, t, s) ? 0.0 : -std::numeric_limits<double>::infinity();
}

}  // namespace qkv::lab
