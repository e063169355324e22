// Experiments as JSON: what `qkv lab --json` prints and what the page is drawn from.
//
//   {"quick", "seed", "text", "inject",
//    "experiments": [{"name", "section", "command", "title", "explanation", "effects", "tables", "charts", "heat_maps", "token_maps", "seen"}]}
//
// Words are {"en", "zh"}. A row of a table maps its columns' keys to numbers, strings, words, or {"value", "low", "high"} where
// there is a spread over seeds. A heat map's "values" are [layers, samples, heads, T, S] in one list, "shape" beside it. Numbers
// that are not finite are the strings "Infinity", "-Infinity" and "NaN".
#pragma once

#include <span>
#include <string>

#include "lab/experiment.h"

namespace qkv::lab {

/// Throws std::logic_error where an experiment is not whole (see check_experiment).
std::string experiments_json(std::span<const Experiment> experiments,
                             const ExperimentOptions& options);

}  // namespace qkv::lab
