#include "bench/subject.h"

#include "bench/attention_subject.h"
#include "bench/decode_subject.h"
#include "bench/module_subject.h"

namespace qkv::bench {

std::unique_ptr<Subject> make_subject(const BenchCase& bench_case) {
  if (bench_case.operation == Operation::Module) return make_module_subject(bench_case);
  if (bench_case.operation == Operation::Decode) return make_decode_subject(bench_case);
  return make_attention_subject(bench_case);
}

}  // namespace qkv::bench
