#include <omp.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <numbers>
#include <thread>

#include "engine/cache_pages.h"
#include "engine/cached_call.h"
#include "engine/call.h"
#include "engine/division.h"
#include "engine/forward_plan.h"
#include "engine/tile_rows.h"
#include "engine/workspace.h"
#include "kernels/kernel_table.h"

namespace qkv::engine {
namespace {

using kernels::kSegmentKeys;

/// Memory of one thread.
template <class A>
struct ThreadMemory {
  A* query = nullptr;    // query blocks of a tile
  A* scores = nullptr;   // of a block
  A* max = nullptr;      // [tile rows, padded to blocks]
  A* sum = nullptr;      // the same
  A* context = nullptr;  // [the same][columns]
  A* row = nullptr;      // a row or a segment of another storage type, widened
  A* keys = nullptr;     // a segment's key panels, where the thread packs for itself
  A* values = nullptr;
};

/// The parts of the call that all threads see.
template <class T>
class Forward {
  using A = Arithmetic<T>;

 public:
  /// Keys and values are the call's inputs or, where given, a cache's.
  Forward(const Call<T>& call, const KvCache<T>* cache, const AttentionOutputs<A>& outputs,
          const ForwardPlan& plan)
      : call_(call), cache_(cache), outputs_(outputs), plan_(plan), order_{call.shape().group()} {
    const AttentionShape& shape = call.shape();
    scale_ = call.query_scale();
    base_ = call.base();
    key_step_ = plan.segment_keys_elements;
    value_step_ = plan.segment_values_elements;
    columns_ = plan.columns;
    depth_ = shape.key_width;
  }

  void use(std::byte* memory) noexcept { memory_ = memory; }
  void run(int threads) noexcept;

 private:
  template <class E>
  E* at(std::size_t offset) const noexcept {
    return reinterpret_cast<E*>(memory_ + offset);
  }
  ThreadMemory<A> memory_of(int thread) const noexcept;
  KvHead kv_head(Index number) const noexcept {
    return {number / call_.shape().kv_heads, number % call_.shape().kv_heads};
  }

  void run_by_tiles(const ThreadMemory<A>& own) noexcept;
  void run_by_keys(const ThreadMemory<A>& own) noexcept;

  kernels::Strided<A> rows_of(const TensorView<const T, 4>& source, Index b, Index h, Index first,
                              Index count, A* storage) const noexcept;
  /// The panels of a segment: packed, or as a cache stores them.
  template <class E>
  struct Segment {
    const E* keys;
    kernels::ValueRows<E> values;
    bool finite;
  };
  /// Asks for the beginning of a segment, which lies in another page than what is read before it.
  template <class E>
  static void read_ahead(const Segment<E>& segment) noexcept {
    constexpr Index kBytes = 8192;
    constexpr Index kLine = 64 / sizeof(E);
    for (Index i = 0; i < kBytes / static_cast<Index>(sizeof(E)); i += kLine) {
      __builtin_prefetch(segment.keys + i, 0, 2);
    }
  }
  /// A segment that pack_segment has packed; `finite` is what it returned.
  Segment<A> packed_segment(const KvHead& kv, Index segment, const A* keys, const A* values,
                            bool finite) const noexcept;
  bool pack_segment(const KvHead& kv, Index segment, A* keys, A* values, A* storage) const noexcept;
  Segment<T> cached_segment(const KvHead& kv, Index segment) const noexcept {
    const CachedSegment<T> page = KvCacheAccess::segment(*cache_, kv.b, kv.head, segment);
    return {page.keys, {page.values, call_.kernels.panel_width}, page.finite};
  }
  const A* widened_keys(const KvHead& kv, Index segment, const ThreadMemory<A>& own) const noexcept;
  void pack_queries(const TileRows& tile, const ThreadMemory<A>& own) const noexcept;
  void start(const TileRows& tile, const ThreadMemory<A>& own, bool with_sink) const noexcept;
  template <class E>
  void attend(const TileRows& tile, Index number, const Segment<E>& segment,
              const ThreadMemory<A>& own, BlockRows<A>& scratch) const noexcept;
  template <class E>
  kernels::Block<A, E> block_of(const TileRows& tile, Index first, Index segment, const E* keys,
                                const ThreadMemory<A>& own, BlockRows<A>& scratch) const noexcept;
  void finish(const TileRows& tile, const ThreadMemory<A>& own) const noexcept;
  void write_weights(const TileRows& tile, const A* panels, const ThreadMemory<A>& own,
                     BlockRows<A>& scratch) const noexcept;
  void merge_runs(const TileRows& tile, Index number, const ThreadMemory<A>& own) const noexcept;
  Index block_rows() const noexcept { return call_.kernels.block_rows; }

