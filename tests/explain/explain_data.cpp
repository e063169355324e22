#include "tests/explain/explain_data.h"

#include "tests/model/model_data.h"

namespace qkv::test {

std::vector<double> Recorded::numbers(const std::string& value) const {
  return cases::numbers(file, value);
}

Recorded recorded(const std::string& name) {
  Recorded result;
  result.name = name;
  result.file =
      read_tensors(QKV_SOURCE_DIR "/tests/explain/goldens/explain_" + name + ".safetensors");
  DecoderOptions options;
  options.vocabulary = 11;
  options.context = 6;
  options.model_width = 12;
  options.heads = 3;
  options.mlp_width = 20;
  if (name == "rotary") {
    options.positions = PositionKind::Rotary;
    options.kv_heads = 1;
    options.biases = ProjectionBiases::all();
    options.window = 3;
    options.tied_head = false;
    options.norm = NormKind::RmsNorm;
    result.target.kind = explain::DecoderTarget::Kind::LogProbability;
  }
  result.target.token = 4;
  Decoder<double> decoder(options, 1);
  cases::load(decoder, result.file, "decoder.");
  result.decoder = std::make_shared<const Decoder<double>>(std::move(decoder));
  for (const double token : result.numbers("tokens")) {
    result.tokens.push_back(static_cast<Index>(token));
  }
  return result;
}

RandomDecoder random_decoder(Index tokens, std::uint64_t seed, DecoderOptions options) {
  options.vocabulary = 13;
  options.context = tokens;
  options.model_width = 16;
  options.heads = 2;
  Decoder<double> decoder(options, seed);
  cases::randomize(decoder, seed);
  Random random(seed);
  std::vector<Index> text;
  for (Index t = 0; t < tokens; ++t) text.push_back(random.below(options.vocabulary));
  return {std::make_shared<const Decoder<double>>(std::move(decoder)), text};
}

}  // namespace qkv::test
