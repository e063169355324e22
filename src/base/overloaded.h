// One visitor of a variant out of several functions.
#pragma once

namespace qkv {

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;

}  // namespace qkv
