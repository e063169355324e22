#include "check/variant_context.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/rounding.h"

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
    double total = 0;     // Σ w, w = (effect of the score's variance on p)
    double keys = 0;
    std::fill_n(variance, width, 0.0);
    const double own = 2 * (square(kRoundingRms * arithmetic_.storage) +
                            square(kRoundingRms * arithmetic_.compute));
    for (std::size_t s = 0; s < query.weight.size(); ++s) {
      const double p = query.weight[s];
      if (p == 0) continue;
      ++keys;
      const double* v = query.value[s];
      const double error = score_variance(query, s);
      // Weights that were multiplied by a constant are no probabilities.
      const double w = p > 0 && p <= 1 ? weight_effect(p, error) : p * p * error;
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

}  // namespace

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
      empty[static_cast<std::size_t>(i)] = query.empty ? 1 : 0;
    }
  }
}

}  // namespace qkv
