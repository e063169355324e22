#include "check/hypotheses.h"

#include <algorithm>
#include <cmath>

#include "check/hypothesis_list.h"

namespace qkv {
namespace {

bool has_rule(const Dump& dump) {
  const DumpRules& r = dump.rules;
  return r.causal || r.window || !r.lengths.empty() || r.padding || r.boolean || r.query_documents;
}

/// Why a class has no hypothesis on this dump.
std::string what_is_lacking(const Dump& dump, const std::string& id) {
  const AttentionShape& shape = dump.shape;
  const bool square = shape.queries == shape.keys;
  const bool padded = !dump.rules.lengths.empty() || dump.rules.padding.has_value();
  if (id == "M1" || id == "M3" || id == "M4" || id == "M5" || id == "M7") {
    return has_rule(dump) ? "" : "no mask is meant";
  }
  if (id == "M2" || id == "M13") {
    if (!padded) return "no padding is meant";
    if (id == "M2") return square ? "" : "T and S differ";
    return shape.queries == shape.heads ? "" : "T and H differ";
  }
  if (id == "M8") return dump.rules.causal ? "" : "no causal rule is meant";
  if (id == "M9") return dump.rules.window ? "" : "no window is meant";
  if (id == "M10")
    return dump.rules.causal || dump.rules.window ? "T and S are equal" : "no causal rule is meant";
  if (id == "M11") {
    return shape.batch < 2 ? "B = 1" : "no rule differs between samples";
  }
  if (id == "M12") return "no documents are meant";
  if (id == "X2") return "T and S differ";
  if (id == "H2" && dump.shape.heads > 1) return "out is neither merged nor projected, or T = 1";
  if (id == "H1" || id == "H2" || id == "H4" || id == "H5" || id == "S2") return "H = 1";
  if (id == "H3") return "B = 1 and H = 1, or T and S differ";
  if (id == "G1" || id == "G2") {
    if (id == "G2" && shape.kv_heads < shape.heads) return "no gradients";
    return shape.kv_heads == 1 ? "one key/value head" : "as many key/value heads as query heads";
  }
  if (id[0] == 'Q') {
    if (id == "Q4" && dump.projections) return "";
    return id == "Q3" ? "no x and square weights" : "no x and weights";
  }
  if (id[0] == 'R') return "no rotary positions are meant";
  if (id == "D1") return "one run only";
  if (id == "N3") return "it did not run in float16";
  if (id == "B1") return "no gradients";
  return "";
}

}  // namespace

std::vector<double> FreeParameter::coarse_grid() const {
  constexpr std::size_t kValues = 32;
  if (grid.size() <= kValues) return grid;
  std::vector<double> coarse;
  if (integer) {
    // Mistakes by a few are the likely ones.
    coarse = grid;
    std::stable_sort(coarse.begin(), coarse.end(),
                     [](double a, double b) { return std::fabs(a) < std::fabs(b); });
    coarse.resize(kValues);
    return coarse;
  }
  for (std::size_t i = 0; i < kValues; ++i)
    coarse.push_back(grid[i * (grid.size() - 1) / (kValues - 1)]);
  return coarse;
}

const std::vector<std::string>& catalogue_ids() {
  static const std::vector<std::string> ids{
      "M1", "M2", "M13", "M3", "M4", "M5", "M6", "M7", "M8", "M9", "M10", "M11", "M12",
      "S1", "S2", "S3",  "S4", "X1", "X2", "H1", "H2", "H3", "H4", "H5",  "G1",  "G2",
      "Q1", "Q2", "Q3",  "Q4", "R1", "R2", "R3", "E1", "D1", "N1", "N2",  "N3",  "B1"};
  return ids;
}

Catalogue catalogue_for(const Dump& dump) {
  Catalogue catalogue;
  list_mask_hypotheses(dump, catalogue.hypotheses);
  list_visibility_hypotheses(dump, catalogue.hypotheses);
  list_score_hypotheses(dump, catalogue.hypotheses);
  list_head_hypotheses(dump, catalogue.hypotheses);
  list_input_hypotheses(dump, catalogue.hypotheses);
  // One query and one key leave some parameters no other value.
  std::erase_if(catalogue.hypotheses, [](const Hypothesis& hypothesis) {
    return hypothesis.free && hypothesis.free->grid.empty();
  });
  for (const std::string& id : catalogue_ids()) {
    const bool listed =
        std::any_of(catalogue.hypotheses.begin(), catalogue.hypotheses.end(),
                    [&](const Hypothesis& hypothesis) { return hypothesis.id == id; });
    // A diagonal that starts elsewhere is no matter of corners where both are the same.
    if (listed && !(id == "M10" && dump.shape.queries == dump.shape.keys)) continue;
    const std::string reason = what_is_lacking(dump, id);
    if (!reason.empty()) catalogue.lacking.push_back({id, reason});
  }
  return catalogue;
}

std::string what_separates(const std::vector<std::string>& ids) {
  const auto has = [&](const char* id) {
    return std::find(ids.begin(), ids.end(), id) != ids.end();
  };
  std::string text;
  const auto say = [&](const char* sentence) {
    text += (text.empty() ? "" : "; ") + std::string(sentence);
  };
  if (has("Q1") && has("Q2")) say("Q1 and Q2: the packed weight (wqkv) as the code reads it");
  if (has("N2") && has("S3")) say("N2 and S3: the log-sum-exp, or a bias beside the scores");
  if (has("N1") && has("E1"))
    say("N1 and E1: another length S, for a tail depends on S and a sink does not");
  if (has("M2") && (has("M7") || has("M11"))) {
    say("M2, M7 and M11: two samples padded to different lengths, and padded query rows that are "
        "read");
  }
  if (has("M7") && has("M11") && !has("M2"))
    say("M7 and M11: two samples of different lengths, both padded");
  if (has("M4") && (has("M7") || has("M12"))) {
    say("M4 and M7 or M12: nothing in the results, only the code: a fill that does nothing is a "
        "rule that is missing");
  }
  if (has("M1") && has("M8")) say("M1 and M8: the diagonal, a key that position 0 sees");
  if (has("M1") && has("M7")) say("M1 and M7: rows that see some keys and not others");
  if (has("M5") && has("M6")) say("M5 and M6: scores as large as the fill, in rows that see a key");
  if (has("M5") && has("M4")) say("M4 and M5: larger scores");
  if (has("M9") && (has("M7") || has("M8"))) say("M9 and M7 or M8: S longer than the window");
  if (has("M10") && (has("M7") || has("M8"))) say("M10 and M7 or M8: other lengths T and S");
  if (has("S1") && has("S3")) say("S1 and S3: another width Dk");
  if (has("S2") && has("S3")) say("S2 and S3: another number of heads");
  if (has("S3") && has("E1"))
    say("S3 and E1: larger scores, which a softcap bends and a scale does not");
  if (has("X1") && has("X2")) say("X1 and X2: T and S that differ");
  if (has("H3") && has("M11")) say("H3 and M11: T, B and H that differ");
  if (has("H1") && has("H5")) say("H1 and H5: more heads and wider ones");
  if (text.empty() && ids.size() > 1)
    say("a dump with B, H, Hkv, T, S, Dk and Dv all different and ragged padding");
  return text;
}

}  // namespace qkv
