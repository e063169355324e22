// The parts of `complexity`: each adds its tables, charts and effects.
#pragma once

#include "lab/experiment_parts.h"

namespace qkv::lab {

/// Of a transformer block, forward, one sample in float32.
struct BlockSizes {
  Index tokens = 1;       ///< T
  Index model_width = 1;  ///< D; the FFN is 4·D wide
  Index heads = 1;        ///< H
};

/// Operations (a multiply-add is two), or bytes that are read and written once, scores in memory.
struct BlockCosts {
  double qkv = 0;
  double scores = 0;
  double softmax = 0;
  double aggregation = 0;  ///< P·V
  double output = 0;
  double ffn = 0;

  double attention() const noexcept { return scores + softmax + aggregation; }
  double total() const noexcept { return qkv + attention() + output + ffn; }
};
BlockCosts block_flops(const BlockSizes& sizes);
BlockCosts block_bytes(const BlockSizes& sizes);

/// The fewest tokens at which QKᵀ and P·V together cost as many operations as `linear` of the other parts.
template <class Linear>
Index crossover(const BlockSizes& sizes, Linear linear) {
  BlockSizes at = sizes;
  for (at.tokens = 1;; ++at.tokens) {
    const BlockCosts flops = block_flops(at);
    if (flops.scores + flops.aggregation >= linear(flops)) return at.tokens;
  }
}

/// What is counted: operations and bytes by part, and where they cross.
void add_costs(const ExperimentOptions& options, Experiment& experiment);
/// What is measured beside that: seconds by part over T. Where the clock says that they cross.
Text add_part_times(const ExperimentOptions& options, Experiment& experiment);
/// Forward and backward with the probabilities in memory, and in tiles.
void add_training_memory(const ExperimentOptions& options, Experiment& experiment);
/// A token decoded with a KV cache, and with everything computed again.
void add_decoding(const ExperimentOptions& options, Experiment& experiment);

}  // namespace qkv::lab
