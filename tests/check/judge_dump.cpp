// judge_dump FILE: reads a dump and holds it against the oracle; exit code 0 matches, 1 differs, 2 cannot be read.

#include <cstdio>
#include <exception>

#include "check/dump.h"
#include "check/verdict.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: judge_dump FILE\n");
    return 2;
  }
  try {
    const qkv::TensorFile file = qkv::read_tensors(argv[1]);
    const qkv::Dump dump = qkv::read_dump(file);
    for (const std::string& sentence : dump.inferred)
      std::printf("inferred %s\n", sentence.c_str());
    const qkv::Verdict verdict = qkv::judge(dump, file.at("out").dtype());
    for (const qkv::TensorVerdict& tensor : verdict.tensors) {
      std::printf("%s: %s, largest error %g, %g of %g units allowed\n", tensor.name.c_str(),
                  tensor.matches ? "matches" : "differs", tensor.largest_error,
                  tensor.largest_units, tensor.largest_allowed);
    }
    return verdict.matches ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}
