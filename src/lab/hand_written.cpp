#include "lab/hand_written.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <vector>

#include "base/broadcast.h"

namespace qkv::lab {
namespace {

struct Row {
  Index b = 0;
  Index h = 0;
  Index t = 0;
};

class Rows {
 public:
  explicit Rows(const HandWritten& call)
      : call_(call),
        scale_(call.scale.value_or(1 / std::sqrt(static_cast<double>(call.query.shape(3))))) {}

  bool hides(const Row& row, Index s) const {
    return call_.hides && broadcast_at(*call_.hides, row.b, row.h, row.t, s);
  }

  std::vector<double> scores(const Row& row) const {
    std::vector<double> result;
    const Index keys = call_.key.shape(2);
    for (Index s = 0; s < keys; ++s) {
      double dot = 0;
      for (Index d = 0; d < call_.query.shape(3); ++d) {
        dot += broadcast_at(call_.query, row.b, row.h, row.t, d) *
               broadcast_at(call_.key, row.b, row.h, s, d);
      }
      double score = rounded(rounded(dot) * scale_);
      if (hides(row, s)) score = masked(score);
      if (call_.also_hides && broadcast_at(*call_.also_hides, row.b, row.h, row.t, s)) {
        score = masked(score);
      }
      result.push_back(score);
    }
    return result;
  }

  void softmax(std::vector<double>& row) const {
    const double largest = *std::max_element(row.begin(), row.end());
    double sum = 0;
    for (double& entry : row) {
      entry = rounded(std::exp(rounded(entry - largest)));
      sum = rounded(sum + entry);
    }
    for (double& entry : row) entry = rounded(entry / sum);
  }

  void mask_weights(const Row& row, std::vector<double>& weights) const {
    double sum = 0;
    for (std::size_t s = 0; s < weights.size(); ++s) {
      if (hides(row, static_cast<Index>(s))) weights[s] = 0;
      sum = rounded(sum + weights[s]);
    }
    if (call_.masked_by != MaskedBy::Renormalizing) return;
    for (double& weight : weights) weight = rounded(weight / sum);
  }

  double context(const Row& row, const std::vector<double>& weights, Index d) const {
    double sum = 0;
    for (std::size_t s = 0; s < weights.size(); ++s) {
      sum += weights[s] * broadcast_at(call_.value, row.b, row.h, static_cast<Index>(s), d);
    }
    return rounded(sum);
  }

 private:
  double rounded(double value) const { return lab::rounded(call_.dtype, value); }

  double masked(double score) const {
    const double fill = rounded(call_.fill);
    if (call_.masked_by == MaskedBy::Filling) return fill;
    return call_.masked_by == MaskedBy::Adding ? rounded(score + fill) : score;
  }

  const HandWritten& call_;
  double scale_;
};

Extents<4> grown_shape(const HandWritten& call) {
  const Extents<4> scores = {call.query.shape(0), call.query.shape(1), call.query.shape(2),
                             call.key.shape(2)};
  if (!call.hides) return scores;
  const auto shape = broadcast_shape(scores, call.hides->shape());
  if (shape) return *shape;
  throw std::invalid_argument(
      fmt::format("attention: mask: expected a shape that broadcasts with the scores {}, got {}",
                  to_string(scores), to_string(call.hides->shape())));
}

}  // namespace

HandWrittenResults attend_by_hand(const HandWritten& call) {
  const Rows rows(call);
  const Extents<4> shape = grown_shape(call);
  const Index width = call.value.shape(3);
  HandWrittenResults results{Tensor<double, 4>(shape),
                             Tensor<double, 4>({shape[0], shape[1], shape[2], width})};
  const bool late =
      call.masked_by == MaskedBy::Multiplying || call.masked_by == MaskedBy::Renormalizing;
  for (Index b = 0; b < shape[0]; ++b) {
    for (Index h = 0; h < shape[1]; ++h) {
      for (Index t = 0; t < shape[2]; ++t) {
        const Row row{b, h, t};
        std::vector<double> weights = rows.scores(row);
        rows.softmax(weights);
        if (late) rows.mask_weights(row, weights);
        std::copy(weights.begin(), weights.end(), &results.weights(b, h, t, 0));
        for (Index d = 0; d < width; ++d) {
          results.context(b, h, t, d) = rows.context(row, weights, d);
        }
      }
    }
  }
  return results;
}

std::optional<Extents<4>> broadcast_shape(const Extents<4>& a, const Extents<4>& b) {
  Extents<4> shape{};
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    if (a[axis] != b[axis] && a[axis] != 1 && b[axis] != 1) return std::nullopt;
    shape[axis] = std::max(a[axis], b[axis]);
  }
  return shape;
}

double rounded(DType dtype, double value) {
  switch (dtype) {
    case DType::Float32:
      return static_cast<double>(static_cast<float>(value));
    case DType::Float16:
      return static_cast<double>(Float16(value));
    case DType::BFloat16:
      return static_cast<double>(BFloat16(value));
    default:
      return value;
  }
}

double lowest(DType dtype) {
  switch (dtype) {
    case DType::Float32:
      return static_cast<double>(std::numeric_limits<float>::lowest());
    case DType::Float16:
      return -65504;
    case DType::BFloat16:
      return static_cast<double>(BFloat16::from_bits(0xFF7F));
    default:
      return std::numeric_limits<double>::lowest();
  }
}

}  // namespace qkv::lab
