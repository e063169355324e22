// What the fuzz targets do with an input, and the tests with every file of the corpus.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "io/file_map.h"
#include "qkv/error.h"
#include "qkv/io.h"

namespace qkv::testing {

/// Reads every byte of the tensor, and its elements as numbers where it has a rank that `to` takes.
inline double sum_of(const StoredTensor& tensor) {
  double sum = 0;
  for (const std::byte byte : tensor.bytes()) sum += std::to_integer<int>(byte);
  const auto add_elements = [&](const auto& elements) {
    for (const double element : elements.elements()) sum += element;
  };
  switch (tensor.shape().size()) {
    case 0:
      add_elements(tensor.to<double, 0>("input"));
      break;
    case 1:
      add_elements(tensor.to<double, 1>("input"));
      break;
    case 2:
      add_elements(tensor.to<double, 2>("input"));
      break;
    case 3:
      add_elements(tensor.to<double, 3>("input"));
      break;
    case 4:
      add_elements(tensor.to<double, 4>("input"));
      break;
    case 5:
      add_elements(tensor.to<double, 5>("input"));
      break;
    default:
      break;
  }
  return sum;
}

/// True where `read` takes the input, false where it refuses with a FileError that names the path.
/// Anything else that is thrown is a finding.
template <class Read>
bool accepts(Read read, const FileBytes& input) {
  const std::string path = "input";
  try {
    volatile double sum = 0;
    for (const auto& [name, tensor] : read(input, path).tensors) sum = sum + sum_of(tensor);
    return true;
  } catch (const FileError& error) {
    if (!error.path().starts_with(path)) throw;
    return false;
  }
}

}  // namespace qkv::testing
