// Where a tensor is wrong: samples, heads, rows and columns in words, and as a picture of characters.
#pragma once

#include <string>
#include <vector>

#include "check/verdict.h"

namespace qkv {

/// Indices along each axis at which something is beyond its bound, ascending.
struct Where {
  std::vector<Index> samples;
  std::vector<Index> heads;
  std::vector<Index> rows;
  std::vector<Index> columns;
  Extents<4> shape{};
  std::string column_name = "column";  ///< "key" of weights and scores
};

/// Elements beyond the bound; where there are none, the parts whose root mean square is.
Where where_of(const TensorVerdict& tensor);

/// "0–3, 7" of indices in ascending order.
std::string ranges(const std::vector<Index>& indices);
/// "sample 1 of 2, every head, rows 5–12 of 13"; axes of extent 1 are left out.
std::string describe(const Where& where);

/// The largest error of a cell.
struct MapCell {
  double units = -1;  ///< negative: nothing was compared
};

/// Heads (a line each) by rows of queries, or columns by rows where the heads are merged.
struct ErrorMap {
  std::vector<std::string> labels;  ///< of the lines
  Index rows_per_cell = 1;
  Index columns_per_line = 0;  ///< of merged heads; 0: a line is a head
  std::vector<std::vector<MapCell>> lines;
  Index left_out = 0;  ///< lines that did not fit
};

/// Of more lines than `most_lines` those with an error beyond its bound.
ErrorMap error_map(const TensorVerdict& tensor, Index most_lines, Index most_cells);

}  // namespace qkv
