// What `scale` measured, as tables and charts.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "lab/experiment_parts.h"

namespace qkv::lab {

inline constexpr Index kScaleTokens = 64;  ///< T = S of the rows below

/// One width, with and without the scale, over the seeds.
struct WidthRow {
  Index width = 0;
  Measured unscaled;
  Measured scaled;
};

struct DepartureRow {
  Text name;
  Index width = 0;
  double expected = 0;  ///< by the general formula, divided by Dk
  Measured scaled;
};

struct SaturationRow {
  Index width = 0;
  /// Of SoftmaxState: its numbers by name, unscaled and scaled.
  std::map<std::string, Measured> unscaled;
  std::map<std::string, Measured> scaled;
};

Table variance_table(const std::vector<WidthRow>& rows);
Table departure_table(const std::vector<DepartureRow>& rows);
Table saturation_table(const std::vector<SaturationRow>& rows);
std::vector<Chart> scale_charts(const std::vector<WidthRow>& rows,
                                const std::vector<DepartureRow>& departures,
                                const std::vector<SaturationRow>& saturated);

}  // namespace qkv::lab
