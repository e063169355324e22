#include "check/dump_reading.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <stdexcept>

#include "check/dump_shapes.h"
#include "check/dump_sizes.h"

namespace qkv {
namespace {

const DumpChoices<HeadLayout> kLayouts = {{"BHTD", HeadLayout::BHTD},
                                          {"BTHD", HeadLayout::BTHD},
                                          {"TBHD", HeadLayout::TBHD},
                                          {"BTD", HeadLayout::BTD},
                                          {"TBD", HeadLayout::TBD}};
const DumpChoices<OutStage> kStages = {
    {"heads", OutStage::Heads}, {"merged", OutStage::Merged}, {"projected", OutStage::Projected}};
const DumpChoices<bool> kWeightLayouts = {{"out-in", false}, {"in-out", true}};

template <class Value>
std::string_view name_in(const DumpChoices<Value>& choices, Value value) {
  const auto found = std::find_if(choices.begin(), choices.end(),
                                  [&](const auto& choice) { return choice.second == value; });
  return found->first;
}

/// The axes of the first of these tensors that is there, or 0.
std::size_t axes_of(const TensorFile& file, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (file.contains(name)) return file.at(name).shape().size();
  }
  return 0;
}

/// What is open, each with the default first.
struct Candidates {
  std::vector<HeadLayout> layouts;
  std::vector<HeadLayout> out_layouts;
  std::vector<OutStage> stages;
  std::vector<bool> weights_in_out;
};

std::vector<HeadLayout> layouts_of(std::size_t axes) {
  if (axes == 3) return {HeadLayout::BTD, HeadLayout::TBD};
  return {HeadLayout::BHTD, HeadLayout::BTHD, HeadLayout::TBHD};
}

Candidates candidates_of(const TensorFile& file, const DumpText& text) {
  Candidates result;
  const std::size_t axes = axes_of(file, {"q", "k", "v", "dq", "dk", "dv"});
  const std::size_t out_axes = file.at("out").shape().size();

  const auto layout = text.choice("layout", kLayouts);
  result.layouts = layout     ? std::vector{*layout}
                   : axes > 0 ? layouts_of(axes)
                              : std::vector{HeadLayout::BHTD};

  const auto stage = text.choice("out_stage", kStages);
  const auto out_layout = text.choice("out_layout", kLayouts);
  const bool out_is_merged = out_layout ? is_merged(*out_layout) : out_axes == 3;
  if (stage && (*stage == OutStage::Heads) == out_is_merged) {
    DumpText::fail("out_stage",
                   out_is_merged ? "merged or projected for an out of three axes"
                                 : "heads for an out of four axes",
                   *text.text("out_stage"));
  }
  result.stages = stage                 ? std::vector{*stage}
                  : !out_is_merged      ? std::vector{OutStage::Heads}
                  : file.contains("wo") ? std::vector{OutStage::Projected, OutStage::Merged}
                                        : std::vector{OutStage::Merged};
  if (stage == OutStage::Projected && !file.contains("wo")) {
    fail_dump("wo", "expected the weight of the output projection, as out is projected; got none");
  }
  result.out_layouts = out_layout ? std::vector{*out_layout} : layouts_of(out_axes);

  const auto weights = text.choice("weight_layout", kWeightLayouts);
  const bool has_weights = file.contains("wq") || file.contains("wqkv") || file.contains("wo");
  result.weights_in_out = weights       ? std::vector{*weights}
                          : has_weights ? std::vector{false, true}
                                        : std::vector{false};
  return result;
}

std::vector<DumpReading> all_readings(const Candidates& candidates) {
  std::vector<DumpReading> result;
  for (const HeadLayout layout : candidates.layouts) {
    for (const bool weights_in_out : candidates.weights_in_out) {
      for (const OutStage stage : candidates.stages) {
        for (const HeadLayout out_layout : candidates.out_layouts) {
          result.push_back({layout, out_layout, stage, weights_in_out, {}, 0});
        }
      }
    }
  }
  return result;
}

/// A reading that fits, and what solving it took for granted.
struct Fit {
  DumpReading reading;
  std::vector<std::string> inferred;
};

/// Sizes that the metadata give.
DumpSizes told_sizes(const DumpText& text) {
  DumpSizes sizes;
  if (const auto heads = text.whole_number("heads", 1, kMostDumpHeads)) {
    sizes.set(DumpSize::H, *heads, "heads");
  }
  if (const auto heads = text.whole_number("kv_heads", 1, kMostDumpHeads)) {
    sizes.set(DumpSize::Hkv, *heads, "kv_heads");
  }
  return sizes;
}

Fit fit(const TensorFile& file, DumpSizes sizes, DumpReading reading) {
  sizes.solve(shapes_of_dump(file, reading));
  reading.shape = sizes.shape();
  reading.model_width = sizes[DumpSize::D];
  return {reading, sizes.inferred()};
}

std::string describe(const DumpReading& reading) {
  return fmt::format("layout {}, out_layout {}, out_stage {}, weight_layout {}",
                     name_of(reading.layout), name_of(reading.out_layout),
                     name_in(kStages, reading.stage),
                     name_in(kWeightLayouts, reading.weights_in_out));
}

/// Of the readings in the order given, those that fit; the first one's error where none does.
std::vector<Fit> fits_of(const TensorFile& file, const DumpText& text,
                         const std::vector<DumpReading>& readings) {
  const DumpSizes told = told_sizes(text);
  std::vector<Fit> result;
  std::string first_error;
  for (const DumpReading& reading : readings) {
    try {
      result.push_back(fit(file, told, reading));
    } catch (const std::invalid_argument& error) {
      if (first_error.empty()) first_error = error.what();
    }
  }
  if (!result.empty()) return result;
  if (readings.size() > 1) {
    first_error += fmt::format(" ({}; no other fits)", describe(readings.front()));
  }
  throw std::invalid_argument(first_error);
}

/// Settles one thing that the file leaves open: on the first candidate where it fits (it is the default), else on the
/// only one that does.
template <class Value>
void settle(std::vector<Fit>& fits, Value DumpReading::*member,
            const std::vector<Value>& candidates, const DumpChoices<Value>& choices,
            const std::string& key, std::vector<std::string>& inferred) {
  std::vector<Value> fitting;
  for (const Value candidate : candidates) {
    if (std::any_of(fits.begin(), fits.end(),
                    [&](const Fit& fit) { return fit.reading.*member == candidate; })) {
      fitting.push_back(candidate);
    }
  }
  std::vector<std::string_view> names;
  names.reserve(fitting.size());
  for (const Value value : fitting) names.push_back(name_in(choices, value));
  const bool is_default = fitting.front() == candidates.front();
  if (!is_default && fitting.size() > 1) {
    fail_dump(
        key,
        fmt::format(
            "expected {}, for all of them fit the shapes, and the default, {}, does not; got none",
            fmt::join(names, " or "), name_in(choices, candidates.front())));
  }
  if (candidates.size() > 1) {
    const auto others = std::span(names).subspan(1);
    inferred.push_back(!is_default ? fmt::format("{}: {}, which alone fits", key, names.front())
                       : others.empty()
                           ? fmt::format("{}: {}", key, names.front())
                           : fmt::format("{}: {}, the default, though {} would fit too", key,
                                         names.front(), fmt::join(others, " and ")));
  }
  std::erase_if(fits, [&](const Fit& fit) { return fit.reading.*member != fitting.front(); });
}

/// Whether two layouts of the same shape order the elements alike: they differ in axes of extent 1 only.
bool same_order(const AttentionShape& shape, HeadLayout a, HeadLayout b) {
  const auto order = [&](HeadLayout layout) {
    std::string axes(name_of(layout));
    std::erase_if(axes, [&](char axis) {
      return (axis == 'B' && shape.batch == 1) || (axis == 'H' && shape.heads == 1) ||
             (axis == 'T' && shape.queries == 1);
    });
    return axes;
  };
  return order(a) == order(b);
}

/// `layout` as told serves out too; where it is not told, only one layout of out may fit.
void settle_out_layout(const TensorFile& file, const DumpText& text, std::vector<Fit>& fits,
                       std::vector<std::string>& inferred) {
  if (text.has("layout")) {
    const auto alike = std::find_if(fits.begin(), fits.end(), [](const Fit& fit) {
      return fit.reading.layout == fit.reading.out_layout;
    });
    if (alike != fits.end()) fits = {Fit(*alike)};
  }
  const Fit first = fits.front();
  std::erase_if(fits, [&](const Fit& fit) {
    return &fit != &fits.front() &&
           same_order(first.reading.shape, first.reading.out_layout, fit.reading.out_layout);
  });
  std::vector<std::string_view> names;
  names.reserve(fits.size());
  for (const Fit& fit : fits) names.push_back(name_of(fit.reading.out_layout));
  if (fits.size() > 1) {
    fail_dump("out", fmt::format("{} fits {}: say which with out_layout",
                                 to_string(file.at("out").shape()), fmt::join(names, " and ")));
  }
  if (!text.has("out_layout")) inferred.push_back(fmt::format("out_layout: {}", names.front()));
}

}  // namespace

std::string_view name_of(HeadLayout layout) { return name_in(kLayouts, layout); }

DumpReading choose_reading(const TensorFile& file, const DumpText& text,
                           std::vector<std::string>& inferred) {
  check_dump_has_tensors(file);
  const Candidates candidates = candidates_of(file, text);
  std::vector<Fit> fits = fits_of(file, text, all_readings(candidates));
  settle(fits, &DumpReading::layout, candidates.layouts, kLayouts, "layout", inferred);
  settle(fits, &DumpReading::weights_in_out, candidates.weights_in_out, kWeightLayouts,
         "weight_layout", inferred);
  settle(fits, &DumpReading::stage, candidates.stages, kStages, "out_stage", inferred);
  settle_out_layout(file, text, fits, inferred);
  const Fit& chosen = fits.front();
  inferred.insert(inferred.end(), chosen.inferred.begin(), chosen.inferred.end());
  return chosen.reading;
}

}  // namespace qkv
