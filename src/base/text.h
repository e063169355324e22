// What is said to a reader, in two languages.
#pragma once

#include <string>

namespace qkv {

/// The same sentence twice.
struct Text {
  std::string english;
  std::string chinese;
};

}  // namespace qkv
