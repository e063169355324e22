#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "lab/experiment_complexity_parts.h"
#include "module/projection.h"
#include "qkv/kv_cache.h"
#include "qkv/multi_head_attention.h"

namespace qkv::lab {
namespace {

constexpr Index kModelWidth = 512;
constexpr Index kHeads = 8;
constexpr Index kHeadWidth = kModelWidth / kHeads;

MultiHeadAttention<float> draw_module(std::uint64_t seed) {
  MultiHeadAttentionOptions options;
  options.model_width = kModelWidth;
  options.heads = kHeads;
  auto parameters = zero_parameters<float>(options);
  NormalNumbers numbers(seed);
  const double deviation = 1 / std::sqrt(static_cast<double>(kModelWidth));
  for (Tensor<float, 2>* weight : {&parameters.query_weight, &parameters.key_weight,
                                   &parameters.value_weight, &parameters.output_weight}) {
    *weight = numbers.tensor<float, 2>(weight->shape(), deviation);
  }
  return {options, std::move(parameters)};
}

/// One token with a cache: projections of that token alone, its key and value appended, attention to the cache, output projection.
class Decoder {
 public:
  Decoder(const MultiHeadAttention<float>& module, const engine::Options& options)
      : module_(module),
        options_(options),
        cache_(
            {.batch = 1, .kv_heads = kHeads, .key_width = kHeadWidth, .value_width = kHeadWidth}) {}

  void prefill(const MultiHeadAttentionResult<float>& past) {
    const auto value = split_heads(past.value_projection.view(), kHeads);
    cache_.append(past.key_heads.view(), value);
  }
  void forget_last() { cache_.truncate(0, cache_.length(0) - 1); }

  /// token [1,1,D]; [1,1,D] again.
  const Tensor<float, 3>& step(const Tensor<float, 3>& token) {
    const auto& parameters = module_.parameters();
    project(token.view(), parameters.query_weight, parameters.query_bias, query_);
    project(token.view(), parameters.key_weight, parameters.key_bias, key_);
    project(token.view(), parameters.value_weight, parameters.value_bias, value_);
    cache_.append(split_heads(std::as_const(key_).view(), kHeads),
                  split_heads(std::as_const(value_).view(), kHeads));
    engine::forward<float>(cache_, {.query = split_heads(std::as_const(query_).view(), kHeads)},
                           {.context = split_heads(context_.view(), kHeads)}, options_);
    project(std::as_const(context_).view(), parameters.output_weight, parameters.output_bias,
            output_);
    return output_;
  }
  std::size_t cache_bytes() const { return cache_.bytes(); }

