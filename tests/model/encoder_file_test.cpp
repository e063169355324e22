// Folders that are not an encoder: what is said of each.
#include "model/encoder_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "model/sentence_model.h"
#include "qkv/error.h"
#include "qkv/io.h"
#include "tests/temporary_directory.h"

namespace qkv {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using Json = nlohmann::json;

constexpr const char* kWeights = "model.safetensors";

std::string golden(const char* name) {
  return std::string(QKV_SOURCE_DIR) + "/tests/model/goldens/bert/" + name;
}

/// A copy of the recorded encoder, to be broken.
class EncoderFileTest : public testing::Test {
 protected:
  EncoderFileTest() : weights(read_tensors(golden(kWeights))) {
    config = Json::parse(std::ifstream(golden("config.json")));
  }

  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(folder.file(name)).parent_path());
    std::ofstream(folder.file(name), std::ios::binary) << text;
  }
  void write_all() const {
    write("config.json", config.dump());
    write_tensors(folder.file(kWeights), weights);
  }
  Encoder<float> load() const { return load_encoder<float>(folder.file("")); }
  void expect_refused(const char* file, const std::string& message) const {
    write_all();
    EXPECT_THAT([&] { load(); },
                ThrowsMessage<FileError>(AllOf(HasSubstr(file), HasSubstr(message))));
  }

  TemporaryDirectory folder;
  TensorFile weights;
  Json config;
};

TEST_F(EncoderFileTest, Loads) {
  write_all();
  EXPECT_EQ(load().options().layers, 2);
}

TEST_F(EncoderFileTest, APrefixAndTheHeadsOfTasksAreNoHindrance) {
  TensorFile prefixed;
  for (const auto& [name, tensor] : weights.tensors)
    prefixed.tensors.emplace("bert." + name, tensor);
  const Tensor<float, 2> head({2, 12});
  const Tensor<Index, 2> positions({1, 7});
  prefixed.tensors.emplace("cls.predictions.transform.dense.weight", store(head.view()));
  prefixed.tensors.emplace("bert.pooler.dense.weight", store(head.view()));
  prefixed.tensors.emplace("bert.embeddings.position_ids", store(positions.view()));
  weights = prefixed;
  write_all();
  const EncoderBatch batch{Tensor<Index, 2>({1, 3})};
  const auto plain = load_encoder<double>(golden(""));
  const auto named = load_encoder<double>(folder.file(""));
  EXPECT_THAT(named.encode(batch).elements(),
              testing::ElementsAreArray(plain.encode(batch).elements()));
}

TEST_F(EncoderFileTest, NormsMayHaveTheirFormerNames) {
  for (const auto& [now, then] : {std::pair("weight", "gamma"), std::pair("bias", "beta")}) {
    auto node = weights.tensors.extract(std::string("embeddings.LayerNorm.") + now);
    node.key() = std::string("embeddings.LayerNorm.") + then;
    weights.tensors.insert(std::move(node));
  }
  write_all();
  EXPECT_EQ(load().options().layers, 2);
}

TEST_F(EncoderFileTest, AMissingTensor) {
  weights.tensors.erase("encoder.layer.1.output.dense.bias");
  expect_refused(kWeights,
                 "encoder.layer.1.output.dense.bias: expected a tensor of shape [12], got none");
}

TEST_F(EncoderFileTest, ATensorTooMany) {
  weights.tensors.emplace("encoder.layer.2.output.dense.bias",
                          weights.at("encoder.layer.1.output.dense.bias"));
  expect_refused(kWeights, "encoder.layer.2.output.dense.bias: expected no tensor of this name");
}

TEST_F(EncoderFileTest, AMisshapenTensor) {
  const Tensor<float, 2> other({12, 11});
  weights.tensors["encoder.layer.0.attention.self.key.weight"] = store(other.view());
  expect_refused(
      kWeights, "encoder.layer.0.attention.self.key.weight: expected shape [12, 12], got [12, 11]");
}

TEST_F(EncoderFileTest, WeightsThatAreNoNumbers) {
  const std::string key = "encoder.layer.0.attention.self.key.weight";
  for (const float broken : {std::nanf(""), -HUGE_VALF}) {
    Tensor<float, 2> weight({12, 12});
    weight(3, 4) = broken;
    weights.tensors[key] = store(weight.view());
    expect_refused(kWeights, key + ": expected finite numbers, got ");
  }
  const Tensor<Index, 2> whole({12, 12});
  weights.tensors[key] = store(whole.view());
  expect_refused(kWeights, key + ": expected a floating-point tensor, got int64");
}

