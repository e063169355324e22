// OpenMP's number of threads for a while.
#pragma once

#include <omp.h>

#include <optional>

namespace qkv {

/// For as long as this lives; what it was before where `threads` is absent.
class ThreadLimit {
 public:
  explicit ThreadLimit(std::optional<int> threads) : before_(omp_get_max_threads()) {
    if (threads) omp_set_num_threads(*threads);
  }
  ThreadLimit(const ThreadLimit&) = delete;
  ThreadLimit& operator=(const ThreadLimit&) = delete;
  ~ThreadLimit() { omp_set_num_threads(before_); }

 private:
  int before_;
};

}  // namespace qkv
