// A cache where memory runs short stays what it was; one that decodes asks for memory page by page.
#include "qkv/kv_cache.h"
#include "tests/cases/allocations.h"
#include "tests/engine/bits.h"

namespace qkv {
namespace {

using cases::allocations_of;
using cases::fail_each_allocation;
using cases::same_bits;

constexpr Index kBatch = 2;
constexpr Index kHeads = 4;
constexpr Index kKvHeads = 2;
constexpr Index kWidth = 8;
constexpr Index kPage = 256;

template <class T>
class CacheAllocation : public testing::Test {
 protected:
  using A = engine::Arithmetic<T>;

  static KvCache<T> empty_cache(std::optional<Index> window = std::nullopt) {
    return KvCache<T>({.batch = kBatch,
                       .kv_heads = kKvHeads,
                       .key_width = kWidth,
                       .value_width = kWidth,
                       .window = window});
  }
  void append(KvCache<T>& cache, Index begin, Index end) const {
    cache.append(keys_.view().slice(2, begin, end), values_.view().slice(2, begin, end));
  }
  /// A cache with the first tokens.
  KvCache<T> cache_of(Index tokens, std::optional<Index> window = std::nullopt) const {
    KvCache<T> cache = empty_cache(window);
    append(cache, 0, tokens);
    return cache;
  }

  /// One query a sequence, with what costs most: a mask, and ALiBi at the tokens' positions.
  AttentionInputs<T> inputs() const {
    AttentionInputs<T> inputs;
    inputs.query = query_.view();
    inputs.mask = mask_;
    inputs.alibi = alibi_;
    return inputs;
  }
  Tensor<A, 4> decoded(const KvCache<T>& cache) const {
    Tensor<A, 4> context({kBatch, kHeads, 1, kWidth});
    engine::forward(cache, inputs(), {.context = context.view()});
    return context;
  }
  static bool same(const Tensor<A, 4>& a, const Tensor<A, 4>& b) {
    return same_bits<A>(a.elements(), b.elements());
  }

