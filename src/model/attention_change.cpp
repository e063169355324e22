#include "model/attention_change.h"

#include <array>

namespace qkv {
namespace {

struct BugName {
  AttentionBug bug;
  std::string_view name;
  std::string_view bug_class;
};

constexpr std::array kNames{
    BugName{AttentionBug::CausalDropped, "causal-dropped", "M7"},
    BugName{AttentionBug::CausalOffByOne, "causal-off-by-one", "M8"},
    BugName{AttentionBug::WindowOffByOne, "window-off-by-one", "M9"},
    BugName{AttentionBug::MaskAfterSoftmax, "mask-after-softmax", "M3"},
    BugName{AttentionBug::PaddingDropped, "padding-dropped", "M7"},
    BugName{AttentionBug::PaddingFilled, "padding-filled", "M5"},
    BugName{AttentionBug::PaddingOnQueryAxis, "padding-on-query-axis", "M2"},
    BugName{AttentionBug::PaddingOnHeadAxis, "padding-on-head-axis", "M13"},
    BugName{AttentionBug::ScaleMissing, "scale-missing", "S1"},
    BugName{AttentionBug::ScaleTwice, "scale-twice", "S3"},
    BugName{AttentionBug::SoftmaxOverQueries, "softmax-over-queries", "X1"},
    BugName{AttentionBug::MergedByView, "merged-by-view", "H2"},
    BugName{AttentionBug::KvHeadsTiled, "kv-heads-tiled", "G1"},
};

constexpr auto kBugs = [] {
  std::array<AttentionBug, kNames.size()> bugs{};
  for (std::size_t i = 0; i < bugs.size(); ++i) bugs[i] = kNames[i].bug;
  return bugs;
}();

/// The table is in the order of the enumeration.
const BugName& entry(AttentionBug bug) { return kNames[static_cast<std::size_t>(bug)]; }

}  // namespace

std::span<const AttentionBug> attention_bugs() { return kBugs; }
std::string_view name_of(AttentionBug bug) { return entry(bug).name; }
std::string_view class_of(AttentionBug bug) { return entry(bug).bug_class; }

}  // namespace qkv
