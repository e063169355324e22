// NaN and infinity in what a dump says went in: garbage that nobody sees is fine, any other is refused.
#pragma once

#include "check/dump.h"

namespace qkv {

/// Throws where a number that enters a row which somebody reads is not finite, and names tensor and place.
void check_dump_is_finite(const Dump& dump);

}  // namespace qkv
