// The verdict of align on one case, one official function and one dtype.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "check/align_case.h"
#include "qkv/dtype.h"
#include "qkv/io.h"

namespace qkv {

/// Of float64, relative to the largest entry of the official tensor.
inline constexpr double align_tolerance = 1e-12;
inline constexpr double align_parameter_tolerance = 1e-11;
/// Of float32: how many times PyTorch's own error against the float64 oracle, and one rounding of the
/// largest entry besides.
inline constexpr double align_float32_factor = 2;
inline constexpr double align_float32_rounding = 0x1p-24;

enum class AlignQuantity : std::uint8_t { Forward, Weights, InputGradient, ParameterGradient };
std::string name_of(AlignQuantity quantity);
/// Which quantity a tensor of the results belongs to.
AlignQuantity quantity_of(const std::string& tensor_name);

/// One quantity: the worst over its tensors. Differences are relative to a tensor's largest entry.
struct AlignDifference {
  AlignQuantity quantity = AlignQuantity::Forward;
  /// float64: ours from the official one; float32: ours from the oracle. Absent where nothing official is
  /// a number.
  std::optional<double> difference;
  std::string tensor;  ///< in which it is
  std::optional<double>
      official_error;  ///< float32: largest difference of the official one from the oracle
  std::optional<double> allowed;
  bool official_is_nan = false;  ///< somewhere; ours is 0 there in results, finite in gradients
  bool passed = true;
};

enum class AlignVerdict : std::uint8_t { Pass, OfficialIsNan, Fail };
std::string name_of(AlignVerdict verdict);

struct AlignRow {
  AlignCase align_case;
  std::string function;
  DType dtype = DType::Float64;
  std::vector<AlignDifference>
      differences;  ///< of the quantities that the function gives, in order
  AlignVerdict verdict = AlignVerdict::Pass;

  /// What went wrong; empty where nothing did.
  std::string explanation() const;
};

/// Results of one case: ours, those of the float64 oracle on the same numbers, the official ones.
struct AlignResults {
  const TensorFile& ours;
  const TensorFile& oracle;
  const TensorFile& official;
};

/// Compares every tensor of the official results. Throws std::invalid_argument where one is missing in
/// ours, or has another shape.
AlignRow compare(const AlignCase& align_case, const std::string& function, DType dtype,
                 const AlignResults& results);

}  // namespace qkv
