// Causes that show elsewhere than in the rows of out: in q, k and v, in a second run, in the log-sum-exp, in gradients.
#pragma once

#include <optional>
#include <vector>

#include "check/explanation.h"

namespace qkv {

/// Makes it both at once.
void add_to(Cause& cause, const Cause& other);

struct InputCauses {
  bool differ = false;  ///< q, k and v are not what x and the weights make
  std::vector<Cause> causes;
};
/// Of a dump that has q, k and v beside x and weights.
InputCauses causes_of_inputs(const Dump& dump, const Catalogue& catalogue);

/// D1, where a second run on the same inputs gave something else; `intended` is of the rows of `screen`.
std::optional<Cause> cause_of_second_run(const Screen& screen, const Trial& intended);

/// N2 of the log-sum-exp alone, where `variant` is right about out; `rows` are of heads.
std::optional<Cause> cause_of_log_sum_exp(const Evaluator& evaluator, const Variant& variant,
                                          const std::vector<OutputRow>& rows);

/// G2 and B1 of a dump whose out is right.
std::vector<Cause> causes_of_gradients(const Dump& dump);

}  // namespace qkv
