#include "qkv/mask.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "base/broadcast.h"
#include "base/corner.h"
#include "base/overloaded.h"

namespace qkv {
namespace {

using namespace mask_rules;

[[noreturn]] void fail(std::string_view operation, const std::string& problem) {
  throw std::invalid_argument(fmt::format("{}: mask: {}", operation, problem));
}

void check_not_negative(std::string_view operation, std::string_view what,
                        const std::vector<Index>& values) {
  for (const Index value : values) {
    if (value < 0) fail(operation, fmt::format("expected {} of 0 or more, got {}", what, value));
  }
}

/// Entry b of a per-sample list in which one entry serves every sample.
Index entry(const std::vector<Index>& list, Index b) {
  return list[list.size() == 1 ? 0 : static_cast<std::size_t>(b)];
}

void check_entries(std::string_view operation, std::string_view what, std::size_t entries,
                   const MaskShape& shape) {
  if (entries != 1 && static_cast<Index>(entries) != shape.batch) {
    fail(operation, fmt::format("expected 1 or B={} {}, got {}", shape.batch, what, entries));
  }
}

void check_at_most_keys(std::string_view operation, std::string_view what,
                        const std::vector<Index>& lengths, const MaskShape& shape) {
  for (const Index length : lengths) {
    if (length > shape.keys) {
      fail(operation, fmt::format("expected {} of at most S={}, got {}", what, shape.keys, length));
    }
  }
}

std::vector<Index> expand(const std::vector<Index>& list, Index batch) {
  std::vector<Index> result(static_cast<std::size_t>(batch));
  for (Index b = 0; b < batch; ++b) result[static_cast<std::size_t>(b)] = entry(list, b);
  return result;
}

void check_axis(std::string_view operation, std::string_view what, std::span<const Index> got,
                std::span<const Index> full, bool may_broadcast_first_only) {
  for (std::size_t axis = 0; axis < full.size(); ++axis) {
    const bool may_broadcast = !may_broadcast_first_only || axis == 0;
    if (got[axis] != full[axis] && !(may_broadcast && got[axis] == 1)) {
      fail(operation, fmt::format("expected the shape of {} to broadcast to {}, got {}", what,
                                  to_string(full), to_string(got)));
    }
  }
}

template <class T, int Rank>
std::shared_ptr<Tensor<T, Rank>> shared_copy(std::string_view operation,
                                             const TensorView<const T, Rank>& view) {
  if (view.data() == nullptr && !view.empty()) {
    fail(operation,
         fmt::format("expected data for shape {}, got a null pointer", to_string(view.shape())));
  }
  return std::make_shared<Tensor<T, Rank>>(contiguous_copy(view));
}

template <int Rank>
std::shared_ptr<const Tensor<bool, Rank>> keep_flags(std::string_view operation,
                                                     const TensorView<const bool, Rank>& flags,
                                                     Polarity meaning_of_true) {
  auto keep = shared_copy(operation, flags);
  if (meaning_of_true == Polarity::Drop) {
    for (bool& flag : keep->elements()) flag = !flag;
  }
  return keep;
}

std::string corner_suffix(const std::optional<Corner>& corner) {
  return corner ? ", " + corner->describe() : "";
}

std::string list_of(const std::vector<Index>& values) {
  constexpr std::size_t kShown = 8;
  if (values.size() <= kShown) return to_string(values);
  return fmt::format("{} values", values.size());
}

std::string describe_rule(const MaskRule& rule) {
  return std::visit(
      Overloaded{
          [](const Causal& r) {
            std::string text = r.prefix_lengths.empty()
                                   ? "causal"
                                   : "causal with prefix " + list_of(r.prefix_lengths);
            return r.corner ? text + " (" + r.corner->describe() + ")" : text;
          },
          [](const SlidingWindow& r) {
            const auto side = [](const std::optional<Index>& s) {
              return s ? std::to_string(*s) : std::string("unbounded");
            };
            return fmt::format("window (left {}, right {}{})", side(r.window.left),
                               side(r.window.right), corner_suffix(r.window.corner));
          },
          [](const KeyLengths& r) { return "key lengths " + list_of(r.lengths); },
          [](const KeyPadding& r) { return "key padding " + to_string(r.keep->shape()); },
          [](const Documents& r) {
            return fmt::format("documents {} x {}", to_string(r.query->shape()),
                               to_string(r.key->shape()));
          },
          [](const BooleanTensor& r) { return "boolean " + to_string(r.keep->shape()); },
      },
      rule);
}

}  // namespace

Corner Corner::top_left() { return Corner(Kind::TopLeft); }
Corner Corner::bottom_right() { return Corner(Kind::BottomRight); }
Corner Corner::at(std::vector<Index> offsets) {
  if (offsets.empty()) {
    throw std::invalid_argument("Corner::at: offsets: expected one or one a sample, got none");
  }
  constexpr Index kLargest = Index{1} << 62;
  for (const Index offset : offsets) {
    if (offset > kLargest || offset < -kLargest) {
      throw std::invalid_argument(
          fmt::format("Corner::at: offsets: expected magnitudes up to 2^62, got {}", offset));
    }
  }
  return Corner(Kind::At, std::move(offsets));
}

Index Corner::offset(Index sample, Index queries, Index keys) const {
  switch (kind_) {
    case Kind::TopLeft:
      return 0;
    case Kind::BottomRight:
      return keys - queries;
    case Kind::At:
      return entry(offsets_, sample);
  }
  return 0;
}

std::string Corner::describe() const {
  switch (kind_) {
    case Kind::TopLeft:
      return "top-left";
    case Kind::BottomRight:
      return "bottom-right";
    case Kind::At:
      return "offset " + list_of(offsets_);
  }
  return "";
}

Mask Mask::causal(std::optional<Corner> corner) {
  Mask mask;
  mask.rules_.emplace_back(Causal{std::move(corner), {}});
  return mask;
}

Mask Mask::prefix_causal(std::vector<Index> prefix_lengths, std::optional<Corner> corner) {
  if (prefix_lengths.empty()) {
    fail("Mask::prefix_causal", "expected one prefix length or one a sample, got none");
  }
  check_not_negative("Mask::prefix_causal", "prefix lengths", prefix_lengths);
  Mask mask;
  mask.rules_.emplace_back(Causal{std::move(corner), std::move(prefix_lengths)});
  return mask;
}

Mask Mask::sliding_window(Window window) {
  for (const auto& side : {window.left, window.right}) {
    if (side && *side < 0) {
      fail("Mask::sliding_window",
           fmt::format("expected window sides of 0 or more, got {}", *side));
    }
  }
  Mask mask;
  mask.rules_.emplace_back(SlidingWindow{std::move(window)});
  return mask;
}

Mask Mask::key_lengths(std::vector<Index> lengths) {
  if (lengths.empty()) fail("Mask::key_lengths", "expected one length or one a sample, got none");
  check_not_negative("Mask::key_lengths", "key lengths", lengths);
  Mask mask;
  mask.rules_.emplace_back(KeyLengths{std::move(lengths)});
  return mask;
}

Mask Mask::key_padding(const TensorView<const bool, 2>& flags, Polarity meaning_of_true) {
  Mask mask;
  mask.rules_.emplace_back(KeyPadding{keep_flags("Mask::key_padding", flags, meaning_of_true)});
  return mask;
}

Mask Mask::documents(const TensorView<const Index, 2>& query_documents,
                     const TensorView<const Index, 2>& key_documents) {
  Mask mask;
  mask.rules_.emplace_back(Documents{shared_copy("Mask::documents", query_documents),
                                     shared_copy("Mask::documents", key_documents)});
  return mask;
}

Mask Mask::boolean(const TensorView<const bool, 4>& flags, Polarity meaning_of_true) {
  Mask mask;
  mask.rules_.emplace_back(BooleanTensor{keep_flags("Mask::boolean", flags, meaning_of_true)});
  return mask;
}

Mask operator&(Mask a, const Mask& b) {
  a.rules_.insert(a.rules_.end(), b.rules_.begin(), b.rules_.end());
  return a;
}

std::string Mask::describe() const {
  if (rules_.empty()) return "none";
  std::string text;
  for (const MaskRule& rule : rules_) text += (text.empty() ? "" : " & ") + describe_rule(rule);
  return text;
}

BoundMask Mask::bind(std::string_view operation, const MaskShape& shape) const {
  if (std::min({shape.batch, shape.heads, shape.queries, shape.keys}) < 0) {
    fail(operation,
         fmt::format("expected sizes B, H, T and S of 0 or more, got {}",
                     to_string(Extents<4>{shape.batch, shape.heads, shape.queries, shape.keys})));
  }
  BoundMask bound;
  bound.shape_ = shape;
  const Extents<2> queries{shape.batch, shape.queries};
  const Extents<2> keys{shape.batch, shape.keys};
  const Extents<4> scores{shape.batch, shape.heads, shape.queries, shape.keys};
  for (const MaskRule& rule : rules_) {
    std::visit(Overloaded{
                   [&](const Causal& r) {
                     BoundMask::Band band;
                     band.offset = bind_corner(operation, "mask", "a causal rule", r.corner, shape);
                     band.right = 0;
                     if (!r.prefix_lengths.empty()) {
                       check_entries(operation, "prefix lengths", r.prefix_lengths.size(), shape);
                       check_at_most_keys(operation, "prefix lengths", r.prefix_lengths, shape);
                       band.prefix = expand(r.prefix_lengths, shape.batch);
                     }
                     bound.bands_.push_back(std::move(band));
                   },
                   [&](const SlidingWindow& r) {
                     bound.bands_.push_back(
                         {bind_corner(operation, "mask", "a window rule", r.window.corner, shape),
                          r.window.left,
                          r.window.right,
                          {}});
                   },
                   [&](const KeyLengths& r) {
                     check_entries(operation, "key lengths", r.lengths.size(), shape);
                     check_at_most_keys(operation, "key lengths", r.lengths, shape);
                     const std::vector<Index> lengths = expand(r.lengths, shape.batch);
                     if (bound.lengths_.empty()) bound.lengths_ = lengths;
                     for (std::size_t b = 0; b < lengths.size(); ++b) {
                       bound.lengths_[b] = std::min(bound.lengths_[b], lengths[b]);
                     }
                   },
                   [&](const KeyPadding& r) {
                     check_axis(operation, "key padding", r.keep->shape(), keys, true);
                     bound.pointwise_.emplace_back(r);
                   },
                   [&](const Documents& r) {
                     check_axis(operation, "query documents", r.query->shape(), queries, true);
                     check_axis(operation, "key documents", r.key->shape(), keys, true);
                     bound.pointwise_.emplace_back(r);
                   },
                   [&](const BooleanTensor& r) {
                     check_axis(operation, "a boolean tensor", r.keep->shape(), scores, false);
                     bound.pointwise_.emplace_back(r);
                   },
               },
               rule);
  }
  return bound;
}

KeyRange BoundMask::key_range(Index b, Index t) const noexcept {
  const auto sample = static_cast<std::size_t>(b);
  KeyRange range{0, shape_.keys};
  if (!lengths_.empty()) range.end = std::min(range.end, lengths_[sample]);
  for (const Band& band : bands_) {
    const Index position = t + band.offset[sample];
    if (band.left && *band.left <= position) {
      range.begin = std::max(range.begin, position - *band.left);
    }
    if (band.right) {
      // position + right + 1 may overflow for a huge right, which then bounds nothing
      Index end = position >= shape_.keys - *band.right ? shape_.keys : position + *band.right + 1;
      if (!band.prefix.empty()) end = std::max(end, band.prefix[sample]);
      range.end = std::min(range.end, end);
    }
  }
  if (range.begin >= range.end) return {0, 0};
  return range;
}

bool BoundMask::passes_pointwise_rules(Index b, Index h, Index t, Index s) const noexcept {
  const auto at = [](const auto& tensor, Index sample, Index position) {
    return tensor(broadcast_index(tensor.shape(0), sample), position);
  };
  for (const Pointwise& rule : pointwise_) {
    const bool keeps =
        std::visit(Overloaded{
                       [&](const KeyPadding& r) { return at(*r.keep, b, s); },
                       [&](const Documents& r) { return at(*r.query, b, t) == at(*r.key, b, s); },
                       [&](const BooleanTensor& r) {
                         return broadcast_at(std::as_const(*r.keep).view(), b, h, t, s);
                       },
                   },
                   rule);
    if (!keeps) return false;
  }
  return true;
}

bool BoundMask::visible(Index b, Index h, Index t, Index s) const noexcept {
  const KeyRange range = key_range(b, t);
  return s >= range.begin && s < range.end && passes_pointwise_rules(b, h, t, s);
}

bool BoundMask::row_sees_a_key(Index b, Index h, Index t) const noexcept {
  const KeyRange range = key_range(b, t);
  for (Index s = range.begin; s < range.end; ++s) {
    if (passes_pointwise_rules(b, h, t, s)) return true;
  }
  return false;
}

}  // namespace qkv
