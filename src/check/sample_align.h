// Holds our module and the oracle against what a published model recorded.
#pragma once

#include <string>
#include <vector>

#include "check/layer_sample.h"

namespace qkv {

/// The largest absolute difference that a recorded float32 result may show.
inline constexpr double sample_tolerance = 1e-5;

/// One recorded tensor against one computation of it.
struct SampleRow {
  std::string computed_by;   ///< "module, float32", "oracle on q, k, v"
  std::string tensor;        ///< name in the file: "q", "weights", …
  double difference = 0;     ///< largest absolute one; infinite where ours is not a number
  double largest_entry = 0;  ///< of the recorded tensor, in the rows compared
  Index rows = 0;            ///< compared; a row is one query (or key) of one head
  Index rows_left_out =
      0;  ///< queries that see no key: whatever the model put there, nobody reads it

  bool passed() const noexcept { return difference <= sample_tolerance; }
};

struct SampleReport {
  std::string source;  ///< what the file says of itself
  std::string layer;   ///< "B=4 T=25 H=12 Dh=32, mask: key padding [4, 25]"
  std::vector<SampleRow> rows;
};

/// From x and the parameters by MultiHeadAttention in float32 and float64, and from the recorded q, k and v by
/// the oracle: whichever the file has. Throws std::invalid_argument as read_layer_sample does, and where
/// nothing recorded can be compared.
SampleReport align_sample(const TensorFile& file);

}  // namespace qkv