TEST_F(EncoderFileTest, ATensorOfTooManyAxes) {
  const Tensor<float, 3> other({12, 12, 1});
  weights.tensors["encoder.layer.0.attention.self.key.weight"] = store(other.view());
  expect_refused(kWeights, "expected shape [12, 12], got [12, 12, 1]");
}

TEST_F(EncoderFileTest, NoWeights) {
  write("config.json", config.dump());
  EXPECT_THAT([&] { load(); }, ThrowsMessage<FileError>(HasSubstr(kWeights)));
}

TEST_F(EncoderFileTest, GarbageForWeights) {
  write("config.json", config.dump());
  for (const std::string garbage : {"", "abc", "\x10\0\0\0\0\0\0\0{{{{{{{{{{{{{{{{"}) {
    write(kWeights, garbage);
    EXPECT_THAT([&] { load(); }, ThrowsMessage<FileError>(HasSubstr(kWeights)));
  }
}

TEST_F(EncoderFileTest, ConfigurationsOfOtherModels) {
  const std::vector<std::pair<Json, std::string>> changes{
      {{{"model_type", "roberta"}}, "model_type: expected \"bert\", got \"roberta\""},
      {{{"model_type", nullptr}}, "model_type: expected \"bert\", got \"\""},
      {{{"hidden_act", "relu"}}, "hidden_act: expected \"gelu\", got \"relu\""},
      {{{"position_embedding_type", "relative_key"}}, "position_embedding_type"},
      {{{"is_decoder", true}}, "is_decoder: expected false, got true"},
      {{{"num_attention_heads", 5}},
       "num_attention_heads: expected a divisor of hidden_size 12, got 5"},
      {{{"num_attention_heads", 0}}, "num_attention_heads: expected 1 or more, got 0"},
      {{{"hidden_size", -12}}, "hidden_size: expected 1 or more, got -12"},
      {{{"hidden_size", "12"}}, "hidden_size: expected a whole number, got \"12\""},
      {{{"hidden_size", 12.5}}, "hidden_size: expected a whole number, got 12.5"},
      {{{"hidden_size", nullptr}}, "hidden_size: expected a whole number, got none"},
      {{{"layer_norm_eps", 0}}, "layer_norm_eps: expected a positive number, got 0"},
      {{{"layer_norm_eps", Json::array()}}, "layer_norm_eps: expected a number, got a list"},
  };
  const Json right = config;
  for (const auto& [change, message] : changes) {
    config = right;
    config.update(change);
    expect_refused("config.json", message);
  }
}

TEST_F(EncoderFileTest, SizesThatTheWeightsDoNotHave) {
  const std::vector<std::pair<Json, std::string>> changes{
      {{{"vocab_size", 14}}, "word_embeddings.weight: expected shape [14, 12], got [13, 12]"},
      {{{"hidden_size", 1 << 30}, {"num_attention_heads", 1}}, "expected shape [13, 1073741824]"},
      {{{"num_hidden_layers", 3}}, "encoder.layer.2.attention.self.query.weight"},
      {{{"num_hidden_layers", 1}}, "encoder.layer.1.attention.output.LayerNorm.bias: expected no"},
      {{{"num_hidden_layers", std::int64_t{1} << 60}}, "expected tensors of"},
  };
  const Json right = config;
  for (const auto& [change, message] : changes) {
    config = right;
    config.update(change);
    expect_refused(kWeights, message);
  }
}

TEST_F(EncoderFileTest, GarbageForAConfiguration) {
  write_tensors(folder.file(kWeights), weights);
  const std::string deep(100000, '[');
  const std::string bytes("\0\xFF\xFE{", 4);
  for (const std::string& garbage :
       {std::string(), std::string("{"), std::string("null"), std::string("[{}]"),
        std::string("{\"model_type\": \"bert\xFF\"}"), std::string("{\"layer_norm_eps\": 1e400}"),
        deep, bytes}) {
    write("config.json", garbage);
    EXPECT_THAT([&] { load(); }, ThrowsMessage<FileError>(HasSubstr("config.json")));
  }
}

class SentenceOptionsTest : public EncoderFileTest {
 protected:
  SentenceOptions read() const {
    return read_sentence_options(folder.file(""), {.context = 512, .model_width = 384});
  }
  void write_modules(const std::string& last = "") const {
    write("modules.json",
          R"([{"type":"sentence_transformers.models.Transformer","path":""},
              {"type":"sentence_transformers.models.Pooling","path":"1_Pooling"})" +
              last + "]");
  }
  void expect_unread(const char* file, const std::string& message) const {
    EXPECT_THAT([&] { read(); },
                ThrowsMessage<FileError>(AllOf(HasSubstr(file), HasSubstr(message))));
  }
};

