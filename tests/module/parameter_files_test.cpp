// Parameters under the names of three libraries: round trips, what a naming cannot hold, bad files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <stdexcept>

#include "tests/cases/attention_cases.h"
#include "tests/module/module_data.h"
#include "tests/temporary_directory.h"

namespace qkv {
namespace {

using cases::random_module;
using cases::random_tensor;
using cases::same_bits;
using testing::StrEq;
using testing::ThrowsMessage;

std::vector<std::string> names_in(const TensorFile& file) {
  std::vector<std::string> names;
  for (const auto& entry : file.tensors) names.push_back(entry.first);
  return names;
}

template <class T>
void expect_same_parameters(const MultiHeadAttention<T>& actual,
                            const MultiHeadAttention<T>& expected) {
  std::vector<std::pair<std::string, std::span<const T>>> wanted;
  cases::for_each_parameter(expected.parameters(), [&](const std::string& name, auto entries) {
    wanted.emplace_back(name, entries);
  });
  std::size_t next = 0;
  cases::for_each_parameter(actual.parameters(), [&](const std::string& name, auto entries) {
    ASSERT_LT(next, wanted.size());
    EXPECT_EQ(name, wanted[next].first);
    EXPECT_TRUE(std::equal(entries.begin(), entries.end(), wanted[next].second.begin(),
                           wanted[next].second.end()))
        << name;
    ++next;
  });
  EXPECT_EQ(next, wanted.size());
}

MultiHeadAttentionOptions plain() { return {.model_width = 8, .heads = 4}; }

MultiHeadAttentionOptions biased() {
  MultiHeadAttentionOptions options = plain();
  options.biases = ProjectionBiases::all();
  return options;
}

MultiHeadAttentionOptions three_widths() {
  MultiHeadAttentionOptions options = biased();
  options.key_width = 6;
  options.value_width = 5;
  return options;
}

MultiHeadAttentionOptions everything() {
  MultiHeadAttentionOptions options = three_widths();
  options.kv_heads = 2;
  options.head_width = 6;
  options.value_head_width = 3;
  options.qk_norm = QkNormOptions{};
  options.biases = {.query = true, .key = false, .value = true, .output = false};
  return options;
}

struct RoundTrip {
  std::string name;
  MultiHeadAttentionOptions options;
  ParameterNaming naming;
  std::vector<std::string> names;

