// A training step of attention, twice: with the matrix of probabilities kept for the backward pass, as the formula is written, and
// in the engine's tiles, which compute them again.
#pragma once

#include "qkv/engine.h"

namespace qkv::lab {

struct TrainingInputs {
  Tensor<float, 4> query;  ///< [B,H,T,D]
  Tensor<float, 4> key;
  Tensor<float, 4> value;
  Tensor<float, 4> context_gradient;
};

struct TrainingResults {
  Tensor<float, 4> context;  ///< [B,H,T,D]
  Tensor<float, 4> query_gradient;
  Tensor<float, 4> key_gradient;
  Tensor<float, 4> value_gradient;
};

TrainingResults train_materialized(const TrainingInputs& inputs, const engine::Options& options);
TrainingResults train_tiled(const TrainingInputs& inputs, const engine::Options& options);

}  // namespace qkv::lab
