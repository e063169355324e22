// The cache: the bits of the whole forward pass, however the tokens came; fork, truncate, eviction, errors.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "qkv/kv_cache.h"
#include "tests/engine/bits.h"
#include "tests/engine/simd_targets.h"

namespace qkv {
namespace {

using cases::same_bits;
using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr Index kTokens = 3 * 256 + 21;

struct Setting {
  Index heads = 4;
  Index kv_heads = 2;
  Index key_width = 9;
  Index value_width = 5;
  Index batch = 1;
};

template <class T>
struct Text {
  explicit Text(const Setting& s, Index tokens = kTokens)
      : query(cases::random_tensor<T, 4>({s.batch, s.heads, tokens, s.key_width}, 1)),
        key(cases::random_tensor<T, 4>({s.batch, s.kv_heads, tokens, s.key_width}, 2)),
        value(cases::random_tensor<T, 4>({s.batch, s.kv_heads, tokens, s.value_width}, 3)) {}
  Tensor<T, 4> query;
  Tensor<T, 4> key;
  Tensor<T, 4> value;
};

KvCacheOptions options_of(const Setting& s, const std::string& target,
                          std::optional<Index> window = std::nullopt) {
  return {s.batch, s.kv_heads, s.key_width, s.value_width, window, target};
}

template <class T>
TensorView<const T, 4> tokens_of(const Tensor<T, 4>& tensor, Index begin, Index end) {
  return tensor.view().slice(2, begin, end);
}

/// Appends the tokens in chunks and lets each chunk attend.
template <class T>
cases::EngineOutputs<engine::Arithmetic<T>> decode(const Text<T>& text, const Setting& s,
                                                   const KvCacheOptions& options, Index chunk,
                                                   const AttentionInputs<T>& modifiers = {}) {
  using A = engine::Arithmetic<T>;
  const Index tokens = text.query.shape(2);
  cases::EngineOutputs<A> result{Tensor<A, 4>({s.batch, s.heads, tokens, s.value_width}),
                                 Tensor<A, 4>({s.batch, s.heads, tokens, 0}),
                                 Tensor<A, 3>({s.batch, s.heads, tokens})};
  KvCache<T> cache(options);
  engine::Options threads;
  threads.threads = 2;
  for (Index begin = 0; begin < tokens; begin += chunk) {
    const Index end = std::min(begin + chunk, tokens);
    cache.append(tokens_of(text.key, begin, end), tokens_of(text.value, begin, end));
    AttentionInputs<T> inputs = modifiers;
    inputs.query = tokens_of(text.query, begin, end);
    AttentionOutputs<A> outputs;
    outputs.context = result.context.view().slice(2, begin, end);
    outputs.log_sum_exp = result.log_sum_exp.view().slice(2, begin, end);
    engine::forward(cache, inputs, outputs, threads);
  }
  return result;
}

template <class T>
cases::EngineOutputs<engine::Arithmetic<T>> whole(const Text<T>& text, const std::string& target,
                                                  std::optional<Index> window,
                                                  const AttentionInputs<T>& modifiers = {}) {
  AttentionInputs<T> inputs = modifiers;
  inputs.query = text.query.view();
  inputs.key = text.key.view();
  inputs.value = text.value.view();
  inputs.mask = inputs.mask & Mask::causal();
  if (window) inputs.mask = inputs.mask & Mask::sliding_window({*window, std::nullopt});
  engine::Options options;
  options.target = target;
  return cases::run_engine(inputs, options);
}

class KvCacheOn : public testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Simd, KvCacheOn, testing::ValuesIn(test::simd_targets()),
                         [](const auto& target) { return target.param; });

template <class T>
void expect_the_bits_of_the_whole_pass(const std::string& target) {
  const Setting s;
  const Text<T> text(s);
  for (const auto window : {std::optional<Index>(), std::optional<Index>(100)}) {
    const auto expected = whole<T>(text, target, window);
    for (const Index chunk : {Index{1}, Index{7}, Index{63}, Index{64}, kTokens}) {
      if (chunk == 1 && window) continue;  // the slowest pairs once
      const auto got = decode(text, s, options_of(s, target, window), chunk);
      EXPECT_TRUE(same_bits(got, expected))
          << "chunks of " << chunk << ", window " << window.value_or(-1);
    }
  }
}

TEST_P(KvCacheOn, GivesTheBitsOfTheWholePassInFloat32) {
  expect_the_bits_of_the_whole_pass<float>(GetParam());
}
TEST_P(KvCacheOn, GivesTheBitsOfTheWholePassInFloat64) {
  expect_the_bits_of_the_whole_pass<double>(GetParam());
}
TEST_P(KvCacheOn, GivesTheBitsOfTheWholePassFromFloat16) {
  expect_the_bits_of_the_whole_pass<Float16>(GetParam());
}
TEST_P(KvCacheOn, GivesTheBitsOfTheWholePassFromBFloat16) {
  expect_the_bits_of_the_whole_pass<BFloat16>(GetParam());
}

TEST_P(KvCacheOn, TakesEveryModifier) {
  const Setting s;
  const Text<float> text(s, 300);
  AttentionInputs<float> modifiers;
  modifiers.scale = 0.3;
  modifiers.softcap = 2.0;
  modifiers.alibi = Alibi{{0.5, 0.25, 0.125, 0.0625}, std::nullopt};
  const auto sink = cases::random_tensor<float, 1>({s.heads}, 4);
  modifiers.sink = sink.view();
  EXPECT_TRUE(same_bits(decode(text, s, options_of(s, GetParam()), 7, modifiers),
                        whole<float>(text, GetParam(), std::nullopt, modifiers)));
}

TEST_P(KvCacheOn, KeepsSequencesOfDifferentLengthsApart) {
  const Setting s{.heads = 2, .kv_heads = 1, .key_width = 5, .value_width = 3, .batch = 3};
  const Text<float> text(s, 520);
  const std::array<Index, 3> lengths{1, 300, 520};
  KvCache<float> cache(options_of(s, GetParam()));
  for (Index b = 0; b < 3; ++b) {
    const Index n = lengths[static_cast<std::size_t>(b)];
    const auto one = [&](const Tensor<float, 4>& from) {
      return TensorView<const float, 3>(from.data() + b * from.view().stride(0),
                                        {from.shape(1), n, from.shape(3)},
                                        {from.view().stride(1), from.view().stride(2), 1});
    };
    cache.append(b, one(text.key), one(text.value));
    EXPECT_EQ(cache.length(b), n);
  }
  const auto query = cases::random_tensor<float, 4>({3, 2, 1, 5}, 9);
  Tensor<float, 4> context({3, 2, 1, 3});
  engine::forward(cache, {.query = query.view()}, {.context = context.view()});
  for (Index b = 0; b < 3; ++b) {
    const Index n = lengths[static_cast<std::size_t>(b)];
    AttentionInputs<float> alone;
    alone.query = query.view().slice(0, b, b + 1);
    alone.key = text.key.view().slice(0, b, b + 1).slice(2, 0, n);
    alone.value = text.value.view().slice(0, b, b + 1).slice(2, 0, n);
    engine::Options options;
    options.target = GetParam();
    const auto expected = cases::run_engine(alone, options);
    EXPECT_TRUE(same_bits<float>(expected.context.elements(),
                                 context.elements().subspan(static_cast<std::size_t>(b) * 6, 6)));
  }
}

TEST(KvCache, AForkSharesPagesAndParts) {
  const Setting s{.heads = 1, .kv_heads = 1, .key_width = 4, .value_width = 4};
  const Text<float> text(s, 300);
  const auto target = engine::targets().front();
  KvCache<float> first(options_of(s, target));
  first.append(tokens_of(text.key, 0, 280), tokens_of(text.value, 0, 280));
  KvCache<float> second = first;
  second.truncate(0, 270);
  second.append(tokens_of(text.key, 280, 300), tokens_of(text.value, 280, 300));
  first.append(tokens_of(text.key, 280, 281), tokens_of(text.value, 280, 281));
  EXPECT_EQ(first.length(0), 281);
  EXPECT_EQ(second.length(0), 290);

  // The first one never saw the other's tokens.
  const auto query = cases::random_tensor<float, 4>({1, 1, 1, 4}, 9);
  Tensor<float, 4> context({1, 1, 1, 4});
  engine::forward(first, {.query = query.view()}, {.context = context.view()});
  AttentionInputs<float> alone;
  alone.query = query.view();
  alone.key = tokens_of(text.key, 0, 281);
  alone.value = tokens_of(text.value, 0, 281);
  EXPECT_TRUE(
      same_bits<float>(cases::run_engine(alone, {}).context.elements(), context.elements()));

  KvCache<float> batch({.batch = 2, .kv_heads = 1, .key_width = 4, .value_width = 4});
  batch.fork(1, second, 0);
  EXPECT_EQ(batch.length(0), 0);
  EXPECT_EQ(batch.length(1), 290);
}

TEST(KvCache, GivesBackPagesThatNoWindowReaches) {
  const Setting s{.heads = 1, .kv_heads = 1, .key_width = 4, .value_width = 4};
  const Text<float> text(s, 2000);
  KvCache<float> cache(options_of(s, engine::targets().front(), 100));
  for (Index t = 0; t < 2000; ++t) {
    cache.append(tokens_of(text.key, t, t + 1), tokens_of(text.value, t, t + 1));
  }
  KvCache<float> page(options_of(s, engine::targets().front()));
  page.append(tokens_of(text.key, 0, 1), tokens_of(text.value, 0, 1));
  EXPECT_LE(cache.bytes(), 2 * page.bytes());
  EXPECT_EQ(cache.first(0), 1999 - 100);
}

TEST(KvCache, ForgetsGarbageThatWasTruncated) {
  const Setting s{.heads = 1, .kv_heads = 1, .key_width = 4, .value_width = 4};
  Text<float> text(s, 20);
  KvCache<float> cache(options_of(s, engine::targets().front()));
  cache.append(tokens_of(text.key, 0, 10), tokens_of(text.value, 0, 10));
  Text<float> garbage = text;
  for (float& x : garbage.key.elements()) x = std::numeric_limits<float>::quiet_NaN();
  for (float& x : garbage.value.elements()) x = std::numeric_limits<float>::infinity();
  cache.append(tokens_of(garbage.key, 10, 20), tokens_of(garbage.value, 10, 20));
  cache.truncate(0, 10);
  Tensor<float, 4> context({1, 1, 3, 4});
  engine::forward(cache, {.query = tokens_of(text.query, 7, 10)}, {.context = context.view()});
  AttentionInputs<float> alone;
  alone.query = tokens_of(text.query, 7, 10);
  alone.key = tokens_of(text.key, 0, 10);
  alone.value = tokens_of(text.value, 0, 10);
  alone.mask = Mask::causal(Corner::bottom_right());
  EXPECT_TRUE(
      same_bits<float>(cases::run_engine(alone, {}).context.elements(), context.elements()));
}

TEST(KvCache, RefusesWhatDoesNotFit) {
  const auto refused = [](auto call, const char* text) {
    EXPECT_THAT(call, ThrowsMessage<std::invalid_argument>(HasSubstr(text)));
  };
  refused([] { KvCache<float>({.batch = -1}); }, "KvCache: batch: expected 0 or more, got -1");
  refused([] { KvCache<float>({.kv_heads = 0}); }, "KvCache: kv_heads: expected 1 or more, got 0");
  refused([] { KvCache<float>({.target = "Z80"}); }, "KvCache: target: expected one of");
  const Setting s{.heads = 2, .kv_heads = 2, .key_width = 4, .value_width = 3};
  const Text<float> text(s, 30);
  KvCache<float> cache(options_of(s, engine::targets().front(), 5));
  refused([&] { cache.append(text.value.view(), text.value.view()); },
          "KvCache::append: key: expected shape [1, 2, 30, 4], got [1, 2, 30, 3]");
  refused([&] { cache.append(tokens_of(text.key, 0, 3), text.value.view()); },
          "KvCache::append: value: expected shape [1, 2, 3, 3], got [1, 2, 30, 3]");
  refused([&] { cache.truncate(0, 1); }, "KvCache::truncate: length: expected 0 to 0, got 1");
  refused([&] { static_cast<void>(cache.length(1)); },
          "KvCache::length: sequence: expected an index below B=1, got 1");
  cache.append(tokens_of(text.key, 0, 20), tokens_of(text.value, 0, 20));
  cache.append(tokens_of(text.key, 20, 21), tokens_of(text.value, 20, 21));
  Tensor<float, 4> context({1, 2, 3, 3});
  refused(
      [&] {
        engine::forward(cache, {.query = tokens_of(text.query, 0, 3)}, {.context = context.view()});
      },
      "engine::forward(cache): query: expected queries whose window of 5 reaches back to position "
      "15");
  refused(
      [&] { engine::forward(cache, {.query = text.query.view()}, {.context = context.view()}); },
      "engine::forward(cache): query: expected at most the 21 tokens of sequence 0, got T=30");
  refused(
      [&] {
        engine::forward(cache, {.query = text.query.view(), .key = text.key.view()},
                        {.context = context.view()});
      },
      "engine::forward(cache): key, value: expected none, as the cache holds them, got some");
}

}  // namespace
}  // namespace qkv
