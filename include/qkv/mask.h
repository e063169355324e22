// Which key a query may see: a mask is a value, an intersection of rules, not a tensor.
//
//   Mask mask = Mask::causal() & Mask::key_padding(padding, Polarity::Drop);
//
// Rules that compare positions place query t of a sample at key position p = t + offset; a Corner
// says what the offset is. With as many queries as keys every corner is the same and may be left out; with
// T != S a rule without a corner is refused.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "qkv/tensor.h"

namespace qkv {

/// What `true` means in a boolean tensor. Libraries disagree, so it is never assumed.
enum class Polarity : std::uint8_t {
  Keep,  ///< true: the position takes part
  Drop,  ///< true: the position is hidden
};

/// Where the diagonal of a causal, window or ALiBi rule lies on the [T,S] score matrix.
class Corner {
 public:
  /// Query 0 at key 0.
  static Corner top_left();
  /// The last query at the last key: offset S − T.
  static Corner bottom_right();
  /// Query 0 of sample b at key offsets[b]; one entry serves every sample. Offsets may be negative.
  static Corner at(std::vector<Index> offsets);

  /// The offset of a sample.
  Index offset(Index sample, Index queries, Index keys) const noexcept {
    if (kind_ == Kind::At) {
      return offsets_[offsets_.size() == 1 ? 0 : static_cast<std::size_t>(sample)];
    }
    return kind_ == Kind::BottomRight ? keys - queries : 0;
  }
  /// The entries given to at(); empty for the named corners.
  const std::vector<Index>& offsets() const noexcept { return offsets_; }
  std::string describe() const;

 private:
  enum class Kind : std::uint8_t { TopLeft, BottomRight, At };
  explicit Corner(Kind kind, std::vector<Index> offsets = {})
      : kind_(kind), offsets_(std::move(offsets)) {}
  Kind kind_;
  std::vector<Index> offsets_;
};

/// Keys from p − left to p + right, both inclusive, where p is the query's key position. So the query and
/// its W − 1 predecessors are {.left = W − 1, .right = 0}. An absent side is unbounded.
struct Window {
  std::optional<Index> left = std::nullopt;
  std::optional<Index> right = std::nullopt;
  std::optional<Corner> corner = std::nullopt;
};

namespace mask_rules {

/// Key j <= p, or j < prefix of the sample (a union: the prefix is visible to every query).
struct Causal {
  std::optional<Corner> corner = std::nullopt;
  std::vector<Index> prefix_lengths;  ///< empty (no prefix), one entry, or one a sample
};
struct SlidingWindow {
  Window window;
};
/// Key j < lengths of the sample.
struct KeyLengths {
  std::vector<Index> lengths;
};
/// keep is [B,S] (or [1,S]).
struct KeyPadding {
  std::shared_ptr<const Tensor<bool, 2>> keep;
};
/// Query and key see each other where they carry the same document number: [B,T] and [B,S].
struct Documents {
  std::shared_ptr<const Tensor<Index, 2>> query;
  std::shared_ptr<const Tensor<Index, 2>> key;
};
/// keep broadcasts to [B,H,T,S]: each axis has extent 1 or the full one.
struct BooleanTensor {
  std::shared_ptr<const Tensor<bool, 4>> keep;
};

}  // namespace mask_rules

using MaskRule =
    std::variant<mask_rules::Causal, mask_rules::SlidingWindow, mask_rules::KeyLengths,
                 mask_rules::KeyPadding, mask_rules::Documents, mask_rules::BooleanTensor>;

/// The sizes that a mask is applied to.
struct MaskShape {
  Index batch = 0;    ///< B
  Index heads = 0;    ///< H, of the queries
  Index queries = 0;  ///< T
  Index keys = 0;     ///< S
};

class BoundMask;

/// An intersection of visibility rules. Copies are cheap, for rules never change: what is given to one is copied once, then
/// shared. A mask without rules hides nothing. Rules throw std::invalid_argument on a tensor without data.
class Mask {
 public:
  Mask() = default;

