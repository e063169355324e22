#include "explain/heads.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace qkv::explain {
namespace {

constexpr Index kChoice = 3;
/// From here on a head is named after a place, or after its evenness.
constexpr double kMostly = 0.5;
constexpr double kEven = 0.9;

/// A mean over what was added.
class Mean {
 public:
  void add(double value) {
    sum_ += value;
    ++count_;
  }
  double value() const { return count_ == 0 ? 0 : sum_ / static_cast<double>(count_); }
  Index count() const { return count_; }

 private:
  double sum_ = 0;
  Index count_ = 0;
};

double entropy_of(const Tensor<double, 3>& weights, Index head, Index query) {
  double entropy = 0;
  for (Index s = 0; s < weights.shape(2); ++s) {
    const double p = weights(head, query, s);
    if (p > 0) entropy -= p * std::log(p);
  }
  return entropy;
}

Index visible_keys(const ExplainedModel& model, Index query) {
  Index keys = 0;
  for (Index s = 0; s < model.sizes().tokens; ++s) keys += model.may_see(query, s) ? 1 : 0;
  return keys;
}

double violation_of(const ExplainedModel& model, const Tensor<double, 3>& weights, Index head) {
  double largest = 0;
  for (Index t = 0; t < weights.shape(1); ++t) {
    for (Index s = 0; s < weights.shape(2); ++s) {
      if (!model.may_see(t, s)) largest = std::max(largest, weights(head, t, s));
    }
  }
  return largest;
}

struct Shares {
  Mean special;
  Mean first;
  Mean entropy;
  std::vector<Mean> offsets;  // −(T − 1) to T − 1
};

Shares shares_of(const ExplainedModel& model, const Tensor<double, 3>& weights, Index head) {
  const Index tokens = weights.shape(1);
  Shares shares;
  shares.offsets.resize(static_cast<std::size_t>(2 * tokens - 1));
  for (Index t = 0; t < tokens; ++t) {
    const Index visible = visible_keys(model, t);
    if (visible < kChoice) continue;
    double special = 0;
    for (Index s = 0; s < tokens; ++s) {
      const double weight = weights(head, t, s);
      if (model.text().special[static_cast<std::size_t>(s)]) special += weight;
      if (model.may_see(t, s)) {
        shares.offsets[static_cast<std::size_t>(s - t + tokens - 1)].add(weight);
      }
    }
    shares.special.add(special);
    if (model.may_see(t, 0)) shares.first.add(weights(head, t, 0));
    shares.entropy.add(entropy_of(weights, head, t) / std::log(static_cast<double>(visible)));
  }
  return shares;
}

HeadKind kind_of(const HeadProfile& profile) {
  if (profile.violation > 0) return HeadKind::MaskViolation;
  if (profile.entropy >= kEven) return HeadKind::Even;
  struct Candidate {
    double share;
    HeadKind kind;
  };
  const std::array<Candidate, 6> candidates = {{{profile.special, HeadKind::Special},
                                                {profile.first, HeadKind::First},
                                                {profile.self, HeadKind::Self},
                                                {profile.previous, HeadKind::Previous},
                                                {profile.next, HeadKind::Next},
                                                {profile.offset_share, HeadKind::Offset}}};
  const Candidate& best = *std::ranges::max_element(candidates, {}, &Candidate::share);
  return best.share >= kMostly ? best.kind : HeadKind::Content;
}

std::string percent(double share) { return fmt::format("{:.0f} %", 100 * share); }

Text mostly(const std::string& english, const std::string& chinese, double share) {
  return {fmt::format("{} ({})", english, percent(share)),
          fmt::format("{}（{}）", chinese, percent(share))};
}

Text verdict_of(const HeadProfile& profile) {
  switch (profile.kind) {
    case HeadKind::MaskViolation:
      return {fmt::format("what the mask should hide (up to {})", percent(profile.violation)),
              fmt::format("mask 本应屏蔽的位置（最大 {}）", percent(profile.violation))};
    case HeadKind::Even:
      return {"all tokens alike", "所有 token，几乎均匀"};
    case HeadKind::Special:
      return mostly("special tokens", "特殊 token", profile.special);
    case HeadKind::Self:
      return mostly("itself", "token 自身", profile.self);
    case HeadKind::Previous:
      return mostly("the previous token", "前一个 token", profile.previous);
    case HeadKind::Next:
      return mostly("the next token", "后一个 token", profile.next);
    case HeadKind::First:
      return mostly("the first token", "第一个 token", profile.first);
    case HeadKind::Offset:
      return mostly(fmt::format("{} places {}", std::abs(profile.offset),
                                profile.offset < 0 ? "back" : "ahead"),
                    fmt::format("{}面第 {} 个 token", profile.offset < 0 ? "前" : "后",
                                std::abs(profile.offset)),
                    profile.offset_share);
    case HeadKind::Content:
      return {"depends on the tokens", "取决于 token 的内容"};
  }
  return {};
}

HeadProfile profile_of(const ExplainedModel& model, const Tensor<double, 3>& weights, Index layer,
                       Index head) {
  const Index tokens = weights.shape(1);
  const Shares shares = shares_of(model, weights, head);
  const auto share_at = [&](Index offset) {
    const Index at = offset + tokens - 1;
    return at < 0 || at >= static_cast<Index>(shares.offsets.size())
               ? 0.0
               : shares.offsets[static_cast<std::size_t>(at)].value();
  };
  HeadProfile profile;
  profile.layer = layer;
  profile.head = head;
  profile.violation = violation_of(model, weights, head);
  profile.special = shares.special.value();
  profile.first = shares.first.value();
  profile.entropy = shares.entropy.value();
  profile.self = share_at(0);
  profile.previous = share_at(-1);
  profile.next = share_at(1);
  for (Index offset = 1 - tokens; offset < tokens; ++offset) {
    // A distance that few queries have is no habit.
    const Index queries = shares.offsets[static_cast<std::size_t>(offset + tokens - 1)].count();
    if (queries < kChoice || 2 * queries < shares.entropy.count()) continue;
    if (share_at(offset) <= profile.offset_share) continue;
    profile.offset = offset;
    profile.offset_share = share_at(offset);
  }
  profile.kind = kind_of(profile);
  profile.verdict = verdict_of(profile);
  return profile;
}

}  // namespace

std::vector<HeadProfile> head_profiles(const ExplainedModel& model, const Records& records) {
  std::vector<HeadProfile> profiles;
  for (std::size_t i = 0; i < records.layers.size(); ++i) {
    for (Index h = 0; h < records.layers[i].weights.shape(0); ++h) {
      profiles.push_back(profile_of(model, records.layers[i].weights, static_cast<Index>(i), h));
    }
  }
  return profiles;
}

}  // namespace qkv::explain
