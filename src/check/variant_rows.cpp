#include "check/variant_rows.h"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "base/rounding.h"
#include "check/variant_scores.h"

namespace qkv {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

constexpr double square(double x) { return x * x; }

/// log Σ exp along another axis than the keys, for every key: pushes come row after row.
class ColumnSums {
 public:
  explicit ColumnSums(std::size_t keys) : largest_(keys, -kInfinity), sum_(keys, 0.0) {}
  void push(const std::vector<double>& score) {
    for (std::size_t s = 0; s < score.size(); ++s) {
      if (score[s] == -kInfinity) continue;
      const double largest = std::max(largest_[s], score[s]);
      sum_[s] = sum_[s] * std::exp(largest_[s] - largest) + std::exp(score[s] - largest);
      largest_[s] = largest;
    }
  }
  std::vector<double> norm() const {
    std::vector<double> norm(sum_.size());
    for (std::size_t s = 0; s < norm.size(); ++s) norm[s] = largest_[s] + std::log(sum_[s]);
    return norm;
  }

 private:
  std::vector<double> largest_;
  std::vector<double> sum_;
};

/// Context of one query out of its weights, with its variance.
class Aggregator {
 public:
  Aggregator(const Dump& dump, const Arithmetic& arithmetic)
      : dump_(dump), arithmetic_(arithmetic), width_(dump.shape.value_width) {}

  void operator()(const QueryScores& query, double* context, double* variance) {
    const auto width = static_cast<std::size_t>(width_);
    first_.assign(width, 0.0);   // Σ w·v
    second_.assign(width, 0.0);  // Σ w·v²
    std::fill_n(context, width, 0.0);
    double entering = 0;  // Σ p²·(variance of the value)
    double total = 0;     // Σ w, w = p²·(variance of the score)
    double keys = 0;
    std::fill_n(variance, width, 0.0);
    const double own = 2 * (square(kRoundingRms * arithmetic_.storage) +
                            square(kRoundingRms * arithmetic_.compute));
    for (std::size_t s = 0; s < query.weight.size(); ++s) {
      const double p = query.weight[s];
      if (p == 0) continue;
      ++keys;
      const double* v = query.value[s];
      const double w = p * p * score_variance(query, s);
      const double mine = p * p * own + square(arithmetic_.storage_spacing) / 12;
      entering += p * p * query.value_variance[s];
      total += w;
#pragma omp simd
      for (std::size_t d = 0; d < width; ++d) {
        context[d] += p * v[d];
        first_[d] += w * v[d];
        second_[d] += w * v[d] * v[d];
        variance[d] += mine * v[d] * v[d];
      }
    }
    const double sums = square(kRoundingRms * arithmetic_.compute) * (1 + keys);
    for (std::size_t d = 0; d < width; ++d) {
      const double o = context[d];
      variance[d] += std::max(0.0, second_[d] - 2 * o * first_[d] + o * o * total) + sums * o * o +
                     entering + output_variance(arithmetic_, o);
    }
  }

 private:
  double score_variance(const QueryScores& query, std::size_t s) const {
    const double score = query.score[s];
    if (!std::isfinite(score) || query.visibility[s].filled) return 0;
    // Of the product: each element of q and k was rounded once, and the sum on the way.
    const double terms = static_cast<double>(dump_.shape.key_width);
    const double squares = query.query_square * query.key_square[s] / terms;
    const double product = square(query.scale) * squares *
                           (2 * square(kRoundingRms * arithmetic_.storage) +
                            square(kRoundingRms * arithmetic_.compute) * (1 + terms / 2));
    const double entering = square(query.scale) * (query.query_square * query.key_variance[s] +
                                                   query.key_square[s] * query.query_variance);
    return product + entering + storage_variance(arithmetic_, std::fabs(score), 3);
  }

  const Dump& dump_;
  const Arithmetic& arithmetic_;
  Index width_;
  std::vector<double> first_;
  std::vector<double> second_;
};

/// What one call needs of the context, and where it has been computed.
class ContextRows {
 public:
  ContextRows(const Evaluator& evaluator, const VariantHeads& heads, const Arithmetic& arithmetic,
              const Variant& variant, int threads)
      : dump_(evaluator.dump()),
        arithmetic_(arithmetic),
        variant_(variant),
        threads_(threads),
        table_(dump_, heads, variant),
        scorer_(dump_, variant, table_) {}

  void want(const OutputRow& row) { places_.emplace(row, 0); }
  void compute();
  Index place(const OutputRow& row) const { return places_.at(row); }

  Tensor<double, 2> context;
  Tensor<double, 2> variance;
  std::vector<double> log_sum_exp;
  std::vector<char> empty;

 private:
  void weights_of(const OutputRow& row, QueryScores& query) const;
  void normalise_columns();
  void transpose_weights(const OutputRow& row, QueryScores& query) const;

