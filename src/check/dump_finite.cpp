#include "check/dump_finite.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <span>

#include "base/broadcast.h"
#include "check/dump_names.h"

namespace qkv {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
/// Variances are squares of products, in float64: of q and k in scores, of v in the output, of three factors in gradients.
/// Every bound is above what any other dtype holds.
constexpr int kLargestFactor = 160;
constexpr int kLargestOfScores = 240;
constexpr int kLargestValue = 480;
constexpr double kSmallest = 0x1p-400;

/// The first element that is not finite, or the number of elements.
Index find_not_finite(std::span<const double> elements) {
  Index i = 0;
  for (const double element : elements) {
    if (!std::isfinite(element)) break;
    ++i;
  }
  return i;
}

void check_finite(const std::string& name, std::span<const double> elements) {
  const Index i = find_not_finite(elements);
  if (i == static_cast<Index>(elements.size())) return;
  fail_dump(name, fmt::format("expected finite numbers, got {} at element {}",
                              elements[static_cast<std::size_t>(i)], i));
}

template <int Rank>
void check_finite(const std::string& name, const std::optional<Tensor<double, Rank>>& tensor) {
  if (tensor) check_finite(name, tensor->elements());
}

/// What rules and bias leave visible to the rows that are read.
class Sight {
 public:
  explicit Sight(const Dump& dump) : dump_(dump) {}

  bool sees(Index b, Index h, Index t, Index s) const {
    if (dump_.read_rows && !(*dump_.read_rows)(b, t)) return false;
    return mask().visible(b, h, t, s) &&
           !(dump_.bias && broadcast_at(dump_.bias->view(), b, h, t, s) == -kInfinity);
  }
  bool row_sees_a_key(Index b, Index h, Index t) const {
    const KeyRange range = mask().key_range(b, t);
    for (Index s = range.begin; s < range.end; ++s) {
      if (sees(b, h, t, s)) return true;
    }
    return false;
  }
  bool key_is_seen(Index b, Index kv_head, Index s) const {
    const Index group = dump_.shape.group();
    for (Index h = kv_head * group; h < (kv_head + 1) * group; ++h) {
      for (Index t = 0; t < dump_.shape.queries; ++t) {
        if (sees(b, h, t, s)) return true;
      }
    }
    return false;
  }
  bool token_sees_a_key(Index b, Index t) const {
    for (Index h = 0; h < dump_.shape.heads; ++h) {
      if (row_sees_a_key(b, h, t)) return true;
    }
    return false;
  }
  bool token_is_seen(Index b, Index s) const {
    for (Index h = 0; h < dump_.shape.kv_heads; ++h) {
      if (key_is_seen(b, h, s)) return true;
    }
    return false;
  }

 private:
  /// Bound when first asked for: most dumps have no number to ask about, and masks can be large.
  const BoundMask& mask() const {
    if (!mask_) {
      const AttentionShape& shape = dump_.shape;
      mask_ =
          dump_.rules.mask().bind("dump", {shape.batch, shape.heads, shape.queries, shape.keys});
    }
    return *mask_;
  }