 private:
  const MultiHeadAttention<float>& module_;
  engine::Options options_;
  KvCache<float> cache_;
  Tensor<float, 3> query_{{1, 1, kModelWidth}};
  Tensor<float, 3> key_{{1, 1, kModelWidth}};
  Tensor<float, 3> value_{{1, 1, kModelWidth}};
  Tensor<float, 3> context_{{1, 1, kModelWidth}};
  Tensor<float, 3> output_{{1, 1, kModelWidth}};
};

struct DecodeRow {
  Index length = 0;       ///< tokens, the decoded one included
  double read_bytes = 0;  ///< keys and values of all of them
  double held_bytes = 0;  ///< of the cache's pages
  double cached_seconds = 0;
  double again_seconds = 0;
  double cached_flops = 0;
  double again_flops = 0;
  bool same_bits = false;
};

DecodeRow measure(const MultiHeadAttention<float>& module, Index length,
                  const ExperimentOptions& options) {
  NormalNumbers numbers(options.seed);
  const auto tokens = numbers.tensor<float, 3>({1, length, kModelWidth});
  const TensorView<const float, 3> all = tokens.view();
  const Tensor<float, 3> last = contiguous_copy(all.slice(1, length - 1, length));
  const auto forward = [&](const TensorView<const float, 3>& x) {
    MultiHeadAttentionInputs<float> inputs;
    inputs.query = x;
    inputs.mask = Mask::causal();
    return module.forward(inputs);
  };
  Decoder decoder(module, engine_options(options));
  if (length > 1) decoder.prefill(forward(all.slice(1, 0, length - 1)));

  DecodeRow row;
  row.length = length;
  const Tensor<float, 3> cached = decoder.step(last);
  const MultiHeadAttentionResult<float> again = forward(all);
  const std::span<const float> last_row(&again.output(0, length - 1, 0),
                                        static_cast<std::size_t>(kModelWidth));
  row.same_bits = std::ranges::equal(std::as_bytes(cached.elements()), std::as_bytes(last_row));
  const auto n = static_cast<double>(length);
  const auto d = static_cast<double>(kModelWidth);
  row.read_bytes = 2 * n * d * sizeof(float);
  row.held_bytes = static_cast<double>(decoder.cache_bytes());
  row.cached_flops = 8 * d * d + 4 * n * d;
  row.again_flops = n * 8 * d * d + 4 * d * n * (n + 1) / 2;
  row.cached_seconds = fastest_seconds(
      [&] {
        decoder.forget_last();
        decoder.step(last);
      },
      options);
  row.again_seconds = fastest_seconds([&] { forward(all); }, options);
  return row;
}

Table decode_table(const std::vector<DecodeRow>& rows) {
  Table table{
      "decode",
      {fmt::format("One more token of an attention layer, D = {}, H = {}, float32", kModelWidth,
                   kHeads),
       fmt::format("注意力层再解码一个 token，D = {}，H = {}，float32", kModelWidth, kHeads)},
      {{"length", {"tokens", "token 数"}, {}},
       {"read_bytes", {"keys and values read", "读取的 K/V"}, same("B")},
       {"held_bytes", {"held by the cache", "缓存占用"}, same("B")},
       {"cached_seconds", {"time with the cache", "用缓存的耗时"}, same("s")},
       {"again_seconds", {"time to compute all again", "全部重算的耗时"}, same("s")},
       {"time_ratio", {"ratio", "倍数"}, {}},
       {"flop_ratio", {"ratio of the operations", "运算量倍数"}, {}},
       {"same_bits", {"same bits", "逐位相同"}, {}}},
      {}};
  for (const DecodeRow& row : rows) {
    const auto number = [](double value) { return Measured{value, {}, {}}; };
    table.rows.push_back({row.length, number(row.read_bytes), number(row.held_bytes),
                          number(row.cached_seconds), number(row.again_seconds),
                          number(row.again_seconds / row.cached_seconds),
                          number(row.again_flops / row.cached_flops),
                          row.same_bits ? Cell(Text{"yes", "是"}) : Cell(Text{"no", "否"})});
  }
  return table;
}

Chart decode_chart(const std::vector<DecodeRow>& rows) {
  Chart chart{"decode",
              {"Time of one more token", "再解码一个 token 的耗时"},
              {{"tokens so far", "已有 token 数"}, true},
              {{"seconds", "秒"}, true},
              {}};
  Series cached{{"KV cache", "KV 缓存"}, {}, {}, {}, {}};
  Series again{{"everything again", "全部重算"}, {}, {}, {}, {}};
  for (const DecodeRow& row : rows) {
    cached.x.push_back(static_cast<double>(row.length));
    cached.y.push_back(row.cached_seconds);
    again.x.push_back(static_cast<double>(row.length));
    again.y.push_back(row.again_seconds);
  }
  chart.series = {cached, again};
  return chart;
}

std::vector<Effect> decode_effects(const std::vector<DecodeRow>& rows) {
  const DecodeRow& last = rows.back();
  const bool exact =
      std::all_of(rows.begin(), rows.end(), [](const DecodeRow& row) { return row.same_bits; });
  // Pages are 256 tokens: whole ones hold what is read and nothing else.
  const bool linear = std::all_of(rows.begin(), rows.end(), [](const DecodeRow& row) {
    return row.held_bytes >= row.read_bytes &&
           (row.length % 256 != 0 || row.held_bytes < 1.1 * row.read_bytes);
  });
  return {
      {"cache_is_exact",
       {"With a cache the new token gets the bits that computing everything again gives.",
        "用缓存解码的结果与全部重算逐位相同。"},
       {fmt::format("The same bits at every length, up to {} tokens.", last.length),
        fmt::format("直到 {} 个 token，每个长度都逐位相同。", last.length)},
       exact},
      {"cache_saves_and_grows",
       {"The cache saves the operations of all tokens before, and is read whole for each new one: "
        "bytes that grow with the length.",
        "缓存省去之前所有 token 的运算，但每解码一个 token 都要把它整个读一遍，字节数随长度增长。"},
       {fmt::format("At {} tokens: {} to read, 1/{:.0f} of the operations, {} in place of {}.",
                    last.length, byte_count(last.read_bytes), last.again_flops / last.cached_flops,
                    duration(last.cached_seconds), duration(last.again_seconds)),
        fmt::format("{} 个 token 时：要读 {}，运算量是重算的 1/{:.0f}，耗时 {}，重算则要 {}。",
                    last.length, byte_count(last.read_bytes), last.again_flops / last.cached_flops,
                    duration(last.cached_seconds), duration(last.again_seconds))},
       linear && last.again_flops > 100 * last.cached_flops}};
}

}  // namespace

void add_decoding(const ExperimentOptions& options, Experiment& experiment) {
  const MultiHeadAttention<float> module = draw_module(options.seed);
  const Index longest = options.quick ? 1024 : 4096;
  std::vector<DecodeRow> rows;
  for (Index length = 64; length <= longest; length *= 2) {
    report(options, fmt::format("one more token after {}", length),
           0.75 + 0.03 * static_cast<double>(rows.size()));
    rows.push_back(measure(module, length, options));
  }
  experiment.tables.push_back(decode_table(rows));
  experiment.charts.push_back(decode_chart(rows));
  for (Effect& effect : decode_effects(rows)) experiment.effects.push_back(std::move(effect));
}

}  // namespace qkv::lab
