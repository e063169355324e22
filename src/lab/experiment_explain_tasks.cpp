#include "lab/experiment_explain_tasks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <omp.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <numeric>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "base/thread_limit.h"

namespace qkv::lab {
namespace {

/// Of the held-out answers, where training stops: right, and sure of it.
constexpr double kEnoughAccuracy = 0.998;
constexpr double kEnoughLoss = 0.01;
constexpr Index kMostSteps = 3000;
constexpr Index kEvaluateEvery = 50;

/// Other texts that tokens are swapped with.
constexpr Index kAlternatives = 4;

constexpr RecallOptions kRecall = {.keys = 8, .values = 8, .pairs = 6};
constexpr CopyOptions kCopy = {.symbols = 8, .length = 8};
constexpr InductionOptions kInduction = {
    .symbols = 8, .tokens = 16, .shortest_period = 4, .longest_period = 8};
/// A query sees itself and 5 tokens before it; the token that it must copy lies 8 back. Two layers reach 10.
constexpr Index kWindow = 6;

TrainingSetup setup_of(Task task, Index layers, double peak, Index sequences) {
  TrainingSetup setup;
  setup.decoder.vocabulary = task.vocabulary;
  setup.decoder.context = task.tokens;
  setup.decoder.model_width = 32;
  setup.decoder.heads = 2;
  setup.decoder.layers = layers;
  setup.decoder.mlp_width = 64;
  setup.decoder.positions = PositionKind::Rotary;
  setup.task = std::move(task);
  setup.training.steps = kMostSteps;
  setup.training.sequences = sequences;
  setup.training.schedule.peak = peak;
  setup.training.evaluate_every = kEvaluateEvery;
  setup.training.evaluation_batches = 16;
  return setup;
}

/// The tokens of a sequence up to `last`.
KnownQuestion until(const TokenBatch& batch, Index sequence, Index last,
                    std::vector<std::string> names) {
  KnownQuestion question;
  question.text.names = std::move(names);
  const auto tokens_of = [&](Index b) {
    const Index* first = &batch.tokens(b, 0);
    return std::vector<Index>(first, first + last + 1);
  };
  question.text.tokens = tokens_of(sequence);
  const Index others = std::min(kAlternatives, batch.tokens.shape(0) - 1);
  for (Index i = 1; i <= others; ++i) {
    question.text.alternatives.push_back(tokens_of((sequence + i) % batch.tokens.shape(0)));
  }
  question.answer = batch.targets(sequence, last);
  question.candidates.resize(static_cast<std::size_t>(last));
  std::iota(question.candidates.begin(), question.candidates.end(), Index{0});
  return question;
}

std::string letter(Index symbol) { return std::string(1, static_cast<char>('a' + symbol)); }

/// A pair with another key than the one that is asked for: its like would contradict.
Index other_pair(Index asked, Random& random) {
  const Index key = (asked + 1 + random.below(kRecall.keys - 1)) % kRecall.keys;
  return kRecall.keys + kRecall.values + key * kRecall.values + random.below(kRecall.values);
}

Index key_of_pair(Index token) { return (token - kRecall.keys - kRecall.values) / kRecall.values; }

std::vector<std::string> recall_names() {
  std::vector<std::string> names;
  for (Index k = 0; k < kRecall.keys; ++k) names.push_back(letter(k) + "?");
  for (Index v = 0; v < kRecall.values; ++v) names.push_back(fmt::format("{}", v));
  for (Index k = 0; k < kRecall.keys; ++k) {
    for (Index v = 0; v < kRecall.values; ++v) names.push_back(fmt::format("{}={}", letter(k), v));
  }
  return names;
}

std::vector<std::string> letters(Index symbols) {
  std::vector<std::string> names;
  for (Index i = 0; i < symbols; ++i) names.push_back(letter(i));
  return names;
}

std::vector<std::string> copy_names() {
  std::vector<std::string> names = letters(kCopy.symbols);
  names.emplace_back("|");
  return names;
}

KnownQuestion ask_recall(const TokenBatch& batch, Index sequence, Random& random) {
  KnownQuestion question = until(batch, sequence, kRecall.pairs, recall_names());
  const Index asked = question.text.tokens.back();
  for (Index t = 0; t < kRecall.pairs; ++t) {
    const auto at = static_cast<std::size_t>(t);
    const Index key = key_of_pair(question.text.tokens[at]);
    if (key == asked) question.relevant.push_back(t);
    for (std::vector<Index>& other : question.text.alternatives) {
      if (key_of_pair(other[at]) == asked) other[at] = other_pair(asked, random);
    }
  }
  return question;
}

KnownQuestion ask_copy(const TokenBatch& batch, Index sequence, Random& random) {
  const Index relevant = random.below(kCopy.length);
  KnownQuestion question = until(batch, sequence, kCopy.length + relevant, copy_names());
  question.relevant = {relevant};
  return question;
}

KnownQuestion ask_induction(const TokenBatch& batch, Index sequence, Random& random) {
  Index period = 1;
  while (batch.tokens(sequence, period) != batch.tokens(sequence, 0)) ++period;
  // Where it is asked and where it is answered from both lie in one period, each once.
  const Index places = std::min(period - 1, kInduction.tokens - period);
  const Index before = random.below(places);
  KnownQuestion question = until(batch, sequence, period + before, letters(kInduction.symbols));
  question.relevant = {before, before + 1};
  // What is repeated is the question: it tells the period, too.
  question.candidates.resize(static_cast<std::size_t>(period));
  return question;
}

KnownTask copying(std::string key, Text name, Text rule, Index layers) {
  return {std::move(key),
          std::move(name),
          std::move(rule),
          copy_names(),
          setup_of(copy_task(kCopy), layers, 2e-2, 32),
          ask_copy};
}

Index token_named(const KnownTask& task, const std::string& name) {
  const auto found = std::ranges::find(task.names, name);
  if (found == task.names.end()) {
    constexpr std::size_t kShown = 20;
    const bool all = task.names.size() <= kShown;
    const std::span<const std::string> some(task.names.data(), std::min(task.names.size(), kShown));
    throw std::invalid_argument(
        fmt::format("explain: --text: expected tokens of {}, {}{}, got \"{}\"", task.key,
                    fmt::join(some, " "), all ? "" : " ... " + task.names.back(), name));
  }
  return static_cast<Index>(found - task.names.begin());
}

/// What the model says after the last token.
Index likeliest(const Decoder<double>& decoder, const std::vector<Index>& tokens) {
  const Extents<2> shape{1, static_cast<Index>(tokens.size())};
  TokenBatch batch{.tokens = Tensor<Index, 2>(shape), .targets = Tensor<Index, 2>(shape)};
  std::ranges::copy(tokens, batch.tokens.data());
  std::ranges::fill(batch.targets.elements(), kIgnoredTarget);
  const DecoderResult<double> result = decoder.forward(batch);
  const double* last = &result.logits(0, shape[1] - 1, 0);
  return std::max_element(last, last + decoder.options().vocabulary) - last;
}

/// `tell` is told of each step; false stops the training.
KnownModel train_one(const KnownTask& task, std::uint64_t seed,
                     const std::function<bool(Index step)>& tell) {
  // Models this small are slower on two threads than on one.
  const ThreadLimit limit(1);
  Decoder<float> decoder(task.setup.decoder, seed);
  TrainingOptions training = task.setup.training;
  training.seed = seed;
  KnownModel model;
  training.progress = [&](const TrainingProgress& progress) {
    model.steps = progress.step;
    if (!tell(progress.step)) return false;
    return !progress.held_out || progress.held_out->accuracy < kEnoughAccuracy ||
           progress.held_out->loss > kEnoughLoss;
  };
  train(decoder, task.setup.task, training);
  model.decoder = std::make_shared<const Decoder<double>>(explain::in_float64(decoder));
  // Other sequences than those that told training to stop.
  model.accuracy = evaluate(*model.decoder, task.setup.task, 64, 8, seed + 1).accuracy;
  return model;
}

}  // namespace

std::vector<KnownTask> known_tasks() {
  std::vector<KnownTask> tasks;
  KnownTask& recall = tasks.emplace_back();
  recall.key = "recall";
  recall.name = {"recall", "关联回忆"};
  recall.rule = {
      "Pairs a=3, c=7, …, then \"c?\": the answer is 7. One layer. Relevant is the pair of the "
      "key that is asked for.",
      "若干对 a=3、c=7……，然后问“c?”：答案是 7。一层。相关的是所问键的那一对。"};
  recall.setup = setup_of(recall_task(kRecall), 1, 1e-2, 64);
  recall.setup.decoder.positions = PositionKind::None;
  recall.names = recall_names();
  recall.question = ask_recall;

  tasks.push_back(copying(
      "copy", {"copying", "复制"},
      {"Eight symbols, a bar, and the same again. One layer that sees everything before it. "
       "Relevant is the token 8 places back.",
       "八个符号、一道竖线，再重复一遍。一层，能看到前面的一切。相关的是 8 个位置之前的 token。"},
      1));
  tasks.push_back(copying(
      "relay", {"copying by relay", "接力复制"},
      {"The same, but a query sees 5 tokens back only, and there are two layers: the first must "
       "carry the symbol to a place from which the second can fetch it. Relevant is the token 8 "
       "places back, which the query never sees.",
       "同样的任务，但 query 只能看到前 5 个 token，共两层：第一层必须把符号搬到第二层够得着的位"
       "置。相关的仍是 8 个位置之前的 token，而 query 从来看不到它。"},
      2));
  tasks.back().setup.decoder.window = kWindow;

  KnownTask& induction = tasks.emplace_back();
  induction.key = "induction";
  induction.name = {"induction", "归纳"};
  induction.rule = {
      "A random sequence that begins to repeat itself: what comes next? Two layers. Relevant are "
      "the earlier place of the last token and the one after it.",
      "随机序列开始重复自己：下一个是什么？两层。相关的是最后一个 token "
      "上次出现的位置及其后一个。"};
  induction.setup = setup_of(induction_task(kInduction), 2, 5e-3, 32);
  induction.setup.decoder.model_width = 64;
  induction.setup.decoder.heads = 8;
  induction.setup.decoder.mlp_width = 0;
  induction.names = letters(kInduction.symbols);
  induction.question = ask_induction;
  return tasks;
}

KnownTask leaking_task() {
  KnownTask task = copying("leaking", {"copying, mask off by one", "复制，mask 差一位"}, {}, 1);
  task.setup.decoder.changes.emplace_back().bug = AttentionBug::CausalOffByOne;
  return task;
}

std::vector<KnownModel> train_known(const KnownTask& task, std::span<const std::uint64_t> seeds,
                                    const ExperimentOptions& options, const Stage& stage) {
  const auto count = static_cast<Index>(seeds.size());
  std::vector<KnownModel> models(seeds.size());
  std::atomic<bool> stopped = false;
  std::exception_ptr error;
  Index done = 0;
  const auto tell = [&](Index step) {
    if (!options.progress) return true;
    const double part = static_cast<double>(done) / static_cast<double>(count);
    return options.progress(fmt::format("{}: step {}", stage.what, step),
                            stage.begin + part * (stage.end - stage.begin));
  };
  const int threads = options.threads > 0 ? options.threads : omp_get_max_threads();
#pragma omp parallel for schedule(dynamic) num_threads(threads)
  for (Index i = 0; i < count; ++i) {
    const auto at = static_cast<std::size_t>(i);
    try {
      models[at] = train_one(task, seeds[at], [&](Index step) {
#pragma omp critical(qkv_train_known)
        if (!stopped && !tell(step)) stopped = true;
        return !stopped;
      });
#pragma omp critical(qkv_train_known)
      ++done;
    } catch (...) {
#pragma omp critical(qkv_train_known)
      error = std::current_exception();
      stopped = true;
    }
  }
  if (error) std::rethrow_exception(error);
  if (stopped) throw Interrupted();
  return models;
}

KnownModel train_known(const KnownTask& task, std::uint64_t seed, const ExperimentOptions& options,
                       const Stage& stage) {
  return train_known(task, std::span(&seed, 1), options, stage).front();
}

KnownQuestion drawn_question(const KnownTask& task, Random& random) {
  return task.question(task.setup.task.held_out(1 + kAlternatives, random), 0, random);
}

std::vector<Index> typed_tokens(const KnownTask& task, const std::string& text) {
  std::vector<Index> tokens;
  std::istringstream words(text);
  for (std::string word; words >> word;) tokens.push_back(token_named(task, word));
  const Index most = task.setup.decoder.context;
  if (tokens.size() < 2 || static_cast<Index>(tokens.size()) > most) {
    throw std::invalid_argument(fmt::format(
        "explain: --text: expected 2 to {} tokens of {}, got {}", most, task.key, tokens.size()));
  }
  return tokens;
}

KnownQuestion typed_question(const KnownTask& task, const KnownModel& model,
                             const std::vector<Index>& tokens, Random& random) {
  // The sequences that it is drawn with give tokens to swap.
  TokenBatch batch = task.setup.task.held_out(1 + kAlternatives, random);
  std::ranges::copy(tokens, &batch.tokens(0, 0));
  KnownQuestion question = until(batch, 0, static_cast<Index>(tokens.size()) - 1, task.names);
  question.answer = likeliest(*model.decoder, tokens);
  return question;
}

explain::DecoderModel asked(const KnownModel& model, const KnownQuestion& question) {
  return {model.decoder,
          question.text,
          {.kind = explain::DecoderTarget::Kind::LogProbability, .token = question.answer}};
}

}  // namespace qkv::lab
