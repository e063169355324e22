#include "check/diagnosis_whole.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace qkv {
namespace {

constexpr std::size_t kRowsOfChunk = 4096;
/// Multiplications that the confirmation of equal explanations may take.
constexpr double kConfirmation = 4e9;

/// Adds up distances of chunks.
struct DistanceSum {
  double squares = 0;
  double count = 0;
  double max = 0;
  void add(const Distance& distance, double elements) {
    squares += distance.rms * distance.rms * elements;
    count += elements;
    max = std::max(max, distance.max);
  }
  Distance distance() const { return {count > 0 ? std::sqrt(squares / count) : 0, max}; }
};

}  // namespace

Whole measure_whole(const Evaluator& evaluator, const Progress& progress) {
  const Dump& dump = evaluator.dump();
  Whole whole;
  DistanceSum sum;
  const std::vector<OutputRow> all = evaluator.all_rows();
  const bool any = dump.empty_row == EmptyRow::Any;
  for (std::size_t begin = 0; begin < all.size(); begin += kRowsOfChunk) {
    progress(static_cast<double>(begin) / static_cast<double>(all.size()));
    const std::size_t end = std::min(all.size(), begin + kRowsOfChunk);
    std::vector<OutputRow> chunk;
    for (std::size_t i = begin; i < end; ++i) {
      if (!dump.read_rows || (*dump.read_rows)(all[i].b, all[i].t)) chunk.push_back(all[i]);
    }
    const Screen screen(evaluator, chunk);
    const Trial trial = screen.trial({});
    double squares = 0;
    double largest = 0;
    std::size_t count = 0;
    for (std::size_t i = 0; i < chunk.size(); ++i) {
      if (any && trial.rows.empty[i]) continue;
      const double rms = screen.row_rms(trial, i);
      whole.rows.push_back(chunk[i]);
      whole.rms.push_back(rms);
      squares += rms * rms;
      largest = std::max(largest, rms);
      ++count;
    }
    if (count == 0) continue;
    sum.add({std::sqrt(squares / static_cast<double>(count)),
             count == chunk.size() ? trial.distance.max : largest},
            static_cast<double>(count));
  }
  whole.intended = sum.distance();
  return whole;
}

std::vector<Explanation> measured_on_the_whole(const Evaluator& evaluator,
                                               const std::vector<OutputRow>& rows,
                                               std::vector<Explanation> explanations,
                                               const Progress& progress) {
  if (explanations.empty()) return explanations;
  const auto count = static_cast<double>(rows.size());
  const double products = Screen(evaluator, {rows.front()}).products() * count;
  const auto affordable =
      static_cast<std::size_t>(std::max(6.0, kConfirmation / std::max(products, 1.0)));
  if (explanations.size() > affordable) {
    explanations.erase(explanations.begin() + static_cast<std::ptrdiff_t>(affordable),
                       explanations.end());
  }
  std::vector<DistanceSum> sums(explanations.size());
  const auto width = static_cast<double>(evaluator.width());
  for (std::size_t begin = 0; begin < rows.size(); begin += kRowsOfChunk) {
    progress(static_cast<double>(begin) / count);
    const std::size_t end = std::min(rows.size(), begin + kRowsOfChunk);
    const Screen screen(evaluator, {rows.begin() + static_cast<std::ptrdiff_t>(begin),
                                    rows.begin() + static_cast<std::ptrdiff_t>(end)});
    for (std::size_t i = 0; i < explanations.size(); ++i) {
      sums[i].add(screen.trial(explanations[i].trial.variant).distance,
                  static_cast<double>(end - begin) * width);
    }
  }
  for (std::size_t i = 0; i < explanations.size(); ++i) {
    explanations[i].trial.distance = sums[i].distance();
  }
  return explanations;
}

std::vector<NotShown> classes_not_shown(const Catalogue& catalogue, const Screen& few,
                                        const Screen& more, const Trial& intended) {
  const Evaluator& evaluator = more.evaluator();
  const DType ran_in = evaluator.dump().ran_in;
  std::vector<NotShown> not_shown;
  const Trial few_intended = few.trial({});
  std::set<std::string> visible;
  std::set<std::string> listed;
  for (const Hypothesis& hypothesis : catalogue.hypotheses) {
    listed.insert(hypothesis.id);
    if (visible.contains(hypothesis.id)) continue;
    Variant variant = hypothesis.variant();
    if (hypothesis.free && hypothesis.free->grid.empty()) continue;
    if (hypothesis.free)
      hypothesis.free->set(variant, hypothesis.free->grid[hypothesis.free->grid.size() / 3]);
    const bool dear = evaluator.cost(variant) > 64;
    const Contest contest = dear ? few.contest(few_intended, few.trial(variant))
                                 : more.contest(intended, more.trial(variant));
    if (!indistinguishable(contest, ran_in)) visible.insert(hypothesis.id);
  }
  for (const std::string& id : catalogue_ids()) {
    const auto lacking = std::find_if(catalogue.lacking.begin(), catalogue.lacking.end(),
                                      [&](const NotShown& other) { return other.id == id; });
    if (lacking != catalogue.lacking.end()) {
      not_shown.push_back(*lacking);
    } else if (listed.contains(id) && !visible.contains(id)) {
      not_shown.push_back({id, "it gives the intended numbers here, to rounding"});
    }
  }
  return not_shown;
}

}  // namespace qkv
