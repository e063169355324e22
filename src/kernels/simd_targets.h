// Which of Highway's targets are compiled; included before any of its headers.
#pragma once

// Targets that would only repeat another one's code, or that have not been tested.
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)

// The portable target is the same with every compiler; Highway's emulation of vectors is not, and some get it wrong.
#define HWY_BROKEN_EMU128 1
