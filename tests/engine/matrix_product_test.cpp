// Matrix products: the sums that the formula says, any strides, and the same bits for any threads and rows.
#include <gtest/gtest.h>

#include <vector>

#include "engine/matrix_product.h"
#include "tests/engine/bits.h"

namespace qkv {
namespace {

using cases::random_tensor;
using cases::same_bits;

class MatrixProductOn : public testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Simd, MatrixProductOn, testing::ValuesIn(engine::targets()),
                         [](const auto& target) { return target.param; });

template <class T>
engine::MatrixView<T> rows_of(const Tensor<T, 2>& tensor) {
  return {tensor.data(), tensor.shape(0), tensor.shape(1), tensor.shape(1), 1};
}

TEST_P(MatrixProductOn, IsTheSumThatTheFormulaSays) {
  engine::Options options;
  options.target = GetParam();
  for (const auto [m, k, n] :
       {Extents<3>{1, 1, 1}, Extents<3>{13, 5, 7}, Extents<3>{97, 193, 33}, Extents<3>{5, 400, 70},
        Extents<3>{200, 3, 2}, Extents<3>{12, 0, 4}}) {
    const auto a = random_tensor<double, 2>({m, k}, 1);
    const auto b = random_tensor<double, 2>({k, n}, 2);
    const auto a_transposed = contiguous_copy(a.view().transposed(0, 1));
    const auto b_transposed = contiguous_copy(b.view().transposed(0, 1));
    const auto before = random_tensor<double, 2>({m, n}, 3);
    for (const auto& left : {rows_of(a), rows_of(a_transposed).transposed()}) {
      for (const auto& right : {rows_of(b), rows_of(b_transposed).transposed()}) {
        Tensor<double, 2> replaced = before;
        Tensor<double, 2> added = before;
        engine::multiply(left, right, engine::Result::Replaced, replaced.data(), options);
        engine::multiply(left, right, engine::Result::AddedTo, added.data(), options);
        for (Index i = 0; i < m; ++i) {
          for (Index j = 0; j < n; ++j) {
            double sum = 0;
            for (Index d = 0; d < k; ++d) sum += a(i, d) * b(d, j);
            EXPECT_NEAR(replaced(i, j), sum, 1e-12);
            EXPECT_NEAR(added(i, j), before(i, j) + sum, 1e-12);
          }
        }
      }
    }
  }
}

TEST_P(MatrixProductOn, GivesARowTheSameBitsForAnyThreadsAndRows) {
  engine::Options options;
  options.target = GetParam();
  const auto a = random_tensor<float, 2>({230, 300}, 1);
  const auto b = random_tensor<float, 2>({300, 65}, 2);
  options.threads = 1;
  Tensor<float, 2> expected({230, 65});
  engine::multiply(rows_of(a), rows_of(b), engine::Result::Replaced, expected.data(), options);
  for (const int threads : {2, 3, 7}) {
    options.threads = threads;
    Tensor<float, 2> got({230, 65});
    engine::multiply(rows_of(a), rows_of(b), engine::Result::Replaced, got.data(), options);
    EXPECT_TRUE(same_bits<float>(got.elements(), expected.elements()));
  }
  for (Index row = 0; row < 230; row += 29) {
    const engine::MatrixView<float> one{a.data() + row * 300, 1, 300, 300, 1};
    Tensor<float, 2> got({1, 65});
    engine::multiply(one, rows_of(b), engine::Result::Replaced, got.data(), options);
    EXPECT_TRUE(same_bits<float>(
        got.elements(), expected.elements().subspan(static_cast<std::size_t>(row) * 65, 65)));
  }
}

// A caller that divides its own work among threads: a call of one must not share its loops with the caller's team.
TEST_P(MatrixProductOn, IsWholeWithinTheCallersThreads) {
  constexpr int kCallers = 6;
  engine::Options options;
  options.target = GetParam();
  options.threads = 1;
  std::vector<Tensor<double, 2>> left;
  for (int i = 0; i < kCallers; ++i) {
    left.push_back(random_tensor<double, 2>({120, 40}, static_cast<std::uint64_t>(i)));
  }
  const auto right = random_tensor<double, 2>({40, 65}, 9);
  std::vector<Tensor<double, 2>> expected(kCallers, Tensor<double, 2>({120, 65}));
  std::vector<Tensor<double, 2>> got = expected;
  const auto run = [&](int i, std::vector<Tensor<double, 2>>& results) {
    const auto at = static_cast<std::size_t>(i);
    engine::multiply(rows_of(left[at]), rows_of(right), engine::Result::Replaced,
                     results[at].data(), options);
  };
  for (int i = 0; i < kCallers; ++i) run(i, expected);
  for (const int threads : {1, 3}) {
#pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (int i = 0; i < kCallers; ++i) run(i, got);
    for (std::size_t i = 0; i < got.size(); ++i) {
      EXPECT_TRUE(same_bits<double>(got[i].elements(), expected[i].elements())) << i;
    }
  }
}

}  // namespace
}  // namespace qkv
