// Q1 to Q4 of the input projections, R1 to R3, and QK-norm: E1.
#include <fmt/format.h>

#include <cmath>

#include "check/hypothesis_list.h"

namespace qkv {
namespace {

constexpr const char* kNames[] = {"q", "k", "v"};

Hypothesis& add(std::vector<Hypothesis>& list, std::string id, int rank, std::uint32_t touches,
                std::string text, std::function<void(Variant&)> apply) {
  list.push_back({std::move(id), std::move(text), touches, std::move(apply), {}, rank, {}});
  return list.back();
}

Index rows_of(const AttentionShape& shape, std::size_t tensor) {
  if (tensor == kQuery) return shape.heads * shape.key_width;
  return shape.kv_heads * (tensor == kKey ? shape.key_width : shape.value_width);
}

void list_packings(const Dump& dump, std::vector<Hypothesis>& list) {
  const Packing packing = dump.projections->packing.value_or(Packing::ByInput);
  std::array<std::size_t, 3> order{kQuery, kKey, kValue};
  do {
    for (const bool by_head : {false, true}) {
      const bool same = by_head == (packing == Packing::ByHead);
      if (same && order == std::array<std::size_t, 3>{kQuery, kKey, kValue}) continue;
      // Without a packed weight only the order is a question.
      if (!dump.projections->packing && by_head) continue;
      add(list, "Q1",
          !dump.projections->packing ? 16
          : same                     ? 12
                                     : 13,
          stage::projection,
          fmt::format("the packed weight is read as [{}; {}; {}]{}", kNames[order[0]],
                      kNames[order[1]], kNames[order[2]], by_head ? " of each head" : ""),
          [order, by_head](Variant& v) {
            v.projection.packed_order = order;
            v.projection.packed_by_head = by_head;
          });
    }
  } while (std::next_permutation(order.begin(), order.end()));
}

void list_wrong_weights(const Dump& dump, std::vector<Hypothesis>& list) {
  for (std::size_t code = 0; code < 27; ++code) {
    const std::array<std::size_t, 3> weight{code / 9, code / 3 % 3, code % 3};
    std::string text;
    bool fits = true;
    for (std::size_t i = 0; i < 3; ++i) {
      if (weight[i] == i) continue;
      fits = fits && rows_of(dump.shape, weight[i]) == rows_of(dump.shape, i);
      text += fmt::format("{}{} is projected by W{}", text.empty() ? "" : ", ", kNames[i],
                          kNames[weight[i]]);
    }
    if (!fits || text.empty()) continue;
    const auto& p = *dump.projections;
    add(list, "Q2", 14, stage::projection, text, [weight](Variant& v) {
      v.projection.weight = weight;
      v.projection.bias = weight;
    });
    if (!p.query_bias && !p.key_bias && !p.value_bias) continue;
    add(list, "Q2", 15, stage::projection, text + ", with its own bias",
        [weight](Variant& v) { v.projection.weight = weight; });
  }
}

void list_transposes(const Dump& dump, std::vector<Hypothesis>& list) {
  const auto& p = *dump.projections;
  const Tensor<double, 2>* weights[] = {&p.query_weight, &p.key_weight, &p.value_weight};
  std::array<bool, 3> square{};
  int count = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    square[i] = weights[i]->shape(0) == weights[i]->shape(1);
    if (!square[i]) continue;
    ++count;
    add(list, "Q3", 14, stage::projection, fmt::format("{} is x*W in place of x*W^T", kNames[i]),
        [i](Variant& v) { v.projection.transposed[i] = true; });
  }
  if (count > 1) {
    add(list, "Q3", 13, stage::projection, "q, k and v are x*W in place of x*W^T where W is square",
        [square](Variant& v) { v.projection.transposed = square; });
  }
  const auto& o = dump.output_projection;
  if (count == 0 || dump.stage != OutStage::Projected || !o ||
      o->weight.shape(0) != o->weight.shape(1))
    return;
  add(list, "Q3", 13, stage::projection | stage::output,
      "every projection is x*W in place of x*W^T", [square](Variant& v) {
        v.projection.transposed = square;
        v.output.projection_transposed = true;
      });
}

void list_biases(const Dump& dump, std::vector<Hypothesis>& list) {
  const auto& p = *dump.projections;
  const bool has[] = {p.query_bias.has_value(), p.key_bias.has_value(), p.value_bias.has_value()};
  int count = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    if (!has[i]) continue;
    ++count;
    add(list, "Q4", 13, stage::projection, fmt::format("the bias of {} is missing", kNames[i]),
        [i](Variant& v) { v.projection.bias[i] = 3; });
  }
  if (count > 1) {
    add(list, "Q4", 13, stage::projection, "the biases of q, k and v are missing", [](Variant& v) {
      v.projection.bias = {3, 3, 3};
    });
    if (dump.stage == OutStage::Projected && dump.output_projection &&
        dump.output_projection->bias) {
      add(list, "Q4", 13, stage::projection | stage::output, "all biases are missing",
          [](Variant& v) {
            v.projection.bias = {3, 3, 3};
            v.output.bias_factor = 0;
          });
    }
  }
  struct Choice {
    Activation activation;
    const char* name;
  };
  for (const Choice& choice :
       {Choice{Activation::Relu, "ReLU"}, Choice{Activation::Gelu, "GELU"},
        Choice{Activation::Tanh, "tanh"}, Choice{Activation::Silu, "SiLU"}}) {
    for (std::size_t i = 0; i <= 3; ++i) {
      add(list, "Q4", 16, stage::projection,
          fmt::format("an activation is left on {}: {}", i < 3 ? kNames[i] : "q, k and v",
                      choice.name),
          [i, choice](Variant& v) {
            for (std::size_t j = 0; j < 3; ++j) {
              if (i == 3 || i == j) v.projection.activation[j] = choice.activation;
            }
          });
    }
  }
}

