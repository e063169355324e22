#include "check/variant_rows.h"

#include <omp.h>

#include <algorithm>
#include <cmath>

#include "base/rounding.h"
#include "check/variant_context.h"
#include "check/variant_projection.h"

namespace qkv {
namespace {

constexpr double square(double x) { return x * x; }

}  // namespace

Evaluator::Evaluator(const Dump& dump, int threads)
    : dump_(dump),
      heads_(dump),
      arithmetic_(arithmetic_of(dump.ran_in, dump.ran_in)),
      threads_(threads > 0 ? threads : omp_get_max_threads()),
      width_(projected() ? dump.output->shape(2) : dump.shape.value_width) {
  const Tensor<double, 4>* context = dump.context ? &*dump.context : nullptr;
  const auto elements = projected() ? dump.output->elements() : context->elements();
  double sum = 0;
  double count = 0;
  for (const double element : elements) {
    if (!std::isfinite(element)) continue;
    sum += element * element;
    ++count;
  }
  if (count > 0) smallest_unit_ = 0.01 * arithmetic_.output * std::sqrt(sum / count);
  if (!dump.output_projection) return;
  const Tensor<double, 2>& weight = dump.output_projection->weight;
  projection_norm_ = Tensor<double, 1>({weight.shape(0)});
  for (Index i = 0; i < weight.shape(0); ++i) {
    for (Index j = 0; j < weight.shape(1); ++j) projection_norm_(i) += square(weight(i, j));
  }
}

std::vector<OutputRow> Evaluator::all_rows() const {
  std::vector<OutputRow> rows;
  const AttentionShape& shape = dump_.shape;
  for (Index b = 0; b < shape.batch; ++b) {
    for (Index h = 0; h < (projected() ? 1 : shape.heads); ++h) {
      for (Index t = 0; t < shape.queries; ++t) rows.push_back({b, h, t});
    }
  }
  return rows;
}

std::span<const double> Evaluator::recorded(const OutputRow& row) const {
  const auto width = static_cast<std::size_t>(width_);
  if (projected()) return {&(*dump_.output)(row.b, row.t, 0), width};
  return {&(*dump_.context)(row.b, row.h, row.t, 0), width};
}

double Evaluator::cost(const Variant& variant) const {
  const AttentionShape& shape = dump_.shape;
  double rows = projected() ? static_cast<double>(shape.heads) : 1;
  if (variant.output.merge == HeadOrder::Interleaved && !projected()) {
    rows *= static_cast<double>(std::min(shape.heads, shape.value_width));
  }
  if (variant.softmax.axis == SoftmaxAxis::Queries) rows += static_cast<double>(shape.queries);
  if (variant.softmax.transposed) rows += static_cast<double>(shape.queries);
  if (variant.softmax.axis == SoftmaxAxis::Heads || variant.head_mean != HeadMean::None) {
    rows *= static_cast<double>(shape.heads);
  }
  if (variant.softmax.axis == SoftmaxAxis::Batch) rows *= static_cast<double>(shape.batch);
  return rows;
}

std::vector<double> Evaluator::weights(const Variant& variant, const OutputRow& row) const {
  HeadTable table(dump_, heads_, variant);
  const Scorer scorer(dump_, variant, table);
  QueryScores query;
  scorer.score(row.b, row.h, row.t, query);
  scorer.weigh(row.h, query);
  return query.weight;
}

double Evaluator::log_sum_exp(const Variant& variant, const OutputRow& row) const {
  HeadTable table(dump_, heads_, variant);
  const Scorer scorer(dump_, variant, table);
  QueryScores query;
  scorer.score(row.b, row.h, row.t, query);
  scorer.weigh(row.h, query);
  return query.log_sum_exp;
}

VariantRows Evaluator::rows(const Variant& variant, std::span<const OutputRow> wanted) const {
  const AttentionShape& shape = dump_.shape;
  const Index heads = shape.heads;
  const Index width = shape.value_width;
  const HeadOrder merge = variant.output.merge;
  const bool mean = variant.head_mean == HeadMean::Context;
  const bool whole = projected() || variant.output.projection_extra;
  ContextRows context(dump_, heads_, arithmetic_, variant, threads_);

  // Column `column` of merged token t of sample b: which row of a head, and which element of it.
  const auto source = [&](Index b, Index t, Index column) -> std::pair<OutputRow, Index> {
    switch (merge) {
      case HeadOrder::View: {
        const Index row = t * heads + column / width;
        return {{b, row / shape.queries, row % shape.queries}, column % width};
      }
      case HeadOrder::Interleaved:
        return {{b, column % heads, t}, column / heads};
      default:
        return {{b, column / width, t}, column % width};
    }
  };
  const auto want = [&](const OutputRow& row) {
    if (!mean) return context.want(row);
    for (Index h = 0; h < heads; ++h) context.want({row.b, h, row.t});
  };
  const auto for_each_column = [&](const OutputRow& row, const auto& visit) {
    const Index first = whole ? 0 : row.h * width;
    const Index last = whole ? heads * width : first + width;
    for (Index column = first; column < last; ++column) {
      const auto [from, d] = source(row.b, row.t, column);
      visit(column - first, from, d);
    }
  };
  for (const OutputRow& row : wanted) {
    OutputRow last{-1, -1, -1};
    for_each_column(row, [&](Index, const OutputRow& from, Index) {
      if (from != last) want(from);
      last = from;
    });
  }
  context.compute();

  const auto count = static_cast<Index>(wanted.size());
  VariantRows result{
      Tensor<double, 2>({count, width_}), Tensor<double, 2>({count, width_}), {}, {}};
  result.log_sum_exp.resize(wanted.size());
  result.empty.resize(wanted.size());
  const Index merged_width = whole ? heads * width : width;
  Tensor<double, 2> merged({count, merged_width});
  Tensor<double, 2> variance({count, merged_width});
  for (Index i = 0; i < count; ++i) {
    const OutputRow& row = wanted[static_cast<std::size_t>(i)];
    OutputRow last{-1, -1, -1};
    Index place = 0;
    for_each_column(row, [&](Index column, const OutputRow& from, Index d) {
      if (mean) {
        for (Index h = 0; h < heads; ++h) {
          const Index at = context.place({from.b, h, from.t});
          merged(i, column) += context.context(at, d) / static_cast<double>(heads);
          variance(i, column) += context.variance(at, d) / static_cast<double>(heads);
        }
        last = from;
        return;
      }
      if (from != last) place = context.place(from);
      last = from;
      merged(i, column) = context.context(place, d);
      variance(i, column) = context.variance(place, d);
    });
    if (mean) place = context.place({last.b, 0, last.t});
    result.log_sum_exp[static_cast<std::size_t>(i)] =
        context.log_sum_exp[static_cast<std::size_t>(place)];
    result.empty[static_cast<std::size_t>(i)] = context.empty[static_cast<std::size_t>(place)] != 0;
  }
  project(variant.output, wanted, merged, variance, result);
  return result;
}

void Evaluator::project(const OutputVariant& variant, std::span<const OutputRow> wanted,
                        const Tensor<double, 2>& merged, const Tensor<double, 2>& variance,
                        VariantRows& result) const {
  const Index count = merged.shape(0);
  const Index inner = merged.shape(1);
  const bool extra = variant.projection_extra;
  const bool copies = !extra && (!projected() || variant.projection_missing);
  const auto& projection = dump_.output_projection;
  const double products =
      static_cast<double>(count * width_) * static_cast<double>(copies ? 1 : inner);
  const int threads = products < kWorthThreads ? 1 : threads_;
#pragma omp parallel for num_threads(threads)
  for (Index i = 0; i < count; ++i) {
    double mean = 0;  // of the variance
    double mean_square = 0;
    for (Index j = 0; j < inner; ++j) {
      mean += variance(i, j) / static_cast<double>(inner);
      mean_square += square(merged(i, j)) / static_cast<double>(inner);
    }
    const Index first = extra ? wanted[static_cast<std::size_t>(i)].h * width_ : 0;
    for (Index d = 0; d < width_; ++d) {
      double value = copies ? merged(i, d) : 0;
      double own = copies ? variance(i, d) : 0;
      if (!copies) {
        const double* row = merged.data() + i * inner;
        const Tensor<double, 2>& weight = projection->weight;
        if (variant.projection_transposed) {
          for (Index j = 0; j < inner; ++j) value += row[j] * weight(j, first + d);
        } else {
          const double* w = weight.data() + (first + d) * inner;
#pragma omp simd reduction(+ : value)
          for (Index j = 0; j < inner; ++j) value += row[j] * w[j];
        }
        own = projection_norm_(first + d) *
              (mean + mean_square * (square(kRoundingRms * arithmetic_.storage) +
                                     square(kRoundingRms * arithmetic_.compute) *
                                         (1 + static_cast<double>(inner) / 2)));
      }
      if ((projected() || extra) && projection && projection->bias) {
        value += variant.bias_factor * (*projection->bias)(first + d);
      }
      result.values(i, d) = activate(variant.activation, value);
      if (!copies) own += output_variance(arithmetic_, result.values(i, d));
      result.units(i, d) = std::max(std::sqrt(own), smallest_unit_);
    }
  }
}

}  // namespace qkv
