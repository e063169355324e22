// What is measured computes what it says: ours, and the same call handed to a peer.
#include "bench/subject.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace qkv::bench {
namespace {

using ::testing::Key;
using ::testing::UnorderedElementsAre;

BenchCase small(BenchMask mask, DType dtype = DType::Float32) {
  BenchCase one;
  one.mask = mask;
  one.dtype = dtype;
  one.batch = 2;
  one.heads = 3;
  one.tokens = 600;  // more than a window, and a document and a bit
  one.width = 4;
  return one;
}

std::unique_ptr<Subject> ready_subject(const BenchCase& bench_case) {
  auto subject = make_subject(bench_case);
  subject->run_oracle();
  return subject;
}

/// The formula with the inputs and the mask that a peer gets, for one row.
std::vector<double> row_by_hand(const PeerCall& call, Index b, Index h, Index t) {
  const auto query = call.inputs.at("query").to<double, 4>("query");
  const auto key = call.inputs.at("key").to<double, 4>("key");
  const auto value = call.inputs.at("value").to<double, 4>("value");
  const Index keys = key.shape(2);
  const Index width = query.shape(3);
  std::vector<double> scores(static_cast<std::size_t>(keys));
  for (Index s = 0; s < keys; ++s) {
    double score = 0;
    for (Index d = 0; d < width; ++d) score += query(b, h, t, d) * key(b, h, s, d);
    score /= std::sqrt(static_cast<double>(width));
    constexpr double kHidden = -std::numeric_limits<double>::infinity();
    if (call.causal && s > t) score = kHidden;
    if (call.inputs.contains("attn_mask")) {
      const StoredTensor& mask = call.inputs.at("attn_mask");
      const Index row = mask.shape()[2] == 1 ? 0 : t;
      if (mask.dtype() == DType::Bool) {
        if (!mask.to<bool, 4>("attn_mask")(0, 0, row, s)) score = kHidden;
      } else {
        score += mask.to<double, 4>("attn_mask")(0, 0, row, s);
      }
    }
    scores[static_cast<std::size_t>(s)] = std::exp(score);
  }
  double sum = 0;
  std::vector<double> context(static_cast<std::size_t>(width));
  for (Index s = 0; s < keys; ++s) {
    const double weight = scores[static_cast<std::size_t>(s)];
    sum += weight;
    for (Index d = 0; d < width; ++d)
      context[static_cast<std::size_t>(d)] += weight * value(b, h, s, d);
  }
  for (double& element : context) element /= sum;
  return context;
}

TensorFile output_of(const Tensor<float, 4>& output) {
  TensorFile results;
  results.tensors["output"] = store(output.view());
  return results;
}

class EveryMask : public ::testing::TestWithParam<BenchMask> {};

INSTANTIATE_TEST_SUITE_P(Masks, EveryMask,
                         ::testing::Values(BenchMask::None, BenchMask::Causal,
                                           BenchMask::PaddedQuarter, BenchMask::Boolean,
                                           BenchMask::Bias, BenchMask::Window256,
                                           BenchMask::Documents512));

TEST_P(EveryMask, OursIsWhatThePeerIsAskedFor) {
  const auto subject = ready_subject(small(GetParam(), DType::Float64));
  subject->ours()({});
  EXPECT_TRUE(subject->check(subject->results()).passed());
  const PeerCall call = subject->peer_call();
  const auto output = subject->results().at("output").to<double, 4>("output");
  for (const Index t : {0, 511, 512, 599}) {
    const std::vector<double> expected = row_by_hand(call, 1, 2, t);
    for (Index d = 0; d < 4; ++d) {
      EXPECT_NEAR(output(1, 2, t, d), expected[static_cast<std::size_t>(d)], 1e-12) << t;
    }
  }
}

TEST_P(EveryMask, Float32AgreesWithTheOracle) {
  const auto subject = ready_subject(small(GetParam()));
  subject->ours()({});
  EXPECT_TRUE(subject->check(subject->results()).passed());
}

TEST_P(EveryMask, GradientsAgreeWithTheOracleAndWrongOnesAreFound) {
  BenchCase one = small(GetParam());
  one.pass = Pass::ForwardBackward;
  const auto subject = ready_subject(one);
  subject->ours()({});
  EXPECT_TRUE(subject->check(subject->results()).passed());
  EXPECT_TRUE(subject->peer_call().inputs.contains("output_gradient"));
  for (const char* name : {"random.query", "random.key", "random.value"}) {
    TensorFile results = subject->results();
    auto wrong = results.at(name).to<float, 4>(name);
    wrong(1, 2, 300, 1) += 1.0F;
    results.tensors[name] = store(wrong.view());
    EXPECT_FALSE(subject->check(results).passed()) << name;
  }
}

TEST(Subject, LargeCasesAreCheckedInTheirFirstMiddleAndLastRows) {
  BenchCase large = small(BenchMask::Causal);
  large.heads = 8;
  large.tokens = 2048;
  large.width = 64;
  const auto subject = ready_subject(large);
  subject->ours()({});
  ASSERT_TRUE(subject->check(subject->results()).passed());
  for (const Index t : {0, 1024, 2047}) {
    auto wrong = subject->results().at("output").to<float, 4>("output");
    wrong(1, 7, t, 63) += 0.01F;
    EXPECT_FALSE(subject->check(output_of(wrong)).passed()) << t;
  }
}

TEST(Subject, NaNIsWrong) {
  const auto subject = ready_subject(small(BenchMask::None));
  subject->ours()({});
  auto wrong = subject->results().at("output").to<float, 4>("output");
  wrong(0, 0, 5, 1) = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(subject->check(output_of(wrong)).passed());
}

TEST(Subject, InputsAreNormal) {
  const auto subject = ready_subject(small(BenchMask::None, DType::Float64));
  const auto query = subject->peer_call().inputs.at("query").to<double, 4>("query");
  double sum = 0;
  double squares = 0;
  for (const double x : query.elements()) {
    sum += x;
    squares += x * x;
  }
  const auto count = static_cast<double>(query.elements().size());  // 14,400
  EXPECT_NEAR(sum / count, 0, 5 / std::sqrt(count));
  EXPECT_NEAR(squares / count, 1, 5 * std::sqrt(2 / count));
}

TEST(Subject, ModuleGradientAgreesWithTheOracle) {
  BenchCase module = small(BenchMask::None);
  module.operation = Operation::Module;
  module.pass = Pass::ForwardBackward;
  module.tokens = 20;
  const auto subject = ready_subject(module);
  subject->ours()({});
  EXPECT_TRUE(subject->check(subject->results()).passed());
  TensorFile results = subject->results();
  auto wrong = results.at("random.query").to<float, 3>("random.query");
  wrong(1, 19, 11) += 0.1F;
  results.tensors["random.query"] = store(wrong.view());
  EXPECT_FALSE(subject->check(results).passed());
}

TEST(Subject, ModuleAgreesWithTheOracle) {
  BenchCase module = small(BenchMask::None);
  module.operation = Operation::Module;
  module.tokens = 20;
  const auto subject = ready_subject(module);
  subject->ours()({});
  EXPECT_TRUE(subject->check(subject->results()).passed());
  EXPECT_THAT(subject->peer_call().inputs.tensors,
              UnorderedElementsAre(Key("query"), Key("in_proj_weight"), Key("in_proj_bias"),
                                   Key("out_proj.weight"), Key("out_proj.bias")));
}

}  // namespace
}  // namespace qkv::bench
