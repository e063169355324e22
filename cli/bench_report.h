// How `qkv bench` prints: a table for people, JSON for machines.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "bench/bench.h"

namespace qkv::cli {

/// Everything that a run found.
struct BenchReport {
  int threads = 1;
  int rounds = 0;
  double load = 0;           ///< processes that ran or waited before the run, mean of a minute
  std::string target;        ///< SIMD target of the engine
  std::string limit_target;  ///< and of the limits
  std::size_t read_bytes = 0;
  std::vector<std::string> peer;  ///< what it is and what was tuned; empty without one
  std::string missing;            ///< why there is none
  std::vector<std::string> flex;  ///< the same of FlexAttention; empty where it was not measured
  std::vector<bench::Bench::Limit> limits;
  std::vector<bench::BenchRow> rows;

  double limit(bench::LimitKind kind, int of_threads) const;
  /// Of the best time of ours, or the peer's.
  double part_of_limit(const bench::BenchRow& row, const bench::Measured& measured) const;
};

std::string bench_text(const BenchReport& report);
nlohmann::json bench_json(const BenchReport& report);
nlohmann::json bench_json(const bench::BenchCase& one);

}  // namespace qkv::cli
