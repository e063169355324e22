#include "cli/explain.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/thread_limit.h"
#include "cli/page_folder.h"
#include "cli/stop_signal.h"
#include "cli/terminal.h"
#include "cli/whole_number.h"
#include "explain/encoder_model.h"
#include "explain/report.h"
#include "lab/experiment_explain_tasks.h"
#include "lab/experiment_json.h"
#include "lab/experiment_text.h"
#include "lab/explained_text.h"
#include "model/utf8.h"

namespace qkv::cli {
namespace {

/// The command line, as it is typed.
struct ExplainOptions {
  std::string model;
  std::optional<std::string> text;
  std::optional<std::string> with;
  std::vector<std::string> classes;
  std::optional<std::string> how;
  lab::ExperimentOptions run;
  std::optional<std::string> out;
  std::string color = "auto";
  bool json = false;
};

[[noreturn]] void fail(std::string_view option, std::string_view expected, std::string_view got) {
  throw std::invalid_argument(
      fmt::format("explain: {}: expected {}, got {}", option, expected, got));
}

std::vector<std::string> occlusion_keys() {
  std::vector<std::string> keys;
  keys.reserve(explain::kOcclusions.size());
  for (const explain::Occlusion how : explain::kOcclusions) keys.emplace_back(explain::key_of(how));
  return keys;
}

explain::Occlusion occlusion_named(const std::string& key) {
  return *std::ranges::find(explain::kOcclusions, key,
                            [](explain::Occlusion how) { return explain::key_of(how); });
}

/// Where a model has other texts, a token of one of them is the change that it knows best.
explain::Occlusion occlusion_of(const ExplainOptions& options, const explain::ExplainedText& text) {
  const bool can_swap = explain::can_take_away(text, explain::Occlusion::SwapToken);
  if (!options.how) {
    return can_swap ? explain::Occlusion::SwapToken : explain::Occlusion::ReplaceToken;
  }
  const explain::Occlusion how = occlusion_named(*options.how);
  if (!explain::can_take_away(text, how)) {
    fail("--how", "hide_key, zero_value, remove_token or replace_token for a sentence encoder",
         *options.how);
  }
  return how;
}

explain::ReportOptions report_options(const ExplainOptions& options,
                                      const explain::ExplainedText& text) {
  explain::ReportOptions report;
  report.faith.how = occlusion_of(options, text);
  report.faith.seed = report.sanity.seed = options.run.seed;
  if (options.run.quick) {
    report.completeness.gap = 0.05;
    report.faith.sets = 24;
    report.faith.random_runs = 3;
    report.sanity.seeds = 0;
  }
  return report;
}

std::string keys_of(const std::vector<lab::KnownTask>& tasks) {
  std::string keys;
  for (const lab::KnownTask& task : tasks)
    keys += fmt::format("{}{}", keys.empty() ? "" : ", ", task.key);
  return keys;
}

/// Cosines that differ by less are rounding.
constexpr double kTie = 1e-9;

/// A model with a text that it has read, and what to call both.
struct Subject {
  std::unique_ptr<explain::ExplainedModel> model;
  Text title;
};

/// What a reader sees of a text: line ends are blanks, and other control characters are nothing to the tokenizer either.
std::string plain_text(std::string_view option, const std::string& text) {
  if (!is_utf8(text)) fail(option, "UTF-8", "other bytes");
  std::string plain;
  for (std::size_t at = 0; at < text.size();) {
    const char32_t code = *next_code_point(text, at);
    if (code == U'\t' || code == U'\n' || code == U'\r') {
      plain += ' ';
    } else if (code >= 0x20 && (code < 0x7f || code > 0x9f)) {
      append_utf8(code, plain);
    }
  }
  return plain;
}

/// Beyond it, a title would push aside what it is the title of.
std::string title(std::string_view text) {
  constexpr std::size_t kLongest = 80;
  return shortened(text, kLongest);
}

void expect_fits(const SentenceModel<double>& model, std::string_view option,
                 const std::string& text) {
  const TokenizedText tokenized = model.tokenizer.tokenize(text, model.options.most_tokens);
  const Index count = static_cast<Index>(tokenized.tokens.size()) + tokenized.left_out;
  if (std::ranges::all_of(tokenized.tokens, &TextToken::special)) {
    fail(option, "a text of one token or more", fmt::format("\"{}\"", text));
  }
  if (count > model.options.most_tokens) {
    fail(option,
         fmt::format("at most {} tokens, first and last among them", model.options.most_tokens),
         fmt::format("{}", count));
  }
}

/// Between the nearest class and the next one.
Subject class_subject(const ExplainOptions& options,
                      std::shared_ptr<const SentenceModel<double>> model) {
  std::vector<std::pair<double, std::string>> classes;
  const std::vector<double> near = explain::similarities(*model, *options.text, options.classes);
  for (std::size_t i = 0; i < near.size(); ++i) classes.emplace_back(near[i], options.classes[i]);
  std::ranges::stable_sort(classes, std::ranges::greater(), &std::pair<double, std::string>::first);
  const auto& [nearest, name] = classes[0];
  const auto& [next, other] = classes[1];
  if (nearest - next < kTie) {
    fail("--class", "classes that the model tells apart",
         fmt::format("\"{}\" and \"{}\", which are equally near", name, other));
  }
  return {std::make_unique<explain::EncoderModel>(std::move(model), *options.text,
                                                  explain::SimilarityTarget{name, other}),
          {fmt::format("Why is \"{}\" nearer to \"{}\" ({:.3f}) than to \"{}\" ({:.3f})?",
                       title(*options.text), title(name), nearest, title(other), next),
           fmt::format("为什么“{}”离“{}”（{:.3f}）比离“{}”（{:.3f}）更近？", title(*options.text),
                       title(name), nearest, title(other), next)}};
}

Subject similarity_subject(const ExplainOptions& options,
                           std::shared_ptr<const SentenceModel<double>> model) {
  return {std::make_unique<explain::EncoderModel>(std::move(model), *options.text,
                                                  explain::SimilarityTarget{*options.with}),
          {fmt::format("Why is \"{}\" like \"{}\"?", title(*options.text), title(*options.with)),
           fmt::format("为什么“{}”与“{}”相似？", title(*options.text), title(*options.with))}};
}

Subject encoder_subject(const ExplainOptions& options) {
  if (!options.text) fail("--text", "the text to explain", "none");
  if (!options.with && options.classes.empty()) {
    fail("--with", "a text that its similarity to is explained, or --class twice or more", "none");
  }
  if (options.classes.size() == 1) fail("--class", "two classes or more", "one");
  auto model =
      std::make_shared<const SentenceModel<double>>(load_sentence_model<double>(options.model));
  expect_fits(*model, "--text", *options.text);
  if (options.with) expect_fits(*model, "--with", *options.with);
  for (const std::string& name : options.classes) expect_fits(*model, "--class", name);
  return options.with ? similarity_subject(options, std::move(model))
                      : class_subject(options, std::move(model));
}

Subject task_subject(const ExplainOptions& options) {
  const std::vector<lab::KnownTask> tasks = lab::known_tasks();
  const auto task = std::ranges::find(tasks, options.model, &lab::KnownTask::key);
  if (task == tasks.end()) {
    fail("MODEL", fmt::format("the folder of a sentence encoder, or one of {}", keys_of(tasks)),
         fmt::format("\"{}\"", options.model));
  }
  if (options.with || !options.classes.empty()) {
    fail(options.with ? "--with" : "--class", "the folder of a sentence encoder as MODEL",
         options.model);
  }
  const std::optional<std::vector<Index>> typed =
      options.text ? std::optional(lab::typed_tokens(*task, *options.text)) : std::nullopt;
  const lab::KnownModel model =
      lab::train_known(*task, options.run.seed, options.run, {"training", 0, 0.3});
  Random random(options.run.seed);
  const lab::KnownQuestion question = typed ? lab::typed_question(*task, model, *typed, random)
                                            : lab::drawn_question(*task, random);
  std::unique_ptr<explain::ExplainedModel> explained(
      new explain::DecoderModel(lab::asked(model, question)));
  const std::string& answer = task->names[static_cast<std::size_t>(question.answer)];
  const std::string text = fmt::format("{}", fmt::join(explained->text().tokens, " "));
  return {std::move(explained),
          {fmt::format("Where does \"{}\" come from after \"{}\"? ({})", answer, text,
                       task->name.english),
           fmt::format("“{}”之后的“{}”来自哪里？（{}）", text, answer, task->name.chinese)}};
}

/// As one types it in a shell.
std::string shell_quoted(std::string_view argument) {
  std::string result = "'";
  for (const char c : argument) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

std::string command_of(const ExplainOptions& options, explain::Occlusion how) {
  std::string command = "qkv explain " + shell_quoted(options.model);
  if (options.text) command += " --text " + shell_quoted(*options.text);
  if (options.with) command += " --with " + shell_quoted(*options.with);
  for (const std::string& name : options.classes) command += " --class " + shell_quoted(name);
  return command + fmt::format(" --how {} --seed {}{}", explain::key_of(how), options.run.seed,
                               options.run.quick ? " --quick" : "");
}

ExplainOptions with_plain_texts(ExplainOptions options) {
  if (options.text) options.text = plain_text("--text", *options.text);
  if (options.with) options.with = plain_text("--with", *options.with);
  for (std::string& name : options.classes) name = plain_text("--class", name);
  return options;
}

class ExplainRun {
 public:
  explicit ExplainRun(const ExplainOptions& options) : options_(with_plain_texts(options)) {}

  ExitCode run() {
    if (options_.out) folder_.emplace("explain", *options_.out);
    try {
      show(explained());
    } catch (const Interrupted&) {
      progress_.clear();
      fmt::print(stderr, "qkv: explain: interrupted{}\n",
                 folder_ ? "; nothing was written to " + folder_->path() : "");
      return Stopped;
    }
    return Ok;
  }

 private:
  lab::Experiment explained() {
    ExplainOptions options = options_;
    options.run.progress = [this](std::string_view what, double done) {
      progress_.show(fmt::format("explain {:3.0f} %  {}", 100 * done, what));
      return !stop_.came();
    };
    const bool is_folder = std::filesystem::is_directory(options.model);
    // Models as small as those of the tasks are slower on two threads than on one.
    const ThreadLimit limit(is_folder ? std::nullopt : std::optional(1));
    const Subject subject = is_folder ? encoder_subject(options) : task_subject(options);
    const double begin = is_folder ? 0 : 0.3;  // what came before was the training
    const Progress progress = [&](std::string_view what, double done) {
      return options.run.progress(what, begin + done * (1 - begin));
    };
    const explain::Report report =
        explain::explain(*subject.model, report_options(options, subject.model->text()), progress);
    progress_.clear();
    return lab::explained_text(report, subject.title, command_of(options_, report.how));
  }

  void show(const lab::Experiment& experiment) const {
    const std::string results = lab::experiments_json({&experiment, 1}, options_.run);
    if (folder_) folder_->write(results);
    if (options_.json) {
      fmt::print("{}", results);
      return;
    }
    fmt::print("{}", lab::experiment_text(experiment, {wants_color(options_.color), text_width()}));
    if (folder_) fmt::print("  page  {}\n  JSON  {}\n", folder_->page(), folder_->results());
  }

  const ExplainOptions options_;
  std::optional<PageFolder> folder_;
  StopSignal stop_;
  ProgressLine progress_;
};

}  // namespace

Command add_explain_command(CLI::App& app) {
  const auto options = std::make_shared<ExplainOptions>();
  CLI::App* command = app.add_subcommand(
      "explain",
      "Say which tokens an answer came from, by every usual method, and which of them to believe");
  command->footer(
      "MODEL is the folder of a sentence encoder (config.json, model.safetensors, and "
      "tokenizer.json or vocab.txt), or a "
      "task of the lab whose model is "
      "trained on the spot and whose answer is known: " +
      keys_of(lab::known_tasks()) +
      ".\n\nExit code: 0, 2 on bad input, 130 where it was interrupted.");
  command->add_option("model", options->model, "A folder, or the name of a task")->required();
  command->add_option("--text", options->text,
                      "The text that is explained; of a task, tokens with spaces between them");
  CLI::Option* with =
      command->add_option("--with", options->with, "The text that it is compared with");
  command
      ->add_option("--class", options->classes,
                   "A class by its name, twice or more: why the nearest one and not the next")
      ->allow_extra_args(false)
      ->excludes(with);
  command
      ->add_option("--how", options->how,
                   "What taking a token away means where methods are held against it; by itself "
                   "swap_token for a task, replace_token for an encoder")
      ->check(CLI::IsMember(occlusion_keys()));
  command->add_flag("--quick", options->run.quick,
                    "Fewer random sets and orders, and no shuffled weights");
  command->add_option("--seed", options->run.seed, "Seed of everything that is drawn")
      ->check(whole_number(0))
      ->capture_default_str();
  command->add_option("--out", options->out,
                      "A folder for a page (index.html) and its numbers (results.json)");
  command->add_flag("--json", options->json, "Everything as JSON instead");
  command->add_option("--color", options->color, "always, never or auto (NO_COLOR is respected)")
      ->check(CLI::IsMember({"always", "never", "auto"}))
      ->capture_default_str();
  return {command, [options] { return ExplainRun(*options).run(); }};
}

}  // namespace qkv::cli
