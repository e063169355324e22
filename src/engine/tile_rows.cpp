#include "engine/tile_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "base/broadcast.h"
#include "base/overloaded.h"

namespace qkv::engine {
namespace {

using mask_rules::BooleanTensor;
using mask_rules::Documents;
using mask_rules::KeyPadding;

constexpr std::array<std::uint8_t, kernels::kSegmentKeys> make_all_visible() {
  std::array<std::uint8_t, kernels::kSegmentKeys> flags{};
  flags.fill(1);
  return flags;
}
constexpr auto kAllVisible = make_all_visible();

/// Of a row that sees nothing: read, and then hidden.
template <class A>
constexpr std::array<A, kernels::kSegmentKeys> kNoBias{};

struct Row {
  Index b;
  Index h;
  Index t;
};

/// Whether a rule treats two rows of a sample alike, key by key.
bool same_keys(const BoundMask::Pointwise& rule, const Row& x, const Row& y) noexcept {
  return std::visit(Overloaded{
                        [](const KeyPadding&) { return true; },
                        [&](const Documents& r) {
                          const Index b = broadcast_index(r.query->shape(0), x.b);
                          return (*r.query)(b, x.t) == (*r.query)(b, y.t);
                        },
                        [&](const BooleanTensor& r) {
                          return (r.keep->shape(1) == 1 || x.h == y.h) &&
                                 (r.keep->shape(2) == 1 || x.t == y.t);
                        },
                    },
                    rule);
}

/// flags[j] &= whether the rule keeps key first_key + j, for begin <= j < end.
void apply(const BoundMask::Pointwise& rule, const Row& row, Index first_key, std::int32_t begin,
           std::int32_t end, std::uint8_t* flags) noexcept {
  const auto keep_where = [&](const bool* keep) {
    for (std::int32_t j = begin; j < end; ++j) {
      flags[j] = static_cast<std::uint8_t>(flags[j] & static_cast<std::uint8_t>(keep[j]));
    }
  };
  std::visit(
      Overloaded{
          [&](const KeyPadding& r) {
            keep_where(&(*r.keep)(broadcast_index(r.keep->shape(0), row.b), 0) + first_key);
          },
          [&](const Documents& r) {
            const Index document = (*r.query)(broadcast_index(r.query->shape(0), row.b), row.t);
            const Index* keys = &(*r.key)(broadcast_index(r.key->shape(0), row.b), 0) + first_key;
            for (std::int32_t j = begin; j < end; ++j) {
              flags[j] = static_cast<std::uint8_t>(flags[j] & std::uint8_t{keys[j] == document});
            }
          },
          [&](const BooleanTensor& r) {
            const bool* keep =
                &broadcast_at(std::as_const(*r.keep).view(), row.b, row.h, row.t, Index{0});
            if (r.keep->shape(3) > 1) {
              keep_where(keep + first_key);
            } else if (!*keep) {
              std::fill(flags + begin, flags + end, std::uint8_t{0});
            }
          },
      },
      rule);
}

/// Where the flags of a rule lie as they are, from first_key on; null where they are not stored key by key.
const std::uint8_t* stored_flags(const BoundMask::Pointwise& rule, const Row& row,
                                 Index first_key) noexcept {
  static_assert(sizeof(bool) == 1);
  const bool* flags = std::visit(
      Overloaded{
          [&](const KeyPadding& r) {
            return &(*r.keep)(broadcast_index(r.keep->shape(0), row.b), 0) + first_key;
          },
          [](const Documents&) -> const bool* { return nullptr; },
          [&](const BooleanTensor& r) -> const bool* {
            if (r.keep->shape(3) == 1) return nullptr;
            return &broadcast_at(std::as_const(*r.keep).view(), row.b, row.h, row.t, Index{0}) +
                   first_key;
          },
      },
      rule);
  return reinterpret_cast<const std::uint8_t*>(flags);
}

/// The bias of a row from first_key on: where it lies, or copied into `storage`. Valid for begin <= j < end.
template <class T>
const Arithmetic<T>* bias_row(const TensorView<const T, 4>& bias, const Row& row, Index first_key,
                              std::int32_t begin, std::int32_t end,
                              Arithmetic<T>* storage) noexcept {
  const Index step = bias.shape(3) == 1 ? 0 : bias.stride(3);
  const T* data = &broadcast_at(bias, row.b, row.h, row.t, Index{0}) + step * first_key;
  if constexpr (std::is_same_v<T, Arithmetic<T>>) {
    if (step == 1) return data;
  }
  for (std::int32_t j = begin; j < end; ++j) {
    storage[j] = widened<Arithmetic<T>>(data[step * j]);
  }
  return storage;
}

/// flags[j] &= bias[j] != −∞.
template <class A>
void hide_by_bias(const A* bias, std::int32_t begin, std::int32_t end,
                  std::uint8_t* flags) noexcept {
  for (std::int32_t j = begin; j < end; ++j) {
    if (bias[j] == -std::numeric_limits<A>::infinity()) flags[j] = 0;
  }
}

/// Asks for what the next segment will read of a dense row: runs of a few lines, a row apart, are not foreseen by the processor.
template <class E>
void read_ahead(const E* next) noexcept {
  constexpr Index kLine = 64 / sizeof(E);
  for (Index j = 0; j < kernels::kSegmentKeys; j += kLine) __builtin_prefetch(next + j, 0, 2);
}

/// Draws [begin, end) together to the first and the last visible key; returns whether hidden ones are left between. Then
/// to whole vectors only: their flags are asked anyhow, and ends that differ from row to row are hard to foresee.
bool tighten(const std::uint8_t* flags, std::int32_t& begin, std::int32_t& end) noexcept {
  const std::int32_t least = begin;
  const std::int32_t most = end;
  const auto length = static_cast<std::size_t>(end - begin);
  const auto* first = static_cast<const std::uint8_t*>(std::memchr(flags + begin, 1, length));
  if (first == nullptr) {
    begin = end = 0;
    return false;
  }
  begin = static_cast<std::int32_t>(first - flags);
  while (flags[end - 1] == 0) --end;
  if (std::memchr(flags + begin, 0, static_cast<std::size_t>(end - begin)) == nullptr) return false;
  constexpr std::int32_t kWhole = 32;  // a multiple of every target's vectors
  begin = std::max(least, begin / kWhole * kWhole);
  end = std::min(most, (end + kWhole - 1) / kWhole * kWhole);
  return true;
}

/// From the first to the last key of a row's document. Rows come in order, so that a search goes on from the row before.
class DocumentRange {
 public:
  KeyRange of(const Documents& rule, Index b, Index t, const KeyRange& whole) noexcept {
    const Index document = (*rule.query)(broadcast_index(rule.query->shape(0), b), t);
    const Tensor<Index, 2>& all = *rule.key;
    if (whole.begin == whole.end) return whole;
    const Index* keys = &all(broadcast_index(all.shape(0), b), 0);
    KeyRange range = whole;
    if (document == document_) {
      // What lies between the old range and what was found in it holds no key of the document.
      if (whole_.begin <= whole.begin) range.begin = std::max(range.begin, found_.begin);
      if (whole_.end >= whole.end) range.end = std::min(range.end, found_.end);
    }
    while (range.begin < range.end && keys[range.begin] != document) ++range.begin;
    while (range.end > range.begin && keys[range.end - 1] != document) --range.end;
    if (range.begin >= range.end) return {0, 0};
    document_ = document;
    whole_ = whole;
    found_ = range;
    return range;
  }

