// The limits of the machine, measured beside what is held against them.
#pragma once

#include <optional>
#include <string_view>

#include "engine/huge_page_memory.h"
#include "qkv/dtype.h"

namespace qkv::bench {

/// Everything that a limit depends on.
enum class LimitKind : std::uint8_t {
  MultiplyAddFloat32,  ///< flops a second
  MultiplyAddFloat64,  ///< flops a second
  Read,                ///< bytes a second, of memory that no cache holds
};

std::string_view name_of(LimitKind kind);

/// float64 has its own; the 16-bit types compute in float32.
LimitKind multiply_add_limit(DType dtype);

/// Runs on OpenMP's pool, as all that is measured does: threads of its own would compete with workers that still spin.
class LimitProbe {
 public:
  /// Measures once, some milliseconds: flops or bytes a second of all `threads` together. The first Read takes
  /// memory several times the size of the last-level cache, and throws std::bad_alloc where there is none.
  double measure(LimitKind kind, int threads);

  /// Bytes that one Read of any number of threads goes over.
  static std::size_t read_bytes() noexcept;
  /// The SIMD target of the multiply-adds and of the reads.
  static std::string_view target();

 private:
  std::optional<engine::HugePageMemory> memory_;
};

}  // namespace qkv::bench
