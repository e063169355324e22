// Memory that runs short, and memory that is not asked for again: forward and backward.
#include "tests/cases/allocations.h"

#include <algorithm>
#include <thread>

#include "tests/engine/bits.h"

namespace qkv {
namespace {

using cases::allocations_of;
using cases::CaseData;
using cases::fail_each_allocation;
using cases::Feature;
using cases::same_bits;

constexpr float kUntouched = 77;

template <class Tensors>
void fill(const Tensors& tensors) {
  for (const auto& elements : tensors) std::fill(elements.begin(), elements.end(), kUntouched);
}

template <class Tensors>
bool are_untouched(const Tensors& tensors) {
  return std::all_of(tensors.begin(), tensors.end(), [](const auto& elements) {
    return std::all_of(elements.begin(), elements.end(), [](auto x) { return x == kUntouched; });
  });
}

template <class Tensors>
auto copies_of(const Tensors& tensors) {
  std::vector<std::vector<typename Tensors::value_type::value_type>> copies;
  for (const auto& elements : tensors) copies.emplace_back(elements.begin(), elements.end());
  return copies;
}

/// A call that writes `outputs()`.
template <class A>
class Call {
 public:
  Call() = default;
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  virtual ~Call() = default;

  virtual void run(engine::Workspace* workspace) = 0;

  bool is_right() {
    const auto now = outputs();
    for (std::size_t i = 0; i < now.size(); ++i) {
      if (!same_bits<A>(now[i], expected_[i])) return false;
    }
    return true;
  }
  /// Every allocation of the call fails in turn; returns how many there are.
  std::size_t fail_each(engine::Workspace* workspace) {
    fill(outputs());
    const std::size_t count = fail_each_allocation([&] { run(workspace); },
                                                   [&] { EXPECT_TRUE(are_untouched(outputs())); });
    EXPECT_TRUE(is_right());
    return count;
  }
  /// Allocations of a second call that is the first one's like.
  std::size_t in_steady_state(engine::Workspace* workspace) {
    run(workspace);
    fill(outputs());
    const std::size_t count = allocations_of([&] { run(workspace); });
    EXPECT_TRUE(is_right());
    return count;
  }

 protected:
  virtual std::vector<std::span<A>> outputs() = 0;
  /// What the outputs are now is what they should be; the mask leaves something to compute.
  void expect_outputs() {
    expected_ = copies_of(outputs());
    EXPECT_TRUE(std::any_of(expected_[0].begin(), expected_[0].end(), [](A x) { return x != 0; }));
  }

 private:
  std::vector<std::vector<A>> expected_;
};

template <class T>
class ForwardCall : public Call<engine::Arithmetic<T>> {
  using A = engine::Arithmetic<T>;

 public:
  ForwardCall(const cases::CaseShape& shape, const std::vector<Feature>& features)
      : data_(cases::make_case<T>({shape, features})),
        inputs_(data_.inputs()),
        results_(cases::run_engine(inputs_, {.threads = 1}, true)) {
    this->expect_outputs();
  }

  void run(engine::Workspace* workspace) override {
    engine::forward(inputs_,
                    {results_.context.view(), results_.weights.view(), results_.log_sum_exp.view()},
                    {.threads = 2, .workspace = workspace});
  }

 protected:
  std::vector<std::span<A>> outputs() override {
    return {results_.context.elements(), results_.weights.elements(),
            results_.log_sum_exp.elements()};
  }

 private:
  CaseData<T> data_;
  AttentionInputs<T> inputs_;
  cases::EngineOutputs<A> results_;
};

/// With dropout and gradients of all outputs, through the queries that have one.
template <class T>
class BackwardCall : public Call<T> {
 public:
  BackwardCall(const cases::CaseShape& s, const std::vector<Feature>& features)
      : data_(cases::make_case<T>({s, features})),
        inputs_(data_.inputs()),
        results_(cases::run_engine(inputs_, options(1, nullptr))),
        upstream_{cases::random_tensor<T, 4>({s.batch, s.heads, s.queries, s.value_width}, 7),
                  cases::random_tensor<T, 4>({s.batch, s.heads, s.queries, s.keys}, 8),
                  cases::random_tensor<T, 3>({s.batch, s.heads, s.queries}, 9)},
        gradients_{Tensor<T, 4>(inputs_.query.shape()), Tensor<T, 4>(inputs_.key.shape()),
                   Tensor<T, 4>(inputs_.value.shape()), std::nullopt, std::nullopt} {
    if (inputs_.bias) gradients_.bias.emplace(inputs_.bias->shape());
    if (inputs_.sink) gradients_.sink.emplace(inputs_.sink->shape());
    run(options(1, nullptr));
    this->expect_outputs();
  }

  void run(engine::Workspace* workspace) override { run(options(2, workspace)); }

 protected:
  std::vector<std::span<T>> outputs() override {
    std::vector<std::span<T>> all{gradients_.query.elements(), gradients_.key.elements(),
                                  gradients_.value.elements()};
    if (gradients_.bias) all.push_back(gradients_.bias->elements());
    if (gradients_.sink) all.push_back(gradients_.sink->elements());
    return all;
  }

