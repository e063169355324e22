// What the fuzz target of dumps does with an input, and a test with every file of its corpus.
#pragma once

#include <stdexcept>
#include <string_view>

#include "check/dump.h"
#include "io/tensor_file.h"
#include "qkv/error.h"

namespace qkv::testing {

/// True where the input is a dump; false where it is no file of tensors, or is refused as read_dump says that it refuses.
/// Anything else that is thrown is a finding.
inline bool accepts_dump(const FileBytes& input) {
  TensorFile file;
  try {
    file = read_tensors(input, "input");
  } catch (const FileError&) {
    return false;
  }
  try {
    const Dump dump = read_dump(file);
    dump.rules.mask().bind(
        "input", {dump.shape.batch, dump.shape.heads, dump.shape.queries, dump.shape.keys});
    return true;
  } catch (const std::invalid_argument& error) {
    if (!std::string_view(error.what()).starts_with("dump: ")) throw;
    return false;
  }
}

}  // namespace qkv::testing
