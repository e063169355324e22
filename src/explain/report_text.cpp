#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "explain/report.h"

namespace qkv::explain {
namespace {

std::string percent(double share) { return fmt::format("{:.0f} %", 100 * share); }

/// "\"cat\" (3)".
std::string token(const Report& report, Index at) {
  return fmt::format("\"{}\" ({})", report.tokens[static_cast<std::size_t>(at)], at);
}

Text taken_away(Occlusion how) {
  switch (how) {
    case Occlusion::HideKey:
      return {"hiding its key", "屏蔽它的 key"};
    case Occlusion::ZeroValue:
      return {"zeroing its value", "把它的 value 置零"};
    case Occlusion::RemoveToken:
      return {"removing it", "删除它"};
    case Occlusion::ReplaceToken:
      return {"replacing it", "替换它"};
    case Occlusion::SwapToken:
      return {"putting another token there", "换成别的 token "};
  }
  return {};
}

Text of_target(const Report& report) {
  return {fmt::format("The target is the {}: {:.3g}, and {:.3g} without any of the {} that "
                      "could explain it.",
                      report.target_name.english, report.target, report.baseline,
                      report.candidates.size() == 1
                          ? "one token"
                          : fmt::format("{} tokens", report.candidates.size())),
          fmt::format("目标是{}：{:.3g}；去掉全部 {} 个可能的解释 token 后为 {:.3g}。",
                      report.target_name.chinese, report.target, report.candidates.size(),
                      report.baseline)};
}

Text misleading(const Report& report, const MethodReport& method) {
  const Judgement& j = method.judgement;
  const Text how = taken_away(report.how);
  return {
      fmt::format("The heat map misleads ({}): it points to {}, but {} lowers the target by only "
                  "{:.3g}. What matters is {}: {} lowers it by {:.3g}, and the heat map gives it "
                  "{} of its weight.",
                  method.attribution.name.english, token(report, j.pointed), how.english,
                  j.pointed_fall, token(report, j.decisive), how.english, j.decisive_fall,
                  percent(j.decisive_share)),
      fmt::format("热力图有误导（{}）：它指向 {}，但{}只让目标下降 {:.3g}。真正重要的是 "
                  "{}：{}使目标下降 {:.3g}，而热力图只给它 {} 的权重。",
                  method.attribution.name.chinese, token(report, j.pointed), how.chinese,
                  j.pointed_fall, token(report, j.decisive), how.chinese, j.decisive_fall,
                  percent(j.decisive_share))};
}

Text agreeing(const Report& report, const MethodReport& method) {
  const Judgement& j = method.judgement;
  const Text how = taken_away(report.how);
  return {fmt::format("Here the heat map points to a token that matters ({}): {}, and {} lowers "
                      "the target by {:.3g} (the most that one token does: {:.3g}).",
                      method.attribution.name.english, token(report, j.pointed), how.english,
                      j.pointed_fall, j.decisive_fall),
          fmt::format("这里热力图指向了重要的 token（{}）：{}，{}使目标下降 {:.3g}（单个 token "
                      "的最大影响：{:.3g}）。",
                      method.attribution.name.chinese, token(report, j.pointed), how.chinese,
                      j.pointed_fall, j.decisive_fall)};
}

Text nothing_found() {
  return {
      "No single token lowers the target where it is taken away: there is nothing that a heat "
      "map could point to.",
      "去掉任何单个 token 都不会使目标下降：热力图没有可以指向的东西。"};
}

Text of_heat_map(const Report& report, const MethodReport& method) {
  switch (method.judgement.verdict) {
    case Verdict::Misleads:
      return misleading(report, method);
    case Verdict::Agrees:
      return agreeing(report, method);
    case Verdict::NothingFound:
      return nothing_found();
  }
  return {};
}

Text of_chance(const Report& report, const MethodReport& method) {
  const std::string share = percent(method.judgement.faster_than);
  return {fmt::format("Tokens taken away in its order lower the target faster than {} of the {} "
                      "random orders do.",
                      share, report.random.curves.size()),
          fmt::format("按它的顺序去掉 token，目标下降得比 {} 个随机顺序中的 {} 更快。",
                      report.random.curves.size(), share)};
}

template <class Name>
std::string names_of(const Report& report, Verdict verdict, Name name) {
  std::vector<std::string> names;
  for (const MethodReport& method : report.methods) {
    if (method.attribution.key == key_of(report.how)) continue;  // the judge itself
    if (method.judgement.verdict == verdict) names.push_back(name(method.attribution.name));
  }
  return names.empty() ? "–" : fmt::format("{}", fmt::join(names, "; "));
}

Text of_methods(const Report& report) {
  const auto english = [](const Text& text) { return text.english; };
  const auto chinese = [](const Text& text) { return text.chinese; };
  return {fmt::format("Point to a token that matters: {}. Point elsewhere: {}.",
                      names_of(report, Verdict::Agrees, english),
                      names_of(report, Verdict::Misleads, english)),
          fmt::format("指向重要 token 的方法：{}。指向别处的方法：{}。",
                      names_of(report, Verdict::Agrees, chinese),
                      names_of(report, Verdict::Misleads, chinese))};
}

std::optional<Text> of_relays(const Report& report) {
  if (report.relays.empty()) return std::nullopt;
  std::vector<std::string> names;
  for (const Index place : report.relays) names.push_back(token(report, place));
  const std::string list = fmt::format("{}", fmt::join(names, ", "));
  return Text{fmt::format("A relay: attention must read the place of {}, but which token stands "
                          "there hardly matters. An earlier layer brought something to that place.",
                          list),
              fmt::format("中转：注意力必须读取 {} 所在的位置，但那里是哪个 token "
                          "几乎无关紧要：前面的层把别处的信息搬到了这个位置。",
                          list)};
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
    summary.push_back(of_chance(report, method));
  }
  if (const auto relays = of_relays(report)) summary.push_back(*relays);
  summary.push_back(of_methods(report));
  if (const auto violations = of_violations(report)) summary.push_back(*violations);
  summary.push_back(of_gap(report));
  return summary;
}

}  // namespace qkv::explain
