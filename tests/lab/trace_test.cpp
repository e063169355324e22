#include "lab/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>

#include "lab/trace_source.h"
#include "qkv/io.h"
#include "qkv/reference.h"

namespace qkv {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::ThrowsMessage;

constexpr double kPlenty = 1e9;

std::string data(const std::string& name) {
  return std::string(QKV_SOURCE_DIR) + "/data/" + name + ".safetensors";
}

lab::Trace trace_of(const lab::SizeOptions& sizes, const lab::MaskOptions& mask = {}) {
  lab::TraceInput input = lab::trace_sizes(sizes, kPlenty);
  lab::add_mask(input, mask);
  return lab::trace(input, kPlenty);
}

auto warns_of(const std::string& code, const std::string& piece) {
  return Contains(
      AllOf(Field(&lab::Warning::code, code), Field(&lab::Warning::text, HasSubstr(piece))));
}

class RecordedLayer : public ::testing::TestWithParam<std::string> {};

TEST_P(RecordedLayer, IsWithinToleranceOfWhatTheModelComputed) {
  const lab::Trace trace = lab::trace(lab::trace_file(data(GetParam()), {}), kPlenty);
  std::vector<std::string> compared;
  for (const lab::Comparison& entry : trace.comparisons) {
    compared.push_back(entry.tensor);
    EXPECT_LE(entry.largest_difference, 1e-5) << entry.tensor;
    EXPECT_TRUE(entry.within_tolerance) << entry.tensor;
    EXPECT_GT(entry.compared, 0) << entry.tensor;
  }
  for (const char* tensor : {"q", "k", "v", "weights", "context", "out"}) {
    EXPECT_THAT(compared, Contains(tensor));
  }
}

INSTANTIATE_TEST_SUITE_P(Data, RecordedLayer,
                         ::testing::Values("minilm-layer0", "minilm-layer4", "smollm2-layer11"),
                         [](const auto& layer) {
                           std::string name = layer.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(Trace, OneWrongElementIsFound) {
  lab::TraceInput input = lab::trace_file(data("minilm-layer0"), {});
  (*input.recorded.weights)(3, 11, 2, 1) += 2e-5;
  const lab::Trace trace = lab::trace(input, kPlenty);
  for (const lab::Comparison& entry : trace.comparisons) {
    EXPECT_EQ(entry.within_tolerance, entry.tensor != "weights") << entry.tensor;
  }
}

TEST(Trace, NotANumberWhereOursIsOneDiffers) {
  lab::TraceInput input = lab::trace_file(data("minilm-layer0"), {});
  (*input.recorded.output)(0, 0, 0) = std::numeric_limits<double>::quiet_NaN();
  const lab::Trace trace = lab::trace(input, kPlenty);
  EXPECT_THAT(trace.comparisons, Contains(AllOf(Field(&lab::Comparison::tensor, "out"),
                                                Field(&lab::Comparison::within_tolerance, false))));
}

TEST(Trace, RowsThatSeeNoKeyAreLeftOut) {
  // Sample 1 of the decoder's file is padded on the left by 14 + 1 tokens, of which the last, a real
  // start mark, is seen: 14 blind queries in each of 9 heads over 23 keys.
  const lab::Trace trace = lab::trace(lab::trace_file(data("smollm2-layer11"), {}), kPlenty);
  EXPECT_THAT(trace.comparisons, Contains(AllOf(Field(&lab::Comparison::tensor, "weights"),
                                                Field(&lab::Comparison::left_out, 14 * 9 * 23))));
  EXPECT_THAT(trace.warnings, warns_of("row-sees-nothing", "sample 1: queries 0–13"));
}

TEST(Trace, WeightsAndContextAreTheOracles) {
  const lab::Trace trace =
      trace_of({.batch = 3, .tokens = 6, .model_width = 12, .heads = 6, .kv_heads = 2, .keys = 9},
               {.causal = true, .corner = Corner::bottom_right()});
  AttentionInputs<double> inputs;
  inputs.query = trace.query.view();
  inputs.key = trace.key.view();
  inputs.value = trace.value.view();
  inputs.mask = Mask::causal(Corner::bottom_right());
  Tensor<double, 4> context(trace.context.shape());
  Tensor<double, 4> weights(trace.weights.shape());
  AttentionOutputs<double> outputs;
  outputs.context = context.view();
  outputs.weights = weights.view();
  reference::forward(inputs, outputs);
  for (std::size_t i = 0; i < weights.elements().size(); ++i) {
    EXPECT_NEAR(trace.weights.elements()[i], weights.elements()[i], 1e-15);
  }
  for (std::size_t i = 0; i < context.elements().size(); ++i) {
    EXPECT_NEAR(trace.context.elements()[i], context.elements()[i], 1e-14);
  }
}

TEST(Trace, NothingToWarnOf) {
  EXPECT_THAT(trace_of({.batch = 2, .tokens = 5}, {.causal = true}).warnings, IsEmpty());
}

TEST(Trace, WarnsOfAxesThatAMaskCouldConfuse) {
  EXPECT_THAT(trace_of({.batch = 5}).warnings, warns_of("mask-axis-ambiguous", "B = T = 5"));
  EXPECT_THAT(trace_of({.tokens = 4}).warnings, warns_of("mask-axis-ambiguous", "H = T = 4"));
}

TEST(Trace, WarnsOfBlindRowsAndPaddedQueries) {
  const lab::Trace trace = trace_of({}, {.lengths = {0, 3}});
  EXPECT_THAT(trace.warnings, warns_of("row-sees-nothing", "(sample 0: queries 0–4)"));
  EXPECT_THAT(trace.warnings, warns_of("padded-queries-computed", "(sample 1: queries 3–4)"));
  EXPECT_EQ(trace.context(0, 0, 0, 0), 0);
  EXPECT_EQ(trace.log_sum_exp(0, 0, 0), -std::numeric_limits<double>::infinity());
}

TEST(Trace, WarnsOfRowsThatDoNotSumToOne) {
  lab::TraceInput input = lab::trace_file(data("minilm-layer0"), {});
  (*input.recorded.weights)(0, 3, 7, 2) += 0.5;
  EXPECT_THAT(
      lab::trace(input, kPlenty).warnings,
      warns_of("weights-do-not-sum-to-one",
               "1 rows of the recorded weights do not sum to 1 (the first: sample 0, head 3, "
               "query 7 sums to 1.5)"));
  EXPECT_THAT(lab::trace(lab::trace_file(data("minilm-layer0"), {}), kPlenty).warnings,
              Not(warns_of("weights-do-not-sum-to-one", "")));
}

TEST(Trace, EmptySizesGiveEmptyResults) {
  for (const lab::SizeOptions& sizes :
       {lab::SizeOptions{.batch = 0}, lab::SizeOptions{.tokens = 0}, lab::SizeOptions{.keys = 0}}) {
    const lab::Trace trace = trace_of(sizes);
    EXPECT_THAT(trace.weights.elements(), IsEmpty());
    EXPECT_EQ(trace.layout.size(), 6U + (sizes.keys ? 2U : 0U));  // K and V apart from Q
  }
}

TEST(Trace, RefusesSizesBeforeAllocating) {
  EXPECT_THAT([] { lab::trace_sizes({.batch = 1000, .tokens = 100000}, 4e9); },
              ThrowsMessage<std::invalid_argument>(
                  AllOf(HasSubstr("trace: sizes: expected at most 4000000000 bytes"),
                        HasSubstr("B=1000 H=4 T=100000 S=100000, which need"))));
  // B·H·T·S·8 = 2^62 · 4 · 5 · 5 · 8 overflows any integer; an empty axis does not make B small.
  for (const Index tokens : {5, 0}) {
    EXPECT_THAT([&] { lab::trace_sizes({.batch = Index{1} << 62, .tokens = tokens}, 4e9); },
                ThrowsMessage<std::invalid_argument>(HasSubstr("which need")));
  }
}

TEST(Trace, NeedsWhatItsTensorsHold) {
  // H = 1, Dh = D = 1 and B = T = S = 1: one double each of x for query and key, out, 4 weights,
  // twice Q, K, V, three times context and three times scores.
  EXPECT_EQ(lab::needed_bytes({{1, 1, 1, 1}, 1, 1, 1, 1}), 8 * (3 + 4 + 6 + 3 + 3));
}

}  // namespace
}  // namespace qkv
