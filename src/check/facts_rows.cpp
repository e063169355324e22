// What wrong rows hold, by themselves and next to what was meant for others.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "check/facts_parts.h"

namespace qkv {
namespace {

/// Of more heads, samples or queries than this only near ones are tried in each other's place.
constexpr Index kEveryOne = 128;
constexpr Index kNear = 16;

bool all_rows(const WrongRows& wrong, const RowGroup& group,
              const std::function<bool(double)>& test) {
  return std::all_of(group.begin(), group.end(), [&](std::size_t i) {
    const auto recorded = wrong.recorded(i);
    return std::all_of(recorded.begin(), recorded.end(), test);
  });
}

double rms_of(const std::vector<double>& distances) {
  double sum = 0;
  for (const double distance : distances) sum += distance * distance;
  return std::sqrt(sum / static_cast<double>(distances.size()));
}

/// Factors by which rows are multiples of what was meant.
struct Factors {
  std::vector<double> of_rows;
  double of_all = 0;  ///< the nearest for all of them
  std::vector<double> distances;
};

/// Nothing where they are not multiples.
std::optional<Factors> factors_of(const WrongRows& wrong, const RowGroup& group) {
  if (wrong.evaluator().width() < 3) return std::nullopt;
  Factors factors;
  double product_sum = 0;
  double square_sum = 0;
  for (const std::size_t i : group) {
    const auto got = wrong.recorded(i);
    const auto meant = wrong.intended(i);
    const auto units = wrong.units(i);
    double product = 0;
    double square = 0;
    double noise = 0;
    for (std::size_t d = 0; d < got.size(); ++d) {
      product += got[d] * meant[d];
      square += meant[d] * meant[d];
      noise += units[d] * units[d];
    }
    // Next to 0 everything is a multiple, and 0 is one of everything.
    if (!(square > 100 * noise)) return std::nullopt;
    const double factor = product / square;
    if (!std::isfinite(factor) || std::fabs(factor) < 1e-3) return std::nullopt;
    factors.of_rows.push_back(factor);
    factors.distances.push_back(distance_of(got, meant, units, factor));
    if (factors.distances.back() > kWrongRow) return std::nullopt;
    product_sum += product;
    square_sum += square;
  }
  factors.of_all = product_sum / square_sum;
  if (!borne_out(factors.distances, wrong.dump().ran_in)) return std::nullopt;
  return factors;
}

std::optional<std::string> multiple(const WrongRows& wrong, const RowGroup& group) {
  const auto factors = factors_of(wrong, group);
  if (!factors) return std::nullopt;
  std::vector<double> distances;
  for (const std::size_t i : group) {
    distances.push_back(
        distance_of(wrong.recorded(i), wrong.intended(i), wrong.units(i), factors->of_all));
  }
  const bool one_factor = borne_out(distances, wrong.dump().ran_in) &&
                          rms_of(distances) < 1.5 * std::max(0.5, rms_of(factors->distances));
  if (!one_factor) return std::nullopt;
  return fmt::format("holds {:.4g} times what was meant", factors->of_all);
}

/// Whether the rows of each head of each sample hold the same bits, where they were meant to differ.
bool repeated(const WrongRows& wrong, const RowGroup& group) {
  struct Repeats {
    std::size_t first = 0;
    bool meant_to_differ = false;
  };
  std::map<std::pair<Index, Index>, Repeats> heads;
  for (const std::size_t i : group) {
    const auto [found, fresh] =
        heads.try_emplace({wrong.row(i).b, wrong.row(i).h}, Repeats{i, false});
    if (fresh) continue;
    const std::size_t first = found->second.first;
    const auto got = wrong.recorded(i);
    if (!std::equal(got.begin(), got.end(), wrong.recorded(first).begin())) return false;
    found->second.meant_to_differ |=
        distance_of(wrong.intended(i), wrong.intended(first), wrong.units(i)) > kWrongRow;
  }
  return std::all_of(heads.begin(), heads.end(),
                     [](const auto& entry) { return entry.second.meant_to_differ; });
}

/// The mean of the values of a row's head: of those that it sees, or of all.
std::vector<double> mean_value(const WrongRows& wrong, std::size_t i, bool visible) {
  const Dump& dump = wrong.dump();
  const OutputRow& row = wrong.row(i);
  const std::vector<double> weights = wrong.evaluator().weights({}, row);
  std::vector<double> mean(wrong.recorded(i).size(), 0.0);
  double count = 0;
  for (std::size_t s = 0; s < weights.size(); ++s) {
    if (visible && !(weights[s] > 0)) continue;
    ++count;
    for (std::size_t d = 0; d < mean.size(); ++d) {
      mean[d] += dump.value(row.b, row.h / dump.shape.group(), static_cast<Index>(s),
                            static_cast<Index>(d));
    }
  }
  for (double& element : mean) element /= count;
  return mean;
}

bool is_mean(const WrongRows& wrong, const RowGroup& group, bool visible) {
  std::vector<double> distances;
  for (const std::size_t i : group) {
    distances.push_back(
        distance_of(wrong.recorded(i), mean_value(wrong, i, visible), wrong.units(i)));
    if (distances.back() > kWrongRow) return false;
  }
  return borne_out(distances, wrong.dump().ran_in);
}

/// A rule by which rows stand in the place of others.
struct Exchange {
  std::string text;
  std::function<OutputRow(OutputRow)> source;
};

std::vector<Exchange> exchanges(const WrongRows& wrong, const OutputRow& row) {
  const AttentionShape& shape = wrong.dump().shape;
  std::vector<Exchange> list;
  const Index heads = wrong.evaluator().projected() ? 1 : shape.heads;
  const auto add = [&](const char* axis, const std::string& which,
                       std::function<OutputRow(OutputRow)> source) {
    list.push_back({fmt::format("holds what was meant for {} {}", axis, which), std::move(source)});
  };
  const auto add_axis = [&](const char* axis, char letter, Index OutputRow::*index, Index count) {
    for (Index other = 0; other < count; ++other) {
      if (other == row.*index) continue;
      const Index step = (other - row.*index + count) % count;
      if (count > kEveryOne && std::min(step, count - step) > kNear) continue;
      add(axis, fmt::format("{}", other), [index, other](OutputRow at) {
        at.*index = other;
        return at;
      });
      add(axis,
          step <= count / 2 ? fmt::format("{} + {}", letter, step)
                            : fmt::format("{} - {}", letter, count - step),
          [index, step, count](OutputRow at) {
            at.*index = (at.*index + step) % count;
            return at;
          });
    }
  };
  add_axis("head", 'h', &OutputRow::h, heads);
  add_axis("sample", 'b', &OutputRow::b, shape.batch);
  const Index rows = shape.queries;
  add("row", "T - 1 - t", [rows](OutputRow at) {
    at.t = rows - 1 - at.t;
    return at;
  });
  add_axis("row", 't', &OutputRow::t, rows);
  return list;
}

}  // namespace

std::optional<std::string> what_rows_hold(const WrongRows& wrong, const RowGroup& group) {
  if (all_rows(wrong, group, [](double x) { return std::isnan(x); })) return "is NaN";
  if (all_rows(wrong, group, [](double x) { return !std::isfinite(x); })) return "is not finite";
  const bool any_not_finite = !all_rows(wrong, group, [](double x) { return std::isfinite(x); });
  if (any_not_finite) return std::nullopt;
  if (all_rows(wrong, group, [](double x) { return x == 0; })) return "is 0";
  if (auto text = multiple(wrong, group)) return text;
  if (!wrong.evaluator().projected()) {
    if (is_mean(wrong, group, true)) return "is the mean of the values that it sees";
    if (is_mean(wrong, group, false)) return "is the mean of all values of its head";
  }
  if (repeated(wrong, group)) {
    return std::string("holds the same numbers as the other wrong rows of its ") +
           (wrong.evaluator().projected() ? "sample" : "sample and head");
  }
  return std::nullopt;
}

std::optional<std::string> own_multiples(const WrongRows& wrong, const RowGroup& group) {
  const auto factors = factors_of(wrong, group);
  if (!factors) return std::nullopt;
  const auto [least, most] = std::minmax_element(factors->of_rows.begin(), factors->of_rows.end());
  if (*least < 0) return std::nullopt;
  return fmt::format(
      "is what was meant times a factor of its own, {:.3g} to {:.3g}, as if its weights summed to "
      "that",
      *least, *most);
}

std::optional<std::string> whose_rows(const WrongRows& wrong, const RowGroup& group) {
  // One row chooses among the rules, and all of them try the few that are left.
  const std::vector<Exchange> list = exchanges(wrong, wrong.row(group[0]));
  std::vector<OutputRow> sources;
  sources.reserve(list.size());
  for (const Exchange& exchange : list) sources.push_back(exchange.source(wrong.row(group[0])));
  const VariantRows candidates = wrong.evaluator().rows({}, sources);
  const auto width = static_cast<std::size_t>(wrong.evaluator().width());
  const auto distance = [&](std::size_t i, const VariantRows& rows, std::size_t j) {
    return distance_of(wrong.recorded(i), rows.values.elements().subspan(j * width, width),
                       rows.units.elements().subspan(j * width, width));
  };
  for (std::size_t j = 0; j < list.size(); ++j) {
    if (distance(group[0], candidates, j) > kWrongRow) continue;
    std::vector<OutputRow> others;
    for (const std::size_t i : group) others.push_back(list[j].source(wrong.row(i)));
    const VariantRows rows = wrong.evaluator().rows({}, others);
    std::vector<double> distances;
    for (std::size_t i = 0; i < group.size(); ++i) distances.push_back(distance(group[i], rows, i));
    if (borne_out(distances, wrong.dump().ran_in)) return list[j].text;
  }
  return std::nullopt;
}

}  // namespace qkv
