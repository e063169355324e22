#include "check/variant_scores.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/broadcast.h"

namespace qkv {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kLargestFloat16 = 65504;
constexpr double kFloat16Overflow = 65520;  ///< rounds to infinity from here on

double dot(const double* a, const double* b, Index width) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (Index i = 0; i < width; ++i) sum += a[i] * b[i];
  return sum;
}

Index mapped(HeadMap map, const AttentionShape& shape, std::size_t tensor, Index h) {
  if (map == HeadMap::First) return 0;
  if (tensor == kQuery) return h;
  return map == HeadMap::Modulo ? h % shape.kv_heads : h / shape.group();
}

double added_to_all(const VisibilityVariant& visibility) {
  for (const RuleVariant& rule : visibility.rules) {
    if (rule.application == Application::AddToOthers) return rule.value;
  }
  return 0;
}

/// A score to which the lowest number of a dtype was added so many times, rounded each time.
double with_lowest(double score, int times, DType dtype) {
  const auto add = [&](auto lowest) {
    using T = decltype(lowest);
    T sum = static_cast<T>(score);
    for (int i = 0; i < times; ++i) {
      sum = static_cast<T>(static_cast<double>(sum) + static_cast<double>(lowest));
    }
    return static_cast<double>(sum);
  };
  switch (dtype) {
    case DType::Float16:
      return add(Float16(-kLargestFloat16));
    case DType::BFloat16:
      return add(BFloat16(-0x1.fep127));
    case DType::Float32:
      return add(std::numeric_limits<float>::lowest());
    default:
      return add(std::numeric_limits<double>::lowest());
  }
}

}  // namespace

EmptyPolicy intended_policy(const Dump& dump) {
  switch (dump.empty_row) {
    case EmptyRow::Mean:
      return EmptyPolicy::Mean;
    case EmptyRow::NaN:
      return EmptyPolicy::NaN;
    default:
      return EmptyPolicy::Zero;
  }
}

HeadTable::HeadTable(const Dump& dump, const VariantHeads& heads, const Variant& variant)
    : heads_(heads),
      variant_(variant),
      count_{dump.shape.heads, dump.shape.kv_heads, dump.shape.kv_heads} {
  for (std::size_t i = 0; i < 3; ++i) {
    keys_[i] = VariantHeads::key(variant, i);
    slots_[i] = std::vector<Slot>(static_cast<std::size_t>(dump.shape.batch * count_[i]));
  }
}

const HeadMatrix& HeadTable::operator()(std::size_t tensor, Index b, Index head) {
  Slot& slot = slots_[tensor][static_cast<std::size_t>(b * count_[tensor] + head)];
  std::call_once(slot.once,
                 [&] { slot.matrix = heads_.load(variant_, keys_[tensor], tensor, b, head); });
  return *slot.matrix;
}

Scorer::Scorer(const Dump& dump, const Variant& variant, HeadTable& table)
    : dump_(dump),
      variant_(variant),
      table_(table),
      policy_(variant.empty == EmptyPolicy::Intended ? intended_policy(dump) : variant.empty) {}

Index Scorer::keys() const noexcept {
  switch (variant_.attended) {
    case Attended::Heads:
      return dump_.shape.kv_heads;
    case Attended::Batch:
      return dump_.shape.batch;
    default:
      return dump_.shape.keys;
  }
}

double Scorer::score_of(double product, Index b, Index h, Index t, Index s,
                        const KeyVisibility& visibility) const {
  const ScoreVariant& v = variant_.score;
  const double scale = v.scale.value_or(dump_.scale);
  if (v.overflow && std::fabs(product) >= kFloat16Overflow) {
    product = std::copysign(kInfinity, product);
  }
  if (v.saturate) product = std::clamp(product, -kLargestFloat16, kLargestFloat16);
  double added = 0;
  if (variant_.attended == Attended::Keys) {
    if (dump_.bias && v.bias_order != BiasOrder::Missing) {
      const auto bias = std::as_const(*dump_.bias).view();
      const Index sample = sample_of(v.bias_sample, dump_.shape, b, h);
      double value = v.bias_transposed ? broadcast_at(bias, sample, h, s, t)
                                       : broadcast_at(bias, sample, h, t, s);
      if (value != -kInfinity) value *= v.bias_factor;
      added += v.bias_order == BiasOrder::Scaled ? scale * value : value;
    }
    if (dump_.alibi_slopes && v.alibi_factor != 0) {
      const Index head = v.alibi_head == AlibiHead::Own     ? h
                         : v.alibi_head == AlibiHead::First ? 0
                                                            : dump_.shape.heads - 1 - h;
      const Index position = t + corner_offset(dump_, v.alibi_corner, b);
      added -= v.alibi_factor * (*dump_.alibi_slopes)[static_cast<std::size_t>(head)] *
               std::fabs(static_cast<double>(position - s));
    }
  }
  const auto cap = v.softcap ? v.softcap : dump_.softcap;
  if (!cap || v.softcap_order == SoftcapOrder::Missing) return scale * product + added;
  switch (v.softcap_order) {
    case SoftcapOrder::AfterBias:
      return *cap * std::tanh((scale * product + added) / *cap);
    case SoftcapOrder::AfterMask: {
      const double mask = visibility.hidden ? -kInfinity : 0.0;
      return *cap * std::tanh((scale * product + added + mask) / *cap);
    }
    case SoftcapOrder::BeforeScale:
      return scale * *cap * std::tanh(product / *cap) + added;
    default:
      return *cap * std::tanh(scale * product / *cap) + added;
  }
}

