// Variants that run together: which tokens each has, and what it goes without in each block.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "explain/explained_model.h"
#include "model/block_edit.h"

namespace qkv::explain {

/// Tokens that stay are moved to the front; shorter variants have padding after them.
class VariantBatch {
 public:
  /// The variants must outlive it. Throws std::invalid_argument where one does not fit the model.
  VariantBatch(const ExplainedModel& model, std::span<const Variant> variants);

  Index size() const noexcept { return static_cast<Index>(variants_.size()); }
  /// Of the longest variant.
  Index tokens() const noexcept { return tokens_; }
  const Variant& variant(Index n) const { return variants_[static_cast<std::size_t>(n)]; }
  /// The tokens of the text that stay, in their order.
  std::span<const Index> kept(Index n) const { return kept_[static_cast<std::size_t>(n)]; }

  /// [N,tokens], false at padding and at the keys that are hidden in this layer; absent where all are there.
  std::optional<Tensor<bool, 2>> keep(Index layer) const;

  /// Takes away values, heads and parts of this layer. Empty where no variant goes without any. The batch must outlive it.
  BlockEdit<double> edit(Index layer) const;

 private:
  bool hides_here(Index n, Index layer) const;
  /// A token's place in a variant; nothing where it was removed.
  std::optional<Index> place(Index n, Index token) const;
  void zero_values(Index layer, const TensorView<double, 4>& values) const;
  void zero_heads(Index layer, const TensorView<double, 4>& context) const;
  void zero_part(Index layer, Part part, const TensorView<double, 4>& states) const;

  std::span<const Variant> variants_;
  std::vector<std::vector<Index>> kept_;
  std::vector<std::vector<std::optional<Index>>> places_;  // of each token of the text
  Index tokens_ = 0;
};

}  // namespace qkv::explain
