// What does not fit is refused before any work, and said.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <ostream>
#include <stdexcept>

#include "model/cached_decoder.h"
#include "model/generation.h"
#include "model/training.h"
#include "tests/model/model_data.h"

namespace qkv {
namespace {

struct ErrorCase {
  std::string name;
  std::function<void()> call;
  std::string message;

  friend void PrintTo(const ErrorCase& error_case, std::ostream* stream) {
    *stream << error_case.name;
  }
};

std::function<void()> decoder_with(const std::function<void(DecoderOptions&)>& edit) {
  return [edit] {
    DecoderOptions options;
    edit(options);
    const Decoder<float> decoder(options, 1);
  };
}

DecoderOptions with_bug(AttentionBug bug) {
  DecoderOptions options;
  options.changes = {AttentionChange{.bug = bug}};
  return options;
}

std::function<void()> forward_with(const DecoderOptions& options,
                                   const std::function<void(TokenBatch&)>& edit) {
  return [options, edit] {
    TokenBatch batch = cases::random_batch(options, 2, 5, 1);
    edit(batch);
    Decoder<float>(options, 1).forward(batch);
  };
}

std::function<void()> generate_with(const DecoderOptions& options, std::vector<Index> prompt,
                                    const GenerationOptions& generation) {
  return [=] { generate<float>(Decoder<float>(options, 1), prompt, generation); };
}

std::vector<ErrorCase> error_cases() {
  return {
      {"NoLayers", decoder_with([](auto& o) { o.layers = 0; }),
       "Decoder: layers: expected 1 or more, got 0"},
      {"NoContext", decoder_with([](auto& o) { o.context = 0; }),
       "Decoder: context: expected 1 or more, got 0"},
      {"NegativeMlp", decoder_with([](auto& o) { o.mlp_width = -1; }),
       "Decoder: mlp_width: expected 0 or more, got -1"},
      {"Epsilon", decoder_with([](auto& o) { o.norm_epsilon = 0; }),
       "Decoder: norm_epsilon: expected a positive number, got 0"},
      {"Changes", decoder_with([](auto& o) { o.changes.resize(3); }),
       "Decoder: changes: expected none, one, or one for each of 2 blocks, got 3"},
      {"Window", decoder_with([](auto& o) { o.window = 0; }),
       "attention: window: expected 1 or more, got 0"},
      {"TiedGroups", decoder_with([](auto& o) {
         o.kv_heads = 2;
         o.changes = {AttentionChange{.tying = Tying::QueryIsKey}};
       }),
       "attention: kv_heads: expected 4 where W_q = W_k, got 2"},
      {"TiedBiases", decoder_with([](auto& o) {
         o.biases.key = true;
         o.changes = {AttentionChange{.tying = Tying::KeyIsValue}};
       }),
       "attention: biases: expected key and value both or neither, for they are tied, got one"},
      {"BugNeedsWindow", decoder_with([](auto& o) { o = with_bug(AttentionBug::WindowOffByOne); }),
       "attention: window-off-by-one: expected a window, got none"},
      {"BugNeedsGroups", decoder_with([](auto& o) { o = with_bug(AttentionBug::KvHeadsTiled); }),
       "attention: kv-heads-tiled: expected more than one and fewer than 4 kv heads, got 4"},
      {"HeadAxis", forward_with(with_bug(AttentionBug::PaddingOnHeadAxis), cases::add_padding),
       "attention: padding [2,5,1,1]: expected as many tokens as there are heads, to broadcast "
       "onto "
       "scores [2, 4, 5, 5], got 5 tokens and 4 heads"},
      {"Token", forward_with({}, [](auto& batch) { batch.tokens(0, 0) = 256; }),
       "Decoder::forward: tokens: expected 0 to 255, got 256"},
      {"TooLong",
       forward_with(
           [] {
             DecoderOptions options;
             options.context = 4;
             return options;
           }(),
           [](auto&) {}),
       "Decoder::forward: tokens: expected at most 4 a sequence, got 5"},
      {"Keep",
       forward_with({},
                    [](auto& batch) {
                      batch.keep.emplace(Extents<2>{2, 4});
                    }),
       "Decoder::forward: keep: expected [2, 5], got [2, 4]"},
      {"Vocabulary",
       [] {
         DecoderOptions options;
         options.vocabulary = 16;
         Decoder<float> decoder(options, 1);
         train(decoder, copy_task(), {});
       },
       "train: task: expected a vocabulary of at most 16, the decoder's, got 17"},
      {"TaskTooLong",
       [] {
         Decoder<float> decoder({}, 1);
         train(decoder, text_task(default_text(), 65), {});
       },
       "train: task: expected at most 64 tokens, the decoder's context, got 65"},
      {"ShortText", [] { text_task("too short", 8); },
       "text_task: text: expected more than 90 bytes, for sequences of 8, got 9"},
      {"CopyLength", [] { copy_task({.length = 0}); },
       "copy_task: length: expected 1 or more, got 0"},
      {"Keys", [] { recall_task({.keys = 3, .pairs = 4}); },
       "recall_task: keys: expected 4 or more, got 3"},
      {"FewestPairs",
       [] { recall_task({.pairs = 4, .padding = RecallPadding{.fewest_pairs = 5}}); },
       "recall_task: padding.fewest_pairs: expected 1 to 4, got 5"},
      {"Period", [] { induction_task({.symbols = 10}); },
       "induction_task: symbols: expected 24 or more, for a period has different ones, got 10"},
      {"EmptyPrompt", generate_with({}, {}, {}),
       "generate: prompt: expected 1 token or more, got none"},
      {"PromptToken", generate_with({}, {300}, {}),
       "generate: prompt: expected tokens of 0 to 255, got 300"},
      {"CacheTooLong", generate_with({}, {1}, {.tokens = 64}),
       "generate: tokens: expected with a cache, at most 64 together with the prompt, got 65"},
      {"Temperature", generate_with({}, {1}, {.tokens = 1, .temperature = 0.0}),
       "generate: temperature: expected a positive number, got 0"},
      {"CacheOfABug", generate_with(with_bug(AttentionBug::CausalDropped), {1}, {.tokens = 1}),
       "CachedDecoder: block 0: expected attention changed in scale and tying alone"},
  };
}

class ModelErrorTest : public testing::TestWithParam<ErrorCase> {};

TEST_P(ModelErrorTest, IsRefused) {
  try {
    GetParam().call();
    FAIL() << "not refused";
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr(GetParam().message));
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, ModelErrorTest, testing::ValuesIn(error_cases()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace qkv
