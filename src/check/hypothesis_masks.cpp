// M1 to M7, M12 and M13: how rules are applied, and to what.
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
}

}  // namespace qkv
