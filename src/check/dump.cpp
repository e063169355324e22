#include "check/dump.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "check/dump_finite.h"
#include "check/dump_names.h"
#include "check/dump_projections.h"
#include "check/dump_reading.h"
#include "check/dump_rules.h"
#include "check/dump_tensors.h"
#include "check/dump_text.h"

namespace qkv {
namespace {

/// A mask or bias of two or three axes is [T,S] or [H,T,S]; where B happens to be the first extent too, another reading
/// would fit as well.
void check_axes(const TensorFile& file, const std::string& name, const AttentionShape& shape) {
  if (!file.contains(name)) return;
  const std::vector<Index>& got = file.at(name).shape();
  const bool is_open = (got.size() == 2 && got[0] == shape.batch && got[0] == shape.queries) ||
                       (got.size() == 3 && got[0] == shape.batch && got[0] == shape.heads);
  if (!is_open || got[0] == 1) return;
  const bool is_matrix = got.size() == 2;
  fail_dump(name,
            fmt::format("{} fits {} and {}: say which with four axes", to_string(got),
                        is_matrix ? "[T, S]" : "[H, T, S]", is_matrix ? "[B, S]" : "[B, T, S]"));
}

/// Small x and weights can claim large heads: what they make must bear some proportion to the file.
void check_projected_size(const TensorFile& file, const AttentionShape& shape) {
  constexpr double kMostPerElement = 64;
  double in_file = 0;
  for (const auto& [name, tensor] : file.tensors) {
    const std::size_t elements = tensor.bytes().size() / size_of(tensor.dtype());
    in_file += static_cast<double>(elements);
  }
  const auto size = [](Index extent) { return static_cast<double>(extent); };
  const double projected =
      size(shape.batch) *
      (size(shape.queries) * size(shape.heads) * size(shape.key_width) +
       size(shape.keys) * size(shape.kv_heads) * size(shape.key_width + shape.value_width));
  if (projected > kMostPerElement * in_file) {
    fail_dump("x", fmt::format("expected projections to at most {} elements for each of the file's "
                               "{:.0f}, got {:.0f}",
                               kMostPerElement, in_file, projected));
  }
}

void read_inputs(const DumpTensors& tensors, const DumpText& text, const DumpReading& reading,
                 Dump& dump) {
  const AttentionShape& shape = reading.shape;
  dump.has_heads = tensors.has("q");
  dump.projections = read_dump_projections(tensors, text, reading);
  dump.output_projection = read_dump_output_projection(tensors, reading);
  if (!dump.has_heads) {
    project_dump(*dump.projections, dump);
    return;
  }
  dump.query = tensors.heads("q", reading.layout, shape.heads);
  dump.key = tensors.heads("k", reading.layout, shape.kv_heads);
  dump.value = tensors.heads("v", reading.layout, shape.kv_heads);
}

void read_intentions(const DumpTensors& tensors, const DumpText& text, Dump& dump) {
  const DumpChoices<EmptyRow> empty_rows = {{"zero", EmptyRow::Zero},
                                            {"mean", EmptyRow::Mean},
                                            {"nan", EmptyRow::NaN},
                                            {"any", EmptyRow::Any}};
  dump.rules = read_dump_rules(tensors, text, dump.shape, dump.inferred);
  dump.empty_row = text.choice("empty_row", empty_rows).value_or(EmptyRow::Zero);
  dump.softcap = text.positive_number("softcap");
  if (const auto scale = text.positive_number("scale")) {
    dump.scale = *scale;
  } else {
    dump.scale = 1 / std::sqrt(static_cast<double>(dump.shape.key_width));
    dump.inferred.push_back(fmt::format("scale: 1/√Dk = {:.6g}", dump.scale));
  }
  if (tensors.has("bias")) dump.bias = tensors.broadcast_numbers("bias");
  if (tensors.has("alibi_slopes")) {
    const auto slopes = tensors.numbers<1>("alibi_slopes");
    dump.alibi_slopes.emplace(slopes.elements().begin(), slopes.elements().end());
  }
  dump.sink = tensors.optional_numbers<1>("sink");
  dump.rotary = read_dump_rotary(tensors, text, dump.shape, dump.inferred);
  dump.qk_norm = read_dump_qk_norm(tensors, text, dump.inferred);
  if (tensors.has("read_rows")) dump.read_rows = tensors.flags("read_rows");
}

void read_results(const DumpTensors& tensors, const DumpText& text, const DumpReading& reading,
                  Dump& dump) {
  const AttentionShape& shape = reading.shape;
  dump.stage = reading.stage;
  const bool is_projected = reading.stage == OutStage::Projected;
  const auto read = [&](const std::string& name, std::optional<Tensor<double, 4>>& context,
                        std::optional<Tensor<double, 3>>& output) {
    if (!tensors.has(name)) return;
    if (is_projected) {
      output = tensors.tokens(name, reading.out_layout);
    } else {
      context = tensors.heads(name, reading.out_layout, shape.heads);
    }
  };
  read("out", dump.context, dump.output);
  read("out2", dump.second_context, dump.second_output);
  dump.weights = tensors.optional_numbers<4>("weights");
  dump.scores = tensors.optional_numbers<4>("scores");
  dump.log_sum_exp = tensors.optional_numbers<3>("lse");
  const DumpChoices<bool> bases = {{"e", false}, {"2", true}};
  dump.log_sum_exp_base2 = text.choice("lse_base", bases).value_or(false);

  if (!tensors.has("dout")) return;
  if (is_projected) {
    fail_dump("dout", "expected gradients of an out per head or merged only, got a projected out");
  }
  dump.context_gradient = tensors.heads("dout", reading.out_layout, shape.heads);
  dump.query_gradient = tensors.heads("dq", reading.layout, shape.heads);
  dump.key_gradient = tensors.heads("dk", reading.layout, shape.kv_heads);
  dump.value_gradient = tensors.heads("dv", reading.layout, shape.kv_heads);
}

DType read_dtype(const TensorFile& file, const DumpText& text, std::vector<std::string>& inferred) {
  DumpChoices<DType> dtypes;
  for (const DType dtype : {DType::Float64, DType::Float32, DType::Float16, DType::BFloat16}) {
    dtypes.emplace_back(name_of(dtype), dtype);
  }
  if (const auto dtype = text.choice("dtype", dtypes)) return *dtype;
  const DType stored = file.at("out").dtype();
  inferred.push_back(fmt::format("dtype: {}, that of out", name_of(stored)));
  return stored;
}

}  // namespace

Dump read_dump(const TensorFile& file) {
  check_dump_tensor_names(file);
  const DumpText text(file);
  Dump dump;
  const DumpReading reading = choose_reading(file, text, dump.inferred);
  dump.shape = reading.shape;
  dump.source = text.text("source").value_or("");
  check_axes(file, "mask", dump.shape);
  check_axes(file, "bias", dump.shape);
  dump.ran_in = read_dtype(file, text, dump.inferred);
  if (!file.contains("q")) check_projected_size(file, dump.shape);
  const DumpTensors tensors(file);
  read_inputs(tensors, text, reading, dump);
  read_intentions(tensors, text, dump);
  read_results(tensors, text, reading, dump);
  check_dump_is_finite(dump);
  return dump;
}

}  // namespace qkv
