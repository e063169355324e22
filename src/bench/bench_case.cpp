#include "bench/bench_case.h"

#include <fmt/format.h>

#include <algorithm>

namespace qkv::bench {
namespace {

BenchCase attention(Index batch, Index heads, Index tokens, Index width,
                    BenchMask mask = BenchMask::None) {
  BenchCase one;
  one.mask = mask;
  one.batch = batch;
  one.heads = heads;
  one.tokens = tokens;
  one.width = width;
  return one;
}

/// 32 heads of width 128, one sequence.
BenchCase decode(Index new_tokens, Index tokens, Index kv_heads, DType dtype) {
  BenchCase one = attention(1, 32, tokens, 128);
  one.operation = Operation::Decode;
  one.new_tokens = new_tokens;
  one.kv_heads = kv_heads;
  one.dtype = dtype;
  return one;
}

/// The shapes of the table in docs/performance.md.
std::vector<BenchCase> shapes(BenchMask mask) {
  return {attention(1, 12, 512, 64, mask), attention(1, 12, 2048, 64, mask),
          attention(1, 8, 4096, 128, mask), attention(4, 12, 512, 64, mask),
          attention(1, 32, 1024, 128, mask)};
}

/// Pairs of a query and a key in one head that count as work.
double pairs(const BenchCase& one) {
  const auto tokens = static_cast<double>(one.tokens);
  switch (one.mask) {
    case BenchMask::Causal:
      return tokens * tokens / 2;
    case BenchMask::Window256: {
      const auto side = static_cast<double>(std::min(kBenchWindow, one.tokens));
      return side * (side + 1) / 2 + (tokens - side) * side;
    }
    case BenchMask::Documents512: {
      const Index whole = one.tokens / kBenchDocument;
      const Index rest = one.tokens % kBenchDocument;
      return static_cast<double>(whole * kBenchDocument * kBenchDocument + rest * rest);
    }
    default:
      return tokens * tokens;
  }
}

}  // namespace

std::string_view name_of(Operation operation) {
  if (operation == Operation::Decode) return "decode";
  return operation == Operation::Attention ? "attention" : "module";
}

std::string_view name_of(Pass pass) {
  return pass == Pass::Forward ? "forward" : "forward+backward";
}

std::string_view name_of(BenchMask mask) {
  switch (mask) {
    case BenchMask::Causal:
      return "causal";
    case BenchMask::PaddedQuarter:
      return "padded quarter";
    case BenchMask::Boolean:
      return "boolean";
    case BenchMask::Bias:
      return "float bias";
    case BenchMask::Window256:
      return "window 256";
    case BenchMask::Documents512:
      return "documents 512";
    default:
      return "no mask";
  }
}

std::string BenchCase::describe() const {
  if (operation == Operation::Decode) {
    return fmt::format("decode, {} of {} tokens, {} heads on {}, width {}, {}", new_tokens, tokens,
                       heads, kv_heads, width, name_of(dtype));
  }
  std::string text = operation == Operation::Module ? "module " : "";
  text += fmt::format("{}, {}, {}x{}x{}x{}, {}", name_of(pass), name_of(mask), batch, heads, tokens,
                      width, name_of(dtype));
  if (threads) text += fmt::format(", {} thread{}", *threads, *threads == 1 ? "" : "s");
  return text;
}

double BenchCase::bytes() const {
  return 2 * static_cast<double>(batch * kv_heads * tokens * width) *
         static_cast<double>(size_of(dtype));
}

double BenchCase::flops() const {
  if (operation == Operation::Decode) {
    return 4 * static_cast<double>(batch * heads * new_tokens * tokens * width);
  }
  const auto head_count = static_cast<double>(batch * heads);
  const double core = 4 * head_count * pairs(*this) * static_cast<double>(width);
  const bool backward = pass == Pass::ForwardBackward;
  double flops = backward ? 3.5 * core : core;
  if (operation == Operation::Module) {
    const auto columns = static_cast<double>(model_width());
    const double products = 2 * static_cast<double>(batch * tokens) * 4 * columns * columns;
    flops += backward ? 3 * products : products;
  }
  return flops;
}

std::vector<BenchCase> bench_cases() {
  std::vector<BenchCase> cases;
  for (const Pass pass : {Pass::Forward, Pass::ForwardBackward}) {
    for (const BenchMask mask : {BenchMask::None, BenchMask::Causal}) {
      for (BenchCase one : shapes(mask)) {
        one.pass = pass;
        one.quick = pass == Pass::Forward && one.batch == 1 && one.tokens == 512;
        cases.push_back(one);
      }
    }
  }
  for (const BenchMask mask : {BenchMask::PaddedQuarter, BenchMask::Boolean, BenchMask::Bias}) {
    cases.push_back(attention(1, 12, 2048, 64, mask));
  }
  for (const BenchMask mask : {BenchMask::Window256, BenchMask::Documents512}) {
    cases.push_back(attention(1, 12, 4096, 64, mask));
  }
  BenchCase window = attention(1, 12, 4096, 64, BenchMask::Window256);
  window.pass = Pass::ForwardBackward;
  cases.push_back(window);

  for (const Index tokens : {1, 16, 64, 128}) {
    BenchCase one = attention(1, 12, tokens, 64);
    one.quick = tokens == 16;
    cases.push_back(one);
  }

  BenchCase wide = attention(1, 12, 1024, 64);
  wide.dtype = DType::Float64;
  cases.push_back(wide);

  // Scaling: many heads, and one whose triangle has to be divided.
  for (const int threads : {1, 2}) {
    for (BenchCase one :
         {attention(1, 12, 2048, 64), attention(1, 1, 4096, 64, BenchMask::Causal)}) {
      one.threads = threads;
      cases.push_back(one);
    }
  }

  for (const Pass pass : {Pass::Forward, Pass::ForwardBackward}) {
    BenchCase module = attention(8, 12, 128, 32);
    module.operation = Operation::Module;
    module.pass = pass;
    module.quick = pass == Pass::Forward;
    cases.push_back(module);
  }

  for (const Index tokens : {4096, 32768}) {
    for (const Index kv_heads : {32, 8}) {
      for (const DType dtype : {DType::Float32, DType::Float16, DType::BFloat16}) {
        cases.push_back(decode(1, tokens, kv_heads, dtype));
      }
    }
  }
  cases.push_back(decode(16, 32768, 32, DType::Float32));
  return cases;
}

}  // namespace qkv::bench
