// A trace as text for a reader.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lab/heat_map.h"
#include "lab/text_style.h"
#include "lab/trace.h"

namespace qkv::lab {

/// Which part of a trace is shown, in text, JSON and pictures.
struct TraceChoice {
  Index sample = 0;
  std::vector<Index> heads = {};              ///< every head where empty
  std::optional<Index> query = std::nullopt;  ///< the row to work out step by step
  Binning binning = Binning::Max;
};

/// The heads that a choice means. Throws std::invalid_argument where the sample, a head or the
/// query is not there; sample 0 of an empty batch is fine.
std::vector<Index> chosen_heads(const Trace& trace, const TraceChoice& choice);

/// Sections in the order of the lesson: shapes, views, mask, one query, heat maps, recorded values,
/// warnings.
std::string trace_text(const Trace& trace, const TraceChoice& choice, const TextStyle& style);

}  // namespace qkv::lab