void Scorer::score(Index b, Index h, Index t, QueryScores& query) const {
  const AttentionShape& shape = dump_.shape;
  const auto count = static_cast<std::size_t>(keys());
  query.visibility.resize(count);
  query.key.resize(count);
  query.value.resize(count);
  query.key_square.resize(count);
  query.key_variance.resize(count);
  query.value_variance.resize(count);
  query.score.resize(count);
  visibility_of(dump_, variant_, b, h, t, query.visibility);

  const HeadMatrix& queries = table_(kQuery, b, mapped(variant_.head[kQuery], shape, kQuery, h));
  const double* q = queries.row(t);
  query.query_square = queries.squares[static_cast<std::size_t>(t)];
  query.query_variance = queries.variances[static_cast<std::size_t>(t)];
  const Index key_head = mapped(variant_.head[kKey], shape, kKey, h);
  const Index value_head = mapped(variant_.head[kValue], shape, kValue, h);
  for (std::size_t s = 0; s < count; ++s) {
    const auto index = static_cast<Index>(s);
    Index row = index;
    Index sample = b;
    Index head_of_key = key_head;
    Index head_of_value = value_head;
    if (variant_.attended == Attended::Heads) {
      row = t;
      head_of_key = head_of_value = index;
    } else if (variant_.attended == Attended::Batch) {
      row = t;
      sample = index;
    }
    // One lookup a row where the keys are tokens.
    if (s == 0 || variant_.attended != Attended::Keys) {
      const HeadMatrix& keys_of = table_(kKey, sample, head_of_key);
      query.key[s] = keys_of.row(row);
      query.key_square[s] = keys_of.squares[static_cast<std::size_t>(row)];
      query.key_variance[s] = keys_of.variances[static_cast<std::size_t>(row)];
      const HeadMatrix& values_of = table_(kValue, sample, head_of_value);
      query.value[s] = values_of.row(row);
      query.value_variance[s] = values_of.variances[static_cast<std::size_t>(row)];
      if (variant_.attended == Attended::Keys) {
        for (std::size_t j = 1; j < count; ++j) {
          query.key[j] = query.key[0] + static_cast<Index>(j) * shape.key_width;
          query.value[j] = query.value[0] + static_cast<Index>(j) * shape.value_width;
        }
        query.key_square = keys_of.squares;
        query.key_variance = keys_of.variances;
        query.value_variance = values_of.variances;
      }
    }
  }

  const bool capped_mask = variant_.score.softcap_order == SoftcapOrder::AfterMask;
  query.scale = variant_.score.scale.value_or(dump_.scale);
  query.empty = true;
  query.lost = false;
  bool sees_a_key = false;
  bool finite_fill = false;
  const double shared = added_to_all(variant_.visibility);
  for (std::size_t s = 0; s < count; ++s) {
    const KeyVisibility& visibility = query.visibility[s];
    query.score[s] = -kInfinity;
    if (visibility.hidden && !capped_mask) continue;
    sees_a_key = true;
    if (visibility.filled) {
      query.score[s] = visibility.fill;
      finite_fill = true;
    } else {
      const double product = dot(q, query.key[s], shape.key_width);
      query.score[s] =
          score_of(product, b, h, t, static_cast<Index>(s), visibility) + visibility.added + shared;
      query.score[s] *= variant_.softmax.exponent;
    }
    if (query.score[s] != -kInfinity) query.empty = false;
  }
  if (finite_fill || !query.empty) return;
  if (variant_.score.overflow && sees_a_key && variant_.empty == EmptyPolicy::Intended) {
    query.empty = false;
    query.lost = true;
    return;
  }
  if (policy_ < EmptyPolicy::Softmax) return;
  query.unmasked.resize(count);
  for (std::size_t s = 0; s < count; ++s) {
    const double product = dot(q, query.key[s], shape.key_width);
    query.unmasked[s] = variant_.softmax.exponent *
                        score_of(product, b, h, t, static_cast<Index>(s), KeyVisibility{});
    if (policy_ >= EmptyPolicy::AddedLowest) {
      const DType dtype = policy_ == EmptyPolicy::AddedLowest ? dump_.ran_in : DType::Float32;
      query.unmasked[s] = with_lowest(query.unmasked[s], query.visibility[s].hiding, dtype);
    }
  }
}

}  // namespace qkv
