// A sentence encoder as a model to explain: how similar it finds a text and another one.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "explain/block_stack.h"
#include "model/sentence_model.h"

namespace qkv::explain {

/// The target is the cosine of the vectors of two texts, of which the first is explained.
class EncoderModel final : public ExplainedModel {
 public:
  /// Embeddings are the sums that the first norm is taken of; in the baseline the tokens of the text are all the mask token, and
  /// the special ones stay. Throws std::invalid_argument where a text is empty or too long.
  EncoderModel(std::shared_ptr<const SentenceModel<double>> model, std::string text,
               std::string other);

  const ModelSizes& sizes() const noexcept override { return sizes_; }
  const ExplainedText& text() const noexcept override { return text_; }
  /// Every token sees every other.
  bool may_see(Index, Index) const override { return true; }

  std::vector<double> run(std::span<const Variant> variants) const override;
  Records record() const override;
  Gradients differentiate(const Tensor<double, 3>& embeddings) const override;
  std::unique_ptr<ExplainedModel> with_shuffled_layers(Index layers,
                                                       std::uint64_t seed) const override;

 private:
  EncoderModel(const EncoderModel& other, std::shared_ptr<const SentenceModel<double>> model);

  Tensor<double, 3> embedded(const std::vector<Index>& tokens) const;
  Tensor<double, 3> embeddings_of(const VariantBatch& batch) const;
  /// What the first block reads.
  Tensor<double, 3> normed(const Tensor<double, 3>& embeddings) const;
  void set_text(const std::vector<TextToken>& tokens);
  void set_blocks();
  void set_direction();
  /// The cosines of the pooled states [N,T,D]; `gradient` becomes their derivative where it is there.
  std::vector<double> targets(const Tensor<double, 3>& states,
                              const std::optional<Tensor<bool, 2>>& keep,
                              Tensor<double, 3>* gradient) const;

  std::shared_ptr<const SentenceModel<double>> model_;
  std::string other_;
  std::vector<Index> tokens_;
  ModelSizes sizes_;
  ExplainedText text_;
  BlockStack blocks_;
  Tensor<double, 2> direction_;  ///< [1,D], the other text's vector, of length 1
};

}  // namespace qkv::explain
