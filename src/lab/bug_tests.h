// Tests that anyone can run on an attention, and which of them catch which bug of the catalogue: the measurements of `bugs`.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lab/experiment.h"
#include "lab/tested_attention.h"

namespace qkv::lab {

/// What a test found.
struct Found {
  double number = 0;  ///< how far off; NaN where the attention refused the sizes or gave one
  bool caught = false;
  std::string note;  ///< "M2": what `qkv check` names; "an error"
};

struct BugTest {
  std::string_view key;
  Text name;
  Text short_name;     ///< for the head of a column
  Text measured;       ///< what the number is
  double allowed = 0;  ///< more is caught
  Found (*run)(const TestedAttention& attention, double allowed) = nullptr;
};

/// In the order of what they need, the simplest first.
std::span<const BugTest> bug_tests();

Found run_test(const BugTest& test, const TestedAttention& attention);

}  // namespace qkv::lab
