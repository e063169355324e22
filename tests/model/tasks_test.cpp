// What the tasks ask, read from their sequences.
#include "model/tasks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>

#include "qkv/error.h"

namespace qkv {
namespace {

using testing::ElementsAre;

std::vector<Index> row(const Tensor<Index, 2>& tensor, Index sequence) {
  const Index* first = &tensor(sequence, 0);
  return {first, first + tensor.shape(1)};
}

bool equal(const TokenBatch& a, const TokenBatch& b) {
  const auto same = [](const auto& x, const auto& y) {
    return std::equal(x.elements().begin(), x.elements().end(), y.elements().begin(),
                      y.elements().end());
  };
  return same(a.tokens, b.tokens) && same(a.targets, b.targets) &&
         a.keep.has_value() == b.keep.has_value() && (!a.keep || same(*a.keep, *b.keep));
}

std::vector<Task> all_tasks() {
  return {copy_task(), recall_task({.joined = false}),
          recall_task({.padding = RecallPadding{.misleading = true}}), induction_task(),
          text_task(default_text(), 16)};
}

TEST(Tasks, TheSeedDeterminesTheBatches) {
  for (const Task& task : all_tasks()) {
    Random a(5), b(5), c(6);
    const TokenBatch first = task.training(4, a);
    EXPECT_TRUE(equal(first, task.training(4, b))) << task.name;
    EXPECT_FALSE(equal(first, task.training(4, c))) << task.name;
    EXPECT_FALSE(equal(first, task.training(4, a))) << task.name;
  }
}

TEST(Tasks, TokensAndTargetsAreOfTheVocabulary) {
  for (const Task& task : all_tasks()) {
    Random random(5);
    for (const TokenBatch& batch : {task.training(20, random), task.held_out(20, random)}) {
      ASSERT_EQ(batch.tokens.shape(), (Extents<2>{20, task.tokens})) << task.name;
      ASSERT_EQ(batch.targets.shape(), batch.tokens.shape()) << task.name;
      for (const Index token : batch.tokens.elements()) {
        ASSERT_TRUE(token >= 0 && token < task.vocabulary) << task.name << ' ' << token;
      }
      for (const Index target : batch.targets.elements()) {
        ASSERT_TRUE(target >= kIgnoredTarget && target < task.vocabulary) << task.name;
      }
    }
  }
}

TEST(CopyTask, TargetsAreTheSymbolsBeforeTheSeparator) {
  const Task task = copy_task({.symbols = 5, .length = 3});
  Random random(1);
  const TokenBatch batch = task.training(8, random);
  for (Index b = 0; b < 8; ++b) {
    const std::vector<Index> x = row(batch.tokens, b);
    EXPECT_THAT(x, ElementsAre(x[0], x[1], x[2], 5, x[0], x[1]));
    EXPECT_THAT(row(batch.targets, b), ElementsAre(-1, -1, -1, x[0], x[1], x[2]));
  }
}

/// The value that each key of a sequence was given, where it is kept.
std::map<Index, Index> pairs_of(const TokenBatch& batch, Index sequence, const RecallOptions& o) {
  std::map<Index, Index> pairs;
  const std::vector<Index> tokens = row(batch.tokens, sequence);
  for (Index t = 0; t < static_cast<Index>(tokens.size()); ++t) {
    if (batch.keep && !(*batch.keep)(sequence, t)) continue;
    const Index token = tokens[static_cast<std::size_t>(t)];
    if (o.joined && token >= o.keys + o.values) {
      const Index pair = token - o.keys - o.values;
      EXPECT_TRUE(pairs.emplace(pair / o.values, o.keys + pair % o.values).second);
    } else if (!o.joined && token >= o.keys && token < o.keys + o.values) {
      EXPECT_TRUE(pairs.emplace(tokens[static_cast<std::size_t>(t) - 1], token).second);
    }
  }
  return pairs;
}

class RecallTaskTest : public testing::TestWithParam<RecallOptions> {};

TEST_P(RecallTaskTest, TargetsAreTheValuesOfTheKeysAsked) {
  const RecallOptions& options = GetParam();
  Random random(3);
  const TokenBatch batch = recall_task(options).training(50, random);
  ASSERT_EQ(batch.keep.has_value(), options.padding.has_value());
  std::set<std::size_t> counts;
  for (Index b = 0; b < 50; ++b) {
    const std::map<Index, Index> pairs = pairs_of(batch, b, options);
    counts.insert(pairs.size());
    Index asked = 0;
    for (Index t = 0; t < batch.tokens.shape(1); ++t) {
      if (batch.targets(b, t) == kIgnoredTarget) continue;
      ++asked;
      EXPECT_EQ(batch.targets(b, t), pairs.at(batch.tokens(b, t)));
      EXPECT_TRUE(!batch.keep || (*batch.keep)(b, t));
    }
    EXPECT_EQ(asked, options.queries);
  }
  const auto fewest =
      static_cast<std::size_t>(options.padding ? options.padding->fewest_pairs : options.pairs);
  EXPECT_EQ(*counts.begin(), fewest);
  EXPECT_EQ(*counts.rbegin(), static_cast<std::size_t>(options.pairs));
}

TEST_P(RecallTaskTest, PaddingLiesOnItsSide) {
  const RecallOptions& options = GetParam();
  if (!options.padding) return;
  Random random(3);
  const TokenBatch batch = recall_task(options).training(50, random);
  const Index tokens = batch.tokens.shape(1);
  const bool left = options.padding->side == PaddingSide::Left;
  for (Index b = 0; b < 50; ++b) {
    for (Index t = 1; t < tokens; ++t) {
      const bool before = (*batch.keep)(b, t - 1);
      const bool here = (*batch.keep)(b, t);
      EXPECT_TRUE(left ? here || !before : before || !here);
    }
    EXPECT_TRUE((*batch.keep)(b, left ? tokens - 1 : 0));
  }
}

// Where padding misleads, it gives keys of the sequence other values; else all of it is one token.
TEST_P(RecallTaskTest, PaddingHoldsWhatItShould) {
  const RecallOptions& options = GetParam();
  if (!options.padding) return;
  Random random(3);
  const Task task = recall_task(options);
  const TokenBatch batch = task.training(50, random);
  Index seen = 0;
  for (Index b = 0; b < 50; ++b) {
    const std::map<Index, Index> pairs = pairs_of(batch, b, options);
    for (Index t = 0; t < batch.tokens.shape(1); ++t) {
      if ((*batch.keep)(b, t)) continue;
      ++seen;
      const Index token = batch.tokens(b, t);
      if (!options.padding->misleading) {
        EXPECT_EQ(token, task.vocabulary - 1);
      } else if (options.joined) {
        const Index pair = token - options.keys - options.values;
        EXPECT_NE(pairs.at(pair / options.values), options.keys + pair % options.values);
      } else if (token >= options.keys) {
        EXPECT_NE(pairs.at(batch.tokens(b, t - 1)), token);
      } else {
        EXPECT_TRUE(pairs.contains(token));
      }
    }
  }
  EXPECT_GT(seen, 0);
}

INSTANTIATE_TEST_SUITE_P(
    Options, RecallTaskTest,
    testing::Values(RecallOptions{.joined = false}, RecallOptions{.queries = 3},
                    RecallOptions{.pairs = 4, .joined = false, .padding = RecallPadding{}},
                    RecallOptions{.pairs = 4,
                                  .joined = false,
                                  .padding = RecallPadding{.side = PaddingSide::Right,
                                                           .fewest_pairs = 2,
                                                           .misleading = true}},
                    RecallOptions{.pairs = 4, .padding = RecallPadding{}},
                    RecallOptions{.pairs = 4, .padding = RecallPadding{.misleading = true}}),
    [](const auto& test) { return std::to_string(test.index); });

TEST(InductionTask, TargetsFollowWhatTheSequenceRepeats) {
  const InductionOptions options{
      .symbols = 9, .tokens = 20, .shortest_period = 3, .longest_period = 7};
  Random random(2);
  const TokenBatch batch = induction_task(options).training(50, random);
  std::set<std::ptrdiff_t> periods;
  for (Index b = 0; b < 50; ++b) {
    const std::vector<Index> tokens = row(batch.tokens, b);
    const std::vector<Index> targets = row(batch.targets, b);
    const std::set<Index> symbols(tokens.begin(), tokens.end());
    const auto period = static_cast<std::ptrdiff_t>(symbols.size());
    periods.insert(period);
    for (std::ptrdiff_t t = 0; t < 20; ++t) {
      const auto at = static_cast<std::size_t>(t);
      if (t < period) {
        EXPECT_EQ(targets[at], kIgnoredTarget);
      } else {
        const auto earlier = static_cast<std::size_t>(t - period);
        EXPECT_EQ(tokens[at], tokens[earlier]);
        EXPECT_EQ(targets[at], tokens[earlier + 1]);
      }
    }
  }
  EXPECT_THAT(periods, ElementsAre(3, 4, 5, 6, 7));
}

TEST(TextTask, TargetsAreTheNextBytesAndTheLastTenthIsHeldOut) {
  std::string text;
  for (int i = 0; i < 200; ++i) text += static_cast<char>(i);
  const Task task = text_task(text, 4);
  EXPECT_EQ(task.vocabulary, 256);
  Random random(1);
  std::set<Index> trained;
  std::set<Index> held_out;
  const auto read = [](const TokenBatch& batch, std::set<Index>& bytes) {
    for (Index b = 0; b < batch.tokens.shape(0); ++b) {
      for (Index t = 0; t < batch.tokens.shape(1); ++t) {
        EXPECT_EQ(batch.tokens(b, t), batch.tokens(b, 0) + t);
        EXPECT_EQ(batch.targets(b, t), batch.tokens(b, t) + 1);
        bytes.insert({batch.tokens(b, t), batch.targets(b, t)});
      }
    }
  };
  read(task.training(2000, random), trained);
  read(task.held_out(2000, random), held_out);
  EXPECT_EQ(*trained.begin(), 0);
  EXPECT_EQ(*trained.rbegin(), 179);
  EXPECT_EQ(trained.size(), 180U);
  EXPECT_EQ(*held_out.begin(), 180);
  EXPECT_EQ(*held_out.rbegin(), 199);
  EXPECT_EQ(held_out.size(), 20U);
}

TEST(Text, TheDefaultIsThatOfTheRepository) {
  const std::string path = QKV_SOURCE_DIR "/data/alice.txt";
  std::ifstream file(path, std::ios::binary);
  const std::string expected{std::istreambuf_iterator<char>(file), {}};
  EXPECT_GT(expected.size(), 100'000U);
  EXPECT_EQ(default_text(), expected);
  EXPECT_EQ(read_text(path), expected);
}

TEST(Text, AFileThatCannotBeReadIsAFileError) {
  EXPECT_THROW(read_text(QKV_SOURCE_DIR "/data/none.txt"), FileError);
  EXPECT_THROW(read_text(QKV_SOURCE_DIR "/data"), FileError);
}

}  // namespace
}  // namespace qkv
