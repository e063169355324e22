// Tasks of which it is known which token the answer comes from, and models that solve them.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "explain/decoder_model.h"
#include "lab/experiment_training.h"

namespace qkv::lab {

/// A text that ends where the answer is due.
struct KnownQuestion {
  explain::DecoderText text;  ///< with other sequences of the task as alternatives
  Index answer = 0;
  std::vector<Index> relevant;    ///< the tokens that the answer comes from: one of them is a hit
  std::vector<Index> candidates;  ///< of the ranking: no token of the question itself
};

struct KnownTask {
  std::string key;
  Text name;
  Text rule;                       ///< what is asked, and which token is relevant
  std::vector<std::string> names;  ///< of the vocabulary
  TrainingSetup setup;
  /// About one sequence of a batch; `random` chooses where it is asked, where there is a choice.
  std::function<KnownQuestion(const TokenBatch& batch, Index sequence, Random& random)> question;
};

/// Recall and copying in one layer, copying through a window that is too short to see the answer's token, induction.
std::vector<KnownTask> known_tasks();
/// Copying with a mask that lets each query see one token of its future.
KnownTask leaking_task();

struct KnownModel {
  std::shared_ptr<const Decoder<double>> decoder;
  double accuracy = 0;  ///< held out
  Index steps = 0;      ///< of training
};
/// Trains until the model is right in nearly all held-out answers, and sure of them; a model a seed, each on a thread of its own. The
/// same seed gives the same model on any number of threads. Throws Interrupted.
std::vector<KnownModel> train_known(const KnownTask& task, std::span<const std::uint64_t> seeds,
                                    const ExperimentOptions& options, const Stage& stage);
KnownModel train_known(const KnownTask& task, std::uint64_t seed, const ExperimentOptions& options,
                       const Stage& stage);

/// A question that the task asks.
KnownQuestion drawn_question(const KnownTask& task, Random& random);
/// Tokens that somebody types by their names, with spaces between them. Throws std::invalid_argument where they are no text of the
/// task.
std::vector<Index> typed_tokens(const KnownTask& task, const std::string& text);
/// Their answer is what the model says, and nothing is known of where it comes from.
KnownQuestion typed_question(const KnownTask& task, const KnownModel& model,
                             const std::vector<Index>& tokens, Random& random);

/// The model that answers a question: the target is the log-probability of the answer.
explain::DecoderModel asked(const KnownModel& model, const KnownQuestion& question);

}  // namespace qkv::lab
