// How a run goes, with a peer made up. No time is asserted.
#include "bench/bench.h"

#include <omp.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/peak_memory.h"
#include "bench/statistics.h"

namespace qkv::bench {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

BenchCase tiny() {
  BenchCase one;
  one.batch = 1;
  one.heads = 2;
  one.tokens = 9;
  one.width = 4;
  return one;
}

/// Answers with what our own engine makes of the call, plus `error`.
class MadeUpCall : public TimedCall {
 public:
  MadeUpCall(PeerCall call, float error, int& runs)
      : call_(std::move(call)), error_(error), runs_(runs) {}
  void run() override {
    ++runs_;
    const auto query = call_.inputs.at("query").to<float, 4>("query");
    const auto key = call_.inputs.at("key").to<float, 4>("key");
    const auto value = call_.inputs.at("value").to<float, 4>("value");
    output_ = Tensor<float, 4>(query.shape());
    AttentionInputs<float> inputs;
    inputs.query = query.view();
    inputs.key = key.view();
    inputs.value = value.view();
    engine::forward(inputs, AttentionOutputs<float>{output_.view(), {}, {}});
    output_.elements().back() += error_;
  }
  TensorFile results() const override {
    TensorFile results;
    results.tensors["output"] = store(output_.view());
    return results;
  }
  std::string form() const override { return "made up"; }

 private:
  PeerCall call_;
  float error_;
  int& runs_;
  Tensor<float, 4> output_;
};

class MadeUpPeer : public TimedPeer {
 public:
  explicit MadeUpPeer(float error) : error_(error) {}
  std::vector<std::string> describe() const override { return {"made up"}; }
  std::vector<std::unique_ptr<TimedCall>> prepare(const PeerCall& call, int threads) override {
    threads_ = threads;
    std::vector<std::unique_ptr<TimedCall>> forms;
    forms.push_back(std::make_unique<MadeUpCall>(call, error_, runs_));
    return forms;
  }
  int runs() const { return runs_; }
  int threads() const { return threads_; }

 private:
  float error_;
  int runs_ = 0;
  int threads_ = 0;
};

void ignore(std::string_view /*doing*/) {}

TEST(Bench, RowHoldsEveryContestant) {
  MadeUpPeer peer(0);
  Bench bench({.threads = 2, .rounds = 3}, {.torch = &peer}, ignore);
  const BenchRow row = bench.measure(tiny());
  EXPECT_TRUE(row.passed());
  EXPECT_EQ(row.threads, 2);
  EXPECT_GE(row.rounds, 3);
  ASSERT_TRUE(row.peer);
  EXPECT_GT(row.ours.best, 0);
  EXPECT_GE(row.ours.median, row.ours.best);
  EXPECT_GT(row.peer->ratio, 0);
  EXPECT_EQ(row.peer->form, "made up");
  EXPECT_GE(row.oracle.runs, 2);  // the first, and one in a round
  EXPECT_GT(row.oracle.seconds(tiny()), 0);
  EXPECT_EQ(peer.threads(), 2);
  EXPECT_GE(peer.runs(), 3);
  // The limit was probed in the rounds.
  ASSERT_EQ(bench.limits().size(), 1U);
  EXPECT_EQ(bench.limits()[0].kind, LimitKind::MultiplyAddFloat32);
  EXPECT_EQ(bench.limits()[0].threads, 2);
  EXPECT_GT(bench.limits()[0].best, 0);
}

TEST(Bench, CaseMayHaveItsOwnThreads) {
  MadeUpPeer peer(0);
  Bench bench({.threads = 2, .rounds = 1}, {.torch = &peer}, ignore);
  BenchCase one = tiny();
  one.threads = 1;
  EXPECT_EQ(bench.measure(one).threads, 1);
  EXPECT_EQ(peer.threads(), 1);
}

TEST(Bench, WrongResultOfThePeerIsNotMeasured) {
  MadeUpPeer peer(0.5F);
  Bench bench({.threads = 1, .rounds = 3}, {.torch = &peer}, ignore);
  const BenchRow row = bench.measure(tiny());
  EXPECT_FALSE(row.passed());
  EXPECT_TRUE(row.ours.check.passed());
  EXPECT_FALSE(row.peer->check.passed());
  EXPECT_EQ(peer.runs(), 1);
  EXPECT_EQ(row.rounds, 0);
}

TEST(Bench, WithoutAPeerOursIsMeasured) {
  Bench bench({.threads = 1, .rounds = 1}, {}, ignore);
  const BenchRow row = bench.measure(tiny());
  EXPECT_TRUE(row.passed());
  EXPECT_FALSE(row.peer);
  EXPECT_GT(row.ours.best, 0);
}

/// Answers `answers` times as a process would, and then has ended.
class EndingCall : public MadeUpCall {
 public:
  EndingCall(PeerCall call, int answers, int& runs)
      : MadeUpCall(std::move(call), 0, runs), answers_(answers) {}
  void run() override {
    if (answers_-- == 0) throw std::runtime_error("python: ended without an answer");
    MadeUpCall::run();
  }
  std::optional<MeasuredElsewhere> measured_elsewhere() const override {
    return MeasuredElsewhere{7.0, 4096};
  }

