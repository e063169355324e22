#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "model/encoder_file.h"
#include "model/json_object.h"
#include "model/sentence_model.h"
#include "qkv/error.h"

namespace qkv {
namespace {

namespace fs = std::filesystem;

Pooling read_pooling(const JsonObject& config, Index width) {
  const Index said = config.whole_number("word_embedding_dimension").value_or(width);
  if (said != width) {
    config.refuse("word_embedding_dimension", fmt::format("{}, the hidden_size", width),
                  fmt::format("{}", said));
  }
  const auto asks_for = [&](std::string_view mode) {
    return config.boolean(fmt::format("pooling_mode_{}", mode)).value_or(false);
  };
  for (const char* mode :
       {"max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken"}) {
    if (asks_for(mode)) {
      config.refuse(fmt::format("pooling_mode_{}", mode), "pooling by mean or first token", "true");
    }
  }
  const bool mean = asks_for("mean_tokens");
  if (mean == asks_for("cls_token")) {
    config.refuse("pooling_mode_mean_tokens", "one of mean and first token",
                  mean ? "both" : "neither");
  }
  return mean ? Pooling::Mean : Pooling::First;
}

/// "Pooling" of "sentence_transformers.models.Pooling".
std::string kind_of(const JsonObject& module) {
  const std::string type = module.text("type").value_or("");
  return type.substr(type.rfind('.') + 1);
}

PoolingOptions read_modules(const fs::path& folder, Index width) {
  PoolingOptions options;
  const std::string path = (folder / "modules.json").string();
  if (!fs::exists(path)) return options;
  const std::vector<JsonObject> modules = JsonObject::read_list(path);
  const std::string order = "Transformer, Pooling and perhaps Normalize";
  if (modules.size() < 2 || modules.size() > 3) {
    throw FileError(path, fmt::format("expected {}, got {} modules", order, modules.size()));
  }
  for (std::size_t i = 0; i < modules.size(); ++i) {
    constexpr std::string_view kKinds[] = {"Transformer", "Pooling", "Normalize"};
    if (kind_of(modules[i]) != kKinds[i]) {
      modules[i].refuse("type", fmt::format("{} in the order {}", kKinds[i], order),
                        modules[i].text("type").value_or("none"));
    }
  }
  if (!modules[0].text("path").value_or("").empty()) {
    modules[0].refuse("path", "\"\"", modules[0].text("path").value_or(""));
  }
  const fs::path pooling = folder / modules[1].text("path").value_or("1_Pooling") / "config.json";
  options.pooling = read_pooling(JsonObject::read(pooling.string()), width);
  options.normalize = modules.size() == 3;
  return options;
}

}  // namespace

SentenceOptions read_sentence_options(const std::string& folder, const EncoderOptions& encoder) {
  const Index context = encoder.context;
  SentenceOptions options{.most_tokens = context,
                          .pooling = read_modules(folder, encoder.model_width)};
  const auto limit = [&](const char* name, const char* field) {
    const fs::path path = fs::path(folder) / name;
    if (!fs::exists(path)) return false;
    const JsonObject config = JsonObject::read(path.string());
    const std::optional<double> most = config.number(field);  // 1e30 stands for no limit
    if (!most) return false;
    if (!(*most >= 3)) config.refuse(field, "3 or more", fmt::format("{}", *most));
    if (*most < static_cast<double>(context)) options.most_tokens = static_cast<Index>(*most);
    return true;
  };
  if (!limit("sentence_bert_config.json", "max_seq_length")) {
    limit("tokenizer_config.json", "model_max_length");
  }
  return options;
}

template <class T>
SentenceModel<T> load_sentence_model(const std::string& folder) {
  Encoder<T> encoder = load_encoder<T>(folder);
  WordPiece tokenizer = load_wordpiece(folder);
  if (tokenizer.size() > encoder.options().vocabulary) {
    throw FileError((fs::path(folder) / "config.json").string(),
                    fmt::format("vocab_size: expected {} or more, as the vocabulary has, got {}",
                                tokenizer.size(), encoder.options().vocabulary));
  }
  const SentenceOptions options = read_sentence_options(folder, encoder.options());
  return {std::move(tokenizer), std::move(encoder), options};
}

template SentenceModel<double> load_sentence_model(const std::string&);
template SentenceModel<float> load_sentence_model(const std::string&);

}  // namespace qkv