class RotaryList {
 public:
  RotaryList(const Dump& dump, std::vector<Hypothesis>& list) : dump_(dump), list_(list) {}

  /// On q and k, on q alone, on k alone.
  template <class Change>
  void on_each(const std::string& id, int rank, const std::string& text, Change change,
               bool both = true) {
    if (both) {
      add(list_, id, rank, stage::rotary, text, [change](Variant& v) {
        change(v.rotary[kQuery]);
        change(v.rotary[kKey]);
      });
    }
    for (const std::size_t i : {kQuery, kKey}) {
      add(list_, id, rank + 2, stage::rotary, fmt::format("{}, of {} alone", text, kNames[i]),
          [change, i](Variant& v) { change(v.rotary[i]); });
    }
  }

  void discrete() {
    const Index width = dump_.rotary->options.width.value_or(dump_.shape.key_width);
    if (width > 2) {
      const bool halves = dump_.rotary->options.pairing == RotaryPairing::Halves;
      on_each("R1", 12,
              halves ? "rotary pairs (2i, 2i+1) in place of (i, i+d/2)"
                     : "rotary pairs (i, i+d/2) in place of (2i, 2i+1)",
              [](RotaryVariant& r) { r.pairing_exchanged = true; });
    }
    on_each("R2", 12, "rotary positions run along the heads",
            [](RotaryVariant& r) { r.over_heads = true; });
    on_each("R3", 13, "rotary positions are missing", [](RotaryVariant& r) { r.missing = true; });
    on_each("R3", 14, "rotary positions count from 0, whatever they are meant to be",
            [](RotaryVariant& r) { r.counted = true; });
    on_each("R3", 14, "rotary angles have the opposite sign",
            [](RotaryVariant& r) { r.backward = true; });
    on_each("R3", 14, "rotary positions are applied twice",
            [](RotaryVariant& r) { r.twice = true; });
    for (const double base : {10000.0, 500000.0, 1e6, 1e5, 5e6, 8e6, 1e7, 1000.0, 100.0}) {
      if (base == dump_.rotary->options.base) continue;
      add(list_, "R3", 14, stage::rotary, fmt::format("the rotary base is {:g}", base),
          [base](Variant& v) { v.rotary[kQuery].base = v.rotary[kKey].base = base; })
          .parameters["base"] = base;
    }
    if (width != dump_.shape.key_width) {
      const Index all = dump_.shape.key_width - dump_.shape.key_width % 2;
      add(list_, "R3", 14, stage::rotary, "all elements of a head turn, not the leading ones",
          [all](Variant& v) { v.rotary[kQuery].width = v.rotary[kKey].width = all; });
    }
    if (width >= 4) {
      const Index half = width / 2 - width / 2 % 2;
      add(list_, "R3", 15, stage::rotary, "only half of the elements turn",
          [half](Variant& v) { v.rotary[kQuery].width = v.rotary[kKey].width = half; });
    }
  }

