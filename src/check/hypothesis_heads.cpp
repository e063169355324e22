// H1 to H5, G1, and the output projection: Q3, Q4.
#include <fmt/format.h>

#include "check/hypothesis_list.h"

namespace qkv {
namespace {

void add(std::vector<Hypothesis>& list, std::string id, int rank, std::uint32_t touches,
         std::string text, std::function<void(Variant&)> apply) {
  list.push_back({std::move(id), std::move(text), touches, std::move(apply), {}, rank, {}});
}

struct Group {
  const char* name;
  bool query;
  bool key;
  bool value;
};

constexpr Group kGroups[] = {{"q, k and v", true, true, true}, {"q", true, false, false},
                             {"k", false, true, false},        {"v", false, false, true},
                             {"k and v", false, true, true},   {"q and k", true, true, false}};

void list_splits(const Dump& dump, std::vector<Hypothesis>& list) {
  const bool kv_heads = dump.shape.kv_heads > 1;
  for (const HeadOrder order : {HeadOrder::View, HeadOrder::Interleaved}) {
    const bool view = order == HeadOrder::View;
    for (const Group& group : kGroups) {
      if (!kv_heads && !group.query) continue;
      const auto split = [group, order](Variant& v) {
        if (group.query) v.split[kQuery] = order;
        if (group.key) v.split[kKey] = order;
        if (group.value) v.split[kValue] = order;
      };
      const bool all = group.query && group.key && group.value;
      add(list, view ? "H1" : "H5", all ? 12 : 18, stage::split,
          view
              ? fmt::format("{}: [B,T,D] is viewed as [B,H,T,Dh] without the transpose", group.name)
              : fmt::format("{}: heads are split as (d h), interleaved", group.name),
          split);
      if (!all || view) continue;
      add(list, "H5", 13, stage::split | stage::merge,
          "heads are split and merged as (d h), interleaved", [split](Variant& v) {
            split(v);
            v.output.merge = HeadOrder::Interleaved;
          });
    }
  }
}

void list_merges(const Dump& dump, std::vector<Hypothesis>& list) {
  if (dump.stage == OutStage::Heads) return;
  if (dump.shape.queries > 1) {
    add(list, "H2", 12, stage::merge,
        "heads are merged by a view: [B,H,T,Dh] as [B,T,D] without the transpose",
        [](Variant& v) { v.output.merge = HeadOrder::View; });
  }
  if (dump.shape.value_width > 1) {
    add(list, "H5", 13, stage::merge, "heads are merged as (d h), interleaved",
        [](Variant& v) { v.output.merge = HeadOrder::Interleaved; });
  }
}

void list_collapses(const Dump& dump, std::vector<Hypothesis>& list) {
  const auto collapse = [&](const Group& group, int rank, const std::string& text) {
    if (!group.query && dump.shape.kv_heads == 1) return;
    add(list, "H4", rank, stage::head_map, text, [group](Variant& v) {
      if (group.query) v.head[kQuery] = HeadMap::First;
      if (group.key) v.head[kKey] = HeadMap::First;
      if (group.value) v.head[kValue] = HeadMap::First;
    });
  };
  collapse(kGroups[0], 12, "all heads read head 0");
  for (std::size_t i = 1; i < std::size(kGroups); ++i) {
    collapse(kGroups[i], 16, fmt::format("all heads read head 0 of {}", kGroups[i].name));
  }
  add(list, "H4", 14, stage::head_mean, "every head gives the mean of all heads",
      [](Variant& v) { v.head_mean = HeadMean::Context; });
  add(list, "H4", 15, stage::head_mean, "every head takes the mean of all heads' weights",
      [](Variant& v) { v.head_mean = HeadMean::Weights; });
}

void list_axes(const Dump& dump, std::vector<Hypothesis>& list) {
  if (dump.shape.queries != dump.shape.keys) return;
  const auto over = [&](Attended attended, const char* name) {
    const std::uint32_t touches = stage::attended | stage::all_rules;
    add(list, "H3", 13, touches,
        fmt::format("each token attends over the {} instead of the tokens", name),
        [attended](Variant& v) {
          v.attended = attended;
          v.visibility.rules[kCausal].dropped = true;
        });
    if (!dump.rules.causal) return;
    add(list, "H3", 13, touches,
        fmt::format("each token attends over the {}, causally, instead of the tokens", name),
        [attended](Variant& v) { v.attended = attended; });
  };
  over(Attended::Batch, "batch");
  over(Attended::Heads, "heads");
}

void list_groups(const Dump& dump, std::vector<Hypothesis>& list) {
  if (dump.shape.kv_heads < 2 || dump.shape.kv_heads == dump.shape.heads) return;
  add(list, "G1", 12, stage::head_map, "query head h reads key/value head h mod Hkv",
      [](Variant& v) { v.head[kKey] = v.head[kValue] = HeadMap::Modulo; });
  add(list, "G1", 13, stage::head_map, "query head h reads key head h mod Hkv, values rightly",
      [](Variant& v) { v.head[kKey] = HeadMap::Modulo; });
  add(list, "G1", 13, stage::head_map, "query head h reads value head h mod Hkv, keys rightly",
      [](Variant& v) { v.head[kValue] = HeadMap::Modulo; });
}

void list_output(const Dump& dump, std::vector<Hypothesis>& list) {
  if (dump.stage != OutStage::Projected) {
    const auto& projection = dump.output_projection;
    if (dump.stage == OutStage::Merged && projection &&
        projection->weight.shape(0) == projection->weight.shape(1)) {
      add(list, "Q4", 13, stage::output, "the output is projected where it is meant not to be",
          [](Variant& v) { v.output.projection_extra = true; });
    }
    return;
  }
  if (dump.output_projection) {
    const Tensor<double, 2>& weight = dump.output_projection->weight;
    if (weight.shape(0) == weight.shape(1)) {
      add(list, "Q3", 13, stage::output, "the output is projected by W in place of its transpose",
          [](Variant& v) { v.output.projection_transposed = true; });
      add(list, "Q4", 12, stage::output, "the output projection is missing", [](Variant& v) {
        v.output.projection_missing = true;
        v.output.bias_factor = 0;
      });
      if (dump.output_projection->bias) {
        add(list, "Q4", 14, stage::output, "the output projection is missing, its bias is not",
            [](Variant& v) { v.output.projection_missing = true; });
      }
    }
    if (dump.output_projection->bias) {
      add(list, "Q4", 12, stage::output, "the bias of the output projection is missing",
          [](Variant& v) { v.output.bias_factor = 0; });
      add(list, "Q4", 14, stage::output, "the bias of the output projection is added twice",
          [](Variant& v) { v.output.bias_factor = 2; });
    }
  }
  struct Choice {
    Activation activation;
    const char* name;
  };
  for (const Choice& choice : {Choice{Activation::Relu, "ReLU"}, Choice{Activation::Gelu, "GELU"},
                               Choice{Activation::Tanh, "tanh"}, Choice{Activation::Silu, "SiLU"},
                               Choice{Activation::Sigmoid, "sigmoid"}}) {
    add(list, "Q4", 15, stage::output,
        fmt::format("an activation is left on the output: {}", choice.name),
        [choice](Variant& v) { v.output.activation = choice.activation; });
  }
}

}  // namespace

void list_head_hypotheses(const Dump& dump, std::vector<Hypothesis>& list) {
  if (dump.shape.heads > 1) {
    list_splits(dump, list);
    list_merges(dump, list);
    list_collapses(dump, list);
  }
  list_axes(dump, list);
  list_groups(dump, list);
  list_output(dump, list);
}

}  // namespace qkv
