// Blocks one after the other, run for variants and back: what models of every kind share between their embeddings and what they
// make of the last states.
#pragma once

#include <vector>

#include "explain/variant_batch.h"
#include "model/block.h"

namespace qkv::explain {

class BlockStack {
 public:
  struct Layer {
    BlockOptions options;
    const BlockParameters<double>* parameters = nullptr;  ///< outlive the stack
  };
  /// A run without interventions, kept for the way back and for records.
  struct PlainRun {
    std::vector<BlockResult<double>> blocks;
    Tensor<double, 3> last;  ///< [N,T,D]
  };

  BlockStack() = default;
  /// Throws std::invalid_argument where attention is one that MultiHeadAttention does not compute, or heeds no padding.
  explicit BlockStack(std::vector<Layer> layers);

  /// The last states [N,tokens,D] of these first ones.
  Tensor<double, 3> run(const VariantBatch& batch, Tensor<double, 3> states) const;
  PlainRun run_plain(Tensor<double, 3> states) const;

  /// Of the run's first text.
  Records records(const PlainRun& run) const;

  /// `gradient` is that of the last states, and becomes that of the first. Gives those of the weights, [N,H,T,T] a layer.
  std::vector<Tensor<double, 4>> backward(const PlainRun& run, Tensor<double, 3>& gradient) const;

 private:
  std::vector<Layer> layers_;
};

/// The first of a batch.
template <int Rank>
Tensor<double, Rank - 1> first_of(const Tensor<double, Rank>& batch) {
  Extents<Rank - 1> shape{};
  std::copy_n(batch.shape().begin() + 1, shape.size(), shape.begin());
  auto one = Tensor<double, Rank - 1>::uninitialized(shape);
  std::copy_n(batch.data(), one.elements().size(), one.data());
  return one;
}

}  // namespace qkv::explain
