// M1 to M13: what is visible, and how it is applied.
#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "check/hypothesis_list.h"

namespace qkv {
namespace {

struct Part {
  std::size_t rule;
  std::string name;
};

/// The rules that the dump means.
std::vector<Part> parts_of(const Dump& dump) {
  const DumpRules& r = dump.rules;
  std::vector<Part> parts;
  if (r.causal) parts.push_back({kCausal, "the causal rule"});
  if (r.window) parts.push_back({kWindow, "the window"});
  if (!r.lengths.empty() || r.padding) parts.push_back({kPadding, "the padding"});
  if (r.boolean) parts.push_back({kBoolean, "the boolean mask"});
  if (r.query_documents) parts.push_back({kDocuments, "the documents"});
  return parts;
}

class MaskList {
 public:
  MaskList(const Dump& dump, std::vector<Hypothesis>& list)
      : dump_(dump), parts_(parts_of(dump)), list_(list) {
    for (const Part& part : parts_) everything_ |= stage::rule(part.rule);
  }

  void add(std::string id, int rank, std::uint32_t touches, std::string text,
           std::function<void(Variant&)> apply) {
    list_.push_back({std::move(id), std::move(text), touches, std::move(apply), {}, rank, {}});
  }

  /// For each part, and for all together where there are several.
  template <class Change>
  void add_for_parts(const std::string& id, int rank, const std::string& text, Change change) {
    for (const Part& part : parts_) {
      add(id, rank, stage::rule(part.rule), fmt::format(fmt::runtime(text), part.name),
          [change, part](Variant& v) { change(v.visibility.rules[part.rule]); });
    }
    if (parts_.size() < 2) return;
    add(id, rank, everything_, fmt::format(fmt::runtime(text), "the whole mask"),
        [change, parts = parts_](Variant& v) {
          for (const Part& part : parts) change(v.visibility.rules[part.rule]);
        });
  }

  void polarity() {
    if (parts_.empty()) return;
    add_for_parts("M1", 10, "{} with inverted polarity: the complement is visible",
                  [](RuleVariant& rule) { rule.complement = true; });
    if (parts_.size() < 2) return;
    add("M1", 9, everything_, "the whole mask with inverted polarity: its complement is visible",
        [](Variant& v) { v.visibility.complement = true; });
  }

  void padding() {
    if (dump_.rules.lengths.empty() && !dump_.rules.padding) return;
    const AttentionShape& shape = dump_.shape;
    const std::uint32_t touches = stage::rule(kPadding);
    if (shape.queries == shape.keys) {
      add("M2", 11, touches,
          "padding on the query axis: row t is hidden where token t is padding, no key is",
          [](Variant& v) { v.visibility.padding_axis = PaddingAxis::Query; });
    }
    if (shape.queries == shape.heads && shape.heads <= shape.keys) {
      add("M13", 13, touches,
          "padding on the head axis: head h is hidden where token h is padding, no key is",
          [](Variant& v) { v.visibility.padding_axis = PaddingAxis::Head; });
    }
  }

  void application() {
    if (parts_.empty()) return;
    add_for_parts("M3", 15, "{} after the softmax, and the weights not renormalised",
                  [](RuleVariant& rule) { rule.application = Application::AfterSoftmax; });
    add_for_parts("M4", 16, "{} fills with -1e-9: hidden scores become 0",
                  fill(Application::Fill, -1e-9));
    add_for_parts("M4", 17, "{} multiplies the scores by 0 and 1: hidden scores become 0",
                  fill(Application::Fill, 0));
    add_for_parts("M4", 18, "{} is added as 1 and 0: visible scores grow by 1",
                  fill(Application::AddToOthers, 1));
    add_for_parts("M4", 18, "{} is added as 0 and 1: hidden scores grow by 1",
                  fill(Application::Add, 1));
    add_for_parts("M4", 60, "{} adds -1e-9: hidden scores stay", fill(Application::Add, -1e-9));
    for (const double value :
         {-1e9, -1e4, -1e3, -100.0, -50.0, -20.0, -10.0, -1.0, 1.0, 10.0, 1e4, 1e9}) {
      finite_fill(value);
    }
    std::vector<double> grid;
    for (double f = -120; f <= 60; f += 2) grid.push_back(f);
    for (const Application application : {Application::Fill, Application::Add}) {
      for_each_group(
          [&](const std::vector<Part>& parts, const std::string& name, std::uint32_t touches) {
            const bool fills = application == Application::Fill;
            Hypothesis hypothesis{"M5",
                                  fills ? name + " fills with a number that real scores reach"
                                        : name + " adds a number that is too small to hide",
                                  touches,
                                  [](Variant&) {},
                                  {},
                                  fills ? 30 : 31,
                                  {}};
            hypothesis.free = FreeParameter{
                "fill", grid, false, false, [parts, application](Variant& v, double value) {
                  for (const Part& part : parts) {
                    v.visibility.rules[part.rule].application = application;
                    v.visibility.rules[part.rule].value = value;
                  }
                }};
            list_.push_back(std::move(hypothesis));
          });
    }
  }

