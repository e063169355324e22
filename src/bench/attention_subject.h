#pragma once

#include "bench/subject.h"

namespace qkv::bench {

/// Of an Operation::Attention case in float32 or float64.
std::unique_ptr<Subject> make_attention_subject(const BenchCase& bench_case);

}  // namespace qkv::bench
