// M8 to M11: which keys a rule covers.
#include <fmt/format.h>

#include "check/hypothesis_list.h"
#include "check/variant_visibility.h"

namespace qkv {
namespace {

class VisibilityList {
 public:
  VisibilityList(const Dump& dump, std::vector<Hypothesis>& list) : dump_(dump), list_(list) {}

  void triangle() {
    if (!dump_.rules.causal) return;
    add("M8", 13, stage::rule(kCausal), "the diagonal is hidden: s < t",
        [](Variant& v) { v.visibility.triangle = Triangle::Strict; });
    add("M8", 13, stage::rule(kCausal), "the upper triangle is visible: s >= t",
        [](Variant& v) { v.visibility.triangle = Triangle::Upper; });
    // On another diagonal than this it is a matter of corners.
    const bool square = dump_.shape.queries == dump_.shape.keys && dump_.shape.keys > 1;
    if (!square || corner_offset(dump_, {}, 0) != 0) return;
    add("M8", 14, stage::rule(kCausal), "one key of the future is visible: s <= t + 1",
        [](Variant& v) { v.visibility.causal_corner.offset = 1; });
  }

  void window() {
    if (!dump_.rules.window) return;
    const Window w = *dump_.rules.window;
    const auto with = [&](int rank, const std::string& text, std::optional<Index> left,
                          std::optional<Index> right, bool uncausal = false) {
      if ((left && *left < 0) || (right && *right < 0)) return;
      Hypothesis hypothesis{"M9",
                            text,
                            stage::rule(kWindow) | (uncausal ? stage::rule(kCausal) : 0),
                            [left, right, uncausal](Variant& v) {
                              v.visibility.window_changed = true;
                              v.visibility.window_left = left;
                              v.visibility.window_right = right;
                              if (uncausal) v.visibility.rules[kCausal].dropped = true;
                            },
                            {},
                            rank,
                            {}};
      if (left) hypothesis.parameters["window_left"] = static_cast<double>(*left);
      if (right) hypothesis.parameters["window_right"] = static_cast<double>(*right);
      list_.push_back(std::move(hypothesis));
    };
    if (w.left) {
      with(12, "the window reaches one key further", *w.left + 1, w.right);
      with(12, "the window is one key short", *w.left - 1, w.right);
      with(12, "the window is two-sided", w.left, w.left);
      if (dump_.rules.causal) {
        with(12, "the window is two-sided, and nothing else hides later keys", w.left, w.left,
             true);
      }
      with(13, "the window has half its width on each side", *w.left / 2, *w.left / 2);
    }
    if (w.left != w.right) with(12, "the window lies on the other side", w.right, w.left);
    if (w.left != w.right && dump_.rules.causal) {
      with(12, "the window lies on the other side, and nothing else hides later keys", w.right,
           w.left, true);
    }
    if (w.right && *w.right > 0) {
      with(12, "the window reaches one later key further", w.left, *w.right + 1);
      with(12, "the window is one later key short", w.left, *w.right - 1);
      if (w.left) {
        with(12, "the window reaches one key further on both sides", *w.left + 1, *w.right + 1);
        with(12, "the window is one key short on both sides", *w.left - 1, *w.right - 1);
      }
    }
    std::vector<double> grid;
    for (Index i = 0; i < dump_.shape.keys; ++i) grid.push_back(static_cast<double>(i));
    Hypothesis fitted{
        "M9", "the window has another width", stage::rule(kWindow), [](Variant&) {}, {}, 24, {}};
    fitted.free = FreeParameter{"window_left", grid, true, false, [w](Variant& v, double value) {
                                  v.visibility.window_changed = true;
                                  v.visibility.window_left = static_cast<Index>(value);
                                  v.visibility.window_right = w.right;
                                }};
    if (w.left) list_.push_back(fitted);
    if (w.right && *w.right > 0) {
      fitted.free->name = "window_right";
      fitted.free->set = [w](Variant& v, double value) {
        v.visibility.window_changed = true;
        v.visibility.window_left = w.left;
        v.visibility.window_right = static_cast<Index>(value);
      };
      list_.push_back(fitted);
    }
  }

