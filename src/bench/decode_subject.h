#pragma once

#include "bench/subject.h"

namespace qkv::bench {

/// Of an Operation::Decode case in float32, float16 or bfloat16.
std::unique_ptr<Subject> make_decode_subject(const BenchCase& bench_case);

}  // namespace qkv::bench
