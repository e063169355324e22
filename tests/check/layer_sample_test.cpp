#include "check/layer_sample.h"

#include <functional>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace qkv {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <int Rank>
StoredTensor counting(const Extents<Rank>& shape) {
  Tensor<float, Rank> tensor(shape);
  float next = 0;
  for (float& element : tensor.elements()) element = next++;
  return store(tensor.view());
}

template <int Rank>
StoredTensor integers(const Extents<Rank>& shape, const std::vector<std::int64_t>& values) {
  Tensor<std::int64_t, Rank> tensor(shape);
  std::copy(values.begin(), values.end(), tensor.data());
  return store(tensor.view());
}

// B=2, T=3, H=4 on Hkv=2, Dk=6, Dv=5, D=7: no two sizes alike that could be exchanged unseen.
TensorFile sample_file() {
  TensorFile file;
  file.tensors["x"] = counting<3>({2, 3, 7});
  file.tensors["q_proj.weight"] = counting<2>({24, 7});
  file.tensors["q_proj.bias"] = counting<1>({24});
  file.tensors["k_proj.weight"] = counting<2>({12, 7});
  file.tensors["v_proj.weight"] = counting<2>({10, 7});
  file.tensors["o_proj.weight"] = counting<2>({7, 20});
  file.tensors["q"] = counting<4>({2, 4, 3, 6});
  file.tensors["k"] = counting<4>({2, 2, 3, 6});
  file.tensors["v"] = counting<4>({2, 2, 3, 5});
  file.tensors["weights"] = counting<4>({2, 4, 3, 3});
  file.tensors["context"] = counting<3>({2, 3, 20});
  file.tensors["out"] = counting<3>({2, 3, 7});
  file.tensors["attention_mask"] = integers<2>({2, 3}, {1, 1, 1, 0, 1, 1});
  file.tensors["position_ids"] = integers<2>({2, 3}, {0, 1, 2, 0, 0, 1});
  file.metadata = {{"num_heads", "4"},
                   {"num_kv_heads", "2"},
                   {"causal", "top-left, T = S"},
                   {"rope_theta", "100000"},
                   {"rope_pairing", "i with i+head_dim/2"},
                   {"source", "made by hand"},
                   {"sentences", R"(["a b c", "d e"])"},
                   {"tokens", R"([["a","b","c"],["[PAD]","d","e"]])"}};
  return file;
}

