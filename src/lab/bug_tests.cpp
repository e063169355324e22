#include "lab/bug_tests.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <utility>

#include "check/diagnosis.h"
#include "check/verdict.h"
#include "lab/experiment_parts.h"

namespace qkv::lab {
namespace {

constexpr Index kHeads = TestedAttention::kHeads;
constexpr Index kTokens = TestedAttention::kTokens;
constexpr Index kKvHeads = TestedAttention::kKvHeads;
constexpr Index kWidth = TestedAttention::kWidth;
constexpr Index kHeadWidth = TestedAttention::kHeadWidth;
constexpr double kRounding = 1e-12;
constexpr double kDifferences = 1e-6;  // what finite differences leave

bool is_read(const TestedAttention& attention, Index b, Index t) { return attention.keep()(b, t); }

/// The largest |a − b| in rows of valid tokens for which `asked(b, t)`.
template <class Asked>
double largest_move(const TestedAttention& attention, const Tensor<double, 3>& a,
                    const Tensor<double, 3>& b, Asked asked) {
  double largest = 0;
  for (Index sample = 0; sample < a.shape(0); ++sample) {
    for (Index t = 0; t < a.shape(1); ++t) {
      if (!is_read(attention, sample, t) || !asked(sample, t)) continue;
      for (Index d = 0; d < a.shape(2); ++d)
        largest = std::max(largest, std::fabs(a(sample, t, d) - b(sample, t, d)));
    }
  }
  return largest;
}

/// The input with the tokens for which `changed(b, t)` replaced by others.
template <class Changed>
Tensor<double, 3> with_other_tokens(const TestedAttention& attention, Changed changed) {
  Tensor<double, 3> input = attention.input();
  for (Index b = 0; b < input.shape(0); ++b) {
    for (Index t = 0; t < input.shape(1); ++t) {
      if (!changed(b, t)) continue;
      for (Index d = 0; d < input.shape(2); ++d) input(b, t, d) = 1.5 - input(b, t, d);
    }
  }
  return input;
}

Found within(double number, double allowed) { return {number, !(number <= allowed), {}}; }

/// q·k is 0 with token 0 and 4 with token 1 itself; the values are 0 and 1. So row 1 is 1/(1 + e^(−4/√8)) in every head.
Found row_by_hand(const TestedAttention& attention, double allowed) {
  BlockAttentionParameters<double> parameters = attention.parameters();
  auto& p = parameters.projections;
  for (Tensor<double, 2>* weight : {&p.query_weight, &p.key_weight, &p.value_weight})
    std::ranges::fill(weight->elements(), 0.0);
  for (Index h = 0; h < kHeads; ++h) p.query_weight(h * kHeadWidth, 0) = 1;
  for (Index h = 0; h < kKvHeads; ++h) {
    p.key_weight(h * kHeadWidth, 0) = 1;
    p.value_weight(h * kHeadWidth, 1) = 1;
  }
  Tensor<double, 3> input(attention.input().shape());
  for (Index t = 1; t < kTokens; ++t) {  // later ones would be seen
    input(1, t, 0) = 2;
    input(1, t, 1) = static_cast<double>(t);
  }
  const BlockAttentionResult<double> result =
      attend(attention.options(), parameters, input, std::optional(attention.keep()));
  const double expected = 1 / (1 + std::exp(-4 / std::sqrt(static_cast<double>(kHeadWidth))));
  double number = 0;
  for (Index h = 0; h < kHeads; ++h) {
    number = std::max(number, std::fabs(result.module.output(1, 1, h * kHeadWidth) - expected));
  }
  return within(number, allowed);
}

Found rows_sum_to_one(const TestedAttention& attention, double allowed) {
  const Tensor<double, 4> weights = *attention.run().module.weights;
  double number = 0;
  for (Index b = 0; b < weights.shape(0); ++b) {
    for (Index h = 0; h < kHeads; ++h) {
      for (Index t = 0; t < kTokens; ++t) {
        if (!is_read(attention, b, t)) continue;
        double sum = 0;
        for (Index s = 0; s < kTokens; ++s) sum += weights(b, h, t, s);
        number = std::max(number, std::fabs(sum - 1));
      }
    }
  }
  return within(number, allowed);
}

Found later_tokens(const TestedAttention& attention, double allowed) {
  const Tensor<double, 3> before = attention.run().module.output;
  double number = 0;
  for (Index s = 1; s < kTokens; ++s) {
    const Tensor<double, 3> input =
        with_other_tokens(attention, [&](Index, Index t) { return t == s; });
    number = std::max(number, largest_move(attention, attention.run(input).module.output, before,
                                           [&](Index, Index t) { return t < s; }));
  }
  return within(number, allowed);
}

Found padding_tokens(const TestedAttention& attention, double allowed) {
  const Tensor<double, 3> input =
      with_other_tokens(attention, [&](Index b, Index t) { return !attention.keep()(b, t); });
  return within(largest_move(attention, attention.run(input).module.output,
                             attention.run().module.output, [](Index, Index) { return true; }),
                allowed);
}

Found tokens_out_of_the_window(const TestedAttention& attention, double allowed) {
  if (!attention.options().window) return {0, false, {}};
  const Tensor<double, 3> input =
      with_other_tokens(attention, [](Index, Index t) { return t == 0; });
  return within(
      largest_move(attention, attention.run(input).module.output, attention.run().module.output,
                   [](Index b, Index t) { return b == 1 && t >= TestedAttention::kWindow; }),
      allowed);
}

/// The first T − 1 tokens alone, as a cache would have them.
Found without_the_last_token(const TestedAttention& attention, double allowed) {
  const Tensor<double, 3> all = attention.run().module.output;
  const auto shorter = [](const auto& tensor) {
    return contiguous_copy(tensor.view().slice(1, 0, kTokens - 1));
  };
  try {
    const Tensor<double, 3> fewer =
        attention.run(shorter(attention.input()), shorter(attention.keep())).module.output;
    return within(largest_move(attention, fewer, all, [](Index, Index) { return true; }), allowed);
  } catch (const std::invalid_argument&) {
    return {std::numeric_limits<double>::quiet_NaN(), true, "error"};
  }
}

/// Other values in one kv head may move the columns of its own query heads alone.
Found one_head_of_values(const TestedAttention& attention, double allowed) {
  constexpr Index kChanged = 1;
  BlockAttentionParameters<double> parameters = attention.parameters();
  Tensor<double, 2>& weight = parameters.projections.value_weight;
  for (Index row = kChanged * kHeadWidth; row < (kChanged + 1) * kHeadWidth; ++row) {
    for (Index d = 0; d < kWidth; ++d) weight(row, d) += 0.1;
  }
  const Tensor<double, 3> before = attention.run().module.output;
  const Tensor<double, 3> after = attention.run_with(parameters).module.output;
  double number = 0;
  for (Index b = 0; b < before.shape(0); ++b) {
    for (Index t = 0; t < kTokens; ++t) {
      for (Index d = 0; d < kWidth; ++d) {
        const Index kv_head = d / kHeadWidth / (kHeads / kKvHeads);
        if (kv_head == kChanged || !is_read(attention, b, t)) continue;
        number = std::max(number, std::fabs(after(b, t, d) - before(b, t, d)));
      }
    }
  }
  return within(number, allowed);
}

Found rows_without_a_key(const TestedAttention& attention, double allowed) {
  const Tensor<double, 3> output = attention.run().module.output;
  double number = 0;
  for (Index t = 0; t < TestedAttention::kPadding; ++t) {
    for (Index d = 0; d < kWidth; ++d) number = std::max(number, std::fabs(output(0, t, d)));
  }
  return within(number, allowed);
}

/// Of the sum of the outputs in rows of valid tokens, each with a factor, along one direction of the input.
Found finite_differences(const TestedAttention& attention, double allowed) {
  NormalNumbers numbers(5);
  const auto& shape = attention.input().shape();
  const Tensor<double, 3> direction = numbers.tensor<double, 3>(shape);
  Tensor<double, 3> factors = numbers.tensor<double, 3>(shape);
  for (Index b = 0; b < shape[0]; ++b) {
    for (Index t = 0; t < shape[1]; ++t) {
      if (is_read(attention, b, t)) continue;
      for (Index d = 0; d < shape[2]; ++d) factors(b, t, d) = 0;
    }
  }
  const auto dot = [](const Tensor<double, 3>& a, const Tensor<double, 3>& b) {
    double sum = 0;
    for (std::size_t i = 0; i < a.elements().size(); ++i) sum += a.elements()[i] * b.elements()[i];
    return sum;
  };
  const auto loss = [&](double step) {
    Tensor<double, 3> input = attention.input();
    for (std::size_t i = 0; i < input.elements().size(); ++i)
      input.elements()[i] += step * direction.elements()[i];
    return dot(attention.run(input).module.output, factors);
  };
  constexpr double kStep = 1e-5;
  const double numeric = (loss(kStep) - loss(-kStep)) / (2 * kStep);
  const double analytic = dot(attention.gradients(factors).input, direction);
  return within(std::fabs(analytic - numeric) / std::fabs(numeric), allowed);
}

Found against_the_oracle(const TestedAttention& attention, double allowed) {
  const Dump dump = attention.dump();
  const Tensor<double, 4> expected = attend({.query = dump.query.view(),
                                             .key = dump.key.view(),
                                             .value = dump.value.view(),
                                             .mask = dump.rules.mask(),
                                             .scale = dump.scale})
                                         .context;
  return within(relative_difference(dump.context->elements(), expected.elements()), allowed);
}

/// The distance in units of rounding; the note has the classes.
Found by_the_check(const TestedAttention& attention, double) {
  const Dump dump = attention.dump();
  const Verdict verdict = judge(dump, DType::Float64);
  if (verdict.matches) return {verdict.worst().largest_units, false, {}};
  std::string names;
  for (const Cause& cause : diagnose(dump).causes)
    names += fmt::format("{}{}", names.empty() ? "" : ", ", fmt::join(cause.ids, " + "));
  return {verdict.worst().largest_units, true, names};
}

const std::array<BugTest, 11> kTests = {
    BugTest{"shorter",
            {"the first T − 1 tokens alone", "只给前 T − 1 个 token"},
            {"shorter", "更短"},
            {"how far the earlier rows move", "前面各行的变化"},
            kRounding,
            without_the_last_token},
    BugTest{"later_tokens",
            {"other later tokens", "改动后面的 token"},
            {"future", "未来"},
            {"how far an earlier row moves: exactly 0", "前面的行变化多少：应恰为 0"},
            0,
            later_tokens},
    BugTest{"window",
            {"another token out of the window", "改动窗口外的 token"},
            {"window", "窗口"},
            {"how far a row moves: exactly 0", "行变化多少：应恰为 0"},
            0,
            tokens_out_of_the_window},
    BugTest{"padding",
            {"other padding tokens", "改动补齐 token"},
            {"padding", "补齐"},
            {"how far rows of valid tokens move: exactly 0", "有效 token 各行变化多少：应恰为 0"},
            0,
            padding_tokens},
    BugTest{"no_key",
            {"rows that see no key", "看不到任何 key 的行"},
            {"no key", "无 key"},
            {"the largest output: 0", "最大输出：应为 0"},
            0,
            rows_without_a_key},
    BugTest{"sums",
            {"sums of the weights", "权重之和"},
            {"sums", "行和"},
            {"how far from 1", "偏离 1 多少"},
            kRounding,
            rows_sum_to_one},
    BugTest{"groups",
            {"other values in one kv head", "改动一个 kv head 的 value"},
            {"groups", "分组"},
            {"how far columns of other heads move: exactly 0", "其他 head 的列变化多少：应恰为 0"},
            0,
            one_head_of_values},
    BugTest{"by_hand",
            {"one row worked out by hand", "手算一行"},
            {"by hand", "手算"},
            {"difference from 1/(1 + e^(−4/√8))", "与 1/(1 + e^(−4/√8)) 之差"},
            kRounding,
            row_by_hand},
    BugTest{"gradient",
            {"gradient against finite differences", "梯度对有限差分"},
            {"gradient", "梯度"},
            {"relative difference", "相对差"},
            kDifferences,
            finite_differences},
    BugTest{"oracle",
            {"output against the float64 oracle", "输出对 float64 参考实现"},
            {"oracle", "参考"},
            {"relative difference", "相对差"},
            kRounding,
            against_the_oracle},
    BugTest{"check",
            {"a dump, given to qkv check", "转储后交给 qkv check"},
            {"check", "check"},
            {"distance in units of rounding", "以舍入为单位的距离"},
            0,
            by_the_check}};

}  // namespace

std::span<const BugTest> bug_tests() { return kTests; }

Found run_test(const BugTest& test, const TestedAttention& attention) {
  return test.run(attention, test.allowed);
}

}  // namespace qkv::lab
