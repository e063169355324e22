// Memory that runs short, and memory that is not asked for again: this program's operator new counts, and fails on request.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <limits>
#include <new>

#include "tests/engine/bits.h"

namespace {

constexpr std::size_t kNever = std::numeric_limits<std::size_t>::max();

std::atomic<std::size_t> allocations{0};
std::atomic<std::size_t> allocated_bytes{0};
std::atomic<std::size_t> failing{
    kNever};  ///< the allocation that fails, counted like `allocations`

void* allocate(std::size_t bytes, std::size_t alignment) {
  allocated_bytes += bytes;
  if (allocations++ == failing) throw std::bad_alloc();
  const std::size_t rounded =
      (std::max<std::size_t>(bytes, 1) + alignment - 1) / alignment * alignment;
  void* memory = std::aligned_alloc(alignment, rounded);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(std::size_t bytes) { return allocate(bytes, alignof(std::max_align_t)); }
void* operator new[](std::size_t bytes) { return allocate(bytes, alignof(std::max_align_t)); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t /*bytes*/) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t /*bytes*/) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t /*alignment*/) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t /*alignment*/) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t /*bytes*/, std::align_val_t /*alignment*/) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::size_t /*bytes*/,
                       std::align_val_t /*alignment*/) noexcept {
  std::free(memory);
}

namespace qkv {
namespace {

using cases::CaseData;
using cases::Feature;

template <class T>
class Call {
 public:
  Call(const cases::CaseShape& shape, const std::vector<Feature>& features)
      : data_(cases::make_case<T>({shape, features})),
        inputs_(data_.inputs()),
        outputs_(cases::run_engine(inputs_, {.threads = 1, .target = std::nullopt}, true)),
        expected_(outputs_) {}

  void run(engine::Workspace* workspace) {
    engine::Options options;
    options.threads = 2;
    options.workspace = workspace;
    engine::forward(inputs_,
                    {outputs_.context.view(), outputs_.weights.view(), outputs_.log_sum_exp.view()},
                    options);
  }
  void clear() {
    for (auto elements : {outputs_.context.elements(), outputs_.weights.elements(),
                          outputs_.log_sum_exp.elements()}) {
      std::fill(elements.begin(), elements.end(), kUntouched);
    }
  }
  bool untouched() {
    const auto all_are = [](const auto& tensor) {
      return std::all_of(tensor.elements().begin(), tensor.elements().end(),
                         [](auto x) { return x == kUntouched; });
    };
    return all_are(outputs_.context) && all_are(outputs_.weights) && all_are(outputs_.log_sum_exp);
  }
  bool is_right() const { return same_bits(outputs_, expected_); }

 private:
  static constexpr engine::Arithmetic<T> kUntouched = 77;

  CaseData<T> data_;
  AttentionInputs<T> inputs_;
  cases::EngineOutputs<engine::Arithmetic<T>> outputs_;
  cases::EngineOutputs<engine::Arithmetic<T>> expected_;
};

const std::vector<Feature> kFeatures{Feature::CausalBottomRight, Feature::KeyLengths,
                                     Feature::Documents,         Feature::AlibiTopLeft,
                                     Feature::BiasFull,          Feature::Sink};

/// Every allocation of the call fails in turn; returns how many there are.
template <class T>
std::size_t fail_each(Call<T>& call, engine::Workspace* workspace) {
  for (std::size_t number = 0;; ++number) {
    call.clear();
    allocations = 0;
    failing = number;
    bool failed = false;
    try {
      call.run(workspace);
    } catch (const std::bad_alloc&) {
      failed = true;
    }
    failing = kNever;
    if (!failed) {
      EXPECT_TRUE(call.is_right());
      return number;
    }
    EXPECT_TRUE(call.untouched()) << "allocation " << number;
    if (number > 1000) return number;
  }
}

TEST(FailingAllocation, IsBadAllocAndTheNextCallWorks) {
  Call<float> in_float32({2, 4, 2, 30, 300, 8, 5}, kFeatures);
  Call<BFloat16> in_bfloat16({2, 4, 2, 3, 300, 8, 5}, kFeatures);
  for (int repetition = 0; repetition < 2; ++repetition) {
    engine::Workspace workspace;
    EXPECT_GT(fail_each(in_float32, &workspace), 2U);
    engine::Workspace other;
    EXPECT_GT(fail_each(in_bfloat16, &other), 2U);
  }
}

TEST(FailingAllocation, LeavesAWorkspaceThatWorks) {
  Call<double> small({1, 1, 1, 2, 4, 2, 2}, {});
  Call<double> large({2, 4, 2, 60, 400, 16, 9}, kFeatures);
  engine::Workspace workspace;
  small.run(&workspace);
  EXPECT_GT(workspace.bytes(), 0U);
  fail_each(large, &workspace);
  small.run(&workspace);
  EXPECT_TRUE(small.is_right());
}

TEST(FailingAllocation, OfTheThreadsOwnWorkspace) {
  Call<float> call({3, 4, 2, 200, 700, 16, 9}, kFeatures);
  EXPECT_GT(fail_each(call, nullptr), 2U);
}

/// Allocations of a second call that is the first one's like.
std::size_t allocations_in_steady_state(const cases::CaseShape& shape,
                                        const std::vector<Feature>& features) {
  Call<float> call(shape, features);
  engine::Workspace workspace;
  call.run(&workspace);
  const std::size_t held = workspace.bytes();
  allocations = 0;
  allocated_bytes = 0;
  call.run(&workspace);
  const std::size_t count = allocations;
  EXPECT_LT(allocated_bytes, 8192U);
  EXPECT_EQ(workspace.bytes(), held);
  EXPECT_TRUE(call.is_right());
  return count;
}

TEST(SteadyState, AsksForNoMemoryButThatOfTheMasksRules) {
  constexpr cases::CaseShape kFew{2, 4, 2, 3, 40, 8, 8};
  constexpr cases::CaseShape kMany{2, 4, 2, 400, 600, 32, 32};
  for (const cases::CaseShape& shape : {kFew, kMany}) {
    EXPECT_EQ(allocations_in_steady_state(shape, {}), 0U);
    EXPECT_EQ(allocations_in_steady_state(
                  shape, {Feature::Softcap, Feature::BiasFull, Feature::Sink, Feature::Scale}),
              0U);
    // A list of rules and the diagonal of each sample.
    EXPECT_LE(allocations_in_steady_state(shape, {Feature::CausalTopLeft}), 2U);
  }
  EXPECT_EQ(allocations_in_steady_state(kFew, kFeatures),
            allocations_in_steady_state(kMany, kFeatures));
}

}  // namespace
}  // namespace qkv
