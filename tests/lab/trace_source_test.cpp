#include "lab/trace_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <stdexcept>

#include "qkv/io.h"
#include "tests/temporary_directory.h"

namespace qkv {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr double kPlenty = 1e9;

/// A file that is gone after the test.
class ScratchFile {
 public:
  ScratchFile(const std::string& ending, const TensorFile& content)
      : path_(folder_.file("trace" + ending)) {
    write_tensors(path_, content);
  }
  const std::string& path() const { return path_; }

 private:
  TemporaryDirectory folder_;
  std::string path_;
};

template <int Rank>
Tensor<double, Rank> counting(const Extents<Rank>& shape) {
  Tensor<double, Rank> tensor(shape);
  double next = -1;
  for (double& element : tensor.elements()) element = next += 0.125;
  return tensor;
}

/// q, k and v of B=1, H=2, T=S=3, D=2, and a mask that marks the last key.
TensorFile heads_file() {
  Tensor<bool, 2> last_key({1, 3});
  last_key(0, 2) = true;
  TensorFile file;
  for (const char* name : {"q", "k", "v"}) {
    file.tensors[name] = store(counting<4>({1, 2, 3, 2}).view());
  }
  file.tensors["flags"] = store(last_key.view());
  return file;
}

TEST(TraceSource, ParsesMatrices) {
  const Tensor<double, 2> matrix = lab::parse_matrix("--type", " 1 -0.5,2e-3; 0,1 ,2;");
  EXPECT_THAT(matrix.shape(), ElementsAre(2, 3));
  EXPECT_THAT(matrix.elements(), ElementsAre(1, -0.5, 2e-3, 0, 1, 2));
}

TEST(TraceSource, RefusesWhatIsNoMatrix) {
  const auto says = [](const std::string& message) {
    return ThrowsMessage<std::invalid_argument>(HasSubstr("trace: --type: expected " + message));
  };
  const auto parse = [](const char* text) { return [text] { lab::parse_matrix("--type", text); }; };
  EXPECT_THAT(parse("1 2; 3"), says("2 numbers in every row, as in row 0, got 1 in row 1"));
  EXPECT_THAT(parse("1 x"), says("finite numbers such as 1, -0.5 or 2e-3, got \"x\""));
  EXPECT_THAT(parse("1 nan"), says("finite numbers such as 1, -0.5 or 2e-3, got \"nan\""));
  EXPECT_THAT(parse("1e999"), says("finite numbers such as 1, -0.5 or 2e-3, got \"1e999\""));
  EXPECT_THAT(parse(""), says("rows of numbers, as in \"1 0; 0 1\", got an empty row 0"));
  EXPECT_THAT(parse("1;;2"), says("rows of numbers, as in \"1 0; 0 1\", got an empty row 1"));
  EXPECT_THAT(parse("1;2;3;4;5;6;7"), says("at most 6 tokens (rows), got 7"));
}

TEST(TraceSource, HeadsMustDivide) {
  EXPECT_THAT([] { lab::trace_sizes({.heads = 3}, kPlenty); },
              ThrowsMessage<std::invalid_argument>(AllOf(
                  HasSubstr("trace: --heads: expected a divisor of the model width 16, got 3"),
                  HasSubstr("1 columns would be left over"))));
  EXPECT_THAT([] { lab::trace_sizes({.kv_heads = 3}, kPlenty); },
              ThrowsMessage<std::invalid_argument>(
                  HasSubstr("trace: --kv-heads: expected a divisor of the 4 heads, got 3")));
  EXPECT_THAT([] { lab::trace_typed({.input = "1 2 3", .heads = 2}); },
              ThrowsMessage<std::invalid_argument>(
                  HasSubstr("trace: --heads: expected a divisor of the 3 numbers of a token")));
}

TEST(TraceSource, SameSeedSameNumbers) {
  const auto first = lab::trace(lab::trace_sizes({.seed = 5}, kPlenty), kPlenty);
  const auto again = lab::trace(lab::trace_sizes({.seed = 5}, kPlenty), kPlenty);
  const auto other = lab::trace(lab::trace_sizes({.seed = 6}, kPlenty), kPlenty);
  EXPECT_EQ(first.context(1, 3, 4, 3), again.context(1, 3, 4, 3));
  EXPECT_NE(first.context(1, 3, 4, 3), other.context(1, 3, 4, 3));
}

TEST(TraceSource, HeadsAloneAreEnough) {
  const ScratchFile file(".npz", [] {
    TensorFile heads = heads_file();
    heads.tensors.erase("flags");
    return heads;
  }());
  const lab::Trace trace = lab::trace(lab::trace_file(file.path(), {}), kPlenty);
  EXPECT_EQ(trace.sizes.heads, 2);
  EXPECT_FALSE(trace.model_width.has_value());
}

TEST(TraceSource, MaskTensorNeedsItsMeaning) {
  const ScratchFile file(".safetensors", heads_file());
  lab::FileOptions options;
  options.mask_tensor = "flags";
  EXPECT_THAT([&] { lab::trace_file(file.path(), options); },
              ThrowsMessage<std::invalid_argument>(
                  HasSubstr("trace: --true-means: expected keep or drop")));
  options.true_means = Polarity::Drop;
  const lab::Trace drop = lab::trace(lab::trace_file(file.path(), options), kPlenty);
  EXPECT_TRUE(drop.mask.bound.visible(0, 0, 0, 0));
  EXPECT_FALSE(drop.mask.bound.visible(0, 0, 0, 2));
  EXPECT_THAT(drop.mask.shape, ElementsAre(1, 1, 1, 3));
  options.true_means = Polarity::Keep;
  const lab::Trace keep = lab::trace(lab::trace_file(file.path(), options), kPlenty);
  EXPECT_FALSE(keep.mask.bound.visible(0, 0, 0, 0));
  EXPECT_EQ(keep.weights(0, 1, 2, 2), 1);
}

TEST(TraceSource, UnknownTensorIsNamed) {
  const ScratchFile file(".safetensors", heads_file());
  EXPECT_THAT([&] { lab::trace_file(file.path(), {}); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("\"flags\"")));
  lab::FileOptions options;
  options.mask_tensor = "absent";
  options.true_means = Polarity::Keep;
  EXPECT_THAT([&] { lab::trace_file(file.path(), options); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("got \"absent\"")));
}

TEST(TraceSource, MissingTensorsAndWrongRanksAreNamed) {
  TensorFile content = heads_file();
  content.tensors.erase("flags");
  content.tensors.erase("v");
  const ScratchFile missing(".safetensors", content);
  EXPECT_THAT([&] { lab::trace_file(missing.path(), {}); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("v: expected")));
  content.tensors["v"] = store(counting<3>({2, 3, 2}).view());
  const ScratchFile flat(".safetensors", content);
  EXPECT_THAT([&] { lab::trace_file(flat.path(), {}); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("v: expected 4 axes, got [2, 3, 2]")));
}

TEST(TraceSource, BiasHidesWhereItIsMinusInfinity) {
  TensorFile content = heads_file();
  Tensor<double, 1> bias({3});
  bias(2) = -std::numeric_limits<double>::infinity();
  content.tensors["flags"] = store(bias.view());
  const ScratchFile file(".safetensors", content);
  lab::FileOptions options;
  options.bias_tensor = "flags";
  const lab::Trace trace = lab::trace(lab::trace_file(file.path(), options), kPlenty);
  EXPECT_EQ(trace.weights(0, 0, 0, 2), 0);
  EXPECT_GT(trace.weights(0, 0, 0, 1), 0);
}

/// The same module under each naming gives the same trace.
class Naming : public ::testing::TestWithParam<ParameterNaming> {};

TEST_P(Naming, IsRecognised) {
  MultiHeadAttentionOptions module;
  module.model_width = 4;
  module.heads = 2;
  auto parameters = zero_parameters<double>(module);
  parameters.query_weight = counting<2>({4, 4});
  parameters.key_weight = counting<2>({4, 4});
  parameters.value_weight = counting<2>({4, 4});
  parameters.output_weight = counting<2>({4, 4});
  TensorFile content = save_parameters(MultiHeadAttention<double>(module, parameters), GetParam());
  content.tensors["x"] = store(counting<3>({1, 3, 4}).view());
  const ScratchFile file(".safetensors", content);
  lab::FileOptions options;
  options.heads = 2;
  const lab::Trace trace = lab::trace(lab::trace_file(file.path(), options), kPlenty);
  EXPECT_EQ(trace.sizes.heads, 2);
  EXPECT_EQ(trace.model_width, 4);
  // q of token 0 is x₀·Wqᵀ; its first element −0.875·−0.875 − 0.75·−0.75 … = 1.96875
  EXPECT_DOUBLE_EQ(trace.query(0, 0, 0, 0),
                   0.875 * 0.875 + 0.75 * 0.75 + 0.625 * 0.625 + 0.5 * 0.5);
}

INSTANTIATE_TEST_SUITE_P(Namings, Naming,
                         ::testing::Values(ParameterNaming::PyTorch, ParameterNaming::Fused,
                                           ParameterNaming::Separate),
                         [](const auto& naming) {
                           return naming.param == ParameterNaming::PyTorch ? "PyTorch"
                                  : naming.param == ParameterNaming::Fused ? "Fused"
                                                                           : "Separate";
                         });

TEST(TraceSource, CornerIsDemandedWhereSizesDiffer) {
  lab::TraceInput input = lab::trace_sizes({.keys = 7}, kPlenty);
  for (const lab::MaskOptions& mask :
       {lab::MaskOptions{.causal = true}, lab::MaskOptions{.prefix_lengths = {1}},
        lab::MaskOptions{.window = Window{1, 1, {}}}}) {
    EXPECT_THAT([&] { lab::add_mask(input, mask); },
                ThrowsMessage<std::invalid_argument>(
                    AllOf(HasSubstr("expected a corner"), HasSubstr("top-left"),
                          HasSubstr("bottom-right"), HasSubstr("got none with T=5, S=7"))));
  }
}

}  // namespace
}  // namespace qkv
