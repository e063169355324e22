// The plan of a call: blocks counted by hand and against the mask, and that a call runs as planned.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/broadcast.h"
#include "qkv/kv_cache.h"
#include "tests/engine/run.h"
#include "tests/engine/simd_targets.h"

namespace qkv {
namespace {

using cases::AttentionCase;
using cases::CaseShape;
using cases::Feature;
using engine::BlockCounts;
using engine::BlockKind;
using testing::HasSubstr;
using testing::ThrowsMessage;

class EnginePlan : public testing::TestWithParam<std::string> {
 protected:
  /// Of one head without a group.
  engine::Plan plan_of(const CaseShape& shape, const Mask& mask) {
    auto data = cases::make_case<float>({shape, {}});
    data.options.mask = mask;
    return engine::plan(data.inputs(), options_);
  }

  engine::Options options_{.threads = 2, .target = GetParam()};
};

INSTANTIATE_TEST_SUITE_P(Simd, EnginePlan, testing::ValuesIn(test::simd_targets()),
                         [](const auto& target) { return target.param; });

struct Expected {
  Index hidden;
  Index partial;
  Index full;
  Index visible_pairs;
};

void expect_counts(const BlockCounts& counts, const Expected& expected) {
  EXPECT_EQ(counts.hidden, expected.hidden);
  EXPECT_EQ(counts.partial, expected.partial);
  EXPECT_EQ(counts.full, expected.full);
  EXPECT_EQ(counts.visible_pairs, expected.visible_pairs);
}

constexpr CaseShape kThreeSegments{1, 1, 1, 768, 768, 2, 2};

TEST_P(EnginePlan, CountsACausalTriangle) {
  const engine::Plan plan = plan_of(kThreeSegments, Mask::causal());
  EXPECT_EQ(plan.target, GetParam());
  EXPECT_EQ(plan.block_keys, 256);
  // A block of R rows from row R·r on is full in keys [k, k + 256) where R·r >= k + 255, hidden where R·r + R - 1 < k.
  // R = 12: 22 + 22 + 22 are partial, 0 + 21 + 42 hidden. R = 6: 43 + 44 + 43 and 0 + 42 + 85.
  const Index visible = 768 * 769 / 2;
  ASSERT_TRUE(plan.block_rows == 12 || plan.block_rows == 6);
  expect_counts(plan.total, plan.block_rows == 12 ? Expected{63, 66, 63, visible}
                                                  : Expected{127, 130, 127, visible});
  EXPECT_EQ(plan.total.pairs, 768 * 768);
  EXPECT_NEAR(plan.total.visible_fraction(), 0.5 + 0.5 / 768, 1e-12);
}

TEST_P(EnginePlan, CountsADiagonalWindow) {
  const engine::Plan plan = plan_of(kThreeSegments, Mask::sliding_window({0, 0}));
  // Every block sees the segment that its rows lie in; the two that lie across a border see two.
  expect_counts(plan.total,
                plan.block_rows == 12 ? Expected{126, 66, 0, 768} : Expected{254, 130, 0, 768});
}

TEST_P(EnginePlan, CountsLengthsByHead) {
  const engine::Plan plan = plan_of({3, 2, 2, 12, 512, 2, 2}, Mask::key_lengths({256, 300, 0}));
  const Index blocks = 12 / plan.block_rows;
  ASSERT_EQ(plan.heads.size(), 6U);
  for (std::size_t i = 0; i < 6; ++i) {
    const engine::HeadPlan& head = plan.heads[i];
    EXPECT_EQ(head.sample, static_cast<Index>(i / 2));
    EXPECT_EQ(head.kv_head, static_cast<Index>(i % 2));
    const Expected expected[] = {
        {blocks, 0, blocks, 12 * 256}, {0, blocks, blocks, 12 * 300}, {2 * blocks, 0, 0, 0}};
    expect_counts(head.blocks, expected[i / 2]);
  }
  expect_counts(plan.total, {6 * blocks, 2 * blocks, 4 * blocks, 2 * 12 * (256 + 300)});
}

TEST_P(EnginePlan, OfARaggedLastSegmentIsFullWhereAllItsKeysAreSeen) {
  const engine::Plan plan = plan_of({1, 1, 1, 7, 300, 2, 2}, Mask());
  EXPECT_EQ(plan.total.hidden + plan.total.partial, 0);
  EXPECT_EQ(plan.total.visible_pairs, 7 * 300);
  EXPECT_EQ(plan.total.visible_fraction(), 1);
}

/// Every block against the pairs that the mask and the bias show.
TEST_P(EnginePlan, ClassifiesWhatTheMaskShows) {
  std::vector<AttentionCase> all = cases::alone_and_in_pairs({2, 4, 2, 7, 21, 1, 1});
  for (const Feature feature : cases::all_features()) {
    all.push_back({{2, 4, 2, 50, 530, 1, 1}, {feature}, 7});
  }
  for (const AttentionCase& one : all) {
    const CaseShape& shape = one.shape;
    const auto data = cases::make_case<double>(one);
    const AttentionInputs<double> inputs = data.inputs();
    const engine::Plan plan = engine::plan(inputs, options_);
    const BoundMask mask =
        inputs.mask.bind("test", {shape.batch, shape.heads, shape.queries, shape.keys});
    const auto sees = [&](Index b, Index h, Index t, Index s) {
      return mask.visible(b, h, t, s) &&
             !(inputs.bias && std::isinf(broadcast_at(*inputs.bias, b, h, t, s)));
    };
    for (const engine::HeadPlan& head : plan.heads) {
      const engine::BlockMap map = engine::map_blocks(inputs, head.sample, head.kv_head, options_);
      BlockCounts counts;
      for (Index row = 0; row < map.rows; ++row) {
        for (Index segment = 0; segment < map.segments; ++segment) {
          Index pairs = 0;
          Index visible = 0;
          const Index last = std::min((row + 1) * plan.block_rows, plan.rows);
          for (Index r = row * plan.block_rows; r < last; ++r) {
            for (Index s = 256 * segment; s < std::min(256 * segment + 256, shape.keys); ++s) {
              ++pairs;
              visible += sees(head.sample, head.kv_head * 2 + r % 2, r / 2, s) ? 1 : 0;
            }
          }
          const BlockKind kind = visible == 0       ? BlockKind::Hidden
                                 : visible == pairs ? BlockKind::Full
                                                    : BlockKind::Partial;
          ASSERT_EQ(map(row, segment), kind) << one.name() << ": " << row << ' ' << segment;
          counts.hidden += kind == BlockKind::Hidden ? 1 : 0;
          counts.partial += kind == BlockKind::Partial ? 1 : 0;
          counts.full += kind == BlockKind::Full ? 1 : 0;
          counts.visible_pairs += visible;
        }
      }
      expect_counts(head.blocks,
                    {counts.hidden, counts.partial, counts.full, counts.visible_pairs});
    }
  }
}

TEST_P(EnginePlan, FewRowsAreDividedByKeysAndManyByTiles) {
  auto few = cases::make_case<float>({{1, 4, 2, 3, 2000, 64, 64}, {}});
  engine::Plan plan = engine::plan(few.inputs(), options_);
  EXPECT_EQ(plan.division, engine::Division::Keys);
  EXPECT_EQ(plan.rows, 6);
  EXPECT_EQ(plan.tiles, 1);
  EXPECT_GT(plan.key_parts, 1);
  EXPECT_EQ(plan.threads, 2);
  plan = engine::plan(few.inputs(), options_, true);  // weights need all keys of a row
  EXPECT_EQ(plan.division, engine::Division::Tiles);

  auto many = cases::make_case<float>({{1, 4, 2, 300, 300, 8, 8}, {}});
  plan = engine::plan(many.inputs(), options_);
  EXPECT_EQ(plan.division, engine::Division::Tiles);
  EXPECT_EQ(plan.key_parts, 1);
  EXPECT_EQ(plan.tile_rows % plan.block_rows, 0);
  EXPECT_EQ(plan.tiles, (600 + plan.tile_rows - 1) / plan.tile_rows);
}

TEST_P(EnginePlan, TheWorkspaceIsWhatACallTakes) {
  for (const CaseShape& shape : {CaseShape{1, 4, 2, 3, 2000, 64, 64}, {2, 4, 2, 300, 300, 8, 9}}) {
    for (const bool with_weights : {false, true}) {
      const auto data = cases::make_case<BFloat16>({shape, {Feature::CausalBottomRight}});
      engine::Workspace workspace;
      engine::Options options = options_;
      options.workspace = &workspace;
      cases::run_engine(data.inputs(), options, with_weights);
      EXPECT_EQ(workspace.bytes(),
                engine::plan(data.inputs(), options_, with_weights).workspace_bytes);
    }
  }
}

TEST_P(EnginePlan, OfNothingIsEmpty) {
  for (const CaseShape& shape :
       {CaseShape{0, 4, 2, 5, 6, 3, 7}, {2, 4, 2, 0, 6, 3, 7}, {2, 0, 0, 5, 6, 3, 7}}) {
    const auto data = cases::make_case<float>({shape, {}});
    const engine::Plan plan = engine::plan(data.inputs(), options_);
    EXPECT_TRUE(plan.heads.empty());
    EXPECT_EQ(plan.workspace_bytes, 0U);
    EXPECT_EQ(plan.total.visible_fraction(), 0);
  }
  const auto no_keys = cases::make_case<float>({{1, 2, 1, 30, 0, 3, 7}, {}});
  EXPECT_EQ(engine::plan(no_keys.inputs(), options_).heads.size(), 1U);
  EXPECT_TRUE(engine::map_blocks(no_keys.inputs(), 0, 0, options_).kinds.empty());
}

TEST_P(EnginePlan, OfBackwardCountsACausalTriangle) {
  auto data = cases::make_case<float>({kThreeSegments, {}});
  data.options.mask = Mask::causal();
  const engine::Plan plan = engine::plan_backward(data.inputs(), options_);
  EXPECT_EQ(plan.target, GetParam());
  EXPECT_EQ(plan.division, engine::Division::Chunks);
  EXPECT_EQ(plan.block_keys, 192);
  // A block of R rows from row R·r on is full in keys [k, k + 192) where R·r >= k + 191, hidden where R·r + R - 1 < k.
  // R = 12: 48 + 32 + 16 + 0 are full, as many hidden, 16 each partial. R = 6: 96 + 64 + 32 + 0 and 32 each.
  const Index visible = 768 * 769 / 2;
  ASSERT_TRUE(plan.block_rows == 12 || plan.block_rows == 6);
  expect_counts(plan.total, plan.block_rows == 12 ? Expected{96, 64, 96, visible}
                                                  : Expected{192, 128, 192, visible});
  EXPECT_EQ(plan.tiles, (768 + plan.tile_rows - 1) / plan.tile_rows);
  EXPECT_EQ(plan.tile_rows % plan.block_rows, 0);
  const engine::BlockMap map = engine::map_backward_blocks(data.inputs(), 0, 0, options_);
  EXPECT_EQ(map.rows, 768 / plan.block_rows);
  EXPECT_EQ(map.segments, 4);
  EXPECT_EQ(map(0, 0), BlockKind::Partial);
  EXPECT_EQ(map(0, 1), BlockKind::Hidden);
  EXPECT_EQ(map(map.rows - 1, 0), BlockKind::Full);
}

TEST_P(EnginePlan, OfBackwardHandsOutHeadsWholeWhileThereIsOneForEachThread) {
  const auto data = cases::make_case<float>({{1, 5, 5, 300, 1200, 8, 8}, {}});
  const engine::Plan plan = engine::plan_backward(data.inputs(), options_);
  EXPECT_EQ(plan.threads, 2);
  EXPECT_EQ(plan.whole_heads, 4);  // the fifth in chunks
  EXPECT_GT(plan.key_parts, 1);
}

/// Backward goes through other blocks of the same pairs.
TEST_P(EnginePlan, OfBackwardSeesThePairsOfForward) {
  for (const Feature feature : cases::all_features()) {
    const auto data = cases::make_case<double>({{2, 4, 2, 50, 530, 1, 1}, {feature}, 7});
    const engine::Plan forward = engine::plan(data.inputs(), options_);
    const engine::Plan backward = engine::plan_backward(data.inputs(), options_);
    EXPECT_EQ(backward.total.pairs, forward.total.pairs);
    EXPECT_EQ(backward.total.visible_pairs, forward.total.visible_pairs);
  }
}

TEST_P(EnginePlan, TheWorkspaceOfBackwardIsWhatACallTakes) {
  const auto data =
      cases::make_case<double>({{2, 4, 2, 100, 700, 8, 9}, {Feature::CausalBottomRight}});
  const auto gradient = cases::random_tensor<double, 4>({2, 4, 100, 9}, 5);
  engine::Workspace workspace;
  engine::Options options = options_;
  options.workspace = &workspace;
  cases::run_engine_backward(data.inputs(), {gradient.view(), {}, {}}, options);
  const std::size_t forward = engine::plan(data.inputs(), options_).workspace_bytes;
  const std::size_t backward = engine::plan_backward(data.inputs(), options_).workspace_bytes;
  EXPECT_EQ(workspace.bytes(), std::max(forward, backward));
  EXPECT_GT(backward, forward);
}

/// Two sequences of 300 and 256 tokens, 2 heads on one kv head.
template <class T>
KvCache<T> filled_cache(const std::string& target) {
  KvCache<T> cache({.batch = 2, .kv_heads = 1, .key_width = 3, .value_width = 5, .target = target});
  const auto key = cases::random_tensor<T, 4>({2, 1, 300, 3}, 1);
  const auto value = cases::random_tensor<T, 4>({2, 1, 300, 5}, 2);
  cache.append(key.view(), value.view());
  cache.truncate(1, 256);
  return cache;
}

TEST_P(EnginePlan, OfACacheCountsWhatTheLastTokensSee) {
  const auto cache = filled_cache<BFloat16>(GetParam());
  const auto query = cases::random_tensor<BFloat16, 4>({2, 2, 3, 3}, 3);
  const AttentionInputs<BFloat16> inputs{.query = query.view()};
  const engine::Plan plan = engine::plan(cache, inputs, options_);
  EXPECT_EQ(plan.rows, 6);
  EXPECT_EQ(plan.division, engine::Division::Keys);
  ASSERT_EQ(plan.heads.size(), 2U);
  // Tokens 297, 298 and 299 see themselves and all before them; 253, 254 and 255 of the shorter sequence.
  const Index blocks = 6 / std::min<Index>(plan.block_rows, 6);
  expect_counts(plan.heads[0].blocks, {0, blocks, blocks, 2 * (298 + 299 + 300)});
  expect_counts(plan.heads[1].blocks, {blocks, blocks, 0, 2 * (254 + 255 + 256)});
  const engine::BlockMap map = engine::map_blocks(cache, inputs, 1, 0, options_);
  EXPECT_EQ(map.kinds, (std::vector<BlockKind>{BlockKind::Partial, BlockKind::Hidden}));
}

TEST_P(EnginePlan, TheWorkspaceOfACacheIsWhatACallTakes) {
  const auto cache = filled_cache<float>(GetParam());
  for (const Index queries : {3, 200}) {
    const auto query = cases::random_tensor<float, 4>({2, 2, queries, 3}, 3);
    const AttentionInputs<float> inputs{.query = query.view()};
    Tensor<float, 4> context({2, 2, queries, 5});
    engine::Workspace workspace;
    engine::Options options = options_;
    options.workspace = &workspace;
    engine::forward(cache, inputs, {.context = context.view()}, options);
    EXPECT_EQ(workspace.bytes(), engine::plan(cache, inputs, options_).workspace_bytes);
  }
}

TEST_P(EnginePlan, TellsWhatIsDropped) {
  const auto data = cases::make_case<float>({{1, 2, 2, 5, 6, 3, 7}, {}});
  engine::Options options = options_;
  EXPECT_FALSE(engine::plan(data.inputs(), options).dropout);
  options.dropout = {.probability = 0, .seed = 1};
  EXPECT_FALSE(engine::plan(data.inputs(), options).dropout);
  options.dropout->probability = 0.25;
  ASSERT_TRUE(engine::plan(data.inputs(), options).dropout);
  EXPECT_EQ(engine::plan(data.inputs(), options).dropout->probability, 0.25);
  EXPECT_TRUE(engine::plan_backward(data.inputs(), options).dropout);
}

TEST(EnginePlanErrors, NameTheArgument) {
  const auto data = cases::make_case<float>({{2, 4, 2, 5, 6, 3, 7}, {}});
  AttentionInputs<float> inputs = data.inputs();
  const auto refused = [&](const auto& call, const std::string& message) {
    EXPECT_THAT(call, ThrowsMessage<std::invalid_argument>(HasSubstr(message)));
  };
  refused([&] { engine::map_blocks(inputs, 2, 0); },
          "engine::map_blocks: sample: expected an index below B=2, got 2");
  refused([&] { engine::map_blocks(inputs, 0, -1); },
          "engine::map_blocks: kv head: expected an index below Hkv=2, got -1");
  refused([&] { engine::map_backward_blocks(inputs, 2, 0); },
          "engine::map_backward_blocks: sample: expected an index below B=2, got 2");
  inputs.mask = Mask::causal();
  refused([&] { engine::plan(inputs); }, "engine::plan: mask: expected a corner");
  refused([&] { engine::plan_backward(inputs); }, "engine::plan_backward: mask: expected a corner");
  const auto cache = filled_cache<float>(engine::targets().front());
  refused([&] { engine::plan(cache, inputs); },
          "engine::plan(cache): key, value: expected none, as the cache holds them, got some");
}

}  // namespace
}  // namespace qkv
