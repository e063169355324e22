// float16 and bfloat16 are storage: the engine gives what float32 arithmetic makes of the stored numbers.
#include <gtest/gtest.h>
#include <omp.h>

#include "tests/engine/agreement.h"
#include "tests/engine/simd_targets.h"

namespace qkv {
namespace {

using cases::AttentionCase;
using cases::Feature;

class Storage : public testing::TestWithParam<std::string> {
 protected:
  template <class T>
  void hold() {
    omp_set_num_threads(1);
    std::vector<AttentionCase> all = cases::alone_and_in_pairs({2, 4, 2, 5, 33, 9, 5});
    for (const Feature feature : cases::all_features()) {
      all.push_back({{1, 4, 2, 50, 300, 7, 17}, {feature}, 5});
    }
    for (const AttentionCase& one : all) {
      const auto stored = cases::make_case<T>(one);
      cases::expect_agreement(stored, options_, one.name());
      // Not only near to it: the same bits as with the widened numbers.
      const auto wide = cases::widened(stored);
      EXPECT_TRUE(same_bits(cases::run_engine(stored.inputs(), options_, true),
                            cases::run_engine(wide.inputs(), options_, true)))
          << one.name();
    }
  }

  engine::Options options_{.threads = 2, .target = GetParam()};
};

INSTANTIATE_TEST_SUITE_P(Simd, Storage, testing::ValuesIn(test::simd_targets()),
                         [](const auto& target) { return target.param; });

TEST_P(Storage, OfFloat16) { hold<Float16>(); }
TEST_P(Storage, OfBFloat16) { hold<BFloat16>(); }

}  // namespace
}  // namespace qkv
