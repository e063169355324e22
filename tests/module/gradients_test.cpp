// The module's derivatives against finite differences of its own forward: every entry of every parameter
// and input.
#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <ostream>

#include "tests/cases/attention_cases.h"
#include "tests/module/module_data.h"

namespace qkv {
namespace {

using cases::ModuleData;
using cases::random_tensor;

constexpr Index kBatch = 2, kQueries = 3, kKeys = 5, kWidth = 8;

struct ModuleCase {
  std::string name;
  MultiHeadAttentionOptions options;
  ModuleData<double> data;

  friend void PrintTo(const ModuleCase& module_case, std::ostream* stream) {
    *stream << module_case.name;
  }
};

ModuleData<double> self_inputs() {
  ModuleData<double> data;
  data.query = random_tensor<double, 3>({kBatch, kQueries, kWidth}, 101);
  return data;
}

ModuleData<double> cross_inputs(Index key_width) {
  ModuleData<double> data = self_inputs();
  data.key = random_tensor<double, 3>({kBatch, kKeys, key_width}, 102);
  return data;
}

ModuleData<double> separate_inputs(Index key_width, Index value_width) {
  ModuleData<double> data = cross_inputs(key_width);
  data.value = random_tensor<double, 3>({kBatch, kKeys, value_width}, 103);
  return data;
}

Tensor<Index, 2> some_positions(Index samples, Index tokens) {
  Tensor<Index, 2> positions({samples, tokens});
  Index next = 3;
  for (Index& p : positions.elements()) p = (next = (next * 7 + 2) % 11);
  return positions;
}

std::vector<ModuleCase> module_cases() {
  std::vector<ModuleCase> cases;
  const auto add = [&](std::string name, const MultiHeadAttentionOptions& options,
                       ModuleData<double> data) -> ModuleData<double>& {
    cases.push_back({std::move(name), options, std::move(data)});
    return cases.back().data;
  };
  const MultiHeadAttentionOptions plain{.model_width = kWidth, .heads = 4};

  add("Self", plain, self_inputs());
  add("SelfCausal", plain, self_inputs()).mask = Mask::causal();
  add("SelfWithAnotherValue", plain, [] {
    ModuleData<double> data = self_inputs();
    data.value = random_tensor<double, 3>({kBatch, kQueries, kWidth}, 104);
    return data;
  }());
  add("Cross", plain, cross_inputs(kWidth)).mask = Mask::key_lengths({2, 5});
  add("CrossCausal", plain, cross_inputs(kWidth)).mask = Mask::causal(Corner::bottom_right());

  MultiHeadAttentionOptions biased = plain;
  biased.biases = ProjectionBiases::all();
  add("Biases", biased, self_inputs()).mask = Mask::causal();
  biased.biases = {.query = true, .key = false, .value = true, .output = false};
  add("SomeBiases", biased, self_inputs());

  MultiHeadAttentionOptions widths = plain;
  widths.kv_heads = 2;
  widths.head_width = 6;
  widths.value_head_width = 3;
  widths.key_width = 7;
  widths.value_width = 9;
  widths.biases = ProjectionBiases::all();
  add("EveryWidthDiffers", widths, separate_inputs(7, 9)).mask =
      Mask::causal(Corner::top_left()) & Mask::key_lengths({4, 1});

  MultiHeadAttentionOptions rotary = plain;
  rotary.kv_heads = 1;
  rotary.head_width = 6;
  rotary.rotary = RotaryOptions{.base = 50};
  add("Rotary", rotary, self_inputs()).mask = Mask::causal();
  rotary.rotary = RotaryOptions{.pairing = RotaryPairing::Interleaved, .base = 50, .width = 4};
  ModuleData<double>& placed = add("RotaryPositions", rotary, cross_inputs(kWidth));
  placed.query_positions = some_positions(kBatch, kQueries);
  placed.key_positions = some_positions(1, kKeys);
  ModuleData<double>& shared = add("RotaryPositionsOfTheQuery", rotary, self_inputs());
  shared.query_positions = some_positions(kBatch, kQueries);

  MultiHeadAttentionOptions norm = rotary;
  norm.qk_norm = QkNormOptions{.epsilon = 1e-2};
  norm.biases = {.query = true, .key = true, .value = false, .output = true};
  add("QkNormAndRotary", norm, self_inputs()).mask = Mask::causal();

  MultiHeadAttentionOptions capped = plain;
  capped.softcap = 1.5;
  capped.scale = 0.8;
  ModuleData<double>& modified = add("SoftcapBiasAlibi", capped, cross_inputs(kWidth));
  modified.bias = random_tensor<double, 4>({1, 4, kQueries, kKeys}, 105);
  modified.alibi = Alibi{standard_alibi_slopes(4), Corner::bottom_right()};
  return cases;
}

/// A linear function of output and weights; its coefficients are the derivatives given to backward.
struct Loss {
  Tensor<double, 3> output;
  Tensor<double, 4> weights;

