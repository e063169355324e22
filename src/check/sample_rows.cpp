#include "check/sample_rows.h"

#include <algorithm>
#include <map>
#include <set>

namespace qkv {
namespace {

/// Rows of one head, as indices into all of them, in the order of queries.
struct HeadRows {
  std::vector<std::size_t> wrong;
  std::vector<std::size_t> right;
};

/// `count` of them, spread evenly, both ends included where there are three; `turn` moves a smaller number about.
std::vector<std::size_t> spread(const std::vector<std::size_t>& from, std::size_t count,
                                std::size_t turn) {
  if (from.size() <= count) return from;
  std::vector<std::size_t> taken;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t place = count < 3 ? (i * from.size() / count + turn * 5) % from.size()
                                        : i * (from.size() - 1) / (count - 1);
    taken.push_back(from[place]);
  }
  return taken;
}

/// The level above which a row counts as wrong: beyond rounding, or among the worst where nothing clearly is.
double wrong_level(const std::vector<double>& rms) {
  std::vector<double> sorted = rms;
  std::sort(sorted.begin(), sorted.end());
  if (sorted.empty()) return 0;
  const double worst = sorted.back();
  return worst > 10 ? 5 : sorted[sorted.size() * 3 / 4];
}

}  // namespace

SampleRows sample_rows(const Evaluator& evaluator, const std::vector<OutputRow>& rows,
                       const std::vector<double>& rms, std::size_t limit) {
  const double level = wrong_level(rms);
  std::map<std::pair<Index, Index>, HeadRows> heads;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    HeadRows& head = heads[{rows[i].b, rows[i].h}];
    (rms[i] > level ? head.wrong : head.right).push_back(i);
  }

  // Few: three heads that are wrong and differ in sample and head where they can, and one that is right.
  std::vector<const HeadRows*> chosen;
  std::set<Index> samples;
  std::set<Index> numbers;
  for (const bool insist : {true, false}) {
    for (const auto& [at, head] : heads) {
      if (chosen.size() >= 3 || head.wrong.empty()) continue;
      if (std::find(chosen.begin(), chosen.end(), &head) != chosen.end()) continue;
      const bool fresh = !samples.contains(at.first) || !numbers.contains(at.second);
      if (insist && !fresh) continue;
      chosen.push_back(&head);
      samples.insert(at.first);
      numbers.insert(at.second);
    }
  }
  for (const auto& [at, head] : heads) {
    if (!head.wrong.empty() || head.right.empty()) continue;
    chosen.push_back(&head);
    break;
  }
  SampleRows sample;
  std::set<std::size_t> few;
  const bool dear = evaluator.projected() && evaluator.dump().shape.heads > 4;
  std::size_t turn = 0;
  for (const HeadRows* head : chosen) {
    for (const std::size_t i : spread(head->wrong, dear ? 2 : 3, turn)) few.insert(i);
    for (const std::size_t i : spread(head->right, 1, turn++)) few.insert(i);
  }
  std::set<std::size_t> more = few;
  if (rows.size() <= limit) {
    sample.all = true;
    for (std::size_t i = 0; i < rows.size(); ++i) more.insert(i);
  } else {
    const std::size_t each = std::max<std::size_t>(1, limit / (2 * heads.size()));
    for (const auto& [at, head] : heads) {
      for (const std::size_t i : spread(head.wrong, each, turn)) more.insert(i);
      for (const std::size_t i : spread(head.right, each, turn++)) more.insert(i);
    }
  }
  for (const std::size_t i : few) sample.few.push_back(rows[i]);
  for (const std::size_t i : more) sample.more.push_back(rows[i]);
  return sample;
}

}  // namespace qkv