  const Call<T>& call_;
  const KvCache<T>* cache_;
  const AttentionOutputs<A>& outputs_;
  const ForwardPlan& plan_;
  RowOrder order_;
  A scale_ = 1;  // of the queries
  A base_ = 1;   // scores times this are logarithms to base 2
  Index key_step_ = 0;
  Index value_step_ = 0;
  Index columns_ = 0;
  Index depth_ = 0;
  std::byte* memory_ = nullptr;
  std::atomic<Index> next_{0};
};

template <class T>
ThreadMemory<Arithmetic<T>> Forward<T>::memory_of(int thread) const noexcept {
  const std::size_t base = plan_.threads_at + static_cast<std::size_t>(thread) * plan_.thread_bytes;
  return {at<A>(base + plan_.query_at), at<A>(base + plan_.scores_at),  at<A>(base + plan_.max_at),
          at<A>(base + plan_.sum_at),   at<A>(base + plan_.context_at), at<A>(base + plan_.row_at),
          at<A>(base + plan_.keys_at),  at<A>(base + plan_.values_at)};
}

/// Rows [first, first + count) of a head, as the kernels read them: where they lie, or widened into `storage`.
template <class T>
kernels::Strided<Arithmetic<T>> Forward<T>::rows_of(const TensorView<const T, 4>& source, Index b,
                                                    Index h, Index first, Index count,
                                                    A* storage) const noexcept {
  const kernels::Strided<T> rows = rows_from(source, b, h, first);
  if constexpr (std::is_same_v<T, A>) {
    static_cast<void>(count);
    static_cast<void>(storage);
    return rows;
  } else {
    const Index width = source.shape(3);
    for (Index row = 0; row < count; ++row) {
      if (rows.column == 1) {
        kernels::widen(*plan_.target, rows.data + row * rows.row, width, storage + row * width);
        continue;
      }
      for (Index d = 0; d < width; ++d) {
        storage[row * width + d] = widened<A>(rows.data[row * rows.row + d * rows.column]);
      }
    }
    return {storage, width, 1};
  }
}

/// Packs a segment; returns whether its values are all finite, or lie where they are and are not asked.
template <class T>
bool Forward<T>::pack_segment(const KvHead& kv, Index segment, A* keys, A* values,
                              A* storage) const noexcept {
  const AttentionShape& shape = call_.shape();
  const Index first = segment * kSegmentKeys;
  const Index count = std::min(kSegmentKeys, shape.keys - first);
  call_.kernels.pack_keys(rows_of(call_.inputs.key, kv.b, kv.head, first, count, storage), count,
                          depth_, keys);
  if (plan_.values_in_place) return true;
  return call_.kernels.pack_rows(rows_of(call_.inputs.value, kv.b, kv.head, first, count, storage),
                                 count, shape.value_width, kSegmentKeys, values);
}

template <class T>
auto Forward<T>::packed_segment(const KvHead& kv, Index segment, const A* keys, const A* values,
                                bool finite) const noexcept -> Segment<A> {
  if constexpr (std::is_same_v<T, A>) {
    if (plan_.values_in_place) {
      const kernels::Strided<A> rows =
          rows_from(call_.inputs.value, kv.b, kv.head, segment * kSegmentKeys);
      return {keys, {rows.data, rows.row, 1}, true};
    }
  }
  return {keys, {values, call_.kernels.panel_width}, finite};
}

/// The key panels of a page, as they lie or widened.
template <class T>
const Arithmetic<T>* Forward<T>::widened_keys(const KvHead& kv, Index segment,
                                              const ThreadMemory<A>& own) const noexcept {
  const T* keys = cached_segment(kv, segment).keys;
  if constexpr (std::is_same_v<T, A>) {
    static_cast<void>(own);
    return keys;
  } else {
    kernels::widen(*plan_.target, keys, key_step_, own.keys);
    return own.keys;
  }
}

template <class T>
void Forward<T>::pack_queries(const TileRows& tile, const ThreadMemory<A>& own) const noexcept {
  const TensorView<const T, 4>& query = call_.inputs.query;
  const Index rows = block_rows();
  for (Index first = 0; first < tile.count; first += rows) {
    const Index count = std::min(rows, tile.count - first);
    A* target = own.query + first * depth_;
    if (order_.group == 1) {
      call_.kernels.pack_query(
          rows_of(query, tile.kv.b, tile.kv.head, tile.first + first, count, own.row), count,
          depth_, scale_, target);
      continue;
    }
    // Rows of several heads: gathered first, unless one stride leads from each to the next.
    for (Index i = 0; i < count; ++i) {
      const Index row = tile.first + first + i;
      const T* from = query.data() + tile.kv.b * query.stride(0) +
                      order_.head_of(tile.kv, row) * query.stride(1) +
                      order_.query_of(row) * query.stride(2);
      for (Index d = 0; d < depth_; ++d) {
        own.row[i * depth_ + d] = widened<A>(from[d * query.stride(3)]);
      }
    }
    call_.kernels.pack_query({own.row, depth_, 1}, count, depth_, scale_, target);
  }
}

/// The empty softmax; a sink is a key without a value.
template <class T>
void Forward<T>::start(const TileRows& tile, const ThreadMemory<A>& own,
                       bool with_sink) const noexcept {
  constexpr A kNothing = -std::numeric_limits<A>::infinity();
  const Index padded = divide_up(tile.count, block_rows()) * block_rows();
  for (Index row = 0; row < padded; ++row) {
    own.max[row] = kNothing;
    own.sum[row] = 0;
    if (!with_sink || !call_.inputs.sink || row >= tile.count) continue;
    const auto sink = widened<A>((*call_.inputs.sink)(order_.head_of(tile.kv, tile.first + row)));
    if (sink == kNothing) continue;
    own.max[row] = call_.modified() ? sink : sink * std::numbers::log2e_v<A>;
    own.sum[row] = 1;
  }
  std::fill_n(own.context, padded * columns_, A{0});
}

template <class T>
template <class E>
kernels::Block<Arithmetic<T>, E> Forward<T>::block_of(const TileRows& tile, Index first,
                                                      Index segment, const E* keys,
                                                      const ThreadMemory<A>& own,
                                                      BlockRows<A>& scratch) const noexcept {
  const Index first_key = segment * kSegmentKeys;
  const Index keys_here = std::min(kSegmentKeys, call_.shape().keys - first_key);
  auto block = described_block<E>(call_, tile, first, first_key, keys_here, scratch);
  block.columns = static_cast<std::int32_t>(columns_);
  block.query = own.query + first * depth_;
  block.keys = keys;
  block.scores = own.scores;
  return block;
}

template <class T>
template <class E>
void Forward<T>::attend(const TileRows& tile, Index number, const Segment<E>& segment,
                        const ThreadMemory<A>& own, BlockRows<A>& scratch) const noexcept {
  for (Index first = 0; first < tile.count; first += block_rows()) {
    kernels::Block<A, E> block = block_of(tile, first, number, segment.keys, own, scratch);
    if (block.rows == 0) continue;
    block.values = segment.values;
    block.finite_values = segment.finite;
    const kernels::RowState<A> state{own.max + first, own.sum + first,
                                     own.context + first * columns_};
    kernels::attend(call_.kernels, block, state);
  }
}

/// Divides by the sums and writes context and log-sum-exp.
template <class T>
void Forward<T>::finish(const TileRows& tile, const ThreadMemory<A>& own) const noexcept {
  constexpr A kNothing = -std::numeric_limits<A>::infinity();
  const Index width = call_.shape().value_width;
  const TensorView<A, 4>& context = outputs_.context;
  for (Index row = 0; row < tile.count; ++row) {
    const Index t = order_.query_of(tile.first + row);
    const Index h = order_.head_of(tile.kv, tile.first + row);
    A& max = own.max[row];
    A& sum = own.sum[row];
    if (max == kNothing && sees_a_key(call_, tile.kv.b, h, t)) {
      max = sum = std::numeric_limits<A>::quiet_NaN();  // all visible scores are −∞: 0/0
    } else if (max == kNothing) {
      sum = 1;
    }
    A* target = context.data() + tile.kv.b * context.stride(0) + h * context.stride(1) +
                t * context.stride(2);
    if (context.stride(3) == 1) {
      call_.kernels.finish(own.context + row * columns_, sum, width, target);
    } else {
      call_.kernels.finish(own.context + row * columns_, sum, width, own.row);
      for (Index d = 0; d < width; ++d) target[d * context.stride(3)] = own.row[d];
    }
    if (outputs_.log_sum_exp) {
      const double unit = call_.modified() ? 1 : std::numbers::ln2;
      (*outputs_.log_sum_exp)(tile.kv.b, h, t) =
          static_cast<A>(static_cast<double>(max) * unit + std::log(static_cast<double>(sum)));
    }
  }
}

/// A second pass over the keys: the weights need the final maximum and sum.
template <class T>
void Forward<T>::write_weights(const TileRows& tile, const A* panels, const ThreadMemory<A>& own,
                               BlockRows<A>& scratch) const noexcept {
  const TensorView<A, 4>& weights = *outputs_.weights;
  const auto row_at = [&](Index row) {
    return weights.data() + tile.kv.b * weights.stride(0) +
           order_.head_of(tile.kv, tile.first + row) * weights.stride(1) +
           order_.query_of(tile.first + row) * weights.stride(2);
  };
  for (Index row = 0; row < tile.count; ++row) {
    A* target = row_at(row);
    for (Index s = 0; s < call_.shape().keys; ++s) target[s * weights.stride(3)] = 0;
  }
  for (Index segment = tile.keys.begin / kSegmentKeys; segment * kSegmentKeys < tile.keys.end;
       ++segment) {
    const A* segment_keys = cache_ == nullptr ? panels + (segment - plan_.first_segment) * key_step_
                                              : widened_keys(tile.kv, segment, own);
    for (Index first = 0; first < tile.count; first += block_rows()) {
      kernels::Block<A> block = block_of(tile, first, segment, segment_keys, own, scratch);
      if (block.rows == 0) continue;
      call_.kernels.weigh(block, own.max + first, own.sum + first);
      for (Index i = 0; i < block.rows; ++i) {
        const auto slot = static_cast<std::size_t>(i);
        A* target = row_at(first + i) + segment * kSegmentKeys * weights.stride(3);
        const A* from = own.scores + i * kernels::kScoreStride;
        for (Index j = scratch.begin[slot]; j < scratch.end[slot]; ++j) {
          if (scratch.flags[slot][j] != 0) target[j * weights.stride(3)] = from[j];
        }
      }
    }
  }
}

/// Many rows: each kv head is packed once, into a slot that the threads share, and its tiles of rows are handed out.
/// Work is taken in one fixed order, and waits only for work that comes before it.
template <class T>
void Forward<T>::run_by_tiles(const ThreadMemory<A>& own) noexcept {
  const Index segments = plan_.segments;
  const Index packs = cache_ == nullptr ? segments : 0;
  const Index per_head = packs + plan_.tiles;
  const Index total = plan_.kv_heads * per_head + (plan_.slots > 1 ? packs : 0);
  const Index rows = call_.shape().queries * order_.group;
  BlockRows<A> scratch;
  TileRows tile;
  for (;;) {
    const Index item = next_.fetch_add(1, std::memory_order_relaxed);
    if (item >= total) return;
    // With room for two heads the next one is packed before the tiles of this one, so that nobody waits for it.
    const bool looks_ahead = packs > 0 && plan_.slots > 1;
    const Index shifted = looks_ahead ? item - packs : item;
    Index number = shifted < 0 ? 0 : shifted / per_head;
    const Index part = shifted < 0 ? item : shifted % per_head;
    if (looks_ahead && shifted >= 0 && part < packs && ++number == plan_.kv_heads) continue;
    const KvHead kv = kv_head(number);
    const Index slot = plan_.slots == 0 ? 0 : number % plan_.slots;
    ForwardProgress& progress = at<ForwardProgress>(plan_.progress_at)[number];
    A* keys = at<A>(plan_.panels_at) + slot * segments * (key_step_ + value_step_);
    A* values = keys + segments * key_step_;
    std::uint8_t* finite = at<std::uint8_t>(plan_.finite_at) + slot * segments;
    if (part < packs) {
      if (number >= plan_.slots) {
        const ForwardProgress& before =
            at<ForwardProgress>(plan_.progress_at)[number - plan_.slots];
        while (before.done.load(std::memory_order_acquire) != plan_.tiles) {
          std::this_thread::yield();
        }
      }
      const bool all = pack_segment(kv, plan_.first_segment + part, keys + part * key_step_,
                                    values + part * value_step_, own.row);
      finite[part] = all ? 1 : 0;
      progress.packed.fetch_add(1, std::memory_order_release);
      continue;
    }
    while (progress.packed.load(std::memory_order_acquire) != packs) std::this_thread::yield();
    // The last rows first: under a causal mask they see most.
    const Index first = (per_head - 1 - part) * plan_.tile_rows;
    tile.assign(call_.plan.mask, order_, kv, first, std::min(plan_.tile_rows, rows - first));
    pack_queries(tile, own);
    start(tile, own, true);
    for (Index segment = tile.keys.begin / kSegmentKeys; segment * kSegmentKeys < tile.keys.end;
         ++segment) {
      const Index place = segment - plan_.first_segment;
      if (cache_ == nullptr) {
        attend(tile, segment,
               packed_segment(kv, segment, keys + place * key_step_, values + place * value_step_,
                              finite[place] != 0),
               own, scratch);
      } else {
        attend(tile, segment, cached_segment(kv, segment), own, scratch);
      }
    }
    finish(tile, own);
    if (outputs_.weights) write_weights(tile, keys, own, scratch);
    progress.done.fetch_add(1, std::memory_order_release);
  }
}

/// Few rows, one tile a kv head: the keys are divided among the threads, each of which packs what it reads. Every segment
/// keeps its own state, and whoever comes last merges them in order.
template <class T>
void Forward<T>::run_by_keys(const ThreadMemory<A>& own) noexcept {
  const Index rows = call_.shape().queries * order_.group;
  const Index padded = divide_up(rows, block_rows()) * block_rows();
  const Index state_elements = padded * (columns_ + 2);
  BlockRows<A> scratch;
  TileRows tile;
  for (;;) {
    const Index item = next_.fetch_add(1, std::memory_order_relaxed);
    if (item >= plan_.kv_heads * plan_.runs) return;
    const Index number = item / plan_.runs;
    const Index run = item % plan_.runs;
    const KvHead kv = kv_head(number);
    tile.assign(call_.plan.mask, order_, kv, 0, rows);
    pack_queries(tile, own);
    const Index begin = plan_.segments * run / plan_.runs;
    const Index end = plan_.segments * (run + 1) / plan_.runs;
    if (plan_.runs == 1) start(tile, own, true);
    const auto seen = [&](Index segment) {
      return segment * kSegmentKeys < tile.keys.end &&
             (segment + 1) * kSegmentKeys > tile.keys.begin;
    };
    for (Index place = begin; place < end; ++place) {
      const Index segment = plan_.first_segment + place;
      if (plan_.runs > 1) start(tile, own, false);
      if (seen(segment)) {
        if (cache_ == nullptr) {
          const bool finite = pack_segment(kv, segment, own.keys, own.values, own.row);
          attend(tile, segment, packed_segment(kv, segment, own.keys, own.values, finite), own,
                 scratch);
        } else {
          if (place + 1 < end && seen(segment + 1)) read_ahead(cached_segment(kv, segment + 1));
          attend(tile, segment, cached_segment(kv, segment), own, scratch);
        }
      }
      if (plan_.runs > 1) {
        A* state = at<A>(plan_.states_at) + (number * plan_.segments + place) * state_elements;
        std::copy_n(own.max, padded, state);
        std::copy_n(own.sum, padded, state + padded);
        std::copy_n(own.context, padded * columns_, state + 2 * padded);
      }
    }
    if (plan_.runs > 1) {
      ForwardProgress& progress = at<ForwardProgress>(plan_.progress_at)[number];
      if (progress.done.fetch_add(1, std::memory_order_acq_rel) != plan_.runs - 1) continue;
      start(tile, own, true);
      merge_runs(tile, number, own);
    }
    finish(tile, own);
  }
}

template <class T>
void Forward<T>::merge_runs(const TileRows& tile, Index number,
                            const ThreadMemory<A>& own) const noexcept {
  const Index padded = divide_up(tile.count, block_rows()) * block_rows();
  const Index state_elements = padded * (columns_ + 2);
  for (Index place = 0; place < plan_.segments; ++place) {
    A* state = at<A>(plan_.states_at) + (number * plan_.segments + place) * state_elements;
    for (Index first = 0; first < tile.count; first += block_rows()) {
      const auto rows = static_cast<std::int32_t>(std::min(block_rows(), tile.count - first));
      call_.kernels.merge(
          {own.max + first, own.sum + first, own.context + first * columns_},
          {state + first, state + padded + first, state + 2 * padded + first * columns_}, rows,
          static_cast<std::int32_t>(columns_), base_);
    }
  }
}

template <class T>
void Forward<T>::run(int threads) noexcept {
  for (Index number = 0; number < plan_.kv_heads; ++number) {
    new (at<ForwardProgress>(plan_.progress_at) + number) ForwardProgress;
  }
  const auto work = [this](int thread) {
    const ThreadMemory<A> own = memory_of(thread);
    if (plan_.by_keys) {
      run_by_keys(own);
    } else {
      run_by_tiles(own);
    }
  };
  if (threads == 1) return work(0);  // a parallel region of one costs as much as a short call
#pragma omp parallel num_threads(threads)
  work(omp_get_thread_num());
}

/// Runs a checked call.
template <class T>
void run(const AttentionInputs<T>& inputs, const KvCache<T>* cache, const AttentionPlan& plan,
         const AttentionOutputs<Arithmetic<T>>& outputs, const Setting& setting,
         const Options& options) {
  if (plan.shape.batch == 0 || plan.shape.heads == 0 || plan.shape.queries == 0) return;
  const Call<T> call{inputs, plan, kernels::table_of<Arithmetic<T>>(*setting.target),
                     setting.dropout};
  const ForwardPlan layout = plan_forward(
      call, {.with_weights = outputs.weights.has_value(), .cached = cache != nullptr}, setting);
  Forward<T> work(call, cache, outputs, layout);
  work.use(WorkspaceAccess::reserve(WorkspaceAccess::of(options), layout.bytes));
  work.run(layout.threads);
}

}  // namespace

template <class T>
void forward(const AttentionInputs<T>& inputs, const AttentionOutputs<Arithmetic<T>>& outputs,
             const Options& options) {
  constexpr std::string_view kOperation = "engine::forward";
  const Setting setting = setting_of(kOperation, options);
  const AttentionPlan plan = validate_inputs(kOperation, inputs);
  validate_outputs(kOperation, inputs, plan.shape, outputs);
  run<T>(inputs, nullptr, plan, outputs, setting, options);
}

template <class T>
void forward(const KvCache<T>& cache, const AttentionInputs<T>& inputs,
             const AttentionOutputs<Arithmetic<T>>& outputs, const Options& options) {
  constexpr std::string_view kOperation = "engine::forward(cache)";
  const CachedCall call = validate_cached(kOperation, cache, inputs, options);
  validate_outputs(kOperation, inputs, call.plan.shape, outputs);
  run<T>(inputs, &cache, call.plan, outputs, call.setting, options);
}

template <class T>
using Outputs = AttentionOutputs<Arithmetic<T>>;

#define QKV_INSTANTIATE(T)                                                               \
  template void forward(const AttentionInputs<T>&, const Outputs<T>&, const Options&);   \
  template void forward(const KvCache<T>&, const AttentionInputs<T>&, const Outputs<T>&, \
                        const Options&);
QKV_INSTANTIATE(double)
QKV_INSTANTIATE(float)
QKV_INSTANTIATE(Float16)
QKV_INSTANTIATE(BFloat16)
#undef QKV_INSTANTIATE

}  // namespace qkv::engine
