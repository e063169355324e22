#include <algorithm>
#include <cmath>

#include "base/rounding.h"
#include "check/diagnosis_parts.h"

namespace qkv {
namespace {

constexpr Index kHeads = 6;  ///< of each tensor that are compared: the first and the last ones

/// Errors of q, k and v as a variant projects them, relative to what the dump holds.
struct InputErrors {
  double relative = 0;
  double largest = 0;  ///< relative to the root mean square of the tensor
};

InputErrors errors_of(const Dump& dump, const VariantHeads& heads, Variant variant) {
  variant.projection.from_input = true;
  for (const std::size_t i : {kQuery, kKey}) {
    variant.norm[i].missing = true;
    variant.rotary[i].missing = true;
  }
  const Tensor<double, 4>* given[] = {&dump.query, &dump.key, &dump.value};
  InputErrors errors;
  double squares = 0;
  double total = 0;
  for (std::size_t tensor = 0; tensor < 3; ++tensor) {
    const std::string key = VariantHeads::key(variant, tensor);
    const auto& shape = given[tensor]->shape();
    const Index count = shape[0] * shape[1];
    double own = 0;
    double own_total = 0;
    double largest = 0;
    for (Index i = 0; i < count; ++i) {
      if (i >= kHeads && i < count - kHeads) continue;
      const Index b = i / shape[1];
      const Index h = i % shape[1];
      const auto matrix = heads.load(variant, key, tensor, b, h);
      const double* expected = given[tensor]->data() + i * shape[2] * shape[3];
      for (std::size_t j = 0; j < matrix->elements.size(); ++j) {
        const double difference = matrix->elements[j] - expected[j];
        own += difference * difference;
        own_total += expected[j] * expected[j];
        largest = std::max(largest, std::fabs(difference));
      }
    }
    // Each tensor counts alike, however large its numbers are.
    squares += own_total > 0 ? own / own_total : own;
    total += 1;
    errors.largest =
        std::max(errors.largest, own_total > 0 ? largest / std::sqrt(own_total) : largest);
  }
  errors.relative = std::sqrt(squares / total);
  return errors;
}

}  // namespace

void add_to(Cause& cause, const Cause& other) {
  cause.ids.insert(cause.ids.end(), other.ids.begin(), other.ids.end());
  std::sort(cause.ids.begin(), cause.ids.end());
  cause.ids.erase(std::unique(cause.ids.begin(), cause.ids.end()), cause.ids.end());
  cause.text += "; and " + other.text;
  cause.parameters.insert(other.parameters.begin(), other.parameters.end());
}

InputCauses causes_of_inputs(const Dump& dump, const Catalogue& catalogue) {
  InputCauses result;
  if (!dump.has_heads || !dump.projections) return result;
  const VariantHeads heads(dump);
  const double roundoff = unit_roundoff(dump.ran_in);
  const bool low = dump.ran_in == DType::Float16 || dump.ran_in == DType::BFloat16;
  const double allowed = (low ? 2.0 : 40.0) * roundoff;
  const double intended = errors_of(dump, heads, {}).relative;

  struct Tried {
    const Hypothesis* hypothesis;
    double relative;
  };
  std::vector<Tried> tried;
  for (const Hypothesis& hypothesis : catalogue.hypotheses) {
    const std::uint32_t stages = stage::projection | stage::split;
    if (hypothesis.free || (hypothesis.touches & stages) == 0) continue;
    if ((hypothesis.touches & ~(stages | stage::merge | stage::output)) != 0) continue;
    tried.push_back({&hypothesis, errors_of(dump, heads, hypothesis.variant()).relative});
  }
  if (tried.empty()) return result;
  std::stable_sort(tried.begin(), tried.end(), [](const Tried& a, const Tried& b) {
    return a.relative != b.relative ? a.relative < b.relative
                                    : a.hypothesis->rank < b.hypothesis->rank;
  });
  const double nearest = tried.front().relative;
  result.differ = intended > allowed || intended > 1.5 * nearest + 0.2 * roundoff;
  if (!result.differ || nearest > allowed) return result;
  std::vector<Tried> equal;
  for (const Tried& other : tried) {
    if (other.relative <= (low ? 1.05 : 2.0) * nearest) equal.push_back(other);
  }
  std::stable_sort(equal.begin(), equal.end(), [](const Tried& a, const Tried& b) {
    return a.hypothesis->rank < b.hypothesis->rank;
  });
  for (const Tried& other : equal) {
    const bool named =
        std::any_of(result.causes.begin(), result.causes.end(),
                    [&](const Cause& cause) { return cause.ids.front() == other.hypothesis->id; });
    if (named) continue;
    const double units = other.relative / (kRoundingRms * roundoff);
    result.causes.push_back({{other.hypothesis->id},
                             other.hypothesis->text,
                             other.hypothesis->parameters,
                             {units, units},
                             false});
  }
  return result;
}

}  // namespace qkv
