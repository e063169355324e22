// What `padding` measured, as tables.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lab/experiment_padding_measure.h"

namespace qkv::lab {

/// "on the head axis, [B,T,1,1]"
Text form_name(PaddingForm form);
/// "…, −1e9"
Text with_fill(const Text& name, double fill);

/// What became of a mask of T flags on scores of H heads.
struct BroadcastRow {
  BatchSizes sizes;
  PaddingForm form = PaddingForm::Key;
  std::optional<Extents<4>> weights;  ///< absent: an error
  std::optional<Extents<4>> context;
  std::string error;
  bool library_takes_it = false;
};

struct OutcomeRow {
  PaddingForm form = PaddingForm::Key;
  double fill = 0;
  PaddingOutcome outcome;
};

/// Errors of valid rows by the side of the padding, with and without the causal rule.
struct SideRow {
  bool causal = false;
  bool left = false;
  double missing = 0;  ///< error without any padding mask
  double head = 0;     ///< on the head axis
  double query = 0;    ///< on the query axis
};

Table broadcast_table(const std::vector<BroadcastRow>& rows);
Table cell_table(const PaddedBatch& batch);
Table outcome_table(const std::vector<OutcomeRow>& rows);
Table side_table(const std::vector<SideRow>& rows);

}  // namespace qkv::lab
