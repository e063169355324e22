// Ctrl-C, told instead of obeyed at once: what runs can end in order.
#pragma once

#include <csignal>

namespace qkv::cli {

/// While it lives, the first SIGINT or SIGTERM only sets a flag; a second one ends the process as usual. One at a time.
class StopSignal {
 public:
  StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;
  ~StopSignal();

  bool came() const;

 private:
  struct sigaction before_interrupt_ = {};
  struct sigaction before_terminate_ = {};
};

}  // namespace qkv::cli
