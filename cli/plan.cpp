#include "cli/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "cli/mask_options.h"
#include "cli/plan_report.h"
#include "cli/whole_number.h"
#include "engine/cache_pages.h"

namespace qkv::cli {
namespace {

/// The command line, as it is typed.
struct PlanOptions {
  Index batch = 1;
  Index heads = 12;
  std::optional<Index> kv_heads;
  Index tokens = 512;
  std::optional<Index> keys;
  Index width = 64;
  std::optional<Index> value_width;
  std::string dtype = "float32";

  MaskTexts mask;
  std::vector<Index> documents;

  std::optional<Index> threads;
  std::optional<std::string> target;
  std::optional<double> dropout;
  bool with_weights = false;
  bool backward = false;
  bool cache = false;
  std::optional<Index> cache_window;

  Index sample = 0;
  Index head = 0;
  bool json = false;
};

[[noreturn]] void fail(std::string_view option, std::string_view expected, std::string_view got) {
  throw std::invalid_argument(fmt::format("plan: {}: expected {}, got {}", option, expected, got));
}

void check_index(std::string_view option, std::string_view size, Index extent, Index index) {
  if (index < extent) return;
  fail(option, fmt::format("an index below {}={}", size, extent), fmt::format("{}", index));
}

/// One document after the other; the last length repeats until the tokens end.
Mask documents_of(const PlanOptions& options, Index keys) {
  if (keys != options.tokens) {
    fail("--documents", "as many keys as queries", fmt::format("T={}, S={}", options.tokens, keys));
  }
  Tensor<Index, 2> numbers({1, options.tokens});
  Index document = 0;
  Index left = options.documents.front();
  for (Index& number : numbers.elements()) {
    if (left == 0) {
      ++document;
      const auto place = std::min(static_cast<std::size_t>(document), options.documents.size() - 1);
      left = options.documents[place];
    }
    number = document;
    --left;
  }
  return Mask::documents(std::as_const(numbers).view(), std::as_const(numbers).view());
}

/// What a plan goes through has to fit into the time that one waits for it.
void check_work(const PlannedCall& call) {
  constexpr double kMostPairs = 1e11;
  double pairs = static_cast<double>(call.batch) * static_cast<double>(call.heads);
  pairs *= static_cast<double>(call.queries) * static_cast<double>(std::max<Index>(call.keys, 256));
  if (pairs <= kMostPairs) return;
  fail("sizes", fmt::format("at most {:.0e} pairs B·H·T·S", kMostPairs),
       fmt::format("{:.1e}", pairs));
}

/// Tensors of these sizes without their memory: a plan reads none of their elements.
template <class T>
class Tensors {
 public:
  explicit Tensors(const PlannedCall& call) : call_(call) {}

  TensorView<const T, 4> query() const { return view(call_.heads, call_.queries, call_.width); }
  TensorView<const T, 4> key() const { return view(call_.kv_heads, call_.keys, call_.width); }
  TensorView<const T, 4> value() const {
    return view(call_.kv_heads, call_.keys, call_.value_width);
  }