 private:
  std::optional<Index> document_;
  KeyRange whole_;
  KeyRange found_;
};

}  // namespace

void TileRows::assign(const BoundMask& mask, const RowOrder& order, const KvHead& head,
                      Index first_row, Index rows) noexcept {
  kv = head;
  first = first_row;
  count = rows;
  keys = {std::numeric_limits<Index>::max(), 0};
  common = {0, std::numeric_limits<Index>::max()};
  const auto& rules = mask.pointwise_rules();
  const Documents* only_documents =
      rules.size() == 1 ? std::get_if<Documents>(&rules.front()) : nullptr;
  if (!mask.depends_on_query() && only_documents == nullptr) {
    keys = common = mask.key_range(head.b, 0);
    std::fill_n(ranges.begin(), rows, keys);
    return;
  }
  DocumentRange documents;
  for (Index row = 0; row < rows; ++row) {
    KeyRange& range = ranges[static_cast<std::size_t>(row)];
    const Index t = order.query_of(first_row + row);
    if (row > 0 && t == order.query_of(first_row + row - 1)) {
      range = ranges[static_cast<std::size_t>(row - 1)];
      continue;
    }
    const KeyRange whole = mask.key_range(head.b, t);
    range = only_documents == nullptr ? whole : documents.of(*only_documents, head.b, t, whole);
    common.begin = std::max(common.begin, range.begin);
    common.end = std::min(common.end, range.end);
    if (range.begin == range.end) continue;
    keys.begin = std::min(keys.begin, range.begin);
    keys.end = std::max(keys.end, range.end);
  }
  if (keys.begin >= keys.end) keys = {0, 0};
}

template <class T>
bool describe(const Call<T>& call, const TileRows& tile, Index first, Index rows, Index first_key,
              Index keys, BlockRows<Arithmetic<T>>& block) noexcept {
  using A = Arithmetic<T>;
  const RowOrder order{call.shape().group()};
  const auto& rules = call.plan.mask.pointwise_rules();
  if (rules.empty() && !call.modified() && !call.dropout && tile.common.begin <= first_key &&
      tile.common.end >= first_key + keys) {
    block.visibility = {.begin = 0, .end = static_cast<std::int32_t>(keys)};
    block.modifiers = {};
    for (Index i = 0; i < rows; ++i) {
      const auto slot = static_cast<std::size_t>(i);
      block.begin[slot] = 0;
      block.end[slot] = static_cast<std::int32_t>(keys);
      block.flags[slot] = kAllVisible.data();
    }
    return true;
  }
  std::int32_t least = std::numeric_limits<std::int32_t>::max();
  std::int32_t most = 0;
  bool holes = false;
  Row previous{};
  for (Index i = 0; i < rows; ++i) {
    const auto slot = static_cast<std::size_t>(i);
    const KeyRange& range = tile.ranges[static_cast<std::size_t>(first + i)];
    auto begin = static_cast<std::int32_t>(std::clamp<Index>(range.begin - first_key, 0, keys));
    auto end = static_cast<std::int32_t>(std::clamp<Index>(range.end - first_key, 0, keys));
    const Row row{tile.kv.b, order.head_of(tile.kv, tile.first + first + i),
                  order.query_of(tile.first + first + i)};
    if (begin >= end) begin = end = 0;
    std::uint8_t* flags = block.flag_rows[slot].data();
    block.flags[slot] = kAllVisible.data();
    block.bias[slot] = kNoBias<A>.data();
    const bool goes_on = range.end > first_key + keys;
    if (begin < end && call.inputs.bias) {
      block.bias[slot] =
          bias_row<T>(*call.inputs.bias, row, first_key, begin, end, block.bias_rows[slot].data());
      const bool in_place = block.bias[slot] != block.bias_rows[slot].data();
      if (goes_on && in_place) read_ahead(block.bias[slot] + kernels::kSegmentKeys);
    }
    if (begin < end && (!rules.empty() || call.inputs.bias)) {
      const KeyRange* before =
          i > 0 ? &tile.ranges[static_cast<std::size_t>(first + i - 1)] : nullptr;
      const bool repeats = before != nullptr && !call.inputs.bias && before->begin == range.begin &&
                           before->end == range.end &&
                           std::all_of(rules.begin(), rules.end(), [&](const auto& rule) {
                             return same_keys(rule, previous, row);
                           });
      if (repeats) {
        block.flags[slot] = block.flags[slot - 1];
        begin = block.begin[slot - 1];
        end = block.end[slot - 1];
      } else {
        const std::uint8_t* stored = rules.size() == 1 && !call.inputs.bias
                                         ? stored_flags(rules.front(), row, first_key)
                                         : nullptr;
        if (stored != nullptr) {
          block.flags[slot] = stored;
          if (goes_on) read_ahead(stored + kernels::kSegmentKeys);
          holes = tighten(stored, begin, end) || holes;
        } else {
          const bool by_bias =
              call.inputs.bias && call.kernels.has_lowest(block.bias[slot] + begin, end - begin);
          if (!rules.empty() || by_bias) {
            std::fill(flags + begin, flags + end, std::uint8_t{1});
            for (const auto& rule : rules) apply(rule, row, first_key, begin, end, flags);
            if (by_bias) hide_by_bias<A>(block.bias[slot], begin, end, flags);
            block.flags[slot] = flags;
            holes = tighten(flags, begin, end) || holes;
          }
        }
      }
    }
    previous = row;
    block.begin[slot] = begin;
    block.end[slot] = end;
    if (begin < end) {
      least = std::min(least, begin);
      most = std::max(most, end);
    }
    block.queries[slot] = static_cast<std::uint32_t>(row.t);
    block.heads[slot] = static_cast<std::uint32_t>(row.b * call.shape().heads + row.h);
    if (call.inputs.alibi) {
      block.slopes[slot] =
          static_cast<A>(call.inputs.alibi->slopes[static_cast<std::size_t>(row.h)]);
      block.offsets[slot] = static_cast<double>(row.t + call.plan.alibi_offset(row.b) - first_key);
    }
  }
  if (least >= most) return false;

  kernels::Visibility& visibility = block.visibility;
  visibility.begin = least;
  visibility.end = most;
  visibility.all = !holes;
  for (Index i = 0; i < rows; ++i) {
    const auto slot = static_cast<std::size_t>(i);
    visibility.all = visibility.all && block.begin[slot] == least && block.end[slot] == most;
  }
  visibility.row_begin = block.begin.data();
  visibility.row_end = block.end.data();
  visibility.flags = holes ? block.flags.data() : nullptr;

  if (call.dropout) {
    const Dropout& dropout = *call.dropout;
    block.dropout.threshold =
        static_cast<std::uint32_t>(std::min(dropout.probability * 0x1p32, 0x1p32 - 1));
    block.dropout.scale = static_cast<A>(1 / (1 - dropout.probability));
    block.dropout.key0 = static_cast<std::uint32_t>(dropout.seed);
    block.dropout.key1 = static_cast<std::uint32_t>(dropout.seed >> 32);
    block.dropout.offset = dropout.offset;
    block.dropout.first_group = static_cast<std::uint32_t>(first_key / 4);
    block.dropout.queries = block.queries.data();
    block.dropout.heads = block.heads.data();
  }
  kernels::Modifiers<A>& modifiers = block.modifiers;
  // Neither 0 nor infinity in A, and no inverse that is: beyond these a softcap rounds to all or to nothing.
  constexpr double kLeast = std::numeric_limits<A>::min();
  modifiers.softcap = call.inputs.softcap
                          ? static_cast<A>(std::clamp(*call.inputs.softcap, kLeast, 1 / kLeast))
                          : A{0};
  modifiers.bias = call.inputs.bias ? block.bias.data() : nullptr;
  modifiers.alibi_slopes = call.inputs.alibi ? block.slopes.data() : nullptr;
  modifiers.alibi_offsets = block.offsets.data();
  return true;
}

template <class T>
bool sees_a_key(const Call<T>& call, Index b, Index h, Index t) noexcept {
  const KeyRange range = call.plan.mask.key_range(b, t);
  for (Index s = range.begin; s < range.end; ++s) {
    if (!call.plan.mask.visible(b, h, t, s)) continue;
    if (!call.inputs.bias || static_cast<double>(broadcast_at(*call.inputs.bias, b, h, t, s)) !=
                                 -std::numeric_limits<double>::infinity()) {
      return true;
    }
  }
  return false;
}

template <class T>
using Description = BlockRows<Arithmetic<T>>;

#define QKV_INSTANTIATE(T)                                                            \
  template bool describe(const Call<T>&, const TileRows&, Index, Index, Index, Index, \
                         Description<T>&) noexcept;                                   \
  template bool sees_a_key(const Call<T>&, Index, Index, Index) noexcept;
QKV_INSTANTIATE(double)
QKV_INSTANTIATE(float)
QKV_INSTANTIATE(Float16)
QKV_INSTANTIATE(BFloat16)
#undef QKV_INSTANTIATE

}  // namespace qkv::engine