 private:
  static engine::Options options(int threads, engine::Workspace* workspace) {
    return {.threads = threads,
            .workspace = workspace,
            .dropout = engine::Dropout{.probability = 0.2, .seed = 3}};
  }
  void run(const engine::Options& options) {
    AttentionInputGradients<T> views{gradients_.query.view(), gradients_.key.view(),
                                     gradients_.value.view(), std::nullopt, std::nullopt};
    if (gradients_.bias) views.bias = gradients_.bias->view();
    if (gradients_.sink) views.sink = gradients_.sink->view();
    engine::backward<T>(inputs_, {results_.context.view(), results_.log_sum_exp.view()},
                        {.context = std::as_const(upstream_.context).view(),
                         .weights = std::as_const(upstream_.weights).view(),
                         .log_sum_exp = std::as_const(upstream_.log_sum_exp).view()},
                        views, options, engine::Queries::WithGradient);
  }

  CaseData<T> data_;
  AttentionInputs<T> inputs_;
  cases::EngineOutputs<T> results_;
  cases::EngineOutputs<T> upstream_;
  cases::EngineGradients<T> gradients_;
};

const std::vector<Feature> kFeatures{Feature::CausalBottomRight, Feature::Window,
                                     Feature::KeyLengths,        Feature::KeyPaddingLeft,
                                     Feature::Documents,         Feature::BooleanFull,
                                     Feature::AlibiTopLeft,      Feature::BiasFull,
                                     Feature::Softcap,           Feature::Sink};
const std::vector<Feature> kOtherFeatures{Feature::CausalOffsets, Feature::PrefixCausal,
                                          Feature::AlibiBottomRight, Feature::BiasBroadcast,
                                          Feature::Sink};

TEST(FailingAllocation, OfForwardIsBadAllocAndTheNextCallWorks) {
  ForwardCall<float> in_float32({2, 4, 2, 30, 300, 8, 5}, kFeatures);
  ForwardCall<BFloat16> in_bfloat16({2, 4, 2, 3, 300, 8, 5}, kFeatures);
  for (int repetition = 0; repetition < 2; ++repetition) {
    engine::Workspace workspace;
    EXPECT_GE(in_float32.fail_each(&workspace), 1U);
    engine::Workspace other;
    EXPECT_GE(in_bfloat16.fail_each(&other), 1U);
  }
}

TEST(FailingAllocation, OfBackwardIsBadAllocAndTheNextCallWorks) {
  BackwardCall<float> in_float32({2, 4, 2, 30, 700, 8, 5}, kFeatures);
  BackwardCall<double> of_row_sums({2, 4, 2, 60, 300, 8, 5}, kOtherFeatures);
  for (int repetition = 0; repetition < 2; ++repetition) {
    engine::Workspace workspace;
    EXPECT_GE(in_float32.fail_each(&workspace), 1U);
    engine::Workspace other;
    EXPECT_GE(of_row_sums.fail_each(&other), 1U);
  }
}

TEST(FailingAllocation, LeavesAWorkspaceThatWorks) {
  ForwardCall<double> small({1, 1, 1, 2, 4, 2, 2}, {});
  ForwardCall<double> forward({2, 4, 2, 60, 400, 16, 9}, kFeatures);
  BackwardCall<double> backward({2, 4, 2, 60, 400, 16, 9}, kFeatures);
  const auto fail_between = [&](auto& call) {
    engine::Workspace workspace;
    small.run(&workspace);
    EXPECT_GT(workspace.bytes(), 0U);
    EXPECT_GE(call.fail_each(&workspace), 1U);
    small.run(&workspace);
    EXPECT_TRUE(small.is_right());
  };
  fail_between(forward);
  fail_between(backward);
}

TEST(FailingAllocation, OfTheThreadsOwnWorkspace) {
  ForwardCall<float> forward({3, 4, 2, 200, 700, 16, 9}, kFeatures);
  BackwardCall<float> backward({3, 4, 2, 50, 700, 16, 9}, kFeatures);
  std::thread([&] { EXPECT_GE(forward.fail_each(nullptr), 1U); }).join();
  std::thread([&] { EXPECT_GE(backward.fail_each(nullptr), 1U); }).join();
}

/// No rule of a mask, no sample and no modifier costs memory.
TEST(SteadyState, AsksForNoMemory) {
  constexpr cases::CaseShape kFew{2, 4, 2, 3, 40, 8, 8};
  constexpr cases::CaseShape kMany{2, 4, 2, 100, 600, 32, 32};
  constexpr cases::CaseShape kBatch{40, 2, 1, 2, 9, 4, 4};
  for (const cases::CaseShape& shape : {kFew, kMany, kBatch}) {
    for (const auto& features : {std::vector<Feature>{}, kFeatures, kOtherFeatures}) {
      engine::Workspace workspace;
      ForwardCall<float> forward(shape, features);
      BackwardCall<float> backward(shape, features);
      EXPECT_EQ(forward.in_steady_state(&workspace), 0U);
      EXPECT_EQ(backward.in_steady_state(&workspace), 0U);
      EXPECT_EQ(forward.in_steady_state(nullptr), 0U);
      EXPECT_EQ(backward.in_steady_state(nullptr), 0U);
    }
  }
}

TEST(SteadyState, KeepsTheWorkspace) {
  engine::Workspace workspace;
  ForwardCall<float> call({2, 4, 2, 100, 600, 32, 32}, kFeatures);
  call.run(&workspace);
  const std::size_t held = workspace.bytes();
  call.run(&workspace);
  EXPECT_EQ(workspace.bytes(), held);
}

}  // namespace
}  // namespace qkv