  const Dump& dump_;
  mutable std::optional<BoundMask> mask_;
};

[[noreturn]] void fail_visible(const std::string& name, double value, const std::string& place) {
  fail_dump(name, fmt::format("expected finite numbers where they are visible, got {} at {}: a "
                              "visible {} in the inputs",
                              value, place, std::isnan(value) ? "NaN" : "infinity"));
}

/// The first element that is no number or not below 2^largest in magnitude, or the number of elements.
Index find_out_of_range(std::span<const double> elements, int largest) {
  const double bound = std::ldexp(1.0, largest);
  Index i = 0;
  for (const double element : elements) {
    if (!(std::fabs(element) < bound)) break;
    ++i;
  }
  return i;
}

[[noreturn]] void fail_out_of_range(const std::string& name, int largest, double value,
                                    const std::string& place) {
  if (!std::isfinite(value)) fail_visible(name, value, place);
  fail_dump(name,
            fmt::format("expected magnitudes below 2^{}, so that float64 holds the squares of "
                        "products, got {} at {}",
                        largest, value, place));
}

/// What is so small throughout that its rounding is 0 when squared.
void check_not_vanishing(const std::string& name, const Tensor<double, 4>& tensor) {
  double largest = 0;
  for (const double element : tensor.elements()) largest = std::fmax(largest, std::fabs(element));
  if (largest == 0 || largest >= kSmallest) return;
  fail_dump(name, fmt::format("expected zeros or a magnitude of at least 2^-400, whose square "
                              "float64 holds, got {} at most",
                              largest));
}

/// Rows [B,heads,tokens,:] that `matters(b, h, t)` picks hold numbers below 2^largest only.
template <class Matters>
void check_rows(const std::string& name, const Tensor<double, 4>& tensor, int largest, char token,
                Matters matters) {
  const auto [batch, heads, tokens, width] = tensor.shape();
  for (Index b = 0; b < batch; ++b) {
    for (Index h = 0; h < heads; ++h) {
      for (Index t = 0; t < tokens; ++t) {
        const Index d =
            find_out_of_range({&tensor(b, h, t, 0), static_cast<std::size_t>(width)}, largest);
        if (d == width || !matters(b, h, t)) continue;
        fail_out_of_range(name, largest, tensor(b, h, t, d),
                          fmt::format("b={}, h={}, {}={}, d={}", b, h, token, t, d));
      }
    }
  }
}

template <class Matters>
void check_tokens(const std::string& name, const Tensor<double, 3>& tensor, Matters matters) {
  const auto [batch, tokens, width] = tensor.shape();
  for (Index b = 0; b < batch; ++b) {
    for (Index t = 0; t < tokens; ++t) {
      const Index d =
          find_out_of_range({&tensor(b, t, 0), static_cast<std::size_t>(width)}, kLargestFactor);
      if (d == width || !matters(b, t)) continue;
      fail_out_of_range(name, kLargestFactor, tensor(b, t, d),
                        fmt::format("b={}, token {}, d={}", b, t, d));
    }
  }
}

void check_inputs(const Dump& dump, const Sight& sight) {
  const auto sees = [&](Index b, Index h, Index t) { return sight.row_sees_a_key(b, h, t); };
  const auto is_seen = [&](Index b, Index h, Index s) { return sight.key_is_seen(b, h, s); };
  if (dump.projections) {
    const bool cross = dump.projections->cross;
    check_tokens("x", dump.projections->input, [&](Index b, Index t) {
      return sight.token_sees_a_key(b, t) || (!cross && sight.token_is_seen(b, t));
    });
    if (cross) {
      check_tokens("x_kv", dump.projections->key_input,
                   [&](Index b, Index s) { return sight.token_is_seen(b, s); });
    }
  }
  // Without q, k and v in the file these are what x was projected to: finite but for an overflow.
  const bool gradients = dump.context_gradient.has_value();
  const int of_scores = gradients ? kLargestFactor : kLargestOfScores;
  check_rows("q", dump.query, of_scores, 't', sees);
  check_rows("k", dump.key, of_scores, 's', is_seen);
  check_rows("v", dump.value, gradients ? kLargestFactor : kLargestValue, 's', is_seen);
  check_not_vanishing("v", dump.value);
  if (!gradients) return;
  check_rows("dout", *dump.context_gradient, kLargestFactor, 't', sees);
  check_not_vanishing("dout", *dump.context_gradient);
}

/// −∞ hides; NaN and +∞ may stand where the mask hides.
void check_bias(const Dump& dump, const Sight& sight) {
  if (!dump.bias) return;
  const auto bias = dump.bias->view();
  const auto [batch, heads, queries, keys] =
      std::array{dump.shape.batch, dump.shape.heads, dump.shape.queries, dump.shape.keys};
  const auto is_bad = [](double value) { return std::isnan(value) || value == kInfinity; };
  bool any = false;
  for (const double value : dump.bias->elements()) any = any || is_bad(value);
  if (!any) return;
  for (Index b = 0; b < batch; ++b) {
    for (Index h = 0; h < heads; ++h) {
      for (Index t = 0; t < queries; ++t) {
        for (Index s = 0; s < keys; ++s) {
          const double value = broadcast_at(bias, b, h, t, s);
          if (is_bad(value) && sight.sees(b, h, t, s)) {
            fail_visible("bias", value, fmt::format("b={}, h={}, t={}, s={}", b, h, t, s));
          }
        }
      }
    }
  }
}

}  // namespace

void check_dump_is_finite(const Dump& dump) {
  if (const auto& projections = dump.projections) {
    const bool packed = projections->packing.has_value();
    check_finite(packed ? "wqkv" : "wq", projections->query_weight.elements());
    check_finite(packed ? "wqkv" : "wk", projections->key_weight.elements());
    check_finite(packed ? "wqkv" : "wv", projections->value_weight.elements());
    check_finite(packed ? "bqkv" : "bq", projections->query_bias);
    check_finite(packed ? "bqkv" : "bk", projections->key_bias);
    check_finite(packed ? "bqkv" : "bv", projections->value_bias);
  }
  if (dump.output_projection) {
    check_finite("wo", dump.output_projection->weight.elements());
    check_finite("bo", dump.output_projection->bias);
  }
  if (dump.alibi_slopes) check_finite("alibi_slopes", *dump.alibi_slopes);
  check_finite("sink", dump.sink);
  if (dump.qk_norm) {
    check_finite("q_norm", dump.qk_norm->query_weight);
    check_finite("k_norm", dump.qk_norm->key_weight);
  }
  const Sight sight(dump);
  check_bias(dump, sight);
  check_inputs(dump, sight);
}

}  // namespace qkv
