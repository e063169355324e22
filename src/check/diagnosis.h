// Why a dump's output is not the intended one: every class of the catalogue is computed and held against it.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "check/dump.h"

namespace qkv {

/// How far a computation is from the dump, in units of the rounding that is expected of the dtype.
struct Distance {
  double rms = 0;
  double max = 0;
};

/// A computation that reproduces everything that the dump holds, to rounding.
struct Cause {
  std::vector<std::string> ids;  ///< classes of the catalogue: one, or the two of a pair
  std::string text;              ///< what was computed instead
  std::map<std::string, double> parameters;  ///< fitted: "scale", "window_left", "base", …
  Distance distance;
  bool policy = false;  ///< M6 alone: a choice about empty rows, not always a bug
};

/// A computation that was held against the dump and is clearly further away.
struct Rival {
  std::vector<std::string> ids;
  std::string text;
  Distance distance;
};

struct NotShown {
  std::string id;
  std::string reason;
};

struct Diagnosis {
  Distance intended;          ///< of what was meant
  std::vector<Cause> causes;  ///< equal alternatives, the likeliest first; empty: not explained
  std::vector<Rival> rivals;  ///< the nearest first, a few
  std::vector<std::string> facts;    ///< what is known whatever the cause
  std::vector<std::string> remarks;  ///< what looks odd and is right: "not a bug"
  std::vector<NotShown>
      not_shown;           ///< classes that this dump could not have shown, in catalogue order
  std::string separation;  ///< what would tell the causes apart; empty where there is one
};

struct DiagnoseOptions {
  /// Told what is being done and how much of it is done, 0 to 1.
  std::function<void(std::string_view, double)> progress;
  int threads = 0;    ///< 0: as many as OpenMP gives
  bool pairs = true;  ///< try pairs where no single cause explains the dump
};

/// The causes of a dump that differs from what was meant.
Diagnosis diagnose(const Dump& dump, const DiagnoseOptions& options = {});

/// The causes of a dump that lies inside of every element's bound: those that explain its structure decisively better than
/// rounding does. No causes: it matches. `not_shown` and `remarks` are filled either way.
Diagnosis challenge(const Dump& dump, const DiagnoseOptions& options = {});

}  // namespace qkv
