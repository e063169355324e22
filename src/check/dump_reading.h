// How a dump is to be read: layouts, the stage of its output, and the sizes, as told or as they alone fit.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "check/dump.h"
#include "check/dump_text.h"

namespace qkv {

/// The order of axes in the file. A merged token holds its heads side by side: in memory BTD is BTHD.
enum class HeadLayout : std::uint8_t { BHTD, BTHD, TBHD, BTD, TBD };

std::string_view name_of(HeadLayout layout);
constexpr bool is_merged(HeadLayout layout) noexcept {
  return layout == HeadLayout::BTD || layout == HeadLayout::TBD;
}

struct DumpReading {
  HeadLayout layout = HeadLayout::BHTD;      ///< of q, k, v and their gradients
  HeadLayout out_layout = HeadLayout::BHTD;  ///< of out, out2, dout
  OutStage stage = OutStage::Heads;
  bool weights_in_out = false;  ///< projection weights are [in, out]
  AttentionShape shape;
  Index model_width = 0;  ///< D; 0 where nothing has it
};

/// Checks which tensors are there and every shape. Appends to `inferred` what it chose where the file says nothing: the
/// default where it fits, else what alone fits; throws where several others fit, and names the key that would tell.
DumpReading choose_reading(const TensorFile& file, const DumpText& text,
                           std::vector<std::string>& inferred);

}  // namespace qkv