  void fitted() {
    const auto shift_limit =
        static_cast<double>(std::max(dump_.shape.keys, dump_.shape.queries) + 1);
    std::vector<double> shifts;
    for (double shift = -shift_limit; shift <= shift_limit; ++shift) {
      if (shift != 0) shifts.push_back(shift);
    }
    free("R3", 17, "positions of q are shifted",
         {"shift", shifts, true, false,
          [](Variant& v, double value) { v.rotary[kQuery].shift = static_cast<Index>(value); }});
    free("R3", 16, "positions of k are shifted",
         {"shift", shifts, true, false,
          [](Variant& v, double value) { v.rotary[kKey].shift = static_cast<Index>(value); }});
    std::vector<double> chunks;
    for (double n = 1; n < shift_limit - 1; ++n) chunks.push_back(n);
    free("R3", 17, "positions start again at every chunk",
         {"chunk", chunks, true, false, [](Variant& v, double value) {
            v.rotary[kQuery].reset = v.rotary[kKey].reset = static_cast<Index>(value);
          }});
    free("R3", 18, "positions of k start again at every chunk",
         {"chunk", chunks, true, false,
          [](Variant& v, double value) { v.rotary[kKey].reset = static_cast<Index>(value); }});
    free("R3", 18, "positions of q start again at every chunk",
         {"chunk", chunks, true, false,
          [](Variant& v, double value) { v.rotary[kQuery].reset = static_cast<Index>(value); }});
    std::vector<double> bases;
    for (int i = 0; i <= 120; ++i) bases.push_back(std::pow(10.0, 1 + i * 7.0 / 120));
    free("R3", 20, "the rotary base is another one",
         {"base", bases, false, true,
          [](Variant& v, double value) { v.rotary[kQuery].base = v.rotary[kKey].base = value; }});
    std::vector<double> factors;
    for (int i = 0; i <= 80; ++i) factors.push_back(std::pow(10.0, -1.5 + i * 3.0 / 80));
    free("R3", 21, "rotary positions are multiplied by a constant",
         {"factor", factors, false, true, [](Variant& v, double value) {
            v.rotary[kQuery].factor = v.rotary[kKey].factor = value;
          }});
  }

 private:
  void free(const char* id, int rank, const char* text, FreeParameter parameter) {
    add(list_, id, rank, stage::rotary, text, [](Variant&) {}).free = std::move(parameter);
  }

  const Dump& dump_;
  std::vector<Hypothesis>& list_;
};

void list_norms(const Dump& dump, std::vector<Hypothesis>& list) {
  const auto on_each = [&](int rank, const std::string& text, const auto& change) {
    add(list, "E1", rank, stage::norm, text, [change](Variant& v) {
      change(v.norm[kQuery]);
      change(v.norm[kKey]);
    });
    for (const std::size_t i : {kQuery, kKey}) {
      add(list, "E1", rank + 1, stage::norm, fmt::format("{}, of {} alone", text, kNames[i]),
          [change, i](Variant& v) { change(v.norm[i]); });
    }
  };
  on_each(12, "QK-norm is missing", [](NormVariant& n) { n.missing = true; });
  on_each(13, "QK-norm has no weight", [](NormVariant& n) { n.unweighted = true; });
  if (dump.rotary) {
    on_each(13, "QK-norm and rotary positions are in the opposite order",
            [](NormVariant& n) { n.order_exchanged = true; });
  }
}

}  // namespace

void list_input_hypotheses(const Dump& dump, std::vector<Hypothesis>& list) {
  if (dump.projections) {
    list_packings(dump, list);
    list_wrong_weights(dump, list);
    list_transposes(dump, list);
    list_biases(dump, list);
  }
  if (dump.rotary) {
    RotaryList rotary(dump, list);
    rotary.discrete();
    rotary.fitted();
  }
  if (dump.qk_norm) list_norms(dump, list);
}

}  // namespace qkv
