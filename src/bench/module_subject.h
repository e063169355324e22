#pragma once

#include "bench/subject.h"

namespace qkv::bench {

/// Of an Operation::Module case, in float32 and without a mask.
std::unique_ptr<Subject> make_module_subject(const BenchCase& bench_case);

}  // namespace qkv::bench
