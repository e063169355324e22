// q, k and v out of x, as a Variant projects them.
#pragma once

#include <vector>

#include "check/dump.h"
#include "check/variant.h"

namespace qkv {

/// Sizes of q, k or v.
struct HeadSizes {
  Index heads = 0;
  Index tokens = 0;
  Index width = 0;
};
HeadSizes sizes_of(const AttentionShape& shape, std::size_t tensor);

double activate(Activation activation, double x);

/// Whether this tensor comes out of another projection than the intended one.
bool reprojected(const ProjectionVariant& variant, std::size_t tensor);

/// One of the three weights and a row of it.
struct WeightRow {
  std::size_t weight = 0;
  Index row = 0;
};

/// Column `column` of x·Wᵀ + b, as the variant projects.
class Projector {
 public:
  Projector(const Dump& dump, const ProjectionVariant& variant, std::size_t tensor);
  double operator()(Index b, Index token, Index column) const;

 private:
  const Dump& dump_;
  const ProjectionVariant& variant_;
  std::size_t tensor_;
  std::vector<WeightRow> packed_;
};

}  // namespace qkv
