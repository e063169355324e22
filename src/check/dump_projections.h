// The projections of a dump: weights as [out, in] and apart, and what they make of x.
#pragma once

#include <optional>

#include "check/dump.h"
#include "check/dump_tensors.h"
#include "check/dump_text.h"

namespace qkv {

/// Nothing where the file has no x.
std::optional<DumpProjections> read_dump_projections(const DumpTensors& tensors,
                                                     const DumpText& text,
                                                     const DumpReading& reading);

/// Nothing where the file has no wo.
std::optional<DumpOutputProjection> read_dump_output_projection(const DumpTensors& tensors,
                                                                const DumpReading& reading);

/// Query, key and value as the projections give them.
void project_dump(const DumpProjections& projections, Dump& dump);

}  // namespace qkv
