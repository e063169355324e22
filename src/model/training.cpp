#include "model/training.h"

#include <fmt/format.h>

#include <cmath>
#include <stdexcept>
#include <string>
#include <string_view>

#include "base/thread_limit.h"
#include "model/cross_entropy.h"

namespace qkv {
namespace {

/// Held-out sequences come from other numbers than training's of the same seed.
constexpr std::uint64_t kHeldOutStream = 0x9E3779B97F4A7C15;

/// Sums over batches: means are those over all targets.
class EvaluationSum {
 public:
  template <class T>
  void add(const Decoder<T>& decoder, const TokenBatch& batch) {
    const CrossEntropy<T> result = cross_entropy(decoder.forward(batch).logits, batch.targets);
    loss_ += result.loss * static_cast<double>(result.targets);
    hits_ += result.hits;
    targets_ += result.targets;
  }

  Evaluation mean() const {
    if (targets_ == 0) return {};
    const double count = static_cast<double>(targets_);
    return {loss_ / count, static_cast<double>(hits_) / count, targets_};
  }

 private:
  double loss_ = 0;
  Index hits_ = 0;
  Index targets_ = 0;
};

void check(const DecoderOptions& decoder, const Task& task, const TrainingOptions& options) {
  const auto expect = [](bool holds, std::string_view argument, const std::string& expected,
                         Index got) {
    if (holds) return;
    throw std::invalid_argument(
        fmt::format("train: {}: expected {}, got {}", argument, expected, got));
  };
  expect(task.vocabulary <= decoder.vocabulary, "task",
         fmt::format("a vocabulary of at most {}, the decoder's", decoder.vocabulary),
         task.vocabulary);
  expect(task.tokens <= decoder.context, "task",
         fmt::format("at most {} tokens, the decoder's context", decoder.context), task.tokens);
  expect(options.steps >= 0, "steps", "0 or more", options.steps);
  expect(options.sequences >= 1, "sequences", "1 or more", options.sequences);
  expect(!options.threads || *options.threads >= 1, "threads", "1 or more",
         options.threads.value_or(1));
}

}  // namespace

template <class T>
Evaluation evaluate(const Decoder<T>& decoder, const TokenBatch& batch) {
  EvaluationSum sum;
  sum.add(decoder, batch);
  return sum.mean();
}

template <class T>
Evaluation evaluate(const Decoder<T>& decoder, const Task& task, Index sequences, Index batches,
                    std::uint64_t seed) {
  Random random(seed ^ kHeldOutStream);
  EvaluationSum sum;
  for (Index i = 0; i < batches; ++i) sum.add(decoder, task.held_out(sequences, random));
  return sum.mean();
}

template <class T>
TrainingHistory train(Decoder<T>& decoder, const Task& task, const TrainingOptions& options) {
  check(decoder.options(), task, options);
  const ThreadLimit limit(options.threads);
  Random random(options.seed);
  AdamW<T> adamw(decoder, options.adamw);
  TrainingHistory history;
  const auto evaluate_after = [&](Index step) {
    history.held_out.push_back(
        {step, evaluate(decoder, task, options.sequences, options.evaluation_batches)});
  };
  for (Index step = 0; step < options.steps && !history.stopped; ++step) {
    const TokenBatch batch = task.training(options.sequences, random);
    const DecoderResult<T> result = decoder.forward(batch);
    const CrossEntropy<T> entropy = cross_entropy(result.logits, batch.targets);
    const double rate = learning_rate(options.schedule, step, options.steps);
    const DecoderGradients<T> gradients = decoder.backward(batch, result, entropy.gradient);
    const double norm = adamw.step(decoder, gradients, rate);
    history.loss.push_back(entropy.loss);
    history.gradient_norm.push_back(norm);

    const Index done = step + 1;
    TrainingProgress progress{.step = done,
                              .steps = options.steps,
                              .loss = entropy.loss,
                              .learning_rate = rate,
                              .gradient_norm = norm};
    if (done == options.steps ||
        (options.evaluate_every > 0 && done % options.evaluate_every == 0)) {
      evaluate_after(done);
      progress.held_out = history.held_out.back().evaluation;
    }
    history.stopped = !std::isfinite(entropy.loss);
    if (options.progress && !options.progress(progress)) history.stopped = true;
  }
  return history;
}

#define QKV_INSTANTIATE_TRAINING(T)                                                          \
  template Evaluation evaluate(const Decoder<T>&, const TokenBatch&);                        \
  template Evaluation evaluate(const Decoder<T>&, const Task&, Index, Index, std::uint64_t); \
  template TrainingHistory train(Decoder<T>&, const Task&, const TrainingOptions&);

QKV_INSTANTIATE_TRAINING(double)
QKV_INSTANTIATE_TRAINING(float)

#undef QKV_INSTANTIATE_TRAINING

}  // namespace qkv
