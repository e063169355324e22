// Matrix products on the kernels of attention: projections keep the promise of its bits, on any number of threads and rows.
#pragma once

#include "qkv/engine.h"

namespace qkv::engine {

/// Any strides, in elements.
template <class T>
struct MatrixView {
  const T* data = nullptr;
  Index rows = 0;
  Index columns = 0;
  Index row_step = 0;
  Index column_step = 1;

  MatrixView transposed() const noexcept { return {data, columns, rows, column_step, row_step}; }
};

/// What becomes of what was there.
enum class Result : unsigned char { Replaced, AddedTo };

/// c [m,n] = a [m,k]·b [k,n], dense rows of n elements. T is float or double. Each element is summed over k in order, in runs
/// of a fixed length. Throws std::bad_alloc where memory is short (b once more, and a few rows a thread).
template <class T>
void multiply(const MatrixView<T>& a, const MatrixView<T>& b, Result result, T* c,
              const Options& options = {});

}  // namespace qkv::engine
