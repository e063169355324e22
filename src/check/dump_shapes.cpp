#include "check/dump_shapes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "check/dump_names.h"

namespace qkv {
namespace {

using enum DumpSize;

void check_all_or_none(const TensorFile& file, const std::vector<std::string>& names) {
  const auto is_there = [&](const std::string& name) { return file.contains(name); };
  const auto present = std::find_if(names.begin(), names.end(), is_there);
  if (present == names.end()) return;
  for (const std::string& name : names) {
    if (!is_there(name)) {
      fail_dump(name, fmt::format("expected all of {} or none, got {} without it",
                                  fmt::join(names, ", "), *present));
    }
  }
}

void check_needs(const TensorFile& file, const std::string& name, const std::string& needed) {
  if (file.contains(name) && !file.contains(needed)) {
    fail_dump(name, fmt::format("expected {} beside it, got none", needed));
  }
}

/// The axes of a tensor of heads.
std::vector<DumpAxis> heads_axes(HeadLayout layout, DumpSize heads, DumpSize tokens,
                                 DumpSize width) {
  switch (layout) {
    case HeadLayout::BHTD:
      return {{B}, {heads}, {tokens}, {width}};
    case HeadLayout::BTHD:
      return {{B}, {tokens}, {heads}, {width}};
    case HeadLayout::TBHD:
      return {{tokens}, {B}, {heads}, {width}};
    case HeadLayout::BTD:
      return {{B}, {tokens}, {heads, width}};
    case HeadLayout::TBD:
      return {{tokens}, {B}, {heads, width}};
  }
  return {};
}

std::vector<DumpAxis> out_axes(const DumpReading& reading) {
  if (reading.stage != OutStage::Projected) {
    return heads_axes(reading.out_layout, H, T, Dv);
  }
  if (reading.out_layout == HeadLayout::TBD) return {{T}, {B}, {D}};
  return {{B}, {T}, {D}};
}

}  // namespace

void check_dump_has_tensors(const TensorFile& file) {
  if (!file.contains("out")) {
    fail_dump("out", "expected the output of the attention, got none");
  }
  check_all_or_none(file, {"q", "k", "v"});
  if (file.contains("wqkv")) {
    for (const std::string name : {"wq", "wk", "wv", "bq", "bk", "bv"}) {
      if (file.contains(name)) fail_dump(name, "expected none beside wqkv, got both");
    }
    check_all_or_none(file, {"x", "wqkv"});
  } else {
    check_all_or_none(file, {"x", "wq", "wk", "wv"});
  }
  if (!file.contains("q") && !file.contains("x")) {
    fail_dump("q", "expected q, k and v, or x with wq, wk and wv (or wqkv); got neither");
  }
  check_needs(file, "x_kv", "x");
  check_needs(file, "bqkv", "wqkv");
  check_needs(file, "bq", "wq");
  check_needs(file, "bk", "wk");
  check_needs(file, "bv", "wv");
  check_needs(file, "bo", "wo");
  check_needs(file, "key_documents", "query_documents");
  check_all_or_none(file, {"dout", "dq", "dk", "dv"});
}

std::vector<SizedTensor> shapes_of_dump(const TensorFile& file, const DumpReading& reading) {
  std::vector<SizedTensor> result;
  const auto add = [&](const std::string& name, std::vector<DumpAxis> axes,
                       bool broadcasts = false) {
    if (!file.contains(name)) return;
    result.push_back({name, file.at(name).shape(), std::move(axes), broadcasts});
  };
  const auto add_weight = [&](const std::string& name, DumpAxis out, DumpAxis in) {
    if (reading.weights_in_out) std::swap(out, in);
    add(name, {std::move(out), std::move(in)});
  };

  for (const std::string prefix : {"", "d"}) {
    add(prefix + "q", heads_axes(reading.layout, H, T, Dk));
    add(prefix + "k", heads_axes(reading.layout, Hkv, S, Dk));
    add(prefix + "v", heads_axes(reading.layout, Hkv, S, Dv));
  }
  add("x", {{B}, {T}, {D}});
  add(file.contains("x_kv") ? "x_kv" : "x", {{B}, {S}, {D}});
  add_weight("wq", {H, Dk}, {D});
  add_weight("wk", {Hkv, Dk}, {D});
  add_weight("wv", {Hkv, Dv}, {D});
  add_weight("wqkv", {Packed}, {D});
  add_weight("wo", {D}, {H, Dv});
  add("bq", {{H, Dk}});
  add("bk", {{Hkv, Dk}});
  add("bv", {{Hkv, Dv}});
  add("bqkv", {{Packed}});
  add("bo", {{D}});
  for (const std::string name : {"out", "out2", "dout"}) add(name, out_axes(reading));

  add("lengths", {{B}});
  add("prefix", {{B}});
  add("key_padding", {{B}, {S}});
  add("read_rows", {{B}, {T}});
  add("query_documents", {{B}, {T}});
  add("key_documents", {{B}, {S}});
  add("alibi_slopes", {{H}});
  add("sink", {{H}});
  add("q_norm", {{Dk}});
  add("k_norm", {{Dk}});
  add("weights", {{B}, {H}, {T}, {S}});
  add("scores", {{B}, {H}, {T}, {S}});
  add("lse", {{B}, {H}, {T}});
  add("mask", {{B}, {H}, {T}, {S}}, true);
  add("bias", {{B}, {H}, {T}, {S}}, true);
  add("query_positions", {{B}, {T}}, true);
  add("key_positions", {{B}, {S}}, true);
  return result;
}

}  // namespace qkv
