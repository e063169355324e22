// Dumps made by hand: every element says where it stands.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "qkv/io.h"

namespace qkv::testing {

/// The element that stands at these places, whatever the order of axes in the file: no two are alike.
inline double element_at(Index b, Index h, Index t, Index d) {
  return static_cast<double>(((b * 10 + h) * 10 + t) * 10 + d) / 8;
}

struct HeadSizes {
  Index batch = 2;
  Index heads = 4;
  Index tokens = 3;
  Index width = 6;
};

/// A tensor in which element_at tells the place, its axes in the order of the letters of `layout`.
inline StoredTensor heads_in(const std::string& layout, const HeadSizes& sizes) {
  const bool merged = layout.size() == 3;
  const std::string order = layout == "BTD" ? "BTHD" : layout == "TBD" ? "TBHD" : layout;
  const std::map<char, Index> extents = {
      {'B', sizes.batch}, {'H', sizes.heads}, {'T', sizes.tokens}, {'D', sizes.width}};
  Extents<4> shape{};
  for (std::size_t i = 0; i < 4; ++i) shape[i] = extents.at(order[i]);
  Tensor<double, 4> tensor(shape);
  std::map<char, Index> at;
  double* next = tensor.data();
  for (at[order[0]] = 0; at[order[0]] < shape[0]; ++at[order[0]]) {
    for (at[order[1]] = 0; at[order[1]] < shape[1]; ++at[order[1]]) {
      for (at[order[2]] = 0; at[order[2]] < shape[2]; ++at[order[2]]) {
        for (at[order[3]] = 0; at[order[3]] < shape[3]; ++at[order[3]]) {
          *next++ = element_at(at['B'], at['H'], at['T'], at['D']);
        }
      }
    }
  }
  if (!merged) return store(tensor.view());
  return store(view_as<3>(tensor.view(), {shape[0], shape[1], shape[2] * shape[3]}));
}

template <class T, int Rank>
StoredTensor stored(const Extents<Rank>& shape, const std::vector<T>& values) {
  Tensor<T, Rank> tensor(shape);
  std::copy(values.begin(), values.end(), tensor.data());
  return store(tensor.view());
}

/// The same number everywhere.
template <int Rank>
StoredTensor constant(const Extents<Rank>& shape, double value = 0.5) {
  Tensor<double, Rank> tensor(shape);
  std::fill(tensor.elements().begin(), tensor.elements().end(), value);
  return store(tensor.view());
}

/// B=2, H=4 on Hkv=2, T=3, S=5, Dk=6, Dv=7: no two sizes alike that could be exchanged unseen.
inline TensorFile dump_of_heads(const std::string& layout = "BHTD",
                                const std::string& out_layout = "BHTD") {
  TensorFile file;
  file.tensors["q"] = heads_in(layout, {2, 4, 3, 6});
  file.tensors["k"] = heads_in(layout, {2, 2, 5, 6});
  file.tensors["v"] = heads_in(layout, {2, 2, 5, 7});
  file.tensors["out"] = heads_in(out_layout, {2, 4, 3, 7});
  return file;
}

/// B=2, H=4 on Hkv=2, T=S=3, Dk=6, Dv=7, D=9.
inline TensorFile dump_of_projections() {
  TensorFile file;
  file.metadata["heads"] = "4";
  file.tensors["x"] = heads_in("BTD", {2, 1, 3, 9});
  file.tensors["wq"] = heads_in("BTD", {1, 1, 24, 9});
  file.tensors["wk"] = heads_in("BTD", {1, 1, 12, 9});
  file.tensors["wv"] = heads_in("BTD", {1, 1, 14, 9});
  for (const char* name : {"wq", "wk", "wv"}) {
    const auto weight = file.tensors[name].to<double, 3>(name);
    file.tensors[name] = store(view_as<2>(weight.view(), {weight.shape(1), weight.shape(2)}));
  }
  file.tensors["out"] = heads_in("BTD", {2, 4, 3, 7});
  return file;
}

}  // namespace qkv::testing
