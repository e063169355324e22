#include "check/dump_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "check/dump_names.h"
#include "module/head_copy.h"

namespace qkv {
namespace {

/// The same bytes in another shape of as many elements; valid as long as the file is.
StoredTensor reshaped(const StoredTensor& tensor, std::vector<Index> shape) {
  return {tensor.dtype(), std::move(shape), tensor.bytes(), nullptr};
}

/// With leading axes of extent 1.
StoredTensor with_axes(const StoredTensor& tensor, std::size_t axes) {
  std::vector<Index> shape(axes - tensor.shape().size(), 1);
  shape.insert(shape.end(), tensor.shape().begin(), tensor.shape().end());
  return reshaped(tensor, std::move(shape));
}

template <int Rank>
Tensor<double, Rank> to_numbers(const StoredTensor& tensor, const std::string& name) {
  if (!is_floating(tensor.dtype())) {
    fail_dump(name,
              fmt::format("expected a floating-point dtype, got {}", name_of(tensor.dtype())));
  }
  return tensor.to<double, Rank>(name);
}

template <int Rank>
Tensor<Index, Rank> to_integers(const StoredTensor& tensor, const std::string& name,
                                std::string_view expected) {
  if (is_floating(tensor.dtype())) {
    fail_dump(name, fmt::format("expected {}, got {}", expected, name_of(tensor.dtype())));
  }
  try {
    return tensor.to<Index, Rank>(name);
  } catch (const std::invalid_argument&) {
    fail_dump(name, "expected integers below 2^63, got a larger one");
  }
}

template <int Rank>
Tensor<bool, Rank> to_flags(const StoredTensor& tensor, const std::string& name) {
  if (tensor.dtype() == DType::Bool) return tensor.to<bool, Rank>(name);
  const auto integers = to_integers<Rank>(
      tensor, name, "bool or integers 0 and 1 (a mask that is added is called bias)");
  auto flags = Tensor<bool, Rank>::uninitialized(integers.shape());
  for (std::size_t i = 0; i < integers.elements().size(); ++i) {
    const Index value = integers.elements()[i];
    if (value != 0 && value != 1) {
      fail_dump(name, fmt::format("expected 0 or 1, got {} at element {}", value, i));
    }
    flags.elements()[i] = value == 1;
  }
  return flags;
}

}  // namespace

Tensor<double, 4> DumpTensors::heads(const std::string& name, HeadLayout layout,
                                     Index heads) const {
  const StoredTensor& tensor = file_.at(name);
  std::vector<Index> shape = tensor.shape();
  if (is_merged(layout)) {
    shape.back() /= heads;
    shape.insert(shape.end() - 1, heads);
  }
  Tensor<double, 4> stored = to_numbers<4>(reshaped(tensor, shape), name);
  if (layout == HeadLayout::BHTD) return stored;
  auto view = std::as_const(stored).view();
  if (layout == HeadLayout::TBHD || layout == HeadLayout::TBD) view = view.transposed(0, 1);
  view = view.transposed(1, 2);
  auto result = Tensor<double, 4>::uninitialized(view.shape());
  copy_heads(view, result.view());
  return result;
}

Tensor<double, 3> DumpTensors::tokens(const std::string& name, HeadLayout layout) const {
  Tensor<double, 3> stored = numbers<3>(name);
  if (layout != HeadLayout::TBD) return stored;
  return contiguous_copy(std::as_const(stored).view().transposed(0, 1));
}

template <int Rank>
Tensor<double, Rank> DumpTensors::numbers(const std::string& name) const {
  return to_numbers<Rank>(file_.at(name), name);
}

template Tensor<double, 1> DumpTensors::numbers<1>(const std::string& name) const;
template Tensor<double, 2> DumpTensors::numbers<2>(const std::string& name) const;
template Tensor<double, 3> DumpTensors::numbers<3>(const std::string& name) const;
template Tensor<double, 4> DumpTensors::numbers<4>(const std::string& name) const;

Tensor<double, 4> DumpTensors::broadcast_numbers(const std::string& name) const {
  return to_numbers<4>(with_axes(file_.at(name), 4), name);
}

std::vector<Index> DumpTensors::integers(const std::string& name) const {
  const auto row = to_integers<1>(file_.at(name), name, "integers");
  return {row.elements().begin(), row.elements().end()};
}

Tensor<Index, 2> DumpTensors::integer_rows(const std::string& name) const {
  return to_integers<2>(with_axes(file_.at(name), 2), name, "integers");
}

Tensor<Index, 2> DumpTensors::integer_rows(const std::string& name, Index rows) const {
  Tensor<Index, 2> stored = integer_rows(name);
  if (stored.shape(0) == rows) return stored;
  Tensor<Index, 2> result({rows, stored.shape(1)});
  for (Index row = 0; row < rows; ++row) {
    std::copy(stored.elements().begin(), stored.elements().end(), &result(row, 0));
  }
  return result;
}

Tensor<bool, 2> DumpTensors::flags(const std::string& name) const {
  return to_flags<2>(file_.at(name), name);
}

Tensor<bool, 4> DumpTensors::broadcast_flags(const std::string& name) const {
  return to_flags<4>(with_axes(file_.at(name), 4), name);
}

}  // namespace qkv
