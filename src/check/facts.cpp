#include "check/facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "check/facts_parts.h"
#include "check/where.h"

namespace qkv {
namespace {

constexpr std::size_t kLookedAt = 256;
constexpr std::size_t kGroups = 16;    ///< of one kind that are looked at
constexpr std::size_t kSentences = 4;  ///< those of the most rows

using Places = std::vector<OutputRow>;

/// "sample 1 of 2, head 0 of 3, rows 5–12 of 13"; how many of them, where rows are not all of that. No rows where only
/// some were looked at.
std::string places_text(const Evaluator& evaluator, const Places& places, bool all_looked_at) {
  const AttentionShape& shape = evaluator.dump().shape;
  std::set<Index> samples;
  std::set<Index> heads;
  std::set<Index> queries;
  for (const OutputRow& row : places) {
    samples.insert(row.b);
    heads.insert(row.h);
    queries.insert(row.t);
  }
  Where where;
  where.shape = {shape.batch, evaluator.projected() ? 1 : shape.heads,
                 all_looked_at ? shape.queries : 1, 1};
  where.samples.assign(samples.begin(), samples.end());
  where.heads.assign(heads.begin(), heads.end());
  where.rows.assign(queries.begin(), queries.end());
  const std::size_t all = samples.size() * heads.size() * queries.size();
  const std::string text = describe(where);
  return places.size() == all || !all_looked_at
             ? text
             : fmt::format("{} of {} rows ({})", places.size(), all, text);
}

/// Which heads, samples and queries hold no wrong row, and where the wrong ones begin.
void add_right_parts(const Evaluator& evaluator, const Places& rows, const std::vector<double>& rms,
                     std::vector<std::string>& facts) {
  std::map<Index, bool> samples;
  std::map<Index, bool> heads;
  std::map<Index, bool> queries;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const bool wrong = rms[i] > kWrongRow;
    samples[rows[i].b] |= wrong;
    heads[rows[i].h] |= wrong;
    queries[rows[i].t] |= wrong;
  }
  const auto say = [&](const char* one, const char* many, const std::map<Index, bool>& parts) {
    std::vector<Index> right;
    for (const auto& [number, wrong] : parts) {
      if (!wrong) right.push_back(number);
    }
    if (right.empty()) return;
    const bool single = right.size() == 1;
    facts.push_back(
        fmt::format("{} {} {} right", single ? one : many, ranges(right), single ? "is" : "are"));
  };
  say("sample", "samples", samples);
  if (!evaluator.projected()) say("head", "heads", heads);
  say("row", "rows", queries);
  const auto first =
      std::find_if(queries.begin(), queries.end(), [](const auto& entry) { return entry.second; });
  if (first->first > queries.begin()->first) {
    facts.push_back(fmt::format("the first wrong row is {}", first->first));
  }
}

/// Rows of two runs on the same inputs that are further apart than rounding.
void add_second_run(const Evaluator& evaluator, const Places& rows,
                    std::vector<std::string>& facts) {
  const Dump& dump = evaluator.dump();
  if (!dump.second_output && !dump.second_context) return;
  std::size_t unequal = 0;
  for (const OutputRow& row : rows) {
    const auto first = evaluator.recorded(row);
    const double* second = dump.second_output ? &(*dump.second_output)(row.b, row.t, 0)
                                              : &(*dump.second_context)(row.b, row.h, row.t, 0);
    const bool same = std::equal(first.begin(), first.end(), second, [](double a, double b) {
      return a == b || (std::isnan(a) && std::isnan(b));
    });
    if (!same) ++unequal;
  }
  facts.push_back(unequal == 0 ? "a second run on the same inputs gave the same bits"
                               : fmt::format("a second run on the same inputs gave other bits in "
                                             "{} of {} rows",
                                             unequal, rows.size()));
}

std::optional<std::string> sentence_of(const WrongRows& wrong, const RowGroup& group) {
  if (auto text = what_rows_hold(wrong, group)) return text;
  if (auto text = whose_rows(wrong, group)) return text;
  return which_keys(wrong, group);
}

using Sentences = std::map<std::string, Places>;

using Finder = std::optional<std::string> (*)(const WrongRows&, const RowGroup&);

/// What is found of those groups that nothing has been found of; they are emptied.
void find_sentences(const WrongRows& wrong, Finder finder, std::vector<RowGroup>& groups,
                    Sentences& found) {
  for (RowGroup& group : groups) {
    if (group.empty()) continue;
    const auto text = finder(wrong, group);
    if (!text) continue;
    for (const std::size_t i : group) found[*text].push_back(wrong.row(i));
    group.clear();
  }
}

/// A sentence that holds for all wrong rows; else those that hold for all of a head, a sample, or both.
void add_sentences(const WrongRows& wrong, bool all_looked_at, std::vector<std::string>& facts) {
  using Key = std::pair<Index, Index>;
  const std::function<Key(const OutputRow&)> keys[] = {
      [](const OutputRow&) {
        return Key{0, 0};
      },
      [](const OutputRow& row) {
        return Key{row.h, 0};
      },
      [](const OutputRow& row) {
        return Key{row.b, 0};
      },
      [](const OutputRow& row) {
        return Key{row.b, row.h};
      },
  };
  std::vector<std::vector<RowGroup>> groupings;
  for (const auto& key : keys) {
    std::map<Key, RowGroup> groups;
    for (std::size_t i = 0; i < wrong.count(); ++i) groups[key(wrong.row(i))].push_back(i);
    groupings.emplace_back();
    for (auto& [at, group] : groups) {
      if (groupings.back().size() < kGroups) groupings.back().push_back(std::move(group));
    }
  }
  Sentences found;
  for (auto& groups : groupings) {
    find_sentences(wrong, sentence_of, groups, found);
    if (!found.empty()) {
      find_sentences(wrong, own_multiples, groups, found);
      break;
    }
  }
  // Factors that differ from row to row say less than anything else.
  for (auto& groups : groupings) {
    if (found.empty()) find_sentences(wrong, own_multiples, groups, found);
  }
  std::vector<std::pair<std::string, Places>> sentences(found.begin(), found.end());
  std::stable_sort(sentences.begin(), sentences.end(),
                   [](const auto& a, const auto& b) { return a.second.size() > b.second.size(); });
  if (sentences.size() > kSentences) sentences.resize(kSentences);
  for (const auto& [text, places] : sentences) {
    const bool all = places.size() == wrong.count();
    facts.push_back(all ? fmt::format("every wrong row {}", text)
                        : fmt::format("{}: each wrong row {}",
                                      places_text(wrong.evaluator(), places, all_looked_at), text));
  }
}

/// At most as many as are looked at.
Places spread_evenly(const Places& rows) {
  if (rows.size() <= kLookedAt) return rows;
  Places some;
  for (std::size_t i = 0; i < kLookedAt; ++i) some.push_back(rows[i * rows.size() / kLookedAt]);
  return some;
}

}  // namespace