  void corner() {
    const bool causal = dump_.rules.causal;
    const bool window = dump_.rules.window.has_value();
    if (!causal && !window) return;
    const Index difference = dump_.shape.keys - dump_.shape.queries;
    const std::uint32_t touches =
        (causal ? stage::rule(kCausal) : 0) | (window ? stage::rule(kWindow) : 0);
    const auto at = [](Variant& v, const CornerVariant& corner) {
      v.visibility.causal_corner = corner;
      v.visibility.window_corner = corner;
    };
    const auto corner_with = [&](int rank, std::string text, CornerVariant corner) {
      add("M10", rank, touches, std::move(text), [at, corner](Variant& v) { at(v, corner); });
      if (corner.offset) list_.back().parameters["offset"] = static_cast<double>(*corner.offset);
    };
    if (difference != 0) {
      corner_with(11, "the diagonal starts at the top left: s <= t", {Index{0}, false});
      corner_with(11, "the diagonal ends at the bottom right: s <= t + S - T", {difference, false});
      corner_with(16, "the diagonal ends at the bottom right, the other way about: s <= t + T - S",
                  {-difference, false});
    }
    if (!dump_.rules.lengths.empty()) {
      corner_with(17, "the diagonal ends at each sample's length", {std::nullopt, true});
    }
    std::vector<double> grid;
    for (Index i = 1 - dump_.shape.queries; i < dump_.shape.keys; ++i) {
      grid.push_back(static_cast<double>(i));
    }
    Hypothesis fitted{"M10", "the diagonal starts at another key", touches, [](Variant&) {}, {}, 26,
                      {}};
    fitted.free = FreeParameter{"offset", grid, true, false, [at](Variant& v, double value) {
                                  at(v, {static_cast<Index>(value), false});
                                }};
    list_.push_back(fitted);
    if (causal && window) {
      fitted.text = "the diagonal of the causal rule alone starts at another key";
      fitted.touches = stage::rule(kCausal);
      fitted.free->set = [](Variant& v, double value) {
        v.visibility.causal_corner.offset = static_cast<Index>(value);
      };
      fitted.rank = 27;
      list_.push_back(fitted);
      fitted.text = "the diagonal of the window alone starts at another key";
      fitted.touches = stage::rule(kWindow);
      fitted.free->set = [](Variant& v, double value) {
        v.visibility.window_corner.offset = static_cast<Index>(value);
      };
      list_.push_back(fitted);
    }
  }

  void other_sample() {
    const AttentionShape& shape = dump_.shape;
    const DumpRules& r = dump_.rules;
    if (shape.batch < 2) return;
    struct Choice {
      SampleMap map;
      const char* text;
      bool possible;
    };
    const Choice choices[] = {
        {SampleMap::Tiled,
         "is repeated as a whole where each entry is meant to be: row b*H+h takes sample (b*H+h) "
         "mod B",
         shape.heads > 1},
        {SampleMap::Head, "is broadcast onto the head axis: head h takes sample h",
         shape.heads == shape.batch},
        {SampleMap::First, "of sample 0 serves every sample", true},
        {SampleMap::Next, "of the next sample is taken", true},
    };
    std::vector<Part> parts;
    if (!r.prefix.empty()) parts.push_back({kCausal, "the prefix"});
    if (r.lengths.size() > 1 || (r.padding && r.padding->shape(0) > 1)) {
      parts.push_back({kPadding, "the padding"});
    }
    if (r.boolean && r.boolean->shape(0) > 1) parts.push_back({kBoolean, "the boolean mask"});
    if (r.query_documents) parts.push_back({kDocuments, "the document numbers"});
    for (const Choice& choice : choices) {
      if (!choice.possible) continue;
      for (const Part& part : parts) {
        add("M11", 20, stage::rule(part.rule), fmt::format("{} {}", part.name, choice.text),
            [part, choice](Variant& v) { v.visibility.rules[part.rule].sample = choice.map; });
      }
      if (parts.size() > 1) {
        std::uint32_t touches = 0;
        for (const Part& part : parts) touches |= stage::rule(part.rule);
        add("M11", 20, touches, fmt::format("the mask {}", choice.text),
            [parts, choice](Variant& v) {
              for (const Part& part : parts) v.visibility.rules[part.rule].sample = choice.map;
            });
      }
      if (dump_.bias && dump_.bias->shape(0) > 1) {
        add("M11", 21, stage::bias, fmt::format("the bias {}", choice.text),
            [choice](Variant& v) { v.score.bias_sample = choice.map; });
      }
    }
  }

  void transposed_mask() {
    if (!dump_.rules.boolean || dump_.shape.queries != dump_.shape.keys) return;
    if (dump_.rules.boolean->shape(2) == 1 && dump_.rules.boolean->shape(3) == 1) return;
    add("M2", 22, stage::rule(kBoolean),
        "the boolean mask is transposed: queries and keys exchanged",
        [](Variant& v) { v.visibility.boolean_transposed = true; });
  }

 private:
  void add(std::string id, int rank, std::uint32_t touches, std::string text,
           std::function<void(Variant&)> apply) {
    list_.push_back({std::move(id), std::move(text), touches, std::move(apply), {}, rank, {}});
  }

  struct Part {
    std::size_t rule;
    std::string name;
  };

  const Dump& dump_;
  std::vector<Hypothesis>& list_;
};

}  // namespace

void list_visibility_hypotheses(const Dump& dump, std::vector<Hypothesis>& list) {
  VisibilityList rules(dump, list);
  rules.triangle();
  rules.window();
  rules.corner();
  rules.other_sample();
  rules.transposed_mask();
}

}  // namespace qkv
