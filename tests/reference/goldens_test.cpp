// The oracle against PyTorch in float64: values, weights, log-sum-exp and every gradient.
// goldens/attention.safetensors is made by make_goldens.py, which says what each name means.
#include <gtest/gtest.h>

#include <cmath>

#include "qkv/io.h"
#include "tests/reference/run.h"

namespace qkv {
namespace {

const TensorFile& goldens() {
  static const TensorFile file =
      read_tensors(QKV_SOURCE_DIR "/tests/reference/goldens/attention.safetensors");
  return file;
}

template <class T, int Rank>
Tensor<T, Rank> golden(const std::string& name) {
  return goldens().at(name).to<T, Rank>(name);
}

Mask mask_named(const std::string& name) {
  const Mask padding = Mask::key_padding(golden<bool, 2>("padding").view(), Polarity::Drop);
  if (name == "causal_top_left") return Mask::causal(Corner::top_left());
  if (name == "causal_bottom_right") return Mask::causal(Corner::bottom_right());
  if (name == "causal_offsets") return Mask::causal(Corner::at({-2, 0, 5}));
  if (name == "prefix") return Mask::prefix_causal({0, 3, 9}, Corner::top_left());
  if (name == "window") return Mask::sliding_window({3, 1, Corner::bottom_right()});
  if (name == "lengths") return Mask::key_lengths({9, 4, 0});
  if (name == "padding") return padding;
  if (name == "documents") {
    return Mask::documents(golden<Index, 2>("query_documents").view(),
                           golden<Index, 2>("key_documents").view());
  }
  if (name == "boolean") return Mask::boolean(golden<bool, 4>("cells").view(), Polarity::Keep);
  if (name == "causal_and_padding") return Mask::causal(Corner::top_left()) & padding;
  return {};
}

/// Largest difference, relative to the largest expected entry; infinities must agree.
double difference(std::span<const double> actual, std::span<const double> expected) {
  double largest = 0;
  double worst = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (actual[i] == expected[i]) continue;
    worst = std::max(worst, std::fabs(actual[i] - expected[i]));
  }
  for (const double e : expected) largest = std::max(largest, std::isinf(e) ? 0 : std::fabs(e));
  return worst / std::max(largest, 1e-300);
}

class Goldens : public testing::TestWithParam<std::string> {};

TEST_P(Goldens, AgreeToFloat64Rounding) {
  const std::string& name = GetParam();
  const std::string modifier = name.substr(name.find('.') + 1);
  const auto is = [&](const char* what) { return modifier == what || modifier == "all"; };

  const auto query = golden<double, 4>(name + ".query");
  const auto key = golden<double, 4>(name + ".key");
  const auto value = golden<double, 4>(name + ".value");
  AttentionInputs<double> inputs;
  inputs.query = query.view();
  inputs.key = key.view();
  inputs.value = value.view();
  inputs.mask = mask_named(name.substr(0, name.find('.')));
  if (is("scale")) inputs.scale = 0.3;
  if (is("softcap")) inputs.softcap = 1.5;
  if (is("alibi")) inputs.alibi = Alibi{{0.5, 0.25, 0.125, 0.0625}, Corner::bottom_right()};
  std::optional<Tensor<double, 4>> bias;
  if (goldens().contains(name + ".bias")) {
    bias = golden<double, 4>(name + ".bias");
    inputs.bias = bias->view();
  }
  std::optional<Tensor<double, 1>> sink;
  if (goldens().contains(name + ".sink")) {
    sink = golden<double, 1>(name + ".sink");
    inputs.sink = sink->view();
  }

  const cases::Outputs outputs = cases::run_forward(inputs);
  const auto agrees = [&](const auto& actual, const std::string& what) {
    constexpr int kRank = std::decay_t<decltype(actual.view())>::rank;
    const auto expected = golden<double, kRank>(name + "." + what);
    EXPECT_LE(difference(actual.elements(), expected.elements()), 1e-12) << what;
  };
  agrees(outputs.context, "context");
  agrees(outputs.weights, "weights");
  agrees(outputs.log_sum_exp, "log_sum_exp");

  const auto context_seed = golden<double, 4>(name + ".context_seed");
  const auto weights_seed = golden<double, 4>(name + ".weights_seed");
  const auto lse_seed = golden<double, 3>(name + ".log_sum_exp_seed");
  const cases::Gradients gradients =
      cases::run_backward(inputs, {context_seed.view(), weights_seed.view(), lse_seed.view()});
  agrees(gradients.query, "query_gradient");
  agrees(gradients.key, "key_gradient");
  agrees(gradients.value, "value_gradient");
  if (bias) agrees(*gradients.bias, "bias_gradient");
  if (sink) agrees(*gradients.sink, "sink_gradient");
}

std::vector<std::string> golden_names() {
  std::vector<std::string> names;
  const std::string ending = ".query";
  for (const auto& [name, tensor] : goldens().tensors) {
    if (name.ends_with(ending)) names.push_back(name.substr(0, name.size() - ending.size()));
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(PyTorch, Goldens, testing::ValuesIn(golden_names()),
                         [](const auto& instance) {
                           std::string name = instance.param;
                           name[name.find('.')] = '_';
                           return name;
                         });

TEST(StandardAlibiSlopes, AreThePapers) {
  EXPECT_EQ(standard_alibi_slopes(8),
            (std::vector<double>{1.0 / 2, 1.0 / 4, 1.0 / 8, 1.0 / 16, 1.0 / 32, 1.0 / 64, 1.0 / 128,
                                 1.0 / 256}));
  // 12 heads: those of 8, then every second one of 16 (2^-0.5, 2^-1.5, …).
  const std::vector<double> twelve = standard_alibi_slopes(12);
  ASSERT_EQ(twelve.size(), 12U);
  EXPECT_EQ(twelve[7], 1.0 / 256);
  EXPECT_DOUBLE_EQ(twelve[8], std::sqrt(0.5));
  EXPECT_DOUBLE_EQ(twelve[11], std::exp2(-3.5));
  EXPECT_TRUE(standard_alibi_slopes(0).empty());
}

}  // namespace
}  // namespace qkv
