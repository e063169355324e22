#include "check/variant_heads.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "check/variant_projection.h"

namespace qkv {
namespace {

/// Where element d of token t of head h lies, before the heads were split: a token and a column.
std::pair<Index, Index> source_of(HeadOrder order, const HeadSizes& sizes, Index h, Index t,
                                  Index d) {
  switch (order) {
    case HeadOrder::View: {
      const Index row = h * sizes.tokens + t;
      return {row / sizes.heads, (row % sizes.heads) * sizes.width + d};
    }
    case HeadOrder::Interleaved:
      return {t, d * sizes.heads + h};
    default:
      return {t, h * sizes.width + d};
  }
}

void normalise(const DumpQkNorm& norm, const NormVariant& variant, std::size_t tensor,
               HeadMatrix& matrix) {
  const auto& weight = tensor == kQuery ? norm.query_weight : norm.key_weight;
  for (Index t = 0; t < matrix.rows; ++t) {
    double* row = matrix.elements.data() + t * matrix.width;
    double sum = 0;
    for (Index d = 0; d < matrix.width; ++d) sum += row[d] * row[d];
    const double factor = 1 / std::sqrt(sum / static_cast<double>(matrix.width) + norm.epsilon);
    for (Index d = 0; d < matrix.width; ++d) {
      row[d] *= factor * (weight && !variant.unweighted ? (*weight)(d) : 1.0);
    }
  }
}

void turn(const DumpRotary& rotary, const RotaryVariant& variant, std::size_t tensor, Index b,
          Index head, HeadMatrix& matrix) {
  const auto& positions = tensor == kQuery ? rotary.query_positions : rotary.key_positions;
  const Index width = variant.width.value_or(rotary.options.width.value_or(matrix.width));
  const bool halves =
      (rotary.options.pairing == RotaryPairing::Halves) != variant.pairing_exchanged;
  const double base = variant.base.value_or(rotary.options.base);
  std::vector<double> frequency;
  for (Index i = 0; i < width / 2; ++i) {
    frequency.push_back(std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(width)));
  }
  const double turns = (variant.backward ? -1.0 : 1.0) * (variant.twice ? 2.0 : 1.0);
  for (Index t = 0; t < matrix.rows; ++t) {
    Index at = variant.over_heads ? head
               : variant.counted  ? t
                                  : positions(positions.shape(0) == 1 ? 0 : b, t);
    if (variant.reset > 0) at %= variant.reset;
    const double position = static_cast<double>(at + variant.shift) * variant.factor * turns;
    double* row = matrix.elements.data() + t * matrix.width;
    for (Index i = 0; i < width / 2; ++i) {
      const double angle = position * frequency[static_cast<std::size_t>(i)];
      const double cosine = std::cos(angle);
      const double sine = std::sin(angle);
      double& x = row[halves ? i : 2 * i];
      double& y = row[halves ? i + width / 2 : 2 * i + 1];
      const double turned = x * cosine - y * sine;
      y = x * sine + y * cosine;
      x = turned;
    }
  }
}

}  // namespace

VariantHeads::VariantHeads(const Dump& dump, std::size_t bytes)
    : dump_(dump), arithmetic_(arithmetic_of(dump.ran_in, dump.ran_in)), capacity_(bytes) {
  if (!dump.projections) return;
  const DumpProjections& p = *dump.projections;
  const Tensor<double, 2>* weights[] = {&p.query_weight, &p.key_weight, &p.value_weight};
  for (std::size_t i = 0; i < 3; ++i) {
    double sum = 0;
    for (const double element : weights[i]->elements()) sum += element * element;
    const auto count = static_cast<double>(weights[i]->elements().size());
    weight_square_[i] = count > 0 ? sum / count : 0;
  }
}

double VariantHeads::projection_variance(std::size_t tensor, Index b, Index token) const {
  const Tensor<double, 3>& input =
      tensor == kQuery ? dump_.projections->input : dump_.projections->key_input;
  const Index width = input.shape(2);
  const double* x = input.data() + (b * input.shape(1) + token) * width;
  double square = 0;
  for (Index i = 0; i < width; ++i) square += x[i] * x[i];
  const double products = square * weight_square_[tensor];
  return sum_variance(arithmetic_, products, std::sqrt(products), width) +
         storage_variance(arithmetic_, std::sqrt(products));
}

