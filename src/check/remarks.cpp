#include "check/remarks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "check/remarks_parts.h"
#include "check/screening.h"
#include "check/where.h"

namespace qkv {
namespace {

constexpr std::size_t kLookedAt = 512;

std::string some_of(std::size_t looked_at, std::size_t all, const char* what) {
  return looked_at == all ? fmt::format("{} {}", all, what)
                          : fmt::format("{} of {} {}, spread evenly,", looked_at, all, what);
}

}  // namespace

std::vector<OutputRow> evenly(const std::vector<OutputRow>& rows) {
  if (rows.size() <= kLookedAt) return rows;
  std::vector<OutputRow> taken;
  for (std::size_t i = 0; i < kLookedAt; ++i) taken.push_back(rows[i * rows.size() / kLookedAt]);
  return taken;
}

void Remarks::unread_rows() {
  if (!dump_.read_rows) return;
  std::vector<OutputRow> unread;
  for (const OutputRow& row : evaluator_.all_rows()) {
    if (!(*dump_.read_rows)(row.b, row.t)) unread.push_back(row);
  }
  const Screen screen(evaluator_, evenly(unread));
  const Trial intended = screen.trial({});
  std::size_t differ = 0;
  std::size_t not_finite = 0;
  for (std::size_t i = 0; i < screen.rows().size(); ++i) {
    differ += screen.row_rms(intended, i) > max_tolerance(dump_.ran_in) ? 1U : 0U;
    const auto recorded = evaluator_.recorded(screen.rows()[i]);
    not_finite +=
        std::all_of(recorded.begin(), recorded.end(), [](double x) { return std::isfinite(x); })
            ? 0U
            : 1U;
  }
  if (differ == 0) return;
  std::string text =
      fmt::format("Of {} that read_rows says nobody reads, {} differ from the oracle",
                  some_of(screen.rows().size(), unread.size(), "rows"), differ);
  if (not_finite > 0) text += fmt::format(", {} of them not finite", not_finite);
  say(text + ". That reaches no result.");
}

void Remarks::empty_rows() {
  if (dump_.empty_row != EmptyRow::Any) return;
  std::vector<OutputRow> read;
  for (const OutputRow& row : evaluator_.all_rows()) {
    if (!dump_.read_rows || (*dump_.read_rows)(row.b, row.t)) read.push_back(row);
  }
  const std::vector<OutputRow> rows = evenly(read);
  const VariantRows intended = evaluator_.rows({}, rows);
  std::vector<OutputRow> empty;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (intended.empty[i]) empty.push_back(rows[i]);
  }
  if (empty.empty()) return;
  const Screen screen(evaluator_, empty);
  std::map<std::string, std::size_t> held;
  const std::pair<EmptyPolicy, const char*> policies[] = {
      {EmptyPolicy::Zero, evaluator_.projected() ? "what a context of 0 gives" : "0"},
      {EmptyPolicy::NaN, "NaN"},
      {EmptyPolicy::Mean, "the mean of all values"},
      {EmptyPolicy::MeanOfRest, "the mean of the values that the other rules leave"},
  };
  std::vector<Trial> trials;
  for (const auto& [policy, text] : policies) {
    Variant variant;
    variant.empty = policy;
    trials.push_back(screen.trial(variant));
  }
  for (std::size_t i = 0; i < empty.size(); ++i) {
    std::string holds = "something else";
    for (std::size_t p = trials.size(); p-- > 0;) {
      if (screen.row_rms(trials[p], i) <= rms_tolerance(dump_.ran_in)) holds = policies[p].second;
    }
    ++held[holds];
  }
  std::string text =
      fmt::format("{} see no key, and empty_row is any. They hold ",
                  rows.size() == read.size()
                      ? fmt::format("{} rows", empty.size())
                      : fmt::format("{} of {} rows looked at", empty.size(), rows.size()));
  bool first = true;
  for (const auto& [holds, count] : held) {
    text += first ? "" : ", ";
    text += held.size() == 1 ? holds : fmt::format("{} ({} rows)", holds, count);
    first = false;
  }
  say(text + ": a choice (M6), as long as nobody reads them.");
}

void Remarks::shifted_positions() {
  if (!dump_.rotary) return;
  const auto& query = dump_.rotary->query_positions;
  const auto& key = dump_.rotary->key_positions;
  const auto consecutive = [](const Tensor<Index, 2>& positions, Index b) {
    for (Index i = 1; i < positions.shape(1); ++i) {
      if (positions(b, i) != positions(b, 0) + i) return false;
    }
    return true;
  };
  std::map<std::pair<Index, Index>, std::vector<Index>> starts;
  const Index samples = std::min(query.shape(0), key.shape(0));
  for (Index b = 0; b < samples; ++b) {
    if (!consecutive(query, b) || !consecutive(key, b) || key(b, 0) == 0) continue;
    starts[{query(b, 0), key(b, 0)}].push_back(b);
  }
  for (const auto& [start, which] : starts) {
    say(fmt::format(
        "The rotary positions{} start at {} for queries and {} for keys. Scores depend on "
        "differences of positions: the same shift of both changes nothing.",
        samples == 1 ? "" : fmt::format(" of sample {}", ranges(which)), start.first,
        start.second));
  }
}

void Remarks::transposed_weights() {
  if (!dump_.projections || !dump_.projections->stored_in_out) return;
  say("The projection weights are stored as [in, out], and x·W with them is right; x·Wᵀ goes "
      "with "
      "[out, in].");
}

void Remarks::key_bias() {
  const bool plain = !dump_.rotary && !dump_.qk_norm && !dump_.softcap && !dump_.sink;
  if (!dump_.projections || !dump_.projections->key_bias || !plain) return;
  const auto bias = dump_.projections->key_bias->elements();
  if (std::all_of(bias.begin(), bias.end(), [](double x) { return x == 0; })) return;
  say("The key bias adds the same number to every score of a row, which the softmax forgets: "
      "leaving "
      "it out changes nothing in out.");
}

std::vector<std::string> remarks_of(const Evaluator& evaluator, const RemarkOptions& options) {
  const auto found = [&](const char* id) {
    return std::find(options.named.begin(), options.named.end(), id) != options.named.end();
  };
  Remarks remarks(evaluator);
  if (options.rows_are_right) remarks.unread_rows();
  remarks.empty_rows();
  remarks.hidden_scores();
  remarks.shifted_scores();
  if (!found("R3")) remarks.shifted_positions();
  if (!found("Q3")) remarks.transposed_weights();
  remarks.key_bias();
  remarks.sink_share();
  return remarks.take();
}

}  // namespace qkv
