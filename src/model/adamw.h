// AdamW: Adam with weight decay apart from the gradient. Source: Loshchilov and Hutter, "Decoupled Weight Decay Regularization"
// (2019), algorithm 2; the gradient's norm is clipped as Pascanu et al. (2013) propose.
#pragma once

#include <optional>
#include <vector>

#include "model/decoder.h"

namespace qkv {

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.01;        ///< of matrices; norms and biases do not decay
  std::optional<double> clip = 1.0;  ///< the largest norm of all gradients together
};

struct ScheduleOptions {
  double peak = 3e-3;
  double last_share = 0.1;  ///< of the peak, at the last step
  Index warmup = 20;        ///< steps until the peak
};

/// The learning rate of step 0, 1, …, steps − 1: rises to the peak in a line, falls from it as half a cosine.
double learning_rate(const ScheduleOptions& options, Index step, Index steps);

template <class T>
class AdamW {
 public:
  AdamW(const Decoder<T>& decoder, const AdamWOptions& options);

  /// One step. Returns the norm of all gradients before clipping.
  double step(Decoder<T>& decoder, const DecoderGradients<T>& gradients, double learning_rate);

 private:
  struct Moments {
    std::vector<T> first;
    std::vector<T> second;
  };

  AdamWOptions options_;
  std::vector<Moments> moments_;
  Index steps_ = 0;
};

}  // namespace qkv
