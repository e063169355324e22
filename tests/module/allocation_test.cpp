// A module where memory runs short: every allocation of forward and backward fails in turn.
#include "tests/cases/allocations.h"
#include "tests/cases/attention_cases.h"
#include "tests/module/module_data.h"

namespace qkv {
namespace {

using cases::fail_each_allocation;
using cases::random_tensor;
using cases::same_bits;

constexpr MultiHeadAttentionOptions kOptions{.model_width = 8,
                                             .heads = 4,
                                             .kv_heads = 2,
                                             .head_width = 6,
                                             .value_head_width = 3,
                                             .biases = {true, true, true, true},
                                             .qk_norm = QkNormOptions{},
                                             .rotary = RotaryOptions{}};

template <class T>
class ModuleAllocation : public testing::Test {
 protected:
  ModuleAllocation() {
    data_.query = random_tensor<T, 3>({2, 20, 8}, 1);
    data_.key = random_tensor<T, 3>({2, 30, 8}, 2);
    data_.bias = random_tensor<T, 4>({2, 4, 20, 30}, 3);
    data_.mask = Mask::causal(Corner::bottom_right()) & Mask::key_lengths({25, 30});
    data_.alibi = Alibi{standard_alibi_slopes(4), Corner::bottom_right()};
    inputs_ = data_.inputs();
    before_ = all_of_it();
  }

  /// The module's parameters and the inputs, of which nothing may change.
  std::vector<T> all_of_it() const {
    std::vector<T> all;
    const auto add = [&](std::span<const T> elements) {
      all.insert(all.end(), elements.begin(), elements.end());
    };
    cases::for_each_parameter(module_.parameters(),
                              [&](const std::string&, std::span<const T> x) { add(x); });
    add(data_.query.elements());
    add(data_.key->elements());
    add(data_.bias->elements());
    return all;
  }
  void expect_unchanged() const { EXPECT_TRUE(same_bits(all_of_it(), before_)); }

  const MultiHeadAttention<T> module_ = cases::random_module<T>(kOptions, 5);
  cases::ModuleData<T> data_;
  MultiHeadAttentionInputs<T> inputs_;
  std::vector<T> before_;
};

using Storages = testing::Types<float, double>;
TYPED_TEST_SUITE(ModuleAllocation, Storages);

TYPED_TEST(ModuleAllocation, AFailedForwardIsBadAllocAndTheNextOneWorks) {
  const auto expected = this->module_.forward(this->inputs_, ReturnWeights::Yes);
  MultiHeadAttentionResult<TypeParam> result;
  const std::size_t failures = fail_each_allocation(
      [&] { result = this->module_.forward(this->inputs_, ReturnWeights::Yes); },
      [&] { this->expect_unchanged(); });
  EXPECT_GE(failures, 9U);  // the tensors of the result
  EXPECT_TRUE(same_bits(result.output, expected.output));
  EXPECT_TRUE(same_bits(*result.weights, *expected.weights));
}

TYPED_TEST(ModuleAllocation, AFailedBackwardIsBadAllocAndTheNextOneWorks) {
  const auto result = this->module_.forward(this->inputs_);
  const auto upstream = random_tensor<TypeParam, 3>({2, 20, 8}, 6);
  const auto run = [&] { return this->module_.backward(this->inputs_, result, upstream.view()); };
  const auto expected = cases::flattened(run());
  MultiHeadAttentionGradients<TypeParam> gradients;
  const std::size_t failures =
      fail_each_allocation([&] { gradients = run(); }, [&] { this->expect_unchanged(); });
  EXPECT_GE(failures, 13U);  // the gradients of three inputs and ten parameters
  const auto got = cases::flattened(gradients);
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_TRUE(same_bits(got[i].second, expected[i].second)) << got[i].first;
  }
}

}  // namespace
}  // namespace qkv
