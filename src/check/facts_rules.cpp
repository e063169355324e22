#include <fmt/format.h>

#include "check/facts_parts.h"

namespace qkv {
namespace {

bool gives_all(const Evaluator& evaluator, const Variant& variant,
               const std::vector<OutputRow>& rows) {
  const VariantRows given = evaluator.rows(variant, rows);
  const auto width = static_cast<std::size_t>(evaluator.width());
  std::vector<double> distances;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    distances.push_back(distance_of(evaluator.recorded(rows[i]),
                                    given.values.elements().subspan(i * width, width),
                                    given.units.elements().subspan(i * width, width)));
  }
  return borne_out(distances, evaluator.dump().ran_in);
}

}  // namespace

std::optional<std::string> unsaid_rule(const Evaluator& evaluator,
                                       const std::vector<OutputRow>& rows) {
  const Dump& dump = evaluator.dump();
  if (dump.rules.causal) return std::nullopt;
  const Index offset = dump.shape.keys - dump.shape.queries;
  Variant variant;
  for (const bool bottom_right : {false, true}) {
    if (bottom_right && offset == 0) break;
    variant.visibility.unmeant_causal = bottom_right ? offset : 0;
    if (!gives_all(evaluator, variant, rows)) continue;
    const char* corner = bottom_right ? "bottom-right" : "top-left";
    const std::string value = offset == 0 ? "true" : corner;
    return fmt::format(
        "a causal rule that the dump does not name gives every row: if it is meant, add causal: {} "
        "to the metadata",
        value);
  }
  return std::nullopt;
}

}  // namespace qkv
