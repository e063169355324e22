#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "explain/report.h"

namespace qkv::explain {
namespace {

std::string percent(double share) { return fmt::format("{:.0f} %", 100 * share); }

/// "cat" (3).
Text token(const Report& report, Index at) {
  const std::string& name = report.tokens[static_cast<std::size_t>(at)];
  return {fmt::format("\"{}\" ({})", name, at), fmt::format("“{}”（{}）", name, at)};
}

enum class Count : std::uint8_t { One, Many };

Text taken_away(Occlusion how, Count count = Count::One) {
  const bool many = count == Count::Many;
  const std::string it = many ? "them" : "it";
  const std::string chinese = many ? "它们" : "它";
  switch (how) {
    case Occlusion::HideKey:
      return {"hiding " + it + " from every query", "屏蔽" + chinese + "的 key"};
    case Occlusion::ZeroValue:
      return {"zeroing what " + it + " would deliver", "把" + chinese + "的 value 置零"};
    case Occlusion::RemoveToken:
      return {"removing " + it, "删除" + chinese};
    case Occlusion::ReplaceToken:
      return {"replacing " + it, "替换" + chinese};
    case Occlusion::SwapToken:
      return {"swapping " + it + (many ? " for other tokens" : " for another token"),
              "换掉" + chinese};
  }
  return {};
}

Text of_target(const Report& report) {
  std::vector<std::string> english;
  std::vector<std::string> chinese;
  for (Index t = 0; t < report.sizes.tokens; ++t) {
    if (std::ranges::find(report.candidates, t) != report.candidates.end()) continue;
    english.push_back(token(report, t).english);
    chinese.push_back(token(report, t).chinese);
  }
  const std::size_t ranked = report.candidates.size();
  const Text how = taken_away(report.how, ranked == 1 ? Count::One : Count::Many);
  return {fmt::format("The target is the {}: {:.3g}. {} of the {} tokens {} ranked (not {}); {} "
                      "makes the target {:.3g}.",
                      report.target_name.english, report.target, ranked, report.sizes.tokens,
                      ranked == 1 ? "is" : "are", fmt::join(english, ", "), how.english,
                      report.baseline),
          fmt::format(
              "目标是{}：{:.3g}。{} 个 token 中有 {} 个参与排序（{} 除外）；{}后目标为 {:.3g}。",
              report.target_name.chinese, report.target, report.sizes.tokens, ranked,
              fmt::join(chinese, "、"), how.chinese, report.baseline)};
}

Text misleading(const Report& report, const MethodReport& method) {
  const Judgement& j = method.judgement;
  const Text how = taken_away(report.how);
  const Text pointed = token(report, j.pointed);
  const Text decisive = token(report, j.decisive);
  const Text little = j.pointed_fall > 0
                          ? Text{fmt::format("lowers the target by only {:.3g}", j.pointed_fall),
                                 fmt::format("只让目标下降 {:.3g}", j.pointed_fall)}
                          : Text{"does not lower the target", "并不让目标下降"};
  return {fmt::format("The heat map misleads ({}): it points to {}, but {} {}. What matters is {}: "
                      "{} lowers the target by {:.3g}, and of what the heat map gives the ranked "
                      "tokens this one gets {}.",
                      method.attribution.name.english, pointed.english, how.english, little.english,
                      decisive.english, how.english, j.decisive_fall, percent(j.decisive_share)),
          fmt::format("热力图有误导：{}指向{}，但{}{}。真正重要的是{}：{}使目标下降 "
                      "{:.3g}，而它只得到热力图给各参与排序 token 的权重的 {}。",
                      method.attribution.name.chinese, pointed.chinese, how.chinese, little.chinese,
                      decisive.chinese, how.chinese, j.decisive_fall, percent(j.decisive_share))};
}

Text agreeing(const Report& report, const MethodReport& method) {
  const Judgement& j = method.judgement;
  const Text how = taken_away(report.how);
  const Text pointed = token(report, j.pointed);
  return {fmt::format("Here the heat map points to a token that matters ({}): {}, and {} lowers "
                      "the target by {:.3g} (the most that one token does: {:.3g}).",
                      method.attribution.name.english, pointed.english, how.english, j.pointed_fall,
                      j.decisive_fall),
          fmt::format("这里热力图指向了重要的 token：{}指向{}，{}使目标下降 {:.3g}（单个 token "
                      "的最大影响：{:.3g}）。",
                      method.attribution.name.chinese, pointed.chinese, how.chinese, j.pointed_fall,
                      j.decisive_fall)};
}

/// Where no token lowers the target by much: which does so, or raises it, most.
Text nothing_found(const Report& report, const Judgement& judgement) {
  Text begin = {
      "No single token lowers the target by much where it is taken away: there is "
      "nothing that a heat map could point to.",
      "去掉任何单个 token 都不会使目标明显下降：热力图没有可以指向的东西。"};
  if (report.candidates.empty()) return begin;
  const auto by_key = std::ranges::find(report.methods, key_of(report.how),
                                        [](const MethodReport& m) { return m.attribution.key; });
  const std::vector<double>& falls = by_key->attribution.scores;
  const auto fall = [&](Index t) { return falls[static_cast<std::size_t>(t)]; };
  const Index raising = *std::ranges::min_element(report.candidates, {}, fall);
  if (-fall(raising) > std::max(0.0, judgement.decisive_fall)) {
    return {fmt::format("{} One raises it: without {} it gains {:.3g}.", begin.english,
                        token(report, raising).english, -fall(raising)),
            fmt::format("{}有一个反而抬高它：没有{}时目标上升 {:.3g}。", begin.chinese,
                        token(report, raising).chinese, -fall(raising))};
  }
  const Text most = token(report, judgement.decisive);
  return {fmt::format("{} The most is {:.3g}, of {}; all of them together {:.3g}.", begin.english,
                      judgement.decisive_fall, most.english, report.target - report.baseline),
          fmt::format("{}最多的是{}：{:.3g}；全部一起为 {:.3g}。", begin.chinese, most.chinese,
                      judgement.decisive_fall, report.target - report.baseline)};
}

Text of_heat_map(const Report& report, const MethodReport& method) {
  switch (method.judgement.verdict) {
    case Verdict::Misleads:
      return misleading(report, method);
    case Verdict::Agrees:
      return agreeing(report, method);
    case Verdict::NothingFound:
      return nothing_found(report, method.judgement);
  }
  return {};
}

Text of_chance(const Report& report, const MethodReport& method) {
  const auto orders = static_cast<Index>(report.random.curves.size());
  const Index slower = method.judgement.faster_than;
  const bool is_chance = 10 * slower < 8 * orders;
  return {
      fmt::format("Tokens taken away in its order lower the target faster than in {} of {} "
                  "random orders{}.",
                  slower, orders, is_chance ? ": as an order it is hardly better than chance" : ""),
      fmt::format("按它的顺序去掉 token，目标下降得比 {} 个随机顺序中的 {} 个更快{}。", orders,
                  slower, is_chance ? "：作为排序，它几乎不比随机好" : "")};
}

Text names_of(const Report& report, Verdict verdict) {
  std::vector<std::string> english;
  std::vector<std::string> chinese;
  for (const MethodReport& method : report.methods) {
    if (method.attribution.key == key_of(report.how)) continue;  // the judge itself
    if (method.judgement.verdict != verdict) continue;
    english.push_back(method.attribution.name.english);
    chinese.push_back(method.attribution.name.chinese);
  }
  if (english.empty()) return {"none", "无"};
  return {fmt::format("{}", fmt::join(english, "; ")), fmt::format("{}", fmt::join(chinese, "；"))};
}

Text of_methods(const Report& report) {
  const Text right = names_of(report, Verdict::Agrees);
  const Text wrong = names_of(report, Verdict::Misleads);
  return {
      fmt::format("These methods point to a token that matters (at least half as much as the one "
                  "that matters most): {}. These point elsewhere: {}.",
                  right.english, wrong.english),
      fmt::format("指向重要 token（其影响至少为最大者的一半）的方法：{}。指向别处的方法：{}。",
                  right.chinese, wrong.chinese)};
}

std::optional<Text> of_relays(const Report& report) {
  if (report.relays.empty()) return std::nullopt;
  std::vector<std::string> english;
  std::vector<std::string> chinese;
  for (const Index place : report.relays) {
    english.push_back(token(report, place).english);
    chinese.push_back(token(report, place).chinese);
  }
  return Text{fmt::format("A relay: attention must read the place of {}, but which token stands "
                          "there hardly matters. What is read there is the place itself, or came "
                          "from elsewhere by an earlier layer.",
                          fmt::join(english, ", ")),
              fmt::format("中转：注意力必须读取{}所在的位置，但那里是哪个 token "
                          "几乎无关紧要：读到的是位置本身，或前面的层从别处搬来的信息。",
                          fmt::join(chinese, "、"))};
}

std::optional<Text> of_violations(const Report& report) {
  std::vector<std::string> heads;
  for (const HeadProfile& head : report.heads) {
    if (head.kind == HeadKind::MaskViolation) {
      heads.push_back(fmt::format("{}.{}", head.layer, head.head));
    }
  }
  if (heads.empty()) return std::nullopt;
  const std::string list = fmt::format("{}", fmt::join(heads, ", "));
  return Text{fmt::format("What a heat map is good for: heads {} (layer.head) see what the mask "
                          "should hide.",
                          list),
              fmt::format("热力图真正擅长的：头 {}（层.头）看到了 mask 本应屏蔽的位置。", list)};
}

Text of_gap(const Report& report) {
  const IntegratedGradients& ig = report.integrated;
  return {fmt::format("Integrated gradients miss the sum that they should have, {:.3g}, by {:.2g} "
                      "in {} steps.",
                      ig.difference, ig.gap, ig.steps),
          fmt::format("积分梯度之和应为 {:.3g}，{} 步时相差 {:.2g}。", ig.difference, ig.steps,
                      ig.gap)};
}

}  // namespace

std::vector<Text> summary_of(const Report& report) {
  std::vector<Text> summary = {of_target(report)};
  for (const MethodReport& method : report.methods) {
    if (!method.attribution.key.starts_with("raw_attention")) continue;
    summary.push_back(of_heat_map(report, method));
    if (method.judgement.verdict == Verdict::NothingFound) break;
    if (report.candidates.size() > 1) summary.push_back(of_chance(report, method));
  }
  if (const auto relays = of_relays(report)) summary.push_back(*relays);
  if (report.methods.front().judgement.verdict != Verdict::NothingFound) {
    summary.push_back(of_methods(report));
  }
  if (const auto violations = of_violations(report)) summary.push_back(*violations);
  summary.push_back(of_gap(report));
  return summary;
}

}  // namespace qkv::explain