std::string VariantHeads::key(const Variant& variant, std::size_t tensor) {
  const ProjectionVariant& p = variant.projection;
  std::string key = fmt::format("{}:{}", tensor, static_cast<int>(variant.split[tensor]));
  if (reprojected(p, tensor)) {
    key += fmt::format(" p{},{},{:d},{}", p.weight[tensor], p.bias[tensor], p.transposed[tensor],
                       static_cast<int>(p.activation[tensor]));
    if (p.packed_order) {
      key += fmt::format(" o{}{}{}{:d}", (*p.packed_order)[0], (*p.packed_order)[1],
                         (*p.packed_order)[2], p.packed_by_head);
    }
  }
  if (tensor == kValue) return key;
  if (const NormVariant& n = variant.norm[tensor]; n != NormVariant{}) {
    key += fmt::format(" n{:d}{:d}{:d}", n.missing, n.unweighted, n.order_exchanged);
  }
  if (const RotaryVariant& r = variant.rotary[tensor]; r != RotaryVariant{}) {
    key += fmt::format(" r{:d}{:d}{:d}{:d}{:d}{:d},{},{},{},{},{}", r.missing, r.pairing_exchanged,
                       r.over_heads, r.counted, r.backward, r.twice, r.base.value_or(0),
                       r.width.value_or(-1), r.shift, r.reset, r.factor);
  }
  return key;
}

std::shared_ptr<const HeadMatrix> VariantHeads::make(const Variant& variant, std::size_t tensor,
                                                     Index b, Index head) const {
  const HeadSizes sizes = sizes_of(dump_.shape, tensor);
  const Tensor<double, 4>& given =
      tensor == kQuery ? dump_.query : (tensor == kKey ? dump_.key : dump_.value);
  auto matrix = std::make_shared<HeadMatrix>();
  matrix->rows = sizes.tokens;
  matrix->width = sizes.width;
  matrix->elements.resize(static_cast<std::size_t>(sizes.tokens * sizes.width));
  const HeadOrder order = variant.split[tensor];
  std::optional<Projector> project;
  if (dump_.projections && reprojected(variant.projection, tensor)) {
    project.emplace(dump_, variant.projection, tensor);
  }
  double* next = matrix->elements.data();
  matrix->variances.assign(static_cast<std::size_t>(sizes.tokens), 0.0);
  const bool computed = project || (dump_.projections && !dump_.has_heads);
  for (Index t = 0; t < sizes.tokens; ++t) {
    if (computed) {
      const Index token = source_of(order, sizes, head, t, 0).first;
      matrix->variances[static_cast<std::size_t>(t)] = projection_variance(tensor, b, token);
    }
    for (Index d = 0; d < sizes.width; ++d) {
      const auto [token, column] = source_of(order, sizes, head, t, d);
      *next++ = project ? (*project)(b, token, column)
                        : given(b, column / sizes.width, token, column % sizes.width);
    }
  }
  if (tensor != kValue) {
    const NormVariant& norm = variant.norm[tensor];
    const RotaryVariant& rotary = variant.rotary[tensor];
    const bool normed = dump_.qk_norm && !norm.missing;
    const bool after = normed && dump_.qk_norm->after_rotary != norm.order_exchanged;
    if (normed && !after) normalise(*dump_.qk_norm, norm, tensor, *matrix);
    if (dump_.rotary && !rotary.missing) turn(*dump_.rotary, rotary, tensor, b, head, *matrix);
    if (after) normalise(*dump_.qk_norm, norm, tensor, *matrix);
  }
  matrix->squares.resize(static_cast<std::size_t>(sizes.tokens));
  for (Index t = 0; t < sizes.tokens; ++t) {
    double sum = 0;
    for (Index d = 0; d < sizes.width; ++d) sum += matrix->row(t)[d] * matrix->row(t)[d];
    matrix->squares[static_cast<std::size_t>(t)] = sum;
  }
  return matrix;
}

std::shared_ptr<const HeadMatrix> VariantHeads::load(const Variant& variant, const std::string& key,
                                                     std::size_t tensor, Index b,
                                                     Index head) const {
  const std::string name = fmt::format("{} {},{}", key, b, head);
  {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(name);
    if (found != entries_.end()) {
      found->second.used = ++clock_;
      return found->second.matrix;
    }
  }
  auto matrix = make(variant, tensor, b, head);
  const std::lock_guard lock(mutex_);
  if (const auto found = entries_.find(name); found != entries_.end()) return found->second.matrix;
  bytes_ += (matrix->elements.size() + matrix->squares.size()) * sizeof(double);
  while (bytes_ > capacity_ && !entries_.empty()) {
    auto oldest = entries_.begin();
    for (auto i = entries_.begin(); i != entries_.end(); ++i) {
      if (i->second.used < oldest->second.used) oldest = i;
    }
    const HeadMatrix& old = *oldest->second.matrix;
    bytes_ -= (old.elements.size() + old.squares.size()) * sizeof(double);
    entries_.erase(oldest);
  }
  entries_[name] = {matrix, ++clock_};
  return matrix;
}

}  // namespace qkv
