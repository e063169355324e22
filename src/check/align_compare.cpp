#include "check/align_compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

namespace qkv {
namespace {

std::vector<double> elements_of(const TensorFile& file, const std::string& name) {
  const StoredTensor& stored = file.at(name);
  const auto flat = [&](auto rank) {
    const auto tensor = stored.to<double, rank()>(name);
    return std::vector<double>(tensor.elements().begin(), tensor.elements().end());
  };
  switch (stored.shape().size()) {
    case 1:
      return flat(std::integral_constant<int, 1>{});
    case 2:
      return flat(std::integral_constant<int, 2>{});
    case 3:
      return flat(std::integral_constant<int, 3>{});
    default:
      return flat(std::integral_constant<int, 4>{});
  }
}

double relative(double difference, double largest) {
  return difference == 0 ? 0 : difference / largest;
}

/// The larger one; NaN counts as infinite, so that it never hides in a maximum.
double worse(double a, double b) {
  const double infinity = std::numeric_limits<double>::infinity();
  return std::max(std::isnan(a) ? infinity : a, std::isnan(b) ? infinity : b);
}

/// One tensor, over the entries where the official one is a number.
struct TensorDifference {
  double from_official = 0;
  double from_oracle = 0;
  double official_from_oracle = 0;
  double largest_official = 0;
  double largest_oracle = 0;
  std::size_t compared = 0;
  bool official_is_nan = false;
  bool zero_where_official_is_nan = true;
  bool finite_where_official_is_nan = true;
};

TensorDifference measure(const AlignResults& results, const std::string& name) {
  for (const TensorFile* other : {&results.ours, &results.oracle}) {
    if (other->at(name).shape() != results.official.at(name).shape()) {
      throw std::invalid_argument(fmt::format("align: {}: expected the official shape {}, got {}",
                                              name, to_string(results.official.at(name).shape()),
                                              to_string(other->at(name).shape())));
    }
  }
  const auto ours = elements_of(results.ours, name);
  const auto oracle = elements_of(results.oracle, name);
  const auto official = elements_of(results.official, name);
  TensorDifference difference;
  for (std::size_t i = 0; i < official.size(); ++i) {
    if (std::isnan(official[i])) {
      difference.official_is_nan = true;
      difference.zero_where_official_is_nan &= ours[i] == 0;
      difference.finite_where_official_is_nan &= std::isfinite(ours[i]);
      continue;
    }
    ++difference.compared;
    difference.from_official = worse(difference.from_official, std::fabs(ours[i] - official[i]));
    difference.from_oracle = worse(difference.from_oracle, std::fabs(ours[i] - oracle[i]));
    difference.official_from_oracle =
        worse(difference.official_from_oracle, std::fabs(official[i] - oracle[i]));
    difference.largest_official = worse(difference.largest_official, std::fabs(official[i]));
    difference.largest_oracle = worse(difference.largest_oracle, std::fabs(oracle[i]));
  }
  return difference;
}

bool is_gradient(AlignQuantity quantity) {
  return quantity == AlignQuantity::InputGradient || quantity == AlignQuantity::ParameterGradient;
}

/// Adds a tensor to its quantity: the largest differences so far, and whether a NaN is one to expect.
void add_tensor(const AlignCase& align_case, DType dtype, const std::string& name,
                const TensorDifference& tensor, AlignDifference& quantity) {
  if (tensor.official_is_nan) {
    quantity.official_is_nan = true;
    quantity.passed &= align_case.hides_rows() &&
                       (is_gradient(quantity.quantity) ? tensor.finite_where_official_is_nan
                                                       : tensor.zero_where_official_is_nan);
  }
  if (tensor.compared == 0) return;
  double difference = relative(tensor.from_official, tensor.largest_official);
  if (dtype != DType::Float64) {
    difference = relative(tensor.from_oracle, tensor.largest_oracle);
    quantity.official_error = worse(quantity.official_error.value_or(0),
                                    relative(tensor.official_from_oracle, tensor.largest_oracle));
  }
  if (!quantity.difference || worse(difference, 0) > *quantity.difference) {
    quantity.difference = worse(difference, 0);
    quantity.tensor = name;
  }
}

double allowed(const AlignDifference& quantity) {
  if (quantity.official_error) {
    return align_float32_factor * *quantity.official_error + align_float32_rounding;
  }
  return quantity.quantity == AlignQuantity::ParameterGradient ? align_parameter_tolerance
                                                               : align_tolerance;
}

}  // namespace

std::string name_of(AlignQuantity quantity) {
  switch (quantity) {
    case AlignQuantity::Forward:
      return "forward";
    case AlignQuantity::Weights:
      return "weights";
    case AlignQuantity::InputGradient:
      return "input gradient";
    case AlignQuantity::ParameterGradient:
      return "parameter gradient";
  }
  return "unknown";
}

std::string name_of(AlignVerdict verdict) {
  switch (verdict) {
    case AlignVerdict::Pass:
      return "pass";
    case AlignVerdict::OfficialIsNan:
      return "official is NaN, ours 0";
    case AlignVerdict::Fail:
      return "FAIL";
  }
  return "unknown";
}

AlignQuantity quantity_of(const std::string& name) {
  if (name.find("proj") != std::string::npos) return AlignQuantity::ParameterGradient;
  if (name.find('.') != std::string::npos) return AlignQuantity::InputGradient;
  return name == "weights" ? AlignQuantity::Weights : AlignQuantity::Forward;
}

std::string AlignRow::explanation() const {
  std::string text;
  for (const AlignDifference& one : differences) {
    if (one.passed) continue;
    if (!text.empty()) text += "; ";
    const bool too_far = one.allowed && !(*one.difference <= *one.allowed);
    text += too_far ? fmt::format("{}: {} differs by {:.1e}, allowed {:.1e}", name_of(one.quantity),
                                  one.tensor, *one.difference, *one.allowed)
                    : fmt::format("{}: the official one is NaN {}", name_of(one.quantity),
                                  align_case.hides_rows() ? "where ours is not 0"
                                                          : "though every query sees a key");
  }
  return text;
}

AlignRow compare(const AlignCase& align_case, const std::string& function, DType dtype,
                 const AlignResults& results) {
  AlignRow row{align_case, function, dtype, {}, AlignVerdict::Pass};
  std::vector<AlignDifference> all;
  for (const auto quantity : {AlignQuantity::Forward, AlignQuantity::Weights,
                              AlignQuantity::InputGradient, AlignQuantity::ParameterGradient}) {
    AlignDifference difference;
    difference.quantity = quantity;
    bool given = false;
    for (const auto& [name, tensor] : results.official.tensors) {
      if (quantity_of(name) != quantity) continue;
      given = true;
      add_tensor(align_case, dtype, name, measure(results, name), difference);
    }
    if (!given) continue;
    if (difference.difference) {
      difference.allowed = allowed(difference);
      difference.passed &= *difference.difference <= *difference.allowed;
    }
    row.differences.push_back(difference);
  }
  for (const AlignDifference& difference : row.differences) {
    if (!difference.passed) row.verdict = AlignVerdict::Fail;
    if (difference.official_is_nan && row.verdict != AlignVerdict::Fail) {
      row.verdict = AlignVerdict::OfficialIsNan;
    }
  }
  return row;
}

}  // namespace qkv
