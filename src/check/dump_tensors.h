// Tensors of a dump whose shapes fit already, as numbers in the order that struct Dump has.
#pragma once

#include <string>
#include <vector>

#include "check/dump_reading.h"
#include "qkv/io.h"
#include "qkv/tensor.h"

namespace qkv {

class DumpTensors {
 public:
  explicit DumpTensors(const TensorFile& file) : file_(file) {}

  bool has(const std::string& name) const { return file_.contains(name); }

  /// [B,heads,tokens,width] of a tensor in this layout.
  Tensor<double, 4> heads(const std::string& name, HeadLayout layout, Index heads) const;
  /// [B,T,D] of a projected output.
  Tensor<double, 3> tokens(const std::string& name, HeadLayout layout) const;

  /// The element type is checked: floating point for these, integers or bool for those below.
  template <int Rank>
  Tensor<double, Rank> numbers(const std::string& name) const;
  template <int Rank>
  std::optional<Tensor<double, Rank>> optional_numbers(const std::string& name) const {
    if (!has(name)) return std::nullopt;
    return numbers<Rank>(name);
  }
  /// Leading axes that the file leaves out have extent 1.
  Tensor<double, 4> broadcast_numbers(const std::string& name) const;

  std::vector<Index> integers(const std::string& name) const;
  Tensor<Index, 2> integer_rows(const std::string& name) const;
  /// [rows, its length] of a tensor with one row, for all of them, or as many.
  Tensor<Index, 2> integer_rows(const std::string& name, Index rows) const;
  Tensor<bool, 2> flags(const std::string& name) const;
  Tensor<bool, 4> broadcast_flags(const std::string& name) const;

 private:
  const TensorFile& file_;
};

}  // namespace qkv
