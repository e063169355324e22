// What attributions ask of a model: a text that it has read, one number that it says of it (the target), and what becomes of
// that number where parts of the run are taken away. Everything is float64.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/text.h"
#include "qkv/tensor.h"

namespace qkv::explain {

struct ModelSizes {
  Index tokens = 0;  ///< T, of the text
  Index layers = 0;
  Index heads = 0;  ///< H, of each layer
  Index width = 0;  ///< D, of the residual stream
};

/// The text, and what of it the target reads.
struct ExplainedText {
  std::vector<std::string> tokens;  ///< [T], as a reader knows them
  std::vector<bool> special;        ///< [T], tokens that the model puts there itself: [CLS]
  /// [T], the share of each token's last state in what the target reads; they sum to 1. One token alone where it is a logit, all of
  /// them alike where it is a mean.
  std::vector<double> readout;
  Tensor<double, 2> embeddings;  ///< [T,D], as they enter the first block
  Tensor<double, 2> baseline;    ///< [T,D], the same places without a particular token
  /// [T,D] each, as the embeddings: other tokens at the same places, such as texts have them. There may be none.
  std::vector<Tensor<double, 2>> alternatives;
  Text target;  ///< what the number is: "logit of value 3"
};

/// What a block adds, and what it adds it to.
enum class Part : std::uint8_t {
  Attention,
  AttentionSkip,  ///< the residual stream past the attention
  Mlp,
  MlpSkip,
};

struct PartPlace {
  Index layer = 0;
  Part part = Part::Attention;
};

struct HeadPlace {
  Index layer = 0;
  Index head = 0;
};

/// What is taken away from a run; nothing, bit for bit, where the lists are empty.
struct Intervention {
  /// A shorter input: the tokens after them move up. One token at least must stay, and so must each that is read alone.
  std::vector<Index> removed_tokens = {};
  /// No query sees these keys, so that the others share their weight. A row that sees nothing else gets nothing.
  std::vector<Index> hidden_keys = {};
  /// Weights stay as they are, but what these tokens would deliver is 0.
  std::vector<Index> zeroed_values = {};
  /// Where keys are hidden and values are zero; in every layer where absent.
  std::optional<Index> layer = std::nullopt;
  std::vector<HeadPlace> heads = {};  ///< their context is 0
  std::vector<PartPlace> parts = {};  ///< 0 instead of what they would add
};

/// A run that differs from the plain one.
struct Variant {
  Intervention intervention = {};
  /// [tokens that stay, D] in place of the text's.
  std::optional<Tensor<double, 2>> embeddings = std::nullopt;
};

struct LayerRecord {
  Tensor<double, 2> residual;       ///< [T,D], the residual stream that the layer reads
  Tensor<double, 3> weights;        ///< [H,T,T]
  Tensor<double, 3> values;         ///< [Hkv,T,Dv], Hkv divides H
  Tensor<double, 2> output_weight;  ///< [D,H·Dv]
};

struct Records {
  std::vector<LayerRecord> layers;
  Tensor<double, 2> last;  ///< [T,D], the residual stream after the last layer
};

/// Derivatives of the target, of N runs.
struct Gradients {
  std::vector<double> targets;             ///< [N]
  Tensor<double, 3> embeddings;            ///< [N,T,D]
  std::vector<Tensor<double, 4>> weights;  ///< [N,H,T,T] a layer; hidden pairs have one, too
};

/// Calls are re-entrant. Tokens, layers and heads that are not there are std::invalid_argument.
class ExplainedModel {
 public:
  ExplainedModel() = default;
  ExplainedModel(const ExplainedModel&) = delete;
  ExplainedModel& operator=(const ExplainedModel&) = delete;
  virtual ~ExplainedModel() = default;

  virtual const ModelSizes& sizes() const noexcept = 0;
  virtual const ExplainedText& text() const noexcept = 0;
  /// Whether the model is meant to let this query see this key, whatever it does.
  virtual bool may_see(Index query, Index key) const = 0;

  /// The targets of N variants, in one batch: the same bits as each alone.
  virtual std::vector<double> run(std::span<const Variant> variants) const = 0;
  /// Of the plain run.
  virtual Records record() const = 0;
  /// Of plain runs from these embeddings [N,T,D].
  virtual Gradients differentiate(const Tensor<double, 3>& embeddings) const = 0;

  /// The same text and target, with the weights of the last `layers` layers, and of what follows them, in random order.
  virtual std::unique_ptr<ExplainedModel> with_shuffled_layers(Index layers,
                                                               std::uint64_t seed) const = 0;
};

/// Throws std::invalid_argument unless these are [N,T,D] of the text.
void expect_embeddings(const Tensor<double, 3>& embeddings, const ModelSizes& sizes);
/// Throws std::invalid_argument unless the model has as many layers, and at least one is meant.
void expect_layers(Index layers, const ModelSizes& sizes);

/// The tokens that a ranking is about: no special ones, and none that the target reads alone.
std::vector<Index> candidates(const ExplainedText& text);

}  // namespace qkv::explain
