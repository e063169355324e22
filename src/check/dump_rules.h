// The part of a dump that says what is meant: rules of visibility, rotary positions, norms.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "check/dump.h"
#include "check/dump_tensors.h"
#include "check/dump_text.h"

namespace qkv {

/// Each reads its own tensors and keys, for sizes that fit already, and appends to `inferred` what it took for granted.
DumpRules read_dump_rules(const DumpTensors& tensors, const DumpText& text,
                          const AttentionShape& shape, std::vector<std::string>& inferred);
std::optional<DumpRotary> read_dump_rotary(const DumpTensors& tensors, const DumpText& text,
                                           const AttentionShape& shape,
                                           std::vector<std::string>& inferred);
std::optional<DumpQkNorm> read_dump_qk_norm(const DumpTensors& tensors, const DumpText& text,
                                            std::vector<std::string>& inferred);

}  // namespace qkv
