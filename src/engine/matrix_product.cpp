#include "engine/matrix_product.h"

#include <omp.h>

#include <algorithm>

#include "engine/division.h"
#include "engine/setting.h"
#include "engine/workspace.h"
#include "kernels/kernel_table.h"

namespace qkv::engine {
namespace {

/// Terms of a sum that are added up in one run: their panel stays in the first-level cache, and short runs round less.
constexpr Index kRun = 192;
/// Rows that read a panel while it is there: a multiple of every block.
constexpr Index kTile = 96;

template <class T>
class MatrixProduct {
 public:
  MatrixProduct(const MatrixView<T>& a, const MatrixView<T>& b, Result result, T* c,
                const kernels::KernelTable<T>& kernels)
      : a_(a), b_(b), result_(result), c_(c), kernels_(kernels) {
    panels_ = divide_up(b.columns, kernels.panel_width);
  }

  void run(int threads, Workspace& workspace) {
    const Index tiles = divide_up(a_.rows, kTile);
    const Index panel_elements = a_.columns * kernels_.panel_width;
    // One tile reads each panel once, so that a thread needs no more than the one that it is at.
    const Index panels_held = tiles == 1 ? threads : panels_;
    Layout layout;
    const std::size_t panels_at = layout.add<T>(product({panels_held, panel_elements}));
    const std::size_t rows_at = layout.add<T>(product({threads, kTile, a_.columns}));
    const std::size_t block = product({kernels_.block_rows, kernels_.panel_width});
    const std::size_t blocks_at = layout.add<T>(product({threads, static_cast<Index>(block)}));
    std::byte* memory = WorkspaceAccess::reserve(workspace, layout.bytes());
    T* panels = reinterpret_cast<T*>(memory + panels_at);
    const auto work = [&](int thread) {
      T* rows = reinterpret_cast<T*>(memory + rows_at) + thread * kTile * a_.columns;
      T* sums = reinterpret_cast<T*>(memory + blocks_at) + thread * static_cast<Index>(block);
      if (tiles == 1) {
        T* own = panels + thread * panel_elements;
        pack_rows(0, rows);
#pragma omp for schedule(dynamic)
        for (Index panel = 0; panel < panels_; ++panel) {
          pack(panel, own);
          multiply_tile(0, panel, panel + 1, rows, own, sums);
        }
        return;
      }
#pragma omp for schedule(static)
      for (Index panel = 0; panel < panels_; ++panel) pack(panel, panels + panel * panel_elements);
      // Few tiles are divided by columns, too.
      const Index groups = std::min(panels_, divide_up(2 * Index{threads}, tiles));
#pragma omp for schedule(dynamic)
      for (Index item = 0; item < tiles * groups; ++item) {
        const Index tile = item / groups;
        const Index group = item % groups;
        const Index first = panels_ * group / groups;
        pack_rows(tile, rows);
        multiply_tile(tile, first, panels_ * (group + 1) / groups, rows,
                      panels + first * panel_elements, sums);
      }
    };
    // Within a region of the caller's the loops above would be divided among its threads.
    if (threads == 1 && omp_get_level() == 0) return work(0);
#pragma omp parallel num_threads(threads)
    work(omp_get_thread_num());
  }

 private:
  /// A panel of b, [k][n]: from columns or from rows, whichever are dense.
  void pack(Index panel, T* target) const noexcept {
    const Index n = kernels_.panel_width;
    const Index first = panel * n;
    const Index here = std::min(n, b_.columns - first);
    const T* from = b_.data + first * b_.column_step;
    if (b_.row_step == 1 && b_.column_step != 1) {
      kernels_.pack_keys({from, b_.column_step, 1}, here, b_.rows, target);
    } else {
      kernels_.pack_rows({from, b_.row_step, b_.column_step}, b_.rows, here, b_.rows, target);
    }
  }

  /// Whether a block is read where it lies.
  bool in_place(Index rows) const noexcept {
    return a_.row_step == 1 && a_.column_step != 1 && rows == kernels_.block_rows;
  }

  Index rows_of(Index tile) const noexcept { return std::min(kTile, a_.rows - tile * kTile); }

  void pack_rows(Index tile, T* rows) const noexcept {
    const Index step = kernels_.block_rows;
    for (Index first = 0; first < rows_of(tile); first += step) {
      const Index here = std::min(step, rows_of(tile) - first);
      if (in_place(here)) continue;
      kernels_.pack_query(
          {a_.data + (tile * kTile + first) * a_.row_step, a_.row_step, a_.column_step}, here,
          a_.columns, T{1}, rows + first * a_.columns);
    }
  }

  /// The tile's rows times panels [first_panel, last_panel), which lie at `packed`.
  void multiply_tile(Index tile, Index first_panel, Index last_panel, const T* rows,
                     const T* packed, T* sums) const noexcept {
    const Index n = kernels_.panel_width;
    const Index step = kernels_.block_rows;
    const Index first_row = tile * kTile;
    const Index count = rows_of(tile);
    const Index depth = a_.columns;
    for (Index run = 0; run == 0 || run < depth; run += kRun) {
      const bool add = run > 0 || result_ == Result::AddedTo;
      const Index length = std::min(kRun, depth - run);
      for (Index panel = first_panel; panel < last_panel; ++panel) {
        const Index columns = std::min(n, b_.columns - panel * n);
        for (Index first = 0; first < count; first += step) {
          const Index here = std::min(step, count - first);
          kernels::Rows<T> block{rows + first * depth + run * step, step};
          if (in_place(here)) {
            block = {a_.data + first_row + first + run * a_.column_step, a_.column_step};
          }
          const T* panel_run = packed + ((panel - first_panel) * depth + run) * n;
          T* target = c_ + (first_row + first) * b_.columns + panel * n;
          if (here == step && columns == n) {
            kernels_.multiply(block, panel_run, here, length, target, b_.columns, add);
            continue;
          }
          kernels_.multiply(block, panel_run, here, length, sums, n, false);
          for (Index row = 0; row < here; ++row) {
            const T* from = sums + row * n;
            T* to = target + row * b_.columns;
            if (add) {
              for (Index j = 0; j < columns; ++j) to[j] += from[j];
            } else {
              std::copy_n(from, columns, to);
            }
          }
        }
      }
    }
  }

  const MatrixView<T>& a_;
  const MatrixView<T>& b_;
  Result result_;
  T* c_;
  const kernels::KernelTable<T>& kernels_;
  Index panels_ = 0;
};

}  // namespace

template <class T>
void multiply(const MatrixView<T>& a, const MatrixView<T>& b, Result result, T* c,
              const Options& options) {
  const Setting setting = setting_of("engine::multiply", options);
  if (a.rows == 0 || b.columns == 0) return;
  const double work =
      static_cast<double>(a.rows) * static_cast<double>(a.columns) * static_cast<double>(b.columns);
  const auto threads = static_cast<int>(useful_threads(work, setting.threads));
  MatrixProduct<T> product(a, b, result, c, kernels::table_of<T>(*setting.target));
  product.run(threads, WorkspaceAccess::of(options));
}

template void multiply(const MatrixView<double>&, const MatrixView<double>&, Result, double*,
                       const Options&);
template void multiply(const MatrixView<float>&, const MatrixView<float>&, Result, float*,
                       const Options&);

}  // namespace qkv::engine
