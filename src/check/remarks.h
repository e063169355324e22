// "Not a bug": what looks odd in a dump and is right, as far as the dump itself shows it.
#pragma once

#include <string>
#include <vector>

#include "check/variant_rows.h"

namespace qkv {

struct RemarkOptions {
  std::vector<std::string> named;  ///< classes that were found: what they are about is left to them
  bool rows_are_right = true;      ///< those that are read
};

std::vector<std::string> remarks_of(const Evaluator& evaluator, const RemarkOptions& options);

}  // namespace qkv