 private:
  int answers_;
};

/// Stands for FlexAttention: gives what our engine makes of the mask as a tensor.
class EndingPeer : public TimedPeer {
 public:
  explicit EndingPeer(int answers) : answers_(answers) {}
  std::vector<std::string> describe() const override { return {"ending"}; }
  std::vector<std::unique_ptr<TimedCall>> prepare(const PeerCall& call, int /*threads*/) override {
    EXPECT_TRUE(call.rule);
    EXPECT_EQ(call.rule->kind, PositionRule::Kind::Documents);
    EXPECT_EQ(call.rule->size, kBenchDocument);
    std::vector<std::unique_ptr<TimedCall>> forms;
    forms.push_back(std::make_unique<EndingCall>(call, answers_, runs_));
    return forms;
  }

 private:
  int answers_;
  int runs_ = 0;
};

BenchCase one_document() {
  BenchCase one = tiny();  // shorter than a document: nothing is hidden
  one.mask = BenchMask::Documents512;
  return one;
}

TEST(Bench, WhatAnotherProcessMeasuredCounts) {
  EndingPeer flex(1'000'000);
  Bench bench({.threads = 1, .rounds = 2}, {.flex = &flex}, ignore);
  const BenchRow row = bench.measure(one_document());
  ASSERT_TRUE(row.flex);
  EXPECT_EQ(row.flex->best, 7.0);
  EXPECT_EQ(row.flex->median, 7.0);
  EXPECT_EQ(row.flex->extra_memory, 4096U);
  EXPECT_GT(row.flex->ratio, 1);
}

TEST(Bench, FlexAttentionThatEndsIsNotMeasuredAndSaysWhy) {
  for (const int answers : {0, 5}) {  // at once, and in the rounds
    EndingPeer flex(answers);
    Bench bench({.threads = 1, .rounds = 3}, {.flex = &flex}, ignore);
    const BenchRow row = bench.measure(one_document());
    EXPECT_TRUE(row.passed());
    EXPECT_FALSE(row.flex);
    EXPECT_EQ(row.flex_missing, "python: ended without an answer");
    EXPECT_GT(row.ours.best, 0);
    EXPECT_GE(row.rounds, 3);
  }
}

TEST(Bench, OptionsAreChecked) {
  const auto message = [](const BenchOptions& options) -> std::string {
    try {
      const Bench bench(options, {}, ignore);
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message({.threads = 0}), "bench: threads: expected 1 to 1024, got 0");
  EXPECT_THAT(message({.rounds = 0}), StartsWith("bench: rounds: expected 1 to "));
  EXPECT_THAT(message({.target = "MMX"}), HasSubstr("got \"MMX\""));
}

TEST(BenchLimits, EveryLimitIsMeasured) {
  LimitProbe probe;
  for (const int threads : {1, 2}) {
    for (const LimitKind kind :
         {LimitKind::MultiplyAddFloat32, LimitKind::MultiplyAddFloat64, LimitKind::Read}) {
      EXPECT_GT(probe.measure(kind, threads), 0) << name_of(kind);
    }
  }
  EXPECT_GE(LimitProbe::read_bytes(), std::size_t{256} << 20U);
}

TEST(BenchStatistics, MedianIsTheMiddleOrTheMeanOfTwo) {
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 3, 2}), 2.5);
  EXPECT_EQ(median({7}), 7);
}

TEST(BenchMemory, PeakIsWhatWasTouchedThoughFreedAgain) {
  constexpr std::size_t kBytes = std::size_t{64} << 20U;
  const auto peak = peak_extra_memory([] {
    std::vector<char> block(kBytes, 1);
    EXPECT_EQ(block.back(), 1);
  });
  if (!peak) return;  // not told by this system
  EXPECT_GE(*peak, kBytes - kBytes / 8);
  EXPECT_LE(*peak, kBytes + kBytes / 2);
}

}  // namespace
}  // namespace qkv::bench
