// Results of align made by hand.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <string>

#include "qkv/io.h"
#include "qkv/tensor.h"

namespace qkv {

/// A tensor of one axis.
inline StoredTensor row_of(std::initializer_list<double> elements) {
  Tensor<double, 1> tensor({static_cast<Index>(elements.size())});
  std::copy(elements.begin(), elements.end(), tensor.data());
  return store(tensor.view());
}

/// A copy of the file with one element of a tensor of rank 2 moved by `by`.
template <class T>
TensorFile with_changed_element(TensorFile file, const std::string& name, T by) {
  auto tensor = file.at(name).to<T, 2>(name);
  tensor.elements().front() += by;
  file.tensors[name] = store(tensor.view());
  return file;
}

}  // namespace qkv
