// The sizes of a dump, found from the shapes of its tensors and held against them.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/validate.h"
#include "qkv/tensor.h"

namespace qkv {

enum class DumpSize : std::uint8_t { B, H, Hkv, T, S, Dk, Dv, D, Packed };

/// An axis whose extent is the product of these sizes.
using DumpAxis = std::vector<DumpSize>;

/// What the shape of a tensor has to be.
struct SizedTensor {
  std::string name;
  std::vector<Index> shape;
  std::vector<DumpAxis> axes;
  /// Axes may have extent 1, and leading ones may be absent: such a tensor tells no size.
  bool broadcasts = false;
};

class DumpSizes {
 public:
  /// A size that metadata give. `source` is shown where something contradicts it.
  void set(DumpSize size, Index value, const std::string& source);

  /// Finds every size that the shapes tell. Throws std::invalid_argument "dump: NAME: expected [B, T] = [2, 5], got [2, 6]:
  /// T = 5 by q" where they contradict each other, and where heads stay unknown.
  void solve(const std::vector<SizedTensor>& tensors);

  /// 0 where no tensor tells.
  Index operator[](DumpSize size) const noexcept { return entry(size).value.value_or(0); }
  AttentionShape shape() const noexcept;
  /// What solve() took for granted.
  const std::vector<std::string>& inferred() const noexcept { return inferred_; }

 private:
  struct Entry {
    std::optional<Index> value;
    std::string source;
  };
  Entry& entry(DumpSize size) noexcept { return entries_[static_cast<std::size_t>(size)]; }
  const Entry& entry(DumpSize size) const noexcept {
    return entries_[static_cast<std::size_t>(size)];
  }

  void take_all(const std::vector<SizedTensor>& tensors);
  bool take(const SizedTensor& tensor);
  void check_broadcast(const SizedTensor& tensor) const;
  void unpack();
  std::optional<Index> extent(const DumpAxis& axis) const;
  std::string describe(const SizedTensor& tensor) const;
  [[noreturn]] void fail(const SizedTensor& tensor, const std::vector<DumpAxis>& wrong) const;

  std::array<Entry, 9> entries_;
  std::vector<std::string> inferred_;
};

}  // namespace qkv
