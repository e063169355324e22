// The training loop.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "model/adamw.h"
#include "model/decoder.h"
#include "model/tasks.h"

namespace qkv {

struct Evaluation {
  double loss = 0;      ///< mean cross-entropy of the targets, in nats
  double accuracy = 0;  ///< share of the targets that have the largest logit
  Index targets = 0;
};

/// Of a batch.
template <class T>
Evaluation evaluate(const Decoder<T>& decoder, const TokenBatch& batch);

/// Of `batches` held-out batches, the same ones for the same seed.
template <class T>
Evaluation evaluate(const Decoder<T>& decoder, const Task& task, Index sequences, Index batches,
                    std::uint64_t seed = 1);

struct TrainingProgress {
  Index step = 0;  ///< steps done
  Index steps = 0;
  double loss = 0;  ///< of the last batch, before its step
  double learning_rate = 0;
  double gradient_norm = 0;                           ///< before clipping
  std::optional<Evaluation> held_out = std::nullopt;  ///< where it was evaluated after this step
};

struct TrainingOptions {
  Index steps = 300;
  Index sequences = 16;  ///< of a batch
  AdamWOptions adamw = {};
  ScheduleOptions schedule = {};
  Index evaluate_every = 0;  ///< steps; 0: only after the last one
  Index evaluation_batches = 4;
  std::uint64_t seed = 17;                    ///< of the batches
  std::optional<int> threads = std::nullopt;  ///< what OpenMP would use where absent
  /// Called after each step; false stops the training.
  std::function<bool(const TrainingProgress&)> progress = {};
};

struct TrainingHistory {
  struct HeldOut {
    Index step = 0;  ///< steps done
    Evaluation evaluation;
  };

  std::vector<double> loss;  ///< of each step's batch, before the step
  std::vector<double> gradient_norm;
  std::vector<HeldOut> held_out;  ///< the last one after the last step
  bool stopped = false;
};

/// Trains in place: the same decoder, task and options give the same numbers, on any number of threads. A loss that is not a
/// finite number ends the training as `stopped`. Throws std::invalid_argument where task and decoder do not fit.
template <class T>
TrainingHistory train(Decoder<T>& decoder, const Task& task, const TrainingOptions& options);

}  // namespace qkv