  void empty_rows() {
    const auto policy = [&](EmptyPolicy empty, const char* text, int rank = 19) {
      add("M6", rank, stage::empty, fmt::format("a row that sees no key gives {}", text),
          [empty](Variant& v) { v.empty = empty; });
    };
    policy(EmptyPolicy::NaN, "NaN");
    policy(EmptyPolicy::Mean, "the mean of all values");
    policy(EmptyPolicy::Zero, "0");
    policy(EmptyPolicy::MeanOfRest, "the mean of the values that the other rules leave", 43);
    policy(EmptyPolicy::Softmax, "the softmax of all its scores", 43);
    add("M5", 42, stage::empty, "masks add the lowest number one after the other, and it overflows",
        [](Variant& v) { v.empty = EmptyPolicy::AddedLowest; });
    if (dump_.ran_in == DType::Float16) {
      add("M5", 42, stage::empty,
          "masks add the lowest float32 one after the other, and it overflows",
          [](Variant& v) { v.empty = EmptyPolicy::AddedLowestFloat32; });
    }
    policy(EmptyPolicy::SoftmaxOfRest, "the softmax of the scores that the other rules leave", 43);
  }

  void dropped() {
    for (const Part& part : parts_) {
      const bool documents = part.rule == kDocuments;
      add(documents ? "M12" : "M7", documents ? 11 : 12, stage::rule(part.rule),
          documents ? "documents see each other" : part.name + " is ignored",
          [part](Variant& v) { v.visibility.rules[part.rule].dropped = true; });
    }
    if (parts_.size() > 1) {
      add("M7", 12, everything_, "the whole mask is ignored", [parts = parts_](Variant& v) {
        for (const Part& part : parts) v.visibility.rules[part.rule].dropped = true;
      });
    }
    if (dump_.rules.causal && !dump_.rules.prefix.empty()) {
      add("M7", 12, stage::rule(kCausal), "the prefix is ignored: causal from the first key on",
          [](Variant& v) { v.visibility.prefix_dropped = true; });
    }
  }

  void triangle() {
    if (!dump_.rules.causal) return;
    add("M8", 13, stage::rule(kCausal), "the diagonal is hidden: s < t",
        [](Variant& v) { v.visibility.triangle = Triangle::Strict; });
    add("M8", 13, stage::rule(kCausal), "the upper triangle is visible: s >= t",
        [](Variant& v) { v.visibility.triangle = Triangle::Upper; });
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
  static std::function<void(RuleVariant&)> fill(Application application, double value) {
    return [application, value](RuleVariant& rule) {
      rule.application = application;
      rule.value = value;
    };
  }

  template <class Visit>
  void for_each_group(Visit visit) {
    for (const Part& part : parts_) visit({part}, part.name, stage::rule(part.rule));
    if (parts_.size() > 1) visit(parts_, "the whole mask", everything_);
  }

  void finite_fill(double value) {
    for_each_group(
        [&](const std::vector<Part>& parts, const std::string& name, std::uint32_t touches) {
          const auto change = fill(Application::Fill, value);
          Hypothesis hypothesis{"M5",
                                fmt::format("{} fills with {:g}", name, value),
                                touches,
                                [parts, change](Variant& v) {
                                  for (const Part& part : parts)
                                    change(v.visibility.rules[part.rule]);
                                },
                                {{"fill", value}},
                                value == -1e9 ? 41 : 23,
                                {}};
          list_.push_back(std::move(hypothesis));
        });
  }

  const Dump& dump_;
  std::vector<Part> parts_;
  std::vector<Hypothesis>& list_;
  std::uint32_t everything_ = 0;
};

}  // namespace

void list_mask_hypotheses(const Dump& dump, std::vector<Hypothesis>& list) {
  MaskList masks(dump, list);
  masks.polarity();
  masks.padding();
  masks.application();
  masks.empty_rows();
  masks.dropped();
  masks.triangle();
  masks.window();
  masks.corner();
  masks.other_sample();
  masks.transposed_mask();
}

}  // namespace qkv
