// A sentence encoder as a model to explain: how similar it finds a text and another one.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "explain/block_stack.h"
#include "model/sentence_model.h"

namespace qkv::explain {

struct SimilarityTarget {
  std::string to;
  /// Whose similarity is subtracted: by how much a text is nearer to one class than to another.
  std::optional<std::string> against = std::nullopt;
};

/// The target is the cosine of the vectors of the text that is explained and another one, or the difference of two such.
class EncoderModel final : public ExplainedModel {
 public:
  /// Embeddings are what the first norm gives: it is blind to the length of what it reads, so that along that the derivative would
  /// be 0. In the baseline the tokens of the text are all the mask token, and the special ones stay. Throws std::invalid_argument where a text is empty or too long.
  EncoderModel(std::shared_ptr<const SentenceModel<double>> model, std::string text,
               SimilarityTarget target);

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

  /// What the first block reads.
  Tensor<double, 3> embedded(const std::vector<Index>& tokens) const;
  Tensor<double, 3> embeddings_of(const VariantBatch& batch) const;
  void set_text(const std::vector<TextToken>& tokens);
  void set_blocks();
  void set_direction();
  /// The cosines of the pooled states [N,T,D]; `gradient` becomes their derivative where it is there.
  std::vector<double> targets(const Tensor<double, 3>& states,
                              const std::optional<Tensor<bool, 2>>& keep,
                              Tensor<double, 3>* gradient) const;

  std::shared_ptr<const SentenceModel<double>> model_;
  SimilarityTarget target_;
  std::vector<Index> tokens_;
  ModelSizes sizes_;
  ExplainedText text_;
  BlockStack blocks_;
  std::vector<double>
      direction_;  ///< [D], the vector of the text that it is held against, of length 1; less the other's
};

/// The cosines of a text and each of others: the nearest class, where they are names of classes. Throws like EncoderModel.
std::vector<double> similarities(const SentenceModel<double>& model, const std::string& text,
                                 std::span<const std::string> others);

}  // namespace qkv::explain