  friend void PrintTo(const RoundTrip& trip, std::ostream* stream) { *stream << trip.name; }
};

class ParameterRoundTrip : public testing::TestWithParam<RoundTrip> {};

TEST_P(ParameterRoundTrip, ThroughAFile) {
  const auto module = random_module<double>(GetParam().options, 1);
  const TensorFile saved = save_parameters(module, GetParam().naming);
  EXPECT_EQ(names_in(saved), GetParam().names);

  const TemporaryDirectory folder;
  const std::string path = folder.file("parameters.safetensors");
  write_tensors(path, saved);
  const auto loaded = load_parameters<double>(read_tensors(path), {});
  expect_same_parameters(loaded, module);

  Tensor<double, 3> query = random_tensor<double, 3>({2, 3, 8}, 2);
  const auto& options = GetParam().options;
  const auto key = random_tensor<double, 3>({2, 5, options.key_width.value_or(8)}, 3);
  const auto value = random_tensor<double, 3>({2, 5, options.value_width.value_or(8)}, 4);
  const MultiHeadAttentionInputs<double> inputs{
      .query = query.view(), .key = key.view(), .value = value.view()};
  EXPECT_TRUE(same_bits(loaded.forward(inputs).output, module.forward(inputs).output));
}

INSTANTIATE_TEST_SUITE_P(
    Namings, ParameterRoundTrip,
    testing::Values(
        RoundTrip{
            "PyTorch", plain(), ParameterNaming::PyTorch, {"in_proj_weight", "out_proj.weight"}},
        RoundTrip{"PyTorchWithBiases",
                  biased(),
                  ParameterNaming::PyTorch,
                  {"in_proj_bias", "in_proj_weight", "out_proj.bias", "out_proj.weight"}},
        RoundTrip{"PyTorchWithThreeWidths",
                  three_widths(),
                  ParameterNaming::PyTorch,
                  {"in_proj_bias", "k_proj_weight", "out_proj.bias", "out_proj.weight",
                   "q_proj_weight", "v_proj_weight"}},
        RoundTrip{"Fused", plain(), ParameterNaming::Fused, {"out.weight", "qkv.weight"}},
        RoundTrip{"FusedWithBiases",
                  biased(),
                  ParameterNaming::Fused,
                  {"out.bias", "out.weight", "qkv.bias", "qkv.weight"}},
        RoundTrip{"Separate",
                  plain(),
                  ParameterNaming::Separate,
                  {"k_proj.weight", "o_proj.weight", "q_proj.weight", "v_proj.weight"}},
        RoundTrip{"SeparateWithEverything",
                  everything(),
                  ParameterNaming::Separate,
                  {"k_norm.weight", "k_proj.weight", "o_proj.weight", "q_norm.weight",
                   "q_proj.bias", "q_proj.weight", "v_proj.bias", "v_proj.weight"}}),
    [](const auto& test) { return test.param.name; });

TEST(SaveParameters, GivesBackTheStateDictThatPyTorchWrote) {
  const TensorFile golden =
      read_tensors(QKV_SOURCE_DIR "/tests/module/goldens/nn_multihead_attention.safetensors");
  for (const std::string layer : {"self.", "causal_padded.", "cross_boolean.", "cross_bias."}) {
    const std::string prefix = layer + "module.";
    const auto module = load_parameters<double>(golden, {.prefix = prefix});
    TensorFile expected;
    for (const auto& [name, tensor] : golden.tensors) {
      if (name.starts_with(prefix)) expected.tensors.emplace(name.substr(prefix.size()), tensor);
    }
    const TensorFile actual = save_parameters(module, ParameterNaming::PyTorch);
    ASSERT_EQ(names_in(actual), names_in(expected)) << layer;
    for (const auto& [name, tensor] : actual.tensors) {
      EXPECT_EQ(tensor.dtype(), DType::Float64);
      EXPECT_EQ(tensor.shape(), expected.at(name).shape()) << layer << name;
      EXPECT_TRUE(std::equal(tensor.bytes().begin(), tensor.bytes().end(),
                             expected.at(name).bytes().begin(), expected.at(name).bytes().end()))
          << layer << name;
    }
  }
}

TEST(LoadParameters, ReadsBelowAPrefixAndIgnoresTheRest) {
  const auto module = random_module<double>(biased(), 5);
  TensorFile file;
  for (const auto& [name, tensor] : save_parameters(module, ParameterNaming::PyTorch).tensors) {
    file.tensors.emplace("layers.3.self_attn." + name, tensor);
  }
  file.tensors.emplace("layers.4.self_attn.bias_k", store(Tensor<double, 1>({3}).view()));
  const LoadOptions options{.heads = 4,
                            .rotary = RotaryOptions{},
                            .scale = 0.5,
                            .softcap = 30,
                            .prefix = "layers.3.self_attn."};
  const auto loaded = load_parameters<double>(file, options);
  expect_same_parameters(loaded, module);
  EXPECT_TRUE(loaded.options().rotary.has_value());
  EXPECT_EQ(loaded.options().scale, 0.5);
  EXPECT_EQ(loaded.options().softcap, 30);
}

TEST(LoadParameters, ConvertsStorageTypes) {
  TensorFile file = save_parameters(random_module<double>(plain(), 6), ParameterNaming::Fused);
  const auto exact = file.at("qkv.weight").to<BFloat16, 2>("qkv.weight");
  file.tensors.at("qkv.weight") = store(exact.view());
  const auto loaded = load_parameters<float>(file, {});
  for (Index row = 0; row < 8; ++row) {
    EXPECT_EQ(static_cast<double>(loaded.parameters().key_weight(row, 1)),
              static_cast<double>(exact(8 + row, 1)));
  }
}

TEST(LoadParameters, TheOptionsOverrideTheMetadata) {
  const TensorFile file =
      save_parameters(random_module<double>(plain(), 7), ParameterNaming::Fused);
  EXPECT_EQ(load_parameters<double>(file, {}).options().heads, 4);
  EXPECT_EQ(load_parameters<double>(file, {.heads = 2}).options().heads, 2);
}

void expect_load_error(const TensorFile& file, const LoadOptions& options,
                       const std::string& message) {
  EXPECT_THAT([&] { load_parameters<double>(file, options); },
              ThrowsMessage<std::invalid_argument>(StrEq(message)));
}

struct LoadErrors : testing::Test {
  static TensorFile saved(const MultiHeadAttentionOptions& options, ParameterNaming naming) {
    return save_parameters(random_module<double>(options, 8), naming);
  }
  static StoredTensor matrix(Index rows, Index columns) {
    return store(Tensor<double, 2>({rows, columns}).view());
  }
  static StoredTensor vector(Index size) { return store(Tensor<double, 1>({size}).view()); }
};

TEST_F(LoadErrors, NoTensorsThatAreParameters) {
  expect_load_error({}, {.heads = 2},
                    "load_parameters: file: expected in_proj_weight or q_proj_weight (PyTorch), "
                    "qkv.weight (the lesson) or q_proj.weight (separate projections) after the "
                    "prefix \"\", got no tensors");
  TensorFile file;
  file.tensors.emplace("attn.query", matrix(4, 4));
  expect_load_error(file, {.heads = 2, .prefix = "attn."},
                    "load_parameters: file: expected in_proj_weight or q_proj_weight (PyTorch), "
                    "qkv.weight (the lesson) or q_proj.weight (separate projections) after the "
                    "prefix \"attn.\", got query");
}

TEST_F(LoadErrors, UnknownName) {
  TensorFile file = saved(plain(), ParameterNaming::Fused);
  file.tensors.emplace("qkv.wieght", vector(1));
  expect_load_error(file, {},
                    "load_parameters: tensor name: expected one of qkv.weight, out.weight, "
                    "qkv.bias, out.bias, got qkv.wieght");
  file = saved(plain(), ParameterNaming::Separate);
  file.tensors.emplace("in_proj_bias", vector(1));
  EXPECT_THROW(load_parameters<double>(file, {}), std::invalid_argument);
}

TEST_F(LoadErrors, LearnedExtraKeysOfPyTorch) {
  TensorFile file = saved(biased(), ParameterNaming::PyTorch);
  file.tensors.emplace("bias_k", store(Tensor<double, 3>({1, 1, 8}).view()));
  expect_load_error(file, {},
                    "load_parameters: bias_k: expected no learned extra key or value "
                    "(add_bias_kv is not supported), got one");
}

TEST_F(LoadErrors, MissingTensor) {
  for (const auto& [naming, name] : {std::pair{ParameterNaming::PyTorch, "out_proj.weight"},
                                     std::pair{ParameterNaming::PyTorch, "out_proj.bias"},
                                     std::pair{ParameterNaming::PyTorch, "in_proj_bias"},
                                     std::pair{ParameterNaming::Fused, "out.weight"},
                                     std::pair{ParameterNaming::Fused, "qkv.weight"},
                                     std::pair{ParameterNaming::Separate, "k_proj.weight"},
                                     std::pair{ParameterNaming::Separate, "o_proj.weight"}}) {
    TensorFile file = saved(biased(), naming);
    file.tensors.erase(name);
    expect_load_error(
        file, {},
        "load_parameters: " + std::string(name) + ": expected a tensor of this name, got none");
  }
  TensorFile file = saved(everything(), ParameterNaming::Separate);
  file.tensors.erase("k_norm.weight");
  expect_load_error(file, {},
                    "load_parameters: k_norm.weight: expected a tensor of this name, got none");
}

TEST_F(LoadErrors, MisshapenTensor) {
  TensorFile file = saved(plain(), ParameterNaming::Fused);
  file.tensors.at("qkv.weight") = matrix(23, 8);
  expect_load_error(file, {},
                    "load_parameters: qkv.weight: expected shape [24, 8], got shape [23, 8]");
  file.tensors.at("qkv.weight") = vector(24);
  expect_load_error(file, {}, "load_parameters: qkv.weight: expected a matrix, got shape [24]");

  file = saved(three_widths(), ParameterNaming::PyTorch);
  file.tensors.at("k_proj_weight") = matrix(7, 6);
  expect_load_error(file, {},
                    "load_parameters: k_proj_weight: expected shape [8, 6], got shape [7, 6]");

  file = saved(everything(), ParameterNaming::Separate);
  file.tensors.at("k_proj.weight") = matrix(13, 6);
  expect_load_error(file, {},
                    "load_parameters: k_proj.weight: expected rows in heads of 6, got 13 rows");
  file = saved(everything(), ParameterNaming::Separate);
  file.tensors.at("v_proj.weight") = matrix(7, 5);
  expect_load_error(
      file, {},
      "load_parameters: kv_heads: expected a divisor of the 7 rows of v_proj.weight, got 2");
  file = saved(everything(), ParameterNaming::Separate);
  file.tensors.at("o_proj.weight") = matrix(8, 11);
  expect_load_error(file, {},
                    "load_parameters: o_proj.weight: expected shape [8, 12], got shape [8, 11]");
  file = saved(everything(), ParameterNaming::Separate);
  file.tensors.at("q_norm.weight") = vector(5);
  expect_load_error(file, {}, "load_parameters: q_norm.weight: expected shape [6], got shape [5]");
}

TEST_F(LoadErrors, AnEmptyMatrixThatClaimsHugeExtents) {
  TensorFile file = saved(plain(), ParameterNaming::Fused);
  file.tensors.at("qkv.weight") = matrix(0, Index{1} << 50);
  expect_load_error(file, {},
                    "load_parameters: qkv.weight: expected extents of at most 2147483647, got "
                    "shape [0, 1125899906842624]");
}

TEST_F(LoadErrors, NoWidthAtAll) {
  TensorFile file;
  file.tensors.emplace("qkv.weight", matrix(0, 0));
  file.tensors.emplace("out.weight", matrix(0, 0));
  expect_load_error(
      file, {.heads = 2},
      "load_parameters: heads: expected a divisor of the 0 rows of out.weight, got 2");
}

TEST_F(LoadErrors, Integers) {
  TensorFile file = saved(plain(), ParameterNaming::Fused);
  file.tensors.at("out.weight") = store(Tensor<Index, 2>({8, 8}).view());
  expect_load_error(file, {},
                    "load_parameters: out.weight: expected a floating-point tensor, got int64");
}

TEST_F(LoadErrors, Heads) {
  TensorFile file = saved(plain(), ParameterNaming::PyTorch);
  expect_load_error(file, {.heads = 3},
                    "load_parameters: heads: expected a divisor of the 8 rows of out_proj.weight, "
                    "got 3");
  expect_load_error(file, {.heads = 0},
                    "load_parameters: heads: expected a positive number, got 0");
  expect_load_error(file, {.kv_heads = 2},
                    "load_parameters: kv_heads: expected 4, as the shapes in the file say, got 2");
  file.metadata["num_heads"] = "four";
  expect_load_error(file, {},
                    "load_parameters: metadata \"num_heads\": expected a number, got \"four\"");
  file.metadata.clear();
  expect_load_error(file, {},
                    "load_parameters: heads: expected a number of heads in the options or in the "
                    "metadata \"num_heads\", got none");
  expect_load_error(saved(plain(), ParameterNaming::Separate), {.heads = 5},
                    "load_parameters: heads: expected a divisor of the 8 rows of q_proj.weight, "
                    "got 5");
}

TEST_F(LoadErrors, TwoFormsOfTheSameWeight) {
  TensorFile file = saved(plain(), ParameterNaming::PyTorch);
  file.tensors.emplace("k_proj_weight", matrix(8, 8));
  expect_load_error(file, {},
                    "load_parameters: k_proj_weight: expected none beside in_proj_weight, got a "
                    "tensor of this name");
}

void expect_save_error(const MultiHeadAttentionOptions& options, ParameterNaming naming,
                       const std::string& message) {
  const auto module = random_module<double>(options, 9);
  EXPECT_THAT([&] { save_parameters(module, naming); },
              ThrowsMessage<std::invalid_argument>(StrEq(message)));
}

TEST(SaveErrors, WhatANamingCannotHold) {
  MultiHeadAttentionOptions options = plain();
  options.kv_heads = 2;
  expect_save_error(options, ParameterNaming::PyTorch,
                    "save_parameters: naming: expected as many kv heads as heads for PyTorch's "
                    "names, got 2 kv heads and 4 heads");
  expect_save_error(options, ParameterNaming::Fused,
                    "save_parameters: naming: expected as many kv heads as heads for fused names, "
                    "got 2 kv heads and 4 heads");
  options = plain();
  options.value_head_width = 3;
  expect_save_error(options, ParameterNaming::PyTorch,
                    "save_parameters: naming: expected heads that share model_width among them for "
                    "PyTorch's names, got model_width 8, 4 heads of 2 (values 3)");
  options = plain();
  options.qk_norm = QkNormOptions{};
  expect_save_error(options, ParameterNaming::PyTorch,
                    "save_parameters: naming: expected no norms for PyTorch's names, got norms of "
                    "queries and keys");
  options = plain();
  options.biases = {.query = true, .key = true, .value = true, .output = false};
  expect_save_error(options, ParameterNaming::PyTorch,
                    "save_parameters: naming: expected all biases or none for PyTorch's names, got "
                    "biases of some projections");
  options.biases.key = false;
  expect_save_error(options, ParameterNaming::Fused,
                    "save_parameters: naming: expected biases of query, key and value or of none "
                    "of them for fused names, got biases of some projections");
  expect_save_error(three_widths(), ParameterNaming::Fused,
                    "save_parameters: naming: expected inputs of the same width for fused names, "
                    "got model_width 8, key_width 6, value_width 5");
}

}  // namespace
}  // namespace qkv
