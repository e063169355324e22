// Encoders from files.
#pragma once

#include <string>

#include "model/encoder.h"

namespace qkv {

/// The sizes that config.json of a folder gives. Throws FileError where it is missing, malformed, or of another model: another
/// model_type, activation or kind of positions, a decoder, heads that do not divide the width.
EncoderOptions read_encoder_options(const std::string& folder);

/// config.json and model.safetensors under the names of Hugging Face's BertModel, with "bert." in front or without; a pooler and
/// the heads of tasks are left out. Throws FileError that names the file and the tensor that is missing, too much, or of
/// another shape than the configuration says.
template <class T>
Encoder<T> load_encoder(const std::string& folder);

}  // namespace qkv
