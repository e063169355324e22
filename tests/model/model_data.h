// Decoders, batches and recorded values, and what tests do with them.
#pragma once

#include <string>
#include <vector>

#include "model/decoder.h"
#include "model/random.h"
#include "qkv/io.h"

namespace qkv::cases {

/// tests/model/goldens/NAME.safetensors, which make_torch_goldens.py wrote.
TensorFile golden(const std::string& name);

/// Elements in row-major order, whatever the rank.
std::vector<double> numbers(const TensorFile& file, const std::string& name);

/// Random tokens; every fifth target is ignored.
TokenBatch random_batch(const DecoderOptions& options, Index sequences, Index tokens,
                        std::uint64_t seed);

/// Sequence 0 has padding on the left, sequence 1 on the right; their targets there are ignored.
void add_padding(TokenBatch& batch);

/// Gives every parameter the tensor of its name, with a prefix.
template <class T>
void load(Decoder<T>& decoder, const TensorFile& file, const std::string& prefix);

/// Parameters of the order of 1 in place of the small initial ones.
template <class T>
void randomize(Decoder<T>& decoder, std::uint64_t seed);

/// All parameters in a row.
template <class T>
std::vector<T> flattened(const Decoder<T>& decoder);

}  // namespace qkv::cases