  /// Key j visible to query t where j <= t + offset.
  static Mask causal(std::optional<Corner> corner = std::nullopt);
  /// Causal, and the first prefix_lengths[b] keys are visible to every query of sample b (one entry
  /// serves every sample). Throws std::invalid_argument on a negative length.
  static Mask prefix_causal(std::vector<Index> prefix_lengths,
                            std::optional<Corner> corner = std::nullopt);
  /// Throws std::invalid_argument on a negative side.
  static Mask sliding_window(Window window);
  /// The first lengths[b] keys of sample b (one entry serves every sample). Throws std::invalid_argument
  /// on a negative length.
  static Mask key_lengths(std::vector<Index> lengths);
  /// One flag a key: [B,S], any strides.
  static Mask key_padding(const TensorView<const bool, 2>& flags, Polarity meaning_of_true);
  /// Packed documents: numbers [B,T] of the queries and [B,S] of the keys, any strides.
  static Mask documents(const TensorView<const Index, 2>& query_documents,
                        const TensorView<const Index, 2>& key_documents);
  /// A boolean tensor that broadcasts to [B,H,T,S] (extent 1 where it does), any strides.
  static Mask boolean(const TensorView<const bool, 4>& flags, Polarity meaning_of_true);

  friend Mask operator&(const Mask& a, const Mask& b);

  std::span<const MaskRule> rules() const noexcept;
  /// "causal (top-left) & key padding [4, 25]"; "none" without rules.
  std::string describe() const;

  /// Checks every rule against the sizes. Throws std::invalid_argument with `operation` in front where a
  /// rule does not fit (wrong shape, a length beyond S, T != S without a corner) or a size is negative. Asks for no
  /// memory: the bound mask shares the rules.
  BoundMask bind(std::string_view operation, const MaskShape& shape) const;

 private:
  friend class BoundMask;
  struct Rules;
  explicit Mask(std::vector<MaskRule> rules);

  std::shared_ptr<const Rules> rules_;  // null without rules
};

/// Keys [begin, end); empty where begin == end.
struct KeyRange {
  Index begin = 0;
  Index end = 0;
};

/// A mask applied to sizes: answers what is visible. Re-entrant; holds no reference to the Mask.
class BoundMask {
 public:
  using Pointwise =
      std::variant<mask_rules::KeyPadding, mask_rules::Documents, mask_rules::BooleanTensor>;

  BoundMask() = default;

  /// Whether query t of head h in sample b may see key s. Indices must be in range.
  bool visible(Index b, Index h, Index t, Index s) const noexcept;
  /// The keys that the rules of position and length leave; outside of it nothing is visible. Inside of it
  /// everything is, unless has_pointwise_rules().
  KeyRange key_range(Index b, Index t) const noexcept;
  /// Whether some rule (causal, window) makes key_range depend on the query.
  bool depends_on_query() const noexcept;
  /// Whether some rule (padding flags, documents, a boolean tensor) decides key by key.
  bool has_pointwise_rules() const noexcept { return !pointwise_.empty(); }
  bool row_sees_a_key(Index b, Index h, Index t) const noexcept;

  /// The rules that decide key by key; their tensors fit shape().
  std::span<const Pointwise> pointwise_rules() const noexcept { return pointwise_; }
  const MaskShape& shape() const noexcept { return shape_; }

 private:
  friend class Mask;
  friend class BoundMaskAccess;

  bool passes_pointwise_rules(Index b, Index h, Index t, Index s) const noexcept;

  MaskShape shape_;
  std::shared_ptr<const Mask::Rules> rules_;  // null without rules
  std::span<const Pointwise> pointwise_;      // of them
  // Queries that are the last tokens of what a cache holds, where it holds some: see base/cached_tokens.h.
  std::span<const Index> cached_lengths_;
  std::optional<Index> cached_window_;
};

}  // namespace qkv
