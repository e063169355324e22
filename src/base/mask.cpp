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
Index entry(std::span<const Index> list, Index b) noexcept {
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

/// Leaves the keys [p − left, p + right], or those below the prefix.
void narrow(KeyRange& range, Index keys, Index position, const std::optional<Index>& left,
            const std::optional<Index>& right, Index prefix) noexcept {
  if (left && *left <= position) range.begin = std::max(range.begin, position - *left);
  if (!right) return;
  // position + right + 1 may overflow for a huge right, which then bounds nothing
  const Index end = position >= keys - *right ? keys : position + *right + 1;
  range.end = std::min(range.end, std::max(end, prefix));
}

}  // namespace

/// The rules as they were given, and sorted by what a bound mask asks of them: views into the first list.
struct Mask::Rules {
  struct Band {  // keys [p − left, p + right], p = t + the corner's offset; or below the prefix
    const std::optional<Corner>& corner;
    std::optional<Index> left;
    std::optional<Index> right;
    std::span<const Index> prefix;
  };

  explicit Rules(std::vector<MaskRule> rules) : all(std::move(rules)) {
    const auto sort = Overloaded{
        [&](const Causal& r) {
          bands.push_back({r.corner, std::nullopt, Index{0}, r.prefix_lengths});
        },
        [&](const SlidingWindow& r) {
          bands.push_back({r.window.corner, r.window.left, r.window.right, {}});
        },
        [&](const KeyLengths& r) { lengths.emplace_back(r.lengths); },
        [&](const auto& r) { pointwise.emplace_back(r); },
    };
    for (const MaskRule& rule : all) std::visit(sort, rule);
  }
  Rules(const Rules&) = delete;
  Rules& operator=(const Rules&) = delete;

  const std::vector<MaskRule> all;
  std::vector<Band> bands;
  std::vector<std::span<const Index>> lengths;  // keys below the sample's entry
  std::vector<BoundMask::Pointwise> pointwise;
};

Mask::Mask(std::vector<MaskRule> rules) : rules_(std::make_shared<Rules>(std::move(rules))) {}

std::span<const MaskRule> Mask::rules() const noexcept {
  return rules_ == nullptr ? std::span<const MaskRule>() : std::span(rules_->all);
}

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

Mask Mask::causal(std::optional<Corner> corner) { return Mask({Causal{std::move(corner), {}}}); }

Mask Mask::prefix_causal(std::vector<Index> prefix_lengths, std::optional<Corner> corner) {
  if (prefix_lengths.empty()) {
    fail("Mask::prefix_causal", "expected one prefix length or one a sample, got none");
  }
  check_not_negative("Mask::prefix_causal", "prefix lengths", prefix_lengths);
  return Mask({Causal{std::move(corner), std::move(prefix_lengths)}});
}

Mask Mask::sliding_window(Window window) {
  for (const auto& side : {window.left, window.right}) {
    if (side && *side < 0) {
      fail("Mask::sliding_window",
           fmt::format("expected window sides of 0 or more, got {}", *side));
    }
  }
  return Mask({SlidingWindow{std::move(window)}});
}

Mask Mask::key_lengths(std::vector<Index> lengths) {
  if (lengths.empty()) fail("Mask::key_lengths", "expected one length or one a sample, got none");
  check_not_negative("Mask::key_lengths", "key lengths", lengths);
  return Mask({KeyLengths{std::move(lengths)}});
}

Mask Mask::key_padding(const TensorView<const bool, 2>& flags, Polarity meaning_of_true) {
  return Mask({KeyPadding{keep_flags("Mask::key_padding", flags, meaning_of_true)}});
}

Mask Mask::documents(const TensorView<const Index, 2>& query_documents,
                     const TensorView<const Index, 2>& key_documents) {
  return Mask({Documents{shared_copy("Mask::documents", query_documents),
                         shared_copy("Mask::documents", key_documents)}});
}

Mask Mask::boolean(const TensorView<const bool, 4>& flags, Polarity meaning_of_true) {
  return Mask({BooleanTensor{keep_flags("Mask::boolean", flags, meaning_of_true)}});
}

Mask operator&(const Mask& a, const Mask& b) {
  if (b.rules_ == nullptr) return a;
  if (a.rules_ == nullptr) return b;
  std::vector<MaskRule> rules = a.rules_->all;
  rules.insert(rules.end(), b.rules_->all.begin(), b.rules_->all.end());
  return Mask(std::move(rules));
}

std::string Mask::describe() const {
  if (rules_ == nullptr) return "none";
  std::string text;
  for (const MaskRule& rule : rules_->all)
    text += (text.empty() ? "" : " & ") + describe_rule(rule);
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
  if (rules_ == nullptr) return bound;
  const Extents<2> queries{shape.batch, shape.queries};
  const Extents<2> keys{shape.batch, shape.keys};
  const Extents<4> scores{shape.batch, shape.heads, shape.queries, shape.keys};
  const auto check = Overloaded{
      [&](const Causal& r) {
        bind_corner(operation, "mask", "a causal rule", r.corner, shape);
        if (r.prefix_lengths.empty()) return;
        check_entries(operation, "prefix lengths", r.prefix_lengths.size(), shape);
        check_at_most_keys(operation, "prefix lengths", r.prefix_lengths, shape);
      },
      [&](const SlidingWindow& r) {
        bind_corner(operation, "mask", "a window rule", r.window.corner, shape);
      },
      [&](const KeyLengths& r) {
        check_entries(operation, "key lengths", r.lengths.size(), shape);
        check_at_most_keys(operation, "key lengths", r.lengths, shape);
      },
      [&](const KeyPadding& r) {
        check_axis(operation, "key padding", r.keep->shape(), keys, true);
      },
      [&](const Documents& r) {
        check_axis(operation, "query documents", r.query->shape(), queries, true);
        check_axis(operation, "key documents", r.key->shape(), keys, true);
      },
      [&](const BooleanTensor& r) {
        check_axis(operation, "a boolean tensor", r.keep->shape(), scores, false);
      },
  };
  for (const MaskRule& rule : rules_->all) std::visit(check, rule);
  bound.rules_ = rules_;
  bound.pointwise_ = rules_->pointwise;
  return bound;
}

KeyRange BoundMask::key_range(Index b, Index t) const noexcept {
  KeyRange range{0, shape_.keys};
  if (!cached_lengths_.empty()) {
    const Index position = entry(cached_lengths_, b) - shape_.queries + t;
    narrow(range, shape_.keys, position, cached_window_, Index{0}, 0);
  }
  if (rules_ != nullptr) {
    for (const auto& lengths : rules_->lengths) range.end = std::min(range.end, entry(lengths, b));
    for (const Mask::Rules::Band& band : rules_->bands) {
      const Index offset = band.corner ? band.corner->offset(b, shape_.queries, shape_.keys) : 0;
      const Index prefix = band.prefix.empty() ? 0 : entry(band.prefix, b);
      narrow(range, shape_.keys, t + offset, band.left, band.right, prefix);
    }
  }
  if (range.begin >= range.end) return {0, 0};
  return range;
}

bool BoundMask::depends_on_query() const noexcept {
  return !cached_lengths_.empty() || (rules_ != nullptr && !rules_->bands.empty());
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
