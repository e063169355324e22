// The decoder's derivatives against finite differences of its own loss: every entry of every parameter, with every kind of
// block and every change of its attention.
#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <ostream>

#include "model/cross_entropy.h"
#include "tests/model/model_data.h"

namespace qkv {
namespace {

constexpr Index kSequences = 2;
constexpr Index kTokens = 4;  // as many as heads, for padding on the head axis

struct DecoderCase {
  std::string name;
  DecoderOptions options;
  bool padded = false;

  friend void PrintTo(const DecoderCase& decoder_case, std::ostream* stream) {
    *stream << decoder_case.name;
  }
};

DecoderOptions small() {
  DecoderOptions options;
  options.vocabulary = 5;
  options.context = kTokens;
  options.model_width = 8;
  options.layers = 2;
  options.heads = 4;
  options.mlp_width = 6;
  return options;
}

DecoderOptions changed(const AttentionChange& change) {
  DecoderOptions options = small();
  options.layers = 1;
  options.changes = {change};
  return options;
}

/// "PaddingOnQueryAxis".
std::string camel_case(std::string_view name) {
  std::string result;
  bool upper = true;
  for (const char c : name) {
    if (c != '-') result += upper ? static_cast<char>(std::toupper(c)) : c;
    upper = c == '-';
  }
  return result;
}

std::vector<DecoderCase> decoder_cases() {
  std::vector<DecoderCase> cases{{"Plain", small()}, {"Padded", small(), true}};
  const auto add = [&](std::string name, auto edit) {
    DecoderOptions options = small();
    edit(options);
    cases.push_back({std::move(name), options});
  };
  add("Rotary", [](DecoderOptions& o) { o.positions = PositionKind::Rotary; });
  add("NoPositions", [](DecoderOptions& o) { o.positions = PositionKind::None; });
  add("RmsNorm", [](DecoderOptions& o) { o.norm = NormKind::RmsNorm; });
  add("HeadOfItsOwn", [](DecoderOptions& o) { o.tied_head = false; });
  add("NoMlp", [](DecoderOptions& o) { o.mlp_width = 0; });
  add("Biases", [](DecoderOptions& o) { o.biases = ProjectionBiases::all(); });
  add("GroupedHeads", [](DecoderOptions& o) { o.kv_heads = 2; });
  add("HeadWidth", [](DecoderOptions& o) { o.head_width = 6; });
  add("Window", [](DecoderOptions& o) { o.window = 2; });
  add("OneBlockChanged", [](DecoderOptions& o) {
    o.changes = {AttentionChange{}, AttentionChange{.bug = AttentionBug::MergedByView}};
  });
  const auto add_changed = [&](std::string name, const AttentionChange& change) {
    cases.push_back({std::move(name), changed(change), true});
  };
  add_changed("Prefix", {.mask = Mask::prefix_causal({2})});
  add_changed("Scale", {.scale = 0.7});
  // Short rows of two elements bend so much that differences would need smaller steps.
  add_changed("Cosine", {.matching = Matching::Cosine});
  cases.back().options.head_width = 8;
  add_changed("Additive", {.matching = Matching::Additive});
  for (const bool biased : {false, true}) {
    for (const Tying tying : {Tying::QueryIsKey, Tying::KeyIsValue}) {
      DecoderOptions options = changed({.tying = tying});
      if (biased) options.biases = ProjectionBiases::all();
      cases.push_back({std::string(tying == Tying::QueryIsKey ? "QueryIsKey" : "KeyIsValue") +
                           (biased ? "WithBiases" : ""),
                       options});
    }
  }
  for (const AttentionBug bug : attention_bugs()) {
    DecoderOptions options = changed({.bug = bug});
    if (bug == AttentionBug::KvHeadsTiled) options.kv_heads = 2;
    if (bug == AttentionBug::WindowOffByOne) options.window = 2;
    cases.push_back({camel_case(name_of(bug)), options, true});
    options.positions = PositionKind::Rotary;
    options.biases = ProjectionBiases::all();
    cases.push_back({camel_case(name_of(bug)) + "Rotary", options, true});
  }
  return cases;
}

class DecoderGradientTest : public testing::TestWithParam<DecoderCase> {
 protected:
  DecoderGradientTest() : decoder(GetParam().options, 1) {
    omp_set_num_threads(1);  // the sizes are tiny
    cases::randomize(decoder, 2);
    batch = cases::random_batch(decoder.options(), kSequences, kTokens, 3);
    if (GetParam().padded) cases::add_padding(batch);
  }

  double loss() const { return cross_entropy(decoder.forward(batch).logits, batch.targets).loss; }
  DecoderGradients<double> gradients() const {
    const DecoderResult<double> result = decoder.forward(batch);
    return decoder.backward(batch, result, cross_entropy(result.logits, batch.targets).gradient);
  }

  Decoder<double> decoder;
  TokenBatch batch;
};

TEST_P(DecoderGradientTest, AgreeWithFiniteDifferences) {
  const DecoderGradients<double> expected = gradients();
  const auto list = expected.list(decoder.options());
  constexpr double kStep = 2e-4;
  const auto parameters = decoder.parameters();
  ASSERT_EQ(list.size(), parameters.size());
  for (std::size_t p = 0; p < list.size(); ++p) {
    ASSERT_EQ(list[p].name, parameters[p].name);
    ASSERT_EQ(list[p].shape, parameters[p].shape) << list[p].name;
    for (std::size_t i = 0; i < list[p].elements.size(); ++i) {
      const double kept = parameters[p].elements[i];
      const auto at = [&](double distance) {
        decoder.update([&](auto entries) { entries[p].elements[i] = kept + distance; });
        return loss();
      };
      // The four-point rule, whose error is of the order step⁴.
      const double difference =
          (8 * (at(kStep) - at(-kStep)) - (at(2 * kStep) - at(-2 * kStep))) / (12 * kStep);
      at(0);
      ASSERT_NEAR(list[p].elements[i], difference, 1e-8) << list[p].name << " entry " << i;
    }
  }
}

// The embedding's gradient is the sum of those of its uses: at the input and, where the head is tied, there.
TEST_P(DecoderGradientTest, GradientOfTheInputIsThatOfThePositions) {
  if (GetParam().options.positions != PositionKind::Learned) return;
  const DecoderGradients<double> all = gradients();
  const Tensor<double, 2>& positions = *all.parameters.position_embedding;
  for (Index t = 0; t < kTokens; ++t) {
    for (Index d = 0; d < decoder.options().model_width; ++d) {
      EXPECT_DOUBLE_EQ(all.input(0, t, d) + all.input(1, t, d), positions(t, d));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, DecoderGradientTest, testing::ValuesIn(decoder_cases()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace qkv