/// What reading says after a change to the file.
std::string message_after(const std::function<void(TensorFile&)>& change) {
  TensorFile file = sample_file();
  change(file);
  try {
    read_layer_sample<float>(file);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "no error";
}

TEST(LayerSample, SizesAndTensors) {
  const auto sample = read_layer_sample<double>(sample_file());
  EXPECT_EQ(sample.batch, 2);
  EXPECT_EQ(sample.queries, 3);
  EXPECT_EQ(sample.keys, 3);
  EXPECT_EQ(sample.heads, 4);
  EXPECT_EQ(sample.kv_heads, 2);
  EXPECT_EQ(sample.head_width, 6);
  EXPECT_EQ(sample.value_head_width, 5);
  EXPECT_EQ((*sample.input)(1, 2, 6), 41.0);
  EXPECT_EQ((*sample.query)(1, 3, 2, 5), 143.0);
  EXPECT_EQ((*sample.key)(1, 1, 2, 5), 71.0);
  EXPECT_EQ((*sample.value)(1, 1, 2, 4), 59.0);
  EXPECT_EQ(sample.parameters->output_weight.shape(), (Extents<2>{7, 20}));
  EXPECT_TRUE(sample.parameters->query_bias);
  EXPECT_FALSE(sample.parameters->key_bias);
  EXPECT_FALSE(sample.query_before_rotary);
  EXPECT_EQ(sample.source, "made by hand");
  EXPECT_THAT(sample.sentences, ElementsAre("a b c", "d e"));
  EXPECT_THAT(sample.tokens.at(1), ElementsAre("[PAD]", "d", "e"));
}

TEST(LayerSample, MaskIsPaddingKeptAndCausal) {
  const auto sample = read_layer_sample<float>(sample_file());
  const BoundMask mask = sample.mask.bind("test", {2, 4, 3, 3});
  EXPECT_TRUE(mask.visible(0, 0, 1, 0));
  EXPECT_FALSE(mask.visible(0, 0, 1, 2));  // in the future
  EXPECT_FALSE(mask.visible(1, 0, 1, 0));  // padding
  EXPECT_TRUE(mask.visible(1, 0, 1, 1));
  EXPECT_FALSE(mask.row_sees_a_key(1, 0, 0));
}

TEST(LayerSample, RotaryOptionsAndPositions) {
  const auto sample = read_layer_sample<float>(sample_file());
  ASSERT_TRUE(sample.rotary);
  EXPECT_EQ(sample.rotary->base, 100000.0);
  EXPECT_EQ(sample.rotary->pairing, RotaryPairing::Halves);
  EXPECT_EQ((*sample.positions)(1, 2), 1);

  TensorFile interleaved = sample_file();
  interleaved.metadata["rope_pairing"] = "2i with 2i+1";
  EXPECT_EQ(read_layer_sample<float>(interleaved).rotary->pairing, RotaryPairing::Interleaved);
}

TEST(LayerSample, ModuleOptionsFitTheParameters) {
  const auto sample = read_layer_sample<float>(sample_file());
  const MultiHeadAttention<float> module(sample.module_options(), *sample.parameters);
  EXPECT_EQ(module.options().model_width, 7);
  EXPECT_EQ(module.options().value_head_width, 5);
  EXPECT_TRUE(module.options().biases.query);
  EXPECT_FALSE(module.options().biases.output);
}

TEST(LayerSample, HeadsAloneOrProjectionsAloneAreEnough) {
  TensorFile heads_alone = sample_file();
  for (const std::string name : {"x", "q_proj.weight", "q_proj.bias", "k_proj.weight",
                                 "v_proj.weight", "o_proj.weight", "out"}) {
    heads_alone.tensors.erase(name);
  }
  EXPECT_FALSE(read_layer_sample<float>(heads_alone).parameters);

  TensorFile projections_alone = sample_file();
  for (const std::string name : {"q", "k", "v", "weights", "context", "out"}) {
    projections_alone.tensors.erase(name);
  }
  const auto sample = read_layer_sample<float>(projections_alone);
  EXPECT_FALSE(sample.query);
  EXPECT_EQ(sample.heads, 4);
  EXPECT_EQ(sample.kv_heads, 2);
  EXPECT_EQ(sample.head_width, 6);
  EXPECT_EQ(sample.value_head_width, 5);
}

TEST(LayerSample, RealFilesAreRead) {
  const auto encoder =
      read_layer_sample<float>(read_tensors(QKV_SOURCE_DIR "/data/minilm-layer4.safetensors"));
  EXPECT_EQ(encoder.heads, 12);
  EXPECT_EQ(encoder.head_width, 32);
  EXPECT_FALSE(encoder.rotary);
  EXPECT_EQ(encoder.tokens.at(1).at(1), "she");
  const auto decoder =
      read_layer_sample<float>(read_tensors(QKV_SOURCE_DIR "/data/smollm2-layer11.safetensors"));
  EXPECT_EQ(decoder.heads, 9);
  EXPECT_EQ(decoder.kv_heads, 3);
  EXPECT_TRUE(decoder.query_before_rotary);
  EXPECT_EQ(decoder.mask.describe(), "causal (top-left) & key padding [2, 23]");
}

TEST(LayerSample, UnknownTensorIsNamed) {
  const std::string message =
      message_after([](TensorFile& file) { file.tensors["wq"] = counting<1>({3}); });
  EXPECT_THAT(message,
              HasSubstr("layer sample: tensor names: expected any of attention_mask, context, "));
  EXPECT_THAT(message, HasSubstr("got \"wq\""));
}

TEST(LayerSample, MissingTensorIsNamed) {
  EXPECT_EQ(message_after([](TensorFile& file) { file.tensors.erase("k_proj.weight"); }),
            "layer sample: k_proj.weight: expected all of x, q_proj.weight, k_proj.weight, "
            "v_proj.weight, o_proj.weight, got none");
  EXPECT_EQ(message_after([](TensorFile& file) { file.tensors.erase("v"); }),
            "layer sample: v: expected all of q, k, v, got none");
  EXPECT_EQ(message_after([](TensorFile& file) { file.tensors.clear(); }),
            "layer sample: tensor names: expected q, k and v, or x with the weights of its "
            "projections, got neither");
}

TEST(LayerSample, MisshapenTensorIsNamed) {
  struct Bad {
    std::string name;
    StoredTensor tensor;
    std::string message;
  };
  const std::vector<Bad> cases = {
      {"q", counting<3>({2, 3, 24}), "layer sample: q: expected 4 axes, got [2, 3, 24]"},
      {"k", counting<4>({2, 2, 3, 5}), "layer sample: k: expected [2, 2, 3, 6], got [2, 2, 3, 5]"},
      {"v", counting<4>({2, 2, 4, 5}), "layer sample: v: expected [2, 2, 3, 5], got [2, 2, 4, 5]"},
      {"x", counting<3>({2, 4, 7}), "layer sample: x: expected [2, 3, 7], got [2, 4, 7]"},
      {"q_proj.bias", counting<1>({12}), "layer sample: q_proj.bias: expected [24], got [12]"},
      {"o_proj.weight", counting<2>({7, 24}),
       "layer sample: o_proj.weight: expected [7, 20], got [7, 24]"},
      {"weights", counting<4>({2, 3, 4, 3}),
       "layer sample: weights: expected [2, 4, 3, 3], got [2, 3, 4, 3]"},
      {"context", counting<4>({2, 4, 3, 5}),
       "layer sample: context: expected 3 axes, got [2, 4, 3, 5]"},
      {"out", counting<3>({3, 2, 7}), "layer sample: out: expected [2, 3, 7], got [3, 2, 7]"},
      {"attention_mask", integers<2>({3, 2}, {1, 1, 1, 1, 1, 1}),
       "layer sample: attention_mask: expected [2, 3], got [3, 2]"},
      {"q_before_rope", counting<4>({2, 2, 3, 6}),
       "layer sample: q_before_rope: expected [2, 4, 3, 6], got [2, 2, 3, 6]"},
  };
  for (const Bad& bad : cases) {
    EXPECT_EQ(message_after([&](TensorFile& file) { file.tensors[bad.name] = bad.tensor; }),
              bad.message);
  }
}

TEST(LayerSample, HeadsThatDoNotFitAreRefused) {
  EXPECT_EQ(message_after([](TensorFile& file) { file.metadata["num_heads"] = "3"; }),
            "layer sample: q: expected the 3 heads of metadata \"num_heads\", got 4");
  EXPECT_EQ(message_after([](TensorFile& file) {
              file.metadata.erase("num_kv_heads");
              file.tensors["k"] = counting<4>({2, 3, 3, 6});
              file.tensors["v"] = counting<4>({2, 3, 3, 5});
            }),
            "layer sample: k: expected heads that divide the 4 heads of q, got 3");
  const auto projections_alone = [](TensorFile& file) {
    for (const std::string name : {"q", "k", "v"}) file.tensors.erase(name);
  };
  EXPECT_EQ(message_after([&](TensorFile& file) {
              projections_alone(file);
              file.metadata.erase("num_heads");
            }),
            "layer sample: metadata \"num_heads\": expected the number of heads, got none");
  EXPECT_EQ(message_after([&](TensorFile& file) {
              projections_alone(file);
              file.metadata["num_heads"] = "5";
            }),
            "layer sample: q_proj.weight: expected rows for each of 5 heads, got 24");
}

TEST(LayerSample, MetadataThatCannotBeUnderstoodIsRefused) {
  const auto after = [](const std::string& key, const std::string& value) {
    return message_after([&](TensorFile& file) { file.metadata[key] = value; });
  };
  for (const std::string value : {"0", "-4", "4 heads", "", "99999999999999999999"}) {
    EXPECT_EQ(
        after("num_heads", value),
        "layer sample: metadata \"num_heads\": expected a positive number, got \"" + value + "\"");
  }
  for (const std::string value : {"nan", "inf", "-1", "1e999"}) {
    EXPECT_EQ(
        after("rope_theta", value),
        "layer sample: metadata \"rope_theta\": expected a positive number, got \"" + value + "\"");
  }
  EXPECT_EQ(
      after("rope_pairing", "neighbours"),
      "layer sample: metadata \"rope_pairing\": expected \"i with i+head_dim/2\" or \"2i with "
      "2i+1\", got \"neighbours\"");
  EXPECT_EQ(
      after("causal", "yes"),
      "layer sample: metadata \"causal\": expected \"top-left\" or \"bottom-right\", got \"yes\"");
  for (const std::string value : {"[", "{}", "[[1]]", "\"a\""}) {
    EXPECT_EQ(
        after("tokens", value),
        "layer sample: metadata \"tokens\": expected lists of strings in JSON, got something else");
  }
  EXPECT_EQ(after("tokens", R"([["a"]])"),
            "layer sample: metadata \"tokens\": expected 2 lists, got 1");
  EXPECT_EQ(after("tokens", R"([["a","b","c"],["d"]])"),
            "layer sample: metadata \"tokens\": expected 3 tokens in each list, got 1");
  EXPECT_EQ(after("sentences", R"(["a"])"),
            "layer sample: metadata \"sentences\": expected 2 sentences, got 1");
}

TEST(LayerSample, AttentionMaskHoldsZerosAndOnes) {
  EXPECT_THAT(message_after([](TensorFile& file) {
                file.tensors["attention_mask"] = integers<2>({2, 3}, {1, 1, 2, 1, 1, 1});
              }),
              HasSubstr("attention_mask"));
}

}  // namespace
}  // namespace qkv
