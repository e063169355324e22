#include "check/dump_projections.h"

#include <algorithm>
#include <array>
#include <utility>

#include "module/projection.h"

namespace qkv {
namespace {

/// Rows [begin, end) of a packed weight.
struct Rows {
  Index begin = 0;
  Index end = 0;
};

/// Which rows of a packed weight make q, k and v.
std::array<std::vector<Rows>, 3> packed_rows(const AttentionShape& shape, Packing packing) {
  // By head: each key/value head stands behind the query heads that read it.
  const Index blocks = packing == Packing::ByHead ? shape.kv_heads : 1;
  const std::array<Index, 3> counts = {shape.heads / blocks * shape.key_width,
                                       shape.kv_heads / blocks * shape.key_width,
                                       shape.kv_heads / blocks * shape.value_width};
  std::array<std::vector<Rows>, 3> result;
  Index next = 0;
  for (Index block = 0; block < blocks; ++block) {
    for (std::size_t i = 0; i < counts.size(); ++i) {
      result[i].push_back({next, next + counts[i]});
      next += counts[i];
    }
  }
  return result;
}

/// These rows of a matrix of `columns` columns, one after the other.
std::vector<double> gather(std::span<const double> matrix, Index columns,
                           const std::vector<Rows>& rows) {
  std::vector<double> result;
  for (const auto& [begin, end] : rows) {
    const auto part = matrix.subspan(static_cast<std::size_t>(begin * columns),
                                     static_cast<std::size_t>((end - begin) * columns));
    result.insert(result.end(), part.begin(), part.end());
  }
  return result;
}

template <int Rank>
Tensor<double, Rank> gathered(const Tensor<double, Rank>& matrix, const std::vector<Rows>& rows) {
  Extents<Rank> shape = matrix.shape();
  const Index columns = Rank == 1 ? 1 : shape.back();
  const std::vector<double> elements = gather(matrix.elements(), columns, rows);
  shape[0] = static_cast<Index>(elements.size()) / columns;
  auto result = Tensor<double, Rank>::uninitialized(shape);
  std::copy(elements.begin(), elements.end(), result.data());
  return result;
}

/// [out, in].
Tensor<double, 2> read_weight(const DumpTensors& tensors, const std::string& name,
                              const DumpReading& reading) {
  Tensor<double, 2> stored = tensors.numbers<2>(name);
  if (!reading.weights_in_out) return stored;
  return contiguous_copy(std::as_const(stored).view().transposed(0, 1));
}

void read_packed(const DumpTensors& tensors, const DumpText& text, const DumpReading& reading,
                 DumpProjections& projections) {
  const DumpChoices<Packing> packings = {{"by-input", Packing::ByInput},
                                         {"by-head", Packing::ByHead}};
  projections.packing = text.choice("packing", packings).value_or(Packing::ByInput);
  const auto [query, key, value] = packed_rows(reading.shape, *projections.packing);
  const Tensor<double, 2> weight = read_weight(tensors, "wqkv", reading);
  projections.query_weight = gathered(weight, query);
  projections.key_weight = gathered(weight, key);
  projections.value_weight = gathered(weight, value);
  if (!tensors.has("bqkv")) return;
  const Tensor<double, 1> bias = tensors.numbers<1>("bqkv");
  projections.query_bias = gathered(bias, query);
  projections.key_bias = gathered(bias, key);
  projections.value_bias = gathered(bias, value);
}

Tensor<double, 4> project_heads(const Tensor<double, 3>& input, const Tensor<double, 2>& weight,
                                const std::optional<Tensor<double, 1>>& bias, Index heads) {
  Tensor<double, 3> merged({input.shape(0), input.shape(1), weight.shape(0)});
  project(input.view(), weight, bias, merged);
  return contiguous_copy(split_heads(std::as_const(merged).view(), heads));
}

}  // namespace

std::optional<DumpProjections> read_dump_projections(const DumpTensors& tensors,
                                                     const DumpText& text,
                                                     const DumpReading& reading) {
  if (!tensors.has("x")) return std::nullopt;
  DumpProjections projections;
  projections.stored_in_out = reading.weights_in_out;
  projections.input = tensors.numbers<3>("x");
  projections.cross = tensors.has("x_kv");
  projections.key_input = projections.cross ? tensors.numbers<3>("x_kv") : projections.input;
  if (tensors.has("wqkv")) {
    read_packed(tensors, text, reading, projections);
    return projections;
  }
  projections.query_weight = read_weight(tensors, "wq", reading);
  projections.key_weight = read_weight(tensors, "wk", reading);
  projections.value_weight = read_weight(tensors, "wv", reading);
  projections.query_bias = tensors.optional_numbers<1>("bq");
  projections.key_bias = tensors.optional_numbers<1>("bk");
  projections.value_bias = tensors.optional_numbers<1>("bv");
  return projections;
}

std::optional<DumpOutputProjection> read_dump_output_projection(const DumpTensors& tensors,
                                                                const DumpReading& reading) {
  if (!tensors.has("wo")) return std::nullopt;
  return DumpOutputProjection{read_weight(tensors, "wo", reading),
                              tensors.optional_numbers<1>("bo")};
}

void project_dump(const DumpProjections& projections, Dump& dump) {
  const AttentionShape& shape = dump.shape;
  dump.query = project_heads(projections.input, projections.query_weight, projections.query_bias,
                             shape.heads);
  dump.key = project_heads(projections.key_input, projections.key_weight, projections.key_bias,
                           shape.kv_heads);
  dump.value = project_heads(projections.key_input, projections.value_weight,
                             projections.value_bias, shape.kv_heads);
}

}  // namespace qkv
