#include "cli/stop_signal.h"

namespace qkv::cli {
namespace {

volatile std::sig_atomic_t stop_came = 0;

extern "C" void note_stop(int) { stop_came = 1; }

}  // namespace

StopSignal::StopSignal() {
  stop_came = 0;
  struct sigaction action = {};
  action.sa_handler = note_stop;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigaction(SIGINT, &action, &before_interrupt_);
  sigaction(SIGTERM, &action, &before_terminate_);
}

StopSignal::~StopSignal() {
  sigaction(SIGINT, &before_interrupt_, nullptr);
  sigaction(SIGTERM, &before_terminate_, nullptr);
}

bool StopSignal::came() const { return stop_came != 0; }

}  // namespace qkv::cli
