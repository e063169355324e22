// Any strides in, any strides out: the bits are those of dense tensors.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/engine/bits.h"
#include "tests/engine/simd_targets.h"

namespace qkv {
namespace {

using cases::CaseData;
using cases::CaseShape;
using cases::Feature;

/// A tensor's elements in memory of another layout.
template <class T>
struct Laid {
  std::vector<T> memory;
  TensorView<T, 4> view;
};

/// The order of the axes in memory, outermost first; gaps between elements; back to front.
struct Layout {
  const char* name;
  std::array<int, 4> order;
  Index gap = 0;
  bool reversed = false;
};

constexpr std::array kLayouts{Layout{"token-major", {0, 2, 1, 3}},
                              Layout{"transposed", {0, 1, 3, 2}},
                              Layout{"batch innermost", {3, 2, 1, 0}},
                              Layout{"sliced", {0, 1, 2, 3}, 3},
                              Layout{"reversed", {0, 1, 2, 3}, 0, true},
                              Layout{"reversed, transposed and sliced", {1, 3, 0, 2}, 2, true}};

template <class T>
Laid<T> lay(const Extents<4>& shape, const Layout& layout) {
  Extents<4> strides{};
  Index size = 1 + layout.gap;
  for (std::size_t i = 4; i-- > 0;) {
    const auto axis = static_cast<std::size_t>(layout.order[i]);
    strides[axis] = size;
    size = size * shape[axis] + layout.gap;
  }
  Laid<T> result{std::vector<T>(static_cast<std::size_t>(size)), {}};
  T* first = result.memory.data();
  if (layout.reversed) {
    for (std::size_t axis = 0; axis < 4; ++axis) {
      first += strides[axis] * (shape[axis] - 1);
      strides[axis] = -strides[axis];
    }
  }
  result.view = {first, shape, strides};
  return result;
}

template <class T>
Laid<T> lay(const Tensor<T, 4>& tensor, const Layout& layout) {
  Laid<T> result = lay<T>(tensor.shape(), layout);
  const T* next = tensor.data();
  detail::for_each_offset(result.view.shape(), result.view.strides(),
                          [&](std::ptrdiff_t offset) { result.view.data()[offset] = *next++; });
  return result;
}

class Strides : public testing::TestWithParam<std::string> {
 protected:
  template <class T>
  void hold() {
    for (const CaseShape& shape :
         {CaseShape{2, 4, 2, 5, 21, 9, 17}, CaseShape{2, 4, 2, 30, 270, 8, 33}}) {
      for (const auto& features : std::vector<std::vector<Feature>>{
               {Feature::BiasFull, Feature::CausalBottomRight}, {Feature::Window}}) {
        const auto data = cases::make_case<T>({shape, features});
        for (const Layout& layout : kLayouts) hold_layout(data, layout);
      }
    }
  }

  template <class T>
  void hold_layout(const CaseData<T>& data, const Layout& layout) {
    using A = engine::Arithmetic<T>;
    SCOPED_TRACE(layout.name);
    const auto expected = cases::run_engine(data.inputs(), options_, true);

    const Laid<T> query = lay(data.query, layout);
    const Laid<T> key = lay(data.key, layout);
    const Laid<T> value = lay(data.value, layout);
    AttentionInputs<T> inputs = data.inputs();
    inputs.query = query.view;
    inputs.key = key.view;
    inputs.value = value.view;
    Laid<T> bias;
    if (data.bias) {
      bias = lay(*data.bias, layout);
      inputs.bias = bias.view;
    }
    EXPECT_TRUE(same_bits(cases::run_engine(inputs, options_, true), expected)) << "inputs";

    // Outputs lie the same way, and what lies between their elements stays as it was.
    constexpr A kUntouched = 77;
    Laid<A> context = lay<A>(expected.context.shape(), layout);
    Laid<A> weights = lay<A>(expected.weights.shape(), layout);
    Tensor<A, 3> swapped({expected.log_sum_exp.shape(2), expected.log_sum_exp.shape(1),
                          expected.log_sum_exp.shape(0)});
    std::fill(context.memory.begin(), context.memory.end(), kUntouched);
    std::fill(weights.memory.begin(), weights.memory.end(), kUntouched);
    engine::forward(inputs, {context.view, weights.view, swapped.view().transposed(0, 2)},
                    options_);
    const auto dense = [](const auto& view) { return contiguous_copy(view); };
    EXPECT_TRUE(cases::same_bits<A>(dense(context.view).elements(), expected.context.elements()));
    EXPECT_TRUE(cases::same_bits<A>(dense(weights.view).elements(), expected.weights.elements()));
    EXPECT_TRUE(cases::same_bits<A>(dense(swapped.view().transposed(0, 2)).elements(),
                                    expected.log_sum_exp.elements()));
    const auto untouched = [&](const Laid<A>& laid) {
      return static_cast<std::size_t>(
                 std::count(laid.memory.begin(), laid.memory.end(), kUntouched)) ==
             laid.memory.size() - static_cast<std::size_t>(element_count(laid.view.shape()));
    };
    EXPECT_TRUE(untouched(context));
    EXPECT_TRUE(untouched(weights));
  }

  /// A stride of 0 is the same as the element again and again.
  template <class T>
  void hold_broadcast() {
    const auto data =
        cases::make_case<T>({{2, 4, 2, 30, 270, 8, 17}, {Feature::BiasBroadcast, Feature::Sink}});
    AttentionInputs<T> inputs = data.inputs();
    inputs.query = {data.query.data(), data.query.shape(), {0, 240, 0, 1}};
    inputs.key = {data.key.data(), data.key.shape(), {0, 0, 8, 0}};
    inputs.value = {data.value.data(), data.value.shape(), {0, 4590, 17, 1}};
    inputs.bias = TensorView<const T, 4>(data.bias->data(), {2, 4, 30, 270}, {0, 30, 1, 0});
    AttentionInputs<T> repeated = inputs;
    const auto query = contiguous_copy(inputs.query);
    const auto key = contiguous_copy(inputs.key);
    const auto value = contiguous_copy(inputs.value);
    const auto bias = contiguous_copy(*inputs.bias);
    repeated.query = query.view();
    repeated.key = key.view();
    repeated.value = value.view();
    repeated.bias = bias.view();
    const auto expected = cases::run_engine(repeated, options_, true);
    EXPECT_TRUE(same_bits(cases::run_engine(inputs, options_, true), expected));
    inputs.bias = data.bias->view();  // extents of 1 instead
    EXPECT_TRUE(same_bits(cases::run_engine(inputs, options_, true), expected));
  }

  engine::Options options_{.threads = 2, .target = GetParam()};
};

INSTANTIATE_TEST_SUITE_P(Simd, Strides, testing::ValuesIn(test::simd_targets()),
                         [](const auto& target) { return target.param; });

TEST_P(Strides, OfFloat32) { hold<float>(); }
TEST_P(Strides, OfFloat64) { hold<double>(); }
TEST_P(Strides, OfBFloat16) { hold<BFloat16>(); }
TEST_P(Strides, OfZero) {
  hold_broadcast<float>();
  hold_broadcast<double>();
  hold_broadcast<Float16>();
}

}  // namespace
}  // namespace qkv
