// The weights of one head as cells to draw, binned where there are more than fit.
#pragma once

#include <vector>

#include "lab/trace.h"

namespace qkv::lab {

/// What a cell shows of the weights that fall into it.
enum class Binning : std::uint8_t { Max, Mean };

struct HeatCell {
  bool hidden = true;  ///< the mask hides every weight in it
  double weight = 0;   ///< of the visible ones; NaN where one is NaN
};

struct HeatMap {
  Index rows = 0;
  Index columns = 0;
  Index row_bin = 1;     ///< queries a row
  Index column_bin = 1;  ///< keys a column
  std::vector<HeatCell> cells;
  double largest = 0;  ///< of the cells that are numbers

  const HeatCell& at(Index row, Index column) const {
    return cells[static_cast<std::size_t>(row * columns + column)];
  }
};

struct HeatMapOptions {
  Index sample = 0;
  Index head = 0;
  Index most_rows = 40;
  Index most_columns = 40;
  Binning binning = Binning::Max;
};

/// Sample and head must be there.
HeatMap heat_map(const Trace& trace, const HeatMapOptions& options);

/// "0 [CLS]", "11 (pad)", "8–15" for row (or column) `index` of a map whose cells hold `bin`
/// tokens.
std::string query_label(const Trace& trace, Index sample, Index index, Index bin);
std::string key_label(const Trace& trace, Index sample, Index index, Index bin);

}  // namespace qkv::lab
