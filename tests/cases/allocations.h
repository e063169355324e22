// A program linked with allocations.cpp counts what it asks of operator new, and can be made to run short.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <new>

namespace qkv::cases {

/// Begins to count from 0, and lets allocation `failing` of those to come throw std::bad_alloc.
void start_counting(std::size_t failing);
/// Allocations since then; from now on none fails.
std::size_t stop_counting();

/// How often run() asks for memory.
template <class Run>
std::size_t allocations_of(const Run& run) {
  start_counting(static_cast<std::size_t>(-1));
  run();
  return stop_counting();
}

/// Calls run() again and again, first with its first allocation failing, then its second, and so on until it gets all it asks
/// for. std::bad_alloc must come out each time, and check_unchanged() hold. Returns how many failed.
template <class Run, class Check>
std::size_t fail_each_allocation(const Run& run, const Check& check_unchanged) {
  constexpr std::size_t kMost = 1000;
  for (std::size_t number = 0; number < kMost; ++number) {
    SCOPED_TRACE(testing::Message() << "allocation " << number);
    start_counting(number);
    try {
      run();
      stop_counting();
      return number;
    } catch (const std::bad_alloc&) {
      stop_counting();
    }
    check_unchanged();
  }
  ADD_FAILURE() << "asks for memory without end";
  return kMost;
}

}  // namespace qkv::cases
