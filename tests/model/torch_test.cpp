// The whole decoder against PyTorch with the same weights and batches, from the values that make_torch_goldens.py recorded:
// logits, loss, every gradient, and ten steps of AdamW.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ostream>

#include "model/adamw.h"
#include "model/cross_entropy.h"
#include "tests/model/model_data.h"

namespace qkv {
namespace {

struct RecordedDecoder {
  std::string name;
  DecoderOptions options;

  friend void PrintTo(const RecordedDecoder& recorded, std::ostream* stream) {
    *stream << recorded.name;
  }
};

std::vector<RecordedDecoder> recorded_decoders() {
  DecoderOptions learned;
  learned.vocabulary = 11;
  learned.context = 6;
  learned.model_width = 12;
  learned.heads = 3;
  learned.mlp_width = 20;
  DecoderOptions rotary = learned;
  rotary.positions = PositionKind::Rotary;
  rotary.kv_heads = 1;
  rotary.biases = ProjectionBiases::all();
  rotary.window = 3;
  rotary.tied_head = false;
  rotary.norm = NormKind::RmsNorm;
  return {{"learned", learned}, {"rotary", rotary}};
}

class TorchDecoderTest : public testing::TestWithParam<RecordedDecoder> {
 protected:
  TorchDecoderTest()
      : file(cases::golden("decoder_" + GetParam().name)), decoder(GetParam().options, 1) {
    cases::load(decoder, file, "");
  }

  std::vector<double> recorded(const std::string& name) const { return cases::numbers(file, name); }

  TokenBatch batch(Index step) const {
    const auto part = [&](const char* name) {
      const Tensor<Index, 3> all = file.at(name).to<Index, 3>(name);
      Tensor<Index, 2> one({all.shape(1), all.shape(2)});
      std::copy_n(&all(step, 0, 0), one.elements().size(), one.data());
      return one;
    };
    return {part("tokens"), part("targets"), file.at("keep").to<bool, 2>("keep")};
  }

  static void expect_near(std::span<const double> actual, const std::vector<double>& expected,
                          double tolerance, const std::string& name) {
    ASSERT_EQ(actual.size(), expected.size()) << name;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      ASSERT_NEAR(actual[i], expected[i], tolerance) << name << " entry " << i;
    }
  }

  TensorFile file;
  Decoder<double> decoder;
};

TEST_P(TorchDecoderTest, LogitsLossAndGradientsAgree) {
  const TokenBatch first = batch(0);
  const DecoderResult<double> result = decoder.forward(first);
  const CrossEntropy<double> entropy = cross_entropy(result.logits, first.targets);
  // Rows of padding that sees no key are 0 in both.
  expect_near(result.logits.elements(), recorded("logits"), 1e-10, "logits");
  EXPECT_NEAR(entropy.loss, recorded("loss")[0], 1e-12);
  const DecoderGradients<double> gradients = decoder.backward(first, result, entropy.gradient);
  std::size_t compared = 0;
  for (const auto& gradient : gradients.list(decoder.options())) {
    expect_near(gradient.elements, recorded("gradient." + gradient.name), 1e-10, gradient.name);
    ++compared;
  }
  const auto in_file = std::count_if(file.tensors.begin(), file.tensors.end(), [](const auto& e) {
    return e.first.starts_with("gradient.");
  });
  EXPECT_EQ(static_cast<std::ptrdiff_t>(compared), in_file);
}

TEST_P(TorchDecoderTest, TenStepsOfAdamWAgree) {
  AdamWOptions options;
  options.weight_decay = 0.1;
  options.clip = 1.0;
  const ScheduleOptions schedule{.peak = 0.02, .last_share = 0.1, .warmup = 3};
  AdamW<double> adamw(decoder, options);
  const std::vector<double> losses = recorded("losses");
  const std::vector<double> norms = recorded("norms");
  for (Index step = 0; step < 10; ++step) {
    const TokenBatch now = batch(step);
    const DecoderResult<double> result = decoder.forward(now);
    const CrossEntropy<double> entropy = cross_entropy(result.logits, now.targets);
    const double norm = adamw.step(decoder, decoder.backward(now, result, entropy.gradient),
                                   learning_rate(schedule, step, 10));
    const auto at = static_cast<std::size_t>(step);
    EXPECT_NEAR(entropy.loss, losses[at], 1e-8) << step;
    EXPECT_NEAR(norm, norms[at], 1e-8) << step;
  }
  for (const auto& parameter : decoder.parameters()) {
    expect_near(parameter.elements, recorded("trained." + parameter.name), 1e-8, parameter.name);
  }
}

INSTANTIATE_TEST_SUITE_P(Recorded, TorchDecoderTest, testing::ValuesIn(recorded_decoders()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace qkv