 private:
  Tensor<T, 4> keys_ = cases::random_tensor<T, 4>({kBatch, kKvHeads, 3 * kPage, kWidth}, 1);
  Tensor<T, 4> values_ = cases::random_tensor<T, 4>({kBatch, kKvHeads, 3 * kPage, kWidth}, 2);
  Tensor<T, 4> query_ = cases::random_tensor<T, 4>({kBatch, kHeads, 1, kWidth}, 3);
  Mask mask_ = Mask::sliding_window({500, std::nullopt, Corner::bottom_right()}) &
               Mask::key_lengths({kPage - 10, kPage - 20});
  Alibi alibi_{standard_alibi_slopes(kHeads), std::nullopt};
};

using Storages = testing::Types<float, double, BFloat16>;
TYPED_TEST_SUITE(CacheAllocation, Storages);

TYPED_TEST(CacheAllocation, AFailedAppendLeavesTheCacheAndCanBeTriedAgain) {
  for (const std::optional<Index> window : {std::optional<Index>(), std::optional<Index>(100)}) {
    // New pages for both sequences, and one that a fork shares.
    KvCache<TypeParam> cache = this->cache_of(kPage - 6, window);
    const KvCache<TypeParam> fork = cache;
    const auto before = this->decoded(cache);
    const std::size_t bytes = cache.bytes();
    const std::size_t failures =
        fail_each_allocation([&] { this->append(cache, kPage - 6, 2 * kPage + 7); },
                             [&] {
                               EXPECT_EQ(cache.length(0), kPage - 6);
                               EXPECT_EQ(cache.length(1), kPage - 6);
                               EXPECT_EQ(cache.bytes(), bytes);
                               EXPECT_TRUE(this->same(this->decoded(cache), before));
                             });
    EXPECT_GE(failures, 6U);  // three pages a sequence
    EXPECT_EQ(cache.length(1), 2 * kPage + 7);
    EXPECT_TRUE(
        this->same(this->decoded(cache), this->decoded(this->cache_of(2 * kPage + 7, window))));
    EXPECT_TRUE(this->same(this->decoded(fork), before));
  }
}

TYPED_TEST(CacheAllocation, AFailedAppendToOneSequenceLeavesBoth) {
  KvCache<TypeParam> cache = this->cache_of(kPage);
  const auto tokens = cases::random_tensor<TypeParam, 3>({kKvHeads, 5, kWidth}, 9);
  const auto before = this->decoded(cache);
  const std::size_t failures =
      fail_each_allocation([&] { cache.append(1, tokens.view(), tokens.view()); },
                           [&] { EXPECT_TRUE(this->same(this->decoded(cache), before)); });
  EXPECT_GE(failures, 1U);
  EXPECT_EQ(cache.length(0), kPage);
  EXPECT_EQ(cache.length(1), kPage + 5);
}

TYPED_TEST(CacheAllocation, AFailedForkOrCopyLeavesTheCache) {
  const KvCache<TypeParam> longer = this->cache_of(2 * kPage);
  KvCache<TypeParam> cache = this->cache_of(kPage + 3);
  const auto before = this->decoded(cache);
  const auto unchanged = [&] { EXPECT_TRUE(this->same(this->decoded(cache), before)); };
  EXPECT_GE(fail_each_allocation([&] { cache.fork(0, longer, 1); }, unchanged), 1U);
  EXPECT_EQ(cache.length(0), 2 * kPage);

  cache = this->cache_of(kPage + 3);
  EXPECT_GE(fail_each_allocation([&] { cache = longer; }, unchanged), 1U);
  EXPECT_TRUE(this->same(this->decoded(cache), this->decoded(longer)));
}

TYPED_TEST(CacheAllocation, TruncationAsksForNoMemory) {
  KvCache<TypeParam> cache = this->cache_of(2 * kPage);
  const KvCache<TypeParam> fork = cache;
  EXPECT_EQ(allocations_of([&] { cache.truncate(0, kPage + 1); }), 0U);
  EXPECT_EQ(cache.length(0), kPage + 1);
}

TYPED_TEST(CacheAllocation, AConstructorThatFailsIsBadAlloc) {
  EXPECT_GE(fail_each_allocation(
                [] { static_cast<void>(CacheAllocation<TypeParam>::empty_cache()); }, [] {}),
            1U);
}

TYPED_TEST(CacheAllocation, AFailedForwardLeavesTheOutputs) {
  const KvCache<TypeParam> cache = this->cache_of(2 * kPage);
  const auto expected = this->decoded(cache);
  const AttentionInputs<TypeParam> inputs = this->inputs();
  Tensor<typename TestFixture::A, 4> context(expected.shape());
  engine::Workspace workspace;
  const std::size_t failures = fail_each_allocation(
      [&] {
        engine::forward(cache, inputs, {.context = context.view()}, {.workspace = &workspace});
      },
      [&] {
        for (const auto x : context.elements()) EXPECT_EQ(x, 0);
      });
  EXPECT_GE(failures, 1U);
  EXPECT_TRUE(this->same(context, expected));
}

TYPED_TEST(CacheAllocation, DecodingAsksForMemoryOnlyWhereAPageBegins) {
  for (const std::optional<Index> window : {std::optional<Index>(), std::optional<Index>(300)}) {
    KvCache<TypeParam> cache = this->cache_of(kPage + 10, window);
    const AttentionInputs<TypeParam> inputs = this->inputs();
    Tensor<typename TestFixture::A, 4> context({kBatch, kHeads, 1, kWidth});
    engine::Workspace workspace;
    const auto decode = [&] {
      engine::forward(cache, inputs, {.context = context.view()}, {.workspace = &workspace});
    };
    decode();
    for (Index token = kPage + 10; token < 3 * kPage; ++token) {
      const std::size_t count = allocations_of([&] {
        this->append(cache, token, token + 1);
        decode();
      });
      if (token % kPage == 0) {
        EXPECT_GE(count, 1U) << token;
      } else {
        EXPECT_EQ(count, 0U) << token;
      }
    }
  }
}

}  // namespace
}  // namespace qkv