  double of(const MultiHeadAttentionResult<double>& result) const {
    double sum = 0;
    for (std::size_t i = 0; i < output.elements().size(); ++i) {
      sum += output.elements()[i] * result.output.elements()[i];
    }
    for (std::size_t i = 0; i < weights.elements().size(); ++i) {
      sum += weights.elements()[i] * result.weights->elements()[i];
    }
    return sum;
  }
};

class ModuleGradients : public testing::TestWithParam<ModuleCase> {};

TEST_P(ModuleGradients, AgreeWithFiniteDifferences) {
  omp_set_num_threads(1);  // the sizes are tiny
  ModuleData<double> data = GetParam().data;
  MultiHeadAttention<double> module = cases::random_module<double>(GetParam().options, 1);
  const auto result = module.forward(data.inputs(), ReturnWeights::Yes);
  const Loss loss{random_tensor<double, 3>(result.output.shape(), 2),
                  random_tensor<double, 4>(result.weights->shape(), 3)};
  const auto gradients =
      module.backward(data.inputs(), result, loss.output.view(), loss.weights.view());

  const auto expect = [&](const std::string& name, std::span<double> input,
                          std::span<const double> gradient) {
    constexpr double kStep = 5e-4;
    ASSERT_EQ(input.size(), gradient.size()) << name;
    double largest = 1;
    for (const double g : gradient) largest = std::max(largest, std::fabs(g));
    for (std::size_t i = 0; i < input.size(); ++i) {
      const double kept = input[i];
      const auto at = [&](double distance) {
        input[i] = kept + distance;
        return loss.of(module.forward(data.inputs(), ReturnWeights::Yes));
      };
      // The four-point rule, whose error is of the order step⁴.
      const double difference =
          (8 * (at(kStep) - at(-kStep)) - (at(2 * kStep) - at(-2 * kStep))) / (12 * kStep);
      input[i] = kept;
      ASSERT_NEAR(gradient[i], difference, 1e-8 * largest) << name << " entry " << i;
    }
  };
  expect("query", data.query.elements(), gradients.query.elements());
  EXPECT_EQ(gradients.key.has_value(), data.key.has_value());
  EXPECT_EQ(gradients.value.has_value(), data.value.has_value());
  EXPECT_EQ(gradients.bias.has_value(), data.bias.has_value());
  if (data.key) expect("key", data.key->elements(), gradients.key->elements());
  if (data.value) expect("value", data.value->elements(), gradients.value->elements());
  if (data.bias) expect("bias", data.bias->elements(), gradients.bias->elements());

  std::vector<std::span<const double>> derivatives;
  cases::for_each_parameter(gradients.parameters, [&](const std::string&, auto entries) {
    derivatives.push_back(entries);
  });
  std::size_t next = 0;
  cases::for_each_parameter(module.parameters(), [&](const std::string& name, auto entries) {
    ASSERT_LT(next, derivatives.size());
    expect(name, entries, derivatives[next++]);
  });
  EXPECT_EQ(next, derivatives.size());
}

INSTANTIATE_TEST_SUITE_P(Cases, ModuleGradients, testing::ValuesIn(module_cases()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace qkv
