// A parameter of a model by its name.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "qkv/tensor.h"

namespace qkv {

/// A parameter or its gradient, by the name that it has in files: "blocks.0.attention.q_proj.weight".
template <class T>
struct NamedParameter {
  std::string name;
  std::vector<Index> shape;
  std::span<T> elements;
};

}  // namespace qkv
