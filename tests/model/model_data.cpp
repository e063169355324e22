#include "tests/model/model_data.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace qkv::cases {

TensorFile golden(const std::string& name) {
  return read_tensors(QKV_SOURCE_DIR "/tests/model/goldens/" + name + ".safetensors");
}

std::vector<double> numbers(const TensorFile& file, const std::string& name) {
  const StoredTensor& tensor = file.at(name);
  const auto copied = [](const auto& values) {
    return std::vector<double>(values.elements().begin(), values.elements().end());
  };
  switch (tensor.shape().size()) {
    case 0:
      return copied(tensor.to<double, 0>(name));
    case 1:
      return copied(tensor.to<double, 1>(name));
    case 2:
      return copied(tensor.to<double, 2>(name));
    case 3:
      return copied(tensor.to<double, 3>(name));
    default:
      return copied(tensor.to<double, 4>(name));
  }
}

TokenBatch random_batch(const DecoderOptions& options, Index sequences, Index tokens,
                        std::uint64_t seed) {
  Random random(seed);
  TokenBatch batch{.tokens = Tensor<Index, 2>({sequences, tokens}),
                   .targets = Tensor<Index, 2>({sequences, tokens})};
  for (Index& token : batch.tokens.elements()) token = random.below(options.vocabulary);
  Index i = 0;
  for (Index& target : batch.targets.elements()) {
    target = ++i % 5 == 0 ? kIgnoredTarget : random.below(options.vocabulary);
  }
  return batch;
}

void add_padding(TokenBatch& batch) {
  const Extents<2>& shape = batch.tokens.shape();
  batch.keep.emplace(shape);
  for (bool& keep : batch.keep->elements()) keep = true;
  const auto drop = [&](Index sequence, Index token) {
    (*batch.keep)(sequence, token) = false;
    batch.targets(sequence, token) = kIgnoredTarget;
  };
  drop(0, 0);
  drop(0, 1);
  if (shape[0] > 1) drop(1, shape[1] - 1);
}

template <class T>
void load(Decoder<T>& decoder, const TensorFile& file, const std::string& prefix) {
  decoder.update([&](std::span<const NamedParameter<T>> parameters) {
    for (const auto& parameter : parameters) {
      const std::vector<double> values = numbers(file, prefix + parameter.name);
      if (values.size() != parameter.elements.size()) {
        throw std::invalid_argument(parameter.name + ": another size");
      }
      std::transform(values.begin(), values.end(), parameter.elements.begin(),
                     [](double value) { return static_cast<T>(value); });
    }
  });
}

template <class T>
void randomize(Decoder<T>& decoder, std::uint64_t seed) {
  Random random(seed);
  decoder.update([&](std::span<const NamedParameter<T>> parameters) {
    for (const auto& parameter : parameters) {
      const bool matrix = parameter.shape.size() > 1;
      const double deviation =
          matrix ? 1 / std::sqrt(static_cast<double>(parameter.shape[1])) : 0.2;
      const double mean = parameter.name.ends_with("norm.weight") ? 1 : 0;
      for (T& element : parameter.elements) {
        element = static_cast<T>(mean + deviation * random.normal());
      }
    }
  });
}

template <class T>
std::vector<T> flattened(const Decoder<T>& decoder) {
  std::vector<T> all;
  for (const auto& parameter : decoder.parameters()) {
    all.insert(all.end(), parameter.elements.begin(), parameter.elements.end());
  }
  return all;
}

template void load(Decoder<double>&, const TensorFile&, const std::string&);
template void load(Decoder<float>&, const TensorFile&, const std::string&);
template void randomize(Decoder<double>&, std::uint64_t);
template void randomize(Decoder<float>&, std::uint64_t);
template std::vector<double> flattened(const Decoder<double>&);
template std::vector<float> flattened(const Decoder<float>&);

}  // namespace qkv::cases