  const Dump& dump_;
  const Arithmetic& arithmetic_;
  const Variant& variant_;
  int threads_;  // 1 where the work is not worth more
  HeadTable table_;
  Scorer scorer_;
  std::map<OutputRow, Index> places_;
  /// Of a head, where the softmax or the sum ran along the queries: log Σ exp of each key, or all weights and scores [T,2,S].
  std::map<std::pair<Index, Index>, std::vector<double>> norms_;
  std::set<std::pair<Index, Index>>
      matters_;  ///< heads whose transposed weights hold those of rows without a key
};

void ContextRows::normalise_columns() {
  const bool queries = variant_.softmax.axis == SoftmaxAxis::Queries;
  if (!queries && !variant_.softmax.transposed) return;
  for (const auto& [row, place] : places_) norms_[{row.b, row.h}];
  std::vector<std::pair<const std::pair<Index, Index>, std::vector<double>>*> heads;
  for (auto& entry : norms_) heads.push_back(&entry);
  const auto count = static_cast<Index>(heads.size());
#pragma omp parallel for schedule(dynamic) num_threads(threads_)
  for (Index i = 0; i < count; ++i) {
    auto& [head, norm] = *heads[static_cast<std::size_t>(i)];
    QueryScores query;
    ColumnSums sums(static_cast<std::size_t>(scorer_.keys()));
    norm.clear();
    for (Index t = 0; t < dump_.shape.queries; ++t) {
      scorer_.score(head.first, head.second, t, query);
      if (queries) {
        sums.push(query.score);
      } else {
        scorer_.weigh(head.second, query);
        norm.insert(norm.end(), query.weight.begin(), query.weight.end());
        norm.insert(norm.end(), query.score.begin(), query.score.end());
        if (query.empty) {
#pragma omp critical(qkv_empty_rows)
          matters_.insert(head);
        }
      }
    }
    if (queries) norm = sums.norm();
  }
}

/// Row t of Aᵀ: what every query gives to key t.
void ContextRows::transpose_weights(const OutputRow& row, QueryScores& query) const {
  scorer_.score(row.b, row.h, row.t, query);
  const std::vector<double>& weights = norms_.at({row.b, row.h});
  const std::size_t keys = query.score.size();
  query.weight.resize(keys);
  for (std::size_t s = 0; s < keys; ++s) {
    query.weight[s] = weights[2 * s * keys + static_cast<std::size_t>(row.t)];
    query.score[s] = weights[(2 * s + 1) * keys + static_cast<std::size_t>(row.t)];
  }
  query.empty = matters_.contains({row.b, row.h});
}

void ContextRows::weights_of(const OutputRow& row, QueryScores& query) const {
  if (variant_.softmax.transposed) {
    transpose_weights(row, query);
    return;
  }
  scorer_.score(row.b, row.h, row.t, query);
  switch (variant_.softmax.axis) {
    case SoftmaxAxis::Queries:
      scorer_.weigh_by(norms_.at({row.b, row.h}), dump_.shape.queries, query);
      return;
    case SoftmaxAxis::Heads:
    case SoftmaxAxis::Batch: {
      const bool heads = variant_.softmax.axis == SoftmaxAxis::Heads;
      const Index others = heads ? dump_.shape.heads : dump_.shape.batch;
      ColumnSums sums(query.score.size());
      QueryScores other;
      for (Index i = 0; i < others; ++i) {
        scorer_.score(heads ? row.b : i, heads ? i : row.h, row.t, other);
        sums.push(other.score);
      }
      scorer_.weigh_by(sums.norm(), others, query);
      return;
    }
    default:
      break;
  }
  scorer_.weigh(row.h, query);
  if (variant_.head_mean != HeadMean::Weights) return;
  std::vector<double> mean = query.weight;
  QueryScores other;
  for (Index h = 0; h < dump_.shape.heads; ++h) {
    if (h == row.h) continue;
    scorer_.score(row.b, h, row.t, other);
    scorer_.weigh(h, other);
    for (std::size_t s = 0; s < mean.size(); ++s) mean[s] += other.weight[s];
  }
  for (double& weight : mean) weight /= static_cast<double>(dump_.shape.heads);
  query.weight = std::move(mean);
}

void ContextRows::compute() {
  const auto count = static_cast<Index>(places_.size());
  const Index width = dump_.shape.value_width;
  const bool whole_heads =
      variant_.softmax.axis == SoftmaxAxis::Queries || variant_.softmax.transposed;
  const double products = static_cast<double>(count * scorer_.keys()) *
                          static_cast<double>(dump_.shape.key_width + width) *
                          (whole_heads ? static_cast<double>(dump_.shape.queries) : 1.0);
  if (products < kWorthThreads) threads_ = 1;
  context = Tensor<double, 2>({count, width});
  variance = Tensor<double, 2>({count, width});
  log_sum_exp.resize(static_cast<std::size_t>(count));
  empty.resize(static_cast<std::size_t>(count));
  std::vector<OutputRow> rows;
  for (auto& [row, place] : places_) {
    place = static_cast<Index>(rows.size());
    rows.push_back(row);
  }
  normalise_columns();
#pragma omp parallel num_threads(threads_)
  {
    QueryScores query;
    Aggregator aggregate(dump_, arithmetic_);
#pragma omp for schedule(dynamic)
    for (Index i = 0; i < count; ++i) {
      weights_of(rows[static_cast<std::size_t>(i)], query);
      aggregate(query, context.data() + i * width, variance.data() + i * width);
      log_sum_exp[static_cast<std::size_t>(i)] = query.log_sum_exp;
      empty[static_cast<std::size_t>(i)] = query.empty;
    }
  }
}

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
  ContextRows context(*this, heads_, arithmetic_, variant, threads_);

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
