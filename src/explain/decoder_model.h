// The lab's decoder as a model to explain: what it says after the last token of a text.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "explain/block_stack.h"
#include "model/decoder.h"

namespace qkv::explain {

struct DecoderTarget {
  enum class Kind : std::uint8_t { Logit, LogProbability };

  Kind kind = Kind::Logit;
  Index token = 0;
  std::optional<Index> against = std::nullopt;  ///< whose number is subtracted
};

struct DecoderText {
  std::vector<Index> tokens;
  std::vector<std::string> names = {};                ///< [vocabulary]; numbers where empty
  std::vector<std::vector<Index>> alternatives = {};  ///< other texts of the same length
};

/// A decoder with the same parameters in float64.
Decoder<double> in_float64(const Decoder<float>& decoder);

class DecoderModel final : public ExplainedModel {
 public:
  /// The baseline is the mean of all token embeddings at each place. Throws std::invalid_argument where text or target does not fit the decoder, and where a block's attention is one that
  /// MultiHeadAttention does not compute.
  DecoderModel(std::shared_ptr<const Decoder<double>> decoder, DecoderText text,
               DecoderTarget target);

  const ModelSizes& sizes() const noexcept override { return sizes_; }
  const ExplainedText& text() const noexcept override { return text_; }
  bool may_see(Index query, Index key) const override;

  std::vector<double> run(std::span<const Variant> variants) const override;
  Records record() const override;
  Gradients differentiate(const Tensor<double, 3>& embeddings) const override;
  std::unique_ptr<ExplainedModel> with_shuffled_layers(Index layers,
                                                       std::uint64_t seed) const override;

 private:
  /// The target of each row of last states [N,1,D]; `gradient` becomes their derivatives where it is there.
  std::vector<double> targets(const Tensor<double, 3>& last, Tensor<double, 3>* gradient) const;
  Tensor<double, 3> embeddings_of(const VariantBatch& batch) const;
  void set_text();

  std::shared_ptr<const Decoder<double>> decoder_;
  DecoderText given_;
  DecoderTarget target_;
  ModelSizes sizes_;
  ExplainedText text_;
  BlockStack blocks_;
  BoundMask intended_;
};

}  // namespace qkv::explain