 private:
  TensorView<const T, 4> view(Index heads, Index rows, Index width) const {
    static const T kElement{};
    return {&kElement, {call_.batch, heads, rows, width}, {0, 0, 0, 0}};
  }
  const PlannedCall& call_;
};

struct Planned {
  engine::Plan plan;
  engine::BlockMap map;  ///< of the kv head that is drawn, where there is one
};

template <class T>
Planned plan_cached(const PlannedCall& call, const AttentionInputs<T>& inputs,
                    const engine::Options& how, const PlanOptions& options) {
  const KvCacheOptions held{.batch = call.batch,
                            .kv_heads = call.kv_heads,
                            .key_width = call.width,
                            .value_width = call.value_width,
                            .window = options.cache_window,
                            .target = options.target};
  std::vector<Index> lengths = options.mask.lengths;
  if (lengths.size() <= 1) lengths.assign(static_cast<std::size_t>(call.batch), call.keys);
  const auto cache = KvCacheAccess::without_pages<T>(held, lengths);
  Planned planned{engine::plan(cache, inputs, how, options.with_weights), {}};
  if (!planned.plan.heads.empty()) {
    planned.map = engine::map_blocks(cache, inputs, call.drawn_sample, call.drawn_kv_head, how);
  }
  return planned;
}

template <class T>
Planned plan_whole(const PlannedCall& call, const AttentionInputs<T>& inputs,
                   const engine::Options& how, const PlanOptions& options) {
  if (!options.backward) {
    Planned planned{engine::plan(inputs, how, options.with_weights), {}};
    if (!planned.plan.heads.empty()) {
      planned.map = engine::map_blocks(inputs, call.drawn_sample, call.drawn_kv_head, how);
    }
    return planned;
  }
  if constexpr (std::is_same_v<T, engine::Arithmetic<T>>) {
    Planned planned{engine::plan_backward(inputs, how), {}};
    if (!planned.plan.heads.empty()) {
      planned.map = engine::map_backward_blocks(inputs, call.drawn_sample, call.drawn_kv_head, how);
    }
    return planned;
  } else {
    fail("--backward", "--dtype float32 or float64", call.dtype);
  }
}

template <class T>
ExitCode plan_call(const PlannedCall& call, const Mask& mask, const PlanOptions& options) {
  const Tensors<T> tensors(call);
  AttentionInputs<T> inputs;
  inputs.query = tensors.query();
  inputs.mask = mask;
  engine::Options how;
  if (options.threads) how.threads = static_cast<int>(*options.threads);
  how.target = options.target;
  if (options.dropout) how.dropout = {.probability = *options.dropout};
  Planned planned;
  if (options.cache) {
    planned = plan_cached(call, inputs, how, options);
  } else {
    inputs.key = tensors.key();
    inputs.value = tensors.value();
    planned = plan_whole(call, inputs, how, options);
  }
  if (options.json) {
    fmt::print("{}\n", plan_json(call, planned.plan, planned.map).dump(2));
  } else {
    fmt::print("{}", plan_text(call, planned.plan, planned.map));
  }
  return Ok;
}

/// The call's mask. That of a call from a cache also has the positions and lengths of the sequences, which the engine adds.
Mask mask_of(const PlanOptions& options, PlannedCall& call) {
  MaskTexts texts = options.mask;
  if (options.cache) texts.lengths.clear();
  Mask mask = lab::make_mask("plan", parse_mask("plan", texts), call.queries, call.keys);
  if (!options.documents.empty()) mask = mask & documents_of(options, call.keys);
  call.mask = mask.describe();
  if (!options.cache) return mask;
  std::string positions = "causal at the positions of the last T tokens";
  if (options.cache_window) {
    positions += fmt::format(" & the cache's window of {}", *options.cache_window);
  }
  call.mask = mask.rules().empty() ? positions : positions + " & " + call.mask;
  return mask;
}

/// Keys S; of a cache, those of its longest sequence.
Index keys_of(const PlanOptions& options) {
  const std::vector<Index>& lengths = options.mask.lengths;
  if (!options.cache || lengths.empty()) return options.keys.value_or(options.tokens);
  if (options.keys) {
    fail("--keys", "none beside --cache with --lengths", fmt::format("{}", *options.keys));
  }
  if (lengths.size() != 1 && static_cast<Index>(lengths.size()) != options.batch) {
    fail("--lengths", fmt::format("one number, or one a sample of B={}", options.batch),
         fmt::format("{} of them", lengths.size()));
  }
  return *std::max_element(lengths.begin(), lengths.end());
}

ExitCode run(const PlanOptions& options) {
  PlannedCall call;
  call.batch = options.batch;
  call.heads = options.heads;
  call.kv_heads = options.kv_heads.value_or(options.heads);
  call.queries = options.tokens;
  call.keys = keys_of(options);
  call.width = options.width;
  call.value_width = options.value_width.value_or(options.width);
  call.dtype = options.dtype;
  call.function = options.backward ? "engine::backward"
                  : options.cache  ? "engine::forward(cache)"
                                   : "engine::forward";
  if (call.kv_heads == 0 || call.heads % call.kv_heads != 0) {
    fail("--kv-heads", fmt::format("a divisor of H={}", call.heads),
         fmt::format("{}", call.kv_heads));
  }
  check_work(call);
  if (call.batch > 0) check_index("--sample", "B", call.batch, options.sample);
  check_index("--head", "H", call.heads, options.head);
  call.drawn_sample = options.sample;
  call.drawn_kv_head = options.head / (call.heads / call.kv_heads);

  const Mask mask = mask_of(options, call);
  if (options.dtype == "float64") return plan_call<double>(call, mask, options);
  if (options.dtype == "float16") return plan_call<Float16>(call, mask, options);
  if (options.dtype == "bfloat16") return plan_call<BFloat16>(call, mask, options);
  return plan_call<float>(call, mask, options);
}

void add_size_options(CLI::App& command, PlanOptions& options) {
  const char* group = "Sizes";
  const auto size = [&](CLI::Option* option, Index least) {
    return option->check(whole_number(least))->group(group);
  };
  size(command.add_option("--batch", options.batch, "Samples B"), 0)->capture_default_str();
  size(command.add_option("--heads", options.heads, "Query heads H"), 1)->capture_default_str();
  size(command.add_option("--kv-heads", options.kv_heads,
                          "Key/value heads, a divisor of H; H where not given"),
       1);
  size(command.add_option("--tokens", options.tokens, "Queries T"), 0)->capture_default_str();
  size(command.add_option("--keys", options.keys, "Keys S; T where not given"), 0);
  size(command.add_option("--width", options.width, "Width Dk of queries and keys"), 0)
      ->capture_default_str();
  size(command.add_option("--value-width", options.value_width,
                          "Width Dv of values; Dk where not given"),
       0);
  command.add_option("--dtype", options.dtype, "float32, float64, float16 or bfloat16")
      ->check(CLI::IsMember({"float32", "float64", "float16", "bfloat16"}))
      ->capture_default_str()
      ->group(group);
}

}  // namespace

Command add_plan_command(CLI::App& app) {
  const auto options = std::make_shared<PlanOptions>();
  CLI::App* command = app.add_subcommand(
      "plan", "Show how the engine divides a call: which blocks a mask hides, threads, memory");
  add_size_options(*command, *options);

  const char* mask = "Mask";
  add_mask_options(*command, mask, options->mask);
  command
      ->add_option("--documents", options->documents,
                   "Packed documents of these lengths; the last one repeats to the end")
      ->check(whole_number(1))
      ->delimiter(',')
      ->allow_extra_args(false)
      ->group(mask);

  const char* how = "How it runs";
  command->add_option("--threads", options->threads, "Threads to use at most")
      ->check(CLI::Range(1, 65536))
      ->group(how);
  command
      ->add_option("--target", options->target, "SIMD target; the fastest of this processor else")
      ->group(how);
  command
      ->add_option("--dropout", options->dropout, "Probability that a weight is dropped; off else")
      ->group(how);
  CLI::Option* weights =
      command->add_flag("--weights", options->with_weights, "The weights are asked for, too")
          ->group(how);
  CLI::Option* backward =
      command->add_flag("--backward", options->backward, "The call that gives gradients")
          ->excludes(weights)
          ->group(how);
  CLI::Option* cache =
      command
          ->add_flag(
              "--cache", options->cache,
              "The last T of S tokens, whose keys and values a KvCache holds; with --lengths "
              "sequences of these lengths")
          ->excludes(backward)
          ->group(how);
  command
      ->add_option("--cache-window", options->cache_window,
                   "The cache keeps what a token sees: itself and this many before it")
      ->check(whole_number(0))
      ->needs(cache)
      ->group(how);

  const char* shown = "What is shown";
  command->add_option("--sample", options->sample, "Sample of the drawing")
      ->check(whole_number(0))
      ->capture_default_str()
      ->group(shown);
  command->add_option("--head", options->head, "Query head whose kv head is drawn")
      ->check(whole_number(0))
      ->capture_default_str()
      ->group(shown);
  command->add_flag("--json", options->json, "Print JSON")->group(shown);
  return {command, [options] { return run(*options); }};
}

}  // namespace qkv::cli
