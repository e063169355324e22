// What is measured: one list of cases for the command and for the Google Benchmark targets.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "qkv/dtype.h"
#include "qkv/tensor.h"

namespace qkv::bench {

enum class Operation : std::uint8_t {
  Attention,
  Module,  ///< MultiHeadAttention: projections around the attention
  Decode,  ///< the last tokens of a sequence attend to a KvCache, which no processor cache holds
};

enum class Pass : std::uint8_t { Forward, ForwardBackward };

enum class BenchMask : std::uint8_t {
  None,
  Causal,
  PaddedQuarter,  ///< the last quarter of the keys is padding
  Boolean,        ///< [1,1,T,S], half of it hidden at random
  Bias,           ///< [1,1,T,S], added to the scores
  Window256,      ///< causal, the query and its 255 predecessors
  Documents512,   ///< queries see their document of 512 tokens, no other
};

inline constexpr Index kBenchWindow = 256;
inline constexpr Index kBenchDocument = 512;

/// Self attention: as many keys as queries, but for Decode. Tensors are dense.
struct BenchCase {
  Operation operation = Operation::Attention;
  Pass pass = Pass::Forward;
  BenchMask mask = BenchMask::None;
  DType dtype = DType::Float32;
  Index batch = 1;
  Index heads = 1;
  Index tokens = 1;                           ///< T and S; S of Decode
  Index new_tokens = 1;                       ///< T of Decode
  Index kv_heads = 1;                         ///< of Decode
  Index width = 1;                            ///< of a head
  std::optional<int> threads = std::nullopt;  ///< those of the run where absent
  bool quick = false;                         ///< part of the small subset

  /// "forward, causal, 1x12x512x64, float32".
  std::string describe() const;
  /// Floating-point operations that count, a multiply-add two: 4·D for each pair of query and key, of which causal
  /// masks leave half and windows and documents what they show; 3.5 times that for forward and backward (five products
  /// after two); in the module 2 for each weight and token besides (3 times that with the backward).
  double flops() const;
  /// Bytes of keys and values that Decode reads once.
  double bytes() const;
  /// What is held against the limit: bytes of Decode, else flops.
  double work() const { return operation == Operation::Decode ? bytes() : flops(); }
  /// Whether PyTorch's FlexAttention, which has a forward alone on CPUs, is measured for its mask, too.
  bool for_flex_attention() const noexcept {
    return operation == Operation::Attention && pass == Pass::Forward &&
           (mask == BenchMask::Window256 || mask == BenchMask::Documents512);
  }
  /// H·D: columns of the module's input.
  Index model_width() const noexcept { return heads * width; }
};

std::string_view name_of(Operation operation);
std::string_view name_of(Pass pass);
std::string_view name_of(BenchMask mask);

/// Every case.
std::vector<BenchCase> bench_cases();

}  // namespace qkv::bench