double distance_of(std::span<const double> got, std::span<const double> value,
                   std::span<const double> units, double factor) {
  double sum = 0;
  for (std::size_t d = 0; d < got.size(); ++d) {
    const double z = (got[d] - factor * value[d]) / (units[d] * std::max(1.0, std::fabs(factor)));
    sum += z * z;
  }
  const double rms = std::sqrt(sum / static_cast<double>(got.size()));
  return std::isnan(rms) ? Screen::kFarthest : rms;
}

bool borne_out(std::span<const double> row_rms, DType ran_in) {
  double sum = 0;
  for (const double rms : row_rms) {
    if (rms > kWrongRow) return false;
    sum += rms * rms;
  }
  return std::sqrt(sum / static_cast<double>(row_rms.size())) <= rms_tolerance(ran_in);
}

std::vector<std::string> facts_of(const Evaluator& evaluator, const std::vector<OutputRow>& rows,
                                  const std::vector<double>& rms) {
  std::vector<std::string> facts;
  Places wrong_rows;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rms[i] > kWrongRow) wrong_rows.push_back(rows[i]);
  }
  if (wrong_rows.empty()) {
    if (!rows.empty())
      facts.emplace_back("no row of out, by itself, is further away than rounding goes");
    return facts;
  }
  facts.push_back(wrong_rows.size() == rows.size()
                      ? "every row is wrong"
                      : fmt::format("{} of {} rows are wrong", wrong_rows.size(), rows.size()));
  add_right_parts(evaluator, rows, rms, facts);
  if (const auto rule = unsaid_rule(evaluator, spread_evenly(rows))) facts.push_back(*rule);
  const Places looked_at = spread_evenly(wrong_rows);
  const WrongRows wrong(evaluator, looked_at);
  std::vector<std::string> found;
  const bool all_looked_at = wrong.count() == wrong_rows.size();
  add_sentences(wrong, all_looked_at, found);
  for (std::string& fact : facts_of_results(wrong)) found.push_back(std::move(fact));
  if (!found.empty() && !all_looked_at) {
    facts.push_back(fmt::format("what follows is of {} of the {} wrong rows, spread evenly",
                                wrong.count(), wrong_rows.size()));
  }
  facts.insert(facts.end(), found.begin(), found.end());
  add_second_run(evaluator, rows, facts);
  return facts;
}

}  // namespace qkv