TEST_F(SentenceOptionsTest, WithoutModulesItIsTheMean) {
  EXPECT_EQ(read().pooling.pooling, Pooling::Mean);
  EXPECT_FALSE(read().pooling.normalize);
  EXPECT_EQ(read().most_tokens, 512);
}

TEST_F(SentenceOptionsTest, AsTheModulesSay) {
  write_modules(R"(,{"type":"sentence_transformers.models.Normalize","path":"2_Normalize"})");
  write("1_Pooling/config.json",
        R"({"pooling_mode_cls_token":true,"pooling_mode_mean_tokens":false})");
  write("sentence_bert_config.json", R"({"max_seq_length":128})");
  EXPECT_EQ(read().pooling.pooling, Pooling::First);
  EXPECT_TRUE(read().pooling.normalize);
  EXPECT_EQ(read().most_tokens, 128);
}

TEST_F(SentenceOptionsTest, NoLimitIsThatOfThePositions) {
  write("sentence_bert_config.json", R"({"max_seq_length":null})");
  write("tokenizer_config.json", R"({"model_max_length":1000000000000000019884624838656})");
  EXPECT_EQ(read().most_tokens, 512);
}

TEST_F(SentenceOptionsTest, WhatItCannotDoIsRefused) {
  write_modules(R"(,{"type":"sentence_transformers.models.Dense","path":"2_Dense"})");
  write("1_Pooling/config.json", R"({"pooling_mode_mean_tokens":true})");
  expect_unread("modules.json", "[2].type: expected Normalize");
  write_modules();
  write("1_Pooling/config.json",
        R"({"pooling_mode_mean_tokens":true,"pooling_mode_max_tokens":true})");
  expect_unread("1_Pooling", "pooling_mode_max_tokens");
  write("1_Pooling/config.json",
        R"({"pooling_mode_mean_tokens":true,"pooling_mode_cls_token":true})");
  expect_unread("1_Pooling", "expected one of mean and first token, got both");
  write("1_Pooling/config.json", "{}");
  expect_unread("1_Pooling", "got neither");
  write("1_Pooling/config.json", "{\"pooling_mode_mean_tokens\":");
  expect_unread("1_Pooling", "expected JSON");
  write("modules.json", "{}");
  expect_unread("modules.json", "expected a list, got an object");
  write("modules.json", "[1]");
  expect_unread("modules.json", "[0]: expected an object, got 1");
  write("modules.json", "[]");
  expect_unread("modules.json", "got 0 modules");
  write_modules();
  write("1_Pooling/config.json",
        R"({"pooling_mode_mean_tokens":true,"word_embedding_dimension":24})");
  expect_unread("1_Pooling", "word_embedding_dimension: expected 384, the hidden_size, got 24");
  write("1_Pooling/config.json", R"({"pooling_mode_mean_tokens":true})");
  write("sentence_bert_config.json", R"({"max_seq_length":2})");
  expect_unread("sentence_bert_config.json", "max_seq_length: expected 3 or more, got 2");
}

class SentenceModelTest : public EncoderFileTest {
 protected:
  void write_model() const {
    write_all();
    write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\nc\nd\ne\nf\ng\nh\n");
  }
  SentenceModel<double> load_model() const { return load_sentence_model<double>(folder.file("")); }
};

TEST_F(SentenceModelTest, TextsAreRefusedByTheirPlace) {
  write_model();
  const SentenceModel<double> model = load_model();
  const auto refuses = [&](const std::vector<std::string>& texts, const char* message) {
    EXPECT_THAT([&] { model.embed(texts); },
                ThrowsMessage<std::invalid_argument>(HasSubstr(message)));
  };
  refuses({"a", ""}, "texts[1]: expected a token or more, got 0");
  refuses({" \t\n"}, "texts[0]: expected a token or more, got 0");
  refuses({"a b c d e f"}, "texts[0]: expected at most 7 tokens, first and last among them, got 8");
  const std::vector<std::string> longer{"a b c d e f"};
  const std::vector<std::string> shorter{"a b c d e"};
  EXPECT_THAT(model.embed(longer, TooLong::Truncated).elements(),
              testing::ElementsAreArray(model.embed(shorter).elements()));
}

TEST_F(SentenceModelTest, NoTextsAreNoVectors) {
  write_model();
  EXPECT_EQ(load_model().embed({}).shape(0), 0);
}

TEST_F(SentenceModelTest, AVocabularyBeyondTheEmbeddingIsRefused) {
  write_model();
  write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\nc\nd\ne\nf\ng\nh\ni\n");
  EXPECT_THAT([&] { load_model(); },
              ThrowsMessage<FileError>(HasSubstr("vocab_size: expected 14 or more")));
}

}  // namespace
}  // namespace qkv
