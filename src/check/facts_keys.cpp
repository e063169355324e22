// Which keys a wrong row was made of.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "check/facts_parts.h"
#include "check/where.h"

namespace qkv {
namespace {

constexpr std::size_t kProbes = 6;
/// More ranges than this have only ends that are multiples of 16 tried.
constexpr Index kEveryRange = 2048;

/// Sums over the keys before each: of the weights, and of the weighted values.
struct Sums {
  std::vector<double> weight;  ///< [S + 1]
  std::vector<double> value;   ///< [S + 1, width]
  Index first = 0;             ///< visible
  Index end = 0;
};

Sums sums_of(const WrongRows& wrong, std::size_t i) {
  const Dump& dump = wrong.dump();
  const OutputRow& row = wrong.row(i);
  const std::vector<double> weights = wrong.evaluator().weights({}, row);
  const auto width = static_cast<std::size_t>(wrong.evaluator().width());
  Sums sums;
  sums.weight.assign(1, 0.0);
  sums.value.assign(width, 0.0);
  sums.first = dump.shape.keys;
  for (std::size_t s = 0; s < weights.size(); ++s) {
    sums.weight.push_back(sums.weight.back() + weights[s]);
    const auto key = static_cast<Index>(s);
    for (std::size_t d = 0; d < width; ++d) {
      // What no query sees may be anything.
      const double value =
          weights[s] > 0 ? dump.value(row.b, row.h / dump.shape.group(), key, static_cast<Index>(d))
                         : 0;
      sums.value.push_back(sums.value[s * width + d] + weights[s] * value);
    }
    if (!(weights[s] > 0)) continue;
    sums.first = std::min(sums.first, key);
    sums.end = key + 1;
  }
  return sums;
}

/// What happened to a range of keys: out = (all + of_range · range) / (1 + …), the divisor only where normalised.
struct Treatment {
  const char* text;
  double of_all;
  double of_range;
  bool normalised;
};

constexpr std::array<Treatment, 6> kTreatments = {{
    {"{} for nothing", 1, -1, true},
    {"{} for nothing, and the other weights stay what they were", 1, -1, false},
    {"only {}", 0, 1, true},
    {"only {}, with the weights of before", 0, 1, false},
    {"{} twice", 1, 1, true},
    {"{} twice, and the weights are not normalised to that", 1, 1, false},
}};

struct KeySpan {
  Index begin = 0;
  Index end = 0;
};

/// Root mean square of what is left of a row, in units; those of rounding grow as the divisor falls.
double distance(const WrongRows& wrong, std::size_t i, const Sums& sums, const KeySpan& range,
                const Treatment& treatment) {
  const auto got = wrong.recorded(i);
  const auto units = wrong.units(i);
  const std::size_t width = got.size();
  const double* begin = sums.value.data() + static_cast<std::size_t>(range.begin) * width;
  const double* end = sums.value.data() + static_cast<std::size_t>(range.end) * width;
  const double* all = sums.value.data() + (sums.weight.size() - 1) * width;
  const double weight = sums.weight[static_cast<std::size_t>(range.end)] -
                        sums.weight[static_cast<std::size_t>(range.begin)];
  // A sink keeps its part of the divisor: without a change all of it is 1, whatever the keys sum to.
  const double sink = 1 - sums.weight.back();
  const double whole = treatment.of_all * sums.weight.back() + treatment.of_range * weight + sink;
  const double divisor = treatment.normalised ? whole : 1;
  if (!(divisor > 1e-6)) return Screen::kFarthest;
  double sum = 0;
  for (std::size_t d = 0; d < width; ++d) {
    const double value =
        (treatment.of_all * all[d] + treatment.of_range * (end[d] - begin[d])) / divisor;
    // What differences of sums lose counts in float64 alone.
    const double lost = 4e-16 * (std::fabs(end[d]) + std::fabs(begin[d]) + std::fabs(all[d]));
    const double z = (got[d] - value) / ((units[d] + lost) * std::max(1.0, 1 / divisor));
    sum += z * z;
    if (sum > kWrongRow * kWrongRow * static_cast<double>(width)) return Screen::kFarthest;
  }
  const double rms = std::sqrt(sum / static_cast<double>(width));
  return std::isnan(rms) ? Screen::kFarthest : rms;
}

/// The largest power of two that divides both ends, that of the last key as good as any.
Index alignment(const KeySpan& range, Index keys) {
  const auto power = [](Index i) {
    return i == 0 ? Index{1} << 40 : Index{1} << std::countr_zero(static_cast<std::uint64_t>(i));
  };
  return range.end == keys ? power(range.begin) : std::min(power(range.begin), power(range.end));
}

}  // namespace

std::optional<std::string> which_keys(const WrongRows& wrong, const RowGroup& group) {
  const Index keys = wrong.dump().shape.keys;
  const Index width = wrong.evaluator().width();
  if (wrong.evaluator().projected() || keys < 3) return std::nullopt;
  // A few numbers are near to what some range gives.
  if (static_cast<Index>(group.size()) * width < 24) return std::nullopt;
  std::vector<Sums> sums;
  std::vector<std::size_t> probes;
  KeySpan seen{keys, 0};
  for (std::size_t j = 0; j < group.size(); ++j) {
    const std::size_t i = group[j];
    if (wrong.empty(i)) return std::nullopt;
    sums.push_back(sums_of(wrong, i));
    seen.begin = std::min(seen.begin, sums.back().first);
    seen.end = std::max(seen.end, sums.back().end);
    if (j * kProbes / group.size() >= probes.size()) probes.push_back(j);
  }
  const Index step = keys > kEveryRange ? 16 : 1;
  for (const Treatment& treatment : kTreatments) {
    std::vector<KeySpan> fitting;
    for (Index begin = seen.begin; begin < seen.end; begin += step) {
      for (Index end = std::min(begin + step, seen.end);; end = std::min(end + step, seen.end)) {
        const KeySpan range{begin, end};
        const bool whole = begin == seen.begin && end == seen.end;
        const bool fits = !whole && std::all_of(probes.begin(), probes.end(), [&](std::size_t j) {
          return distance(wrong, group[j], sums[j], range, treatment) <= kWrongRow;
        });
        if (fits) fitting.push_back(range);
        if (end == seen.end) break;
      }
    }
    // Where keys of no weight leave the ends open, those of a tile are meant.
    std::stable_sort(fitting.begin(), fitting.end(), [&](const KeySpan& a, const KeySpan& b) {
      const Index of_a = alignment(a, keys);
      const Index of_b = alignment(b, keys);
      return of_a != of_b ? of_a > of_b : a.end - a.begin < b.end - b.begin;
    });
    for (const KeySpan& range : fitting) {
      std::vector<double> distances;
      for (std::size_t j = 0; j < group.size(); ++j) {
        distances.push_back(distance(wrong, group[j], sums[j], range, treatment));
      }
      if (!borne_out(distances, wrong.dump().ran_in)) continue;
      const std::string subject = range.end - range.begin == 1
                                      ? fmt::format("key {} counts", range.begin)
                                      : fmt::format("keys {}–{} count", range.begin, range.end - 1);
      return "is what comes out where " + fmt::format(fmt::runtime(treatment.text), subject);
    }
  }
  return std::nullopt;
}

std::vector<std::string> facts_of_results(const WrongRows& wrong) {
  const Dump& dump = wrong.dump();
  const auto& evaluator = wrong.evaluator();
  std::vector<std::string> facts;
  if (evaluator.projected() || !dump.weights) return facts;
  const auto keys = static_cast<std::size_t>(dump.shape.keys);
  std::vector<double> given;  // distance of out from what the recorded weights give
  double least = 1e300;
  double most = -1e300;
  std::vector<bool> silent(keys, true);  // visible to someone, and without weight for all
  std::vector<bool> visible(keys, false);
  std::vector<bool> leaks(keys, false);
  for (std::size_t i = 0; i < wrong.count(); ++i) {
    const OutputRow& row = wrong.row(i);
    if (wrong.empty(i)) return facts;
    const std::vector<double> meant = evaluator.weights({}, row);
    std::vector<double> context(wrong.recorded(i).size(), 0.0);
    double sum = 0;
    for (std::size_t s = 0; s < keys; ++s) {
      const auto key = static_cast<Index>(s);
      const double weight = (*dump.weights)(row.b, row.h, row.t, key);
      if (!std::isfinite(weight)) return facts;
      sum += weight;
      if (meant[s] > 0) visible[s] = true;
      if (weight != 0) silent[s] = false;
      if (weight != 0 && meant[s] == 0) leaks[s] = true;
      for (std::size_t d = 0; d < context.size() && weight != 0; ++d) {
        context[d] +=
            weight * dump.value(row.b, row.h / dump.shape.group(), key, static_cast<Index>(d));
      }
    }
    least = std::min(least, sum);
    most = std::max(most, sum);
    given.push_back(distance_of(wrong.recorded(i), context, wrong.units(i)));
  }
  facts.emplace_back(borne_out(given, dump.ran_in)
                         ? "out is what the recorded weights make of v: what is wrong comes before"
                         : "out is not what the recorded weights make of v");
  if (!dump.sink && (least < 0.99 || most > 1.01)) {
    facts.push_back(
        fmt::format("the recorded weights of a wrong row sum to {:.3g} to {:.3g}", least, most));
  }
  const auto list = [&](const char* text, const auto& test) {
    std::vector<Index> found;
    for (std::size_t s = 0; s < keys; ++s) {
      if (test(s)) found.push_back(static_cast<Index>(s));
    }
    if (!found.empty()) facts.push_back(fmt::format(fmt::runtime(text), ranges(found)));
  };
  list("the recorded weights of keys {} are 0 in every wrong row, also where they are seen",
       [&](std::size_t s) { return silent[s] && visible[s]; });
  list("the recorded weights of keys {} are not 0 in some wrong row that may not see them",
       [&](std::size_t s) { return leaks[s]; });
  return facts;
}

}  // namespace qkv
