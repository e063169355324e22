#include "engine/workspace.h"

#include <limits>
#include <new>
#include <utility>

namespace qkv::engine {

struct Workspace::Memory {
  explicit Memory(std::size_t size)
      : data(static_cast<std::byte*>(::operator new (size, std::align_val_t{kAlignment}))),
        bytes(size) {}
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() { ::operator delete (data, std::align_val_t{kAlignment}); }

  std::byte* data;
  std::size_t bytes;
};

Workspace::Workspace() = default;
Workspace::~Workspace() = default;
Workspace::Workspace(Workspace&&) noexcept = default;
Workspace& Workspace::operator=(Workspace&&) noexcept = default;

std::size_t Workspace::bytes() const noexcept { return memory_ ? memory_->bytes : 0; }

std::size_t aligned_bytes(std::size_t count, std::size_t element_size) {
  constexpr std::size_t kMost = std::numeric_limits<std::ptrdiff_t>::max() - kAlignment;
  if (count > kMost / element_size) throw std::bad_alloc();
  return (count * element_size + kAlignment - 1) / kAlignment * kAlignment;
}

std::size_t product(std::initializer_list<Index> sizes) {
  std::size_t result = 1;
  for (const Index size : sizes) {
    const auto factor = static_cast<std::size_t>(size);
    if (factor != 0 && result > std::numeric_limits<std::size_t>::max() / factor) {
      throw std::bad_alloc();
    }
    result *= factor;
  }
  return result;
}

std::size_t Layout::add_bytes(std::size_t bytes) {
  constexpr std::size_t kMost = std::numeric_limits<std::ptrdiff_t>::max();
  if (bytes > kMost - bytes_) throw std::bad_alloc();
  return std::exchange(bytes_, bytes_ + bytes);
}

std::byte* WorkspaceAccess::reserve(Workspace& workspace, std::size_t bytes) {
  if (workspace.bytes() < bytes) {
    workspace.memory_.reset();  // first, so that the two are never held together
    workspace.memory_ = std::make_unique<Workspace::Memory>(bytes);
  }
  return workspace.memory_ ? workspace.memory_->data : nullptr;
}

Workspace& WorkspaceAccess::of(const Options& options) {
  thread_local Workspace own;
  return options.workspace != nullptr ? *options.workspace : own;
}

}  // namespace qkv::engine
