// A list of a few elements that asks for no memory: what checks of every call are made of.
#pragma once

#include <array>
#include <cassert>
#include <cstddef>

namespace qkv {

template <class T, std::size_t Most>
class Few {
 public:
  void push_back(const T& element) noexcept {
    assert(size_ < Most);
    elements_[size_++] = element;
  }

  T* begin() noexcept { return elements_.data(); }
  T* end() noexcept { return begin() + size_; }
  const T* begin() const noexcept { return elements_.data(); }
  const T* end() const noexcept { return begin() + size_; }
  T* data() noexcept { return elements_.data(); }
  const T* data() const noexcept { return elements_.data(); }
  std::size_t size() const noexcept { return size_; }
  const T& operator[](std::size_t i) const noexcept { return elements_[i]; }
  const T& back() const noexcept { return elements_[size_ - 1]; }

 private:
  std::array<T, Most> elements_{};
  std::size_t size_ = 0;
};

}  // namespace qkv
