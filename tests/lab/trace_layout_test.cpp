// The lesson's own sizes: b=2, t=5, d=16, h=4, so Dh = 4. Strides follow from
//   projection [2,5,16]: 5·16, 16, 1
//   split      [2,4,5,4]: the batch's 80, a head's 4 columns, a token's 16, 1
//   context    [2,4,5,4]: 4·5·4, 5·4, 4, 1
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lab/trace.h"
#include "lab/trace_source.h"

namespace qkv {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kPlenty = 1e9;

lab::Trace trace_of(const lab::SizeOptions& sizes) {
  return lab::trace(lab::trace_sizes(sizes, kPlenty), kPlenty);
}

TEST(TraceLayout, SixShapesOfTheLesson) {
  const lab::Trace trace = trace_of({});
  std::vector<std::string> steps;
  for (const lab::LayoutRow& row : trace.layout) steps.push_back(row.step);
  ASSERT_THAT(steps, ElementsAre("projection", "split", "scores", "weights", "context", "merge"));

  const lab::LayoutRow& projection = trace.layout[0];
  EXPECT_EQ(projection.tensors, "Q, K, V");
  EXPECT_EQ(projection.count, 3);
  EXPECT_THAT(projection.shape, ElementsAre(2, 5, 16));
  EXPECT_THAT(projection.strides, ElementsAre(80, 16, 1));
  EXPECT_EQ(projection.bytes, 2 * 5 * 16 * 8);

  const lab::LayoutRow& split = trace.layout[1];
  EXPECT_THAT(split.shape, ElementsAre(2, 4, 5, 4));
  EXPECT_THAT(split.strides, ElementsAre(80, 4, 16, 1));
  EXPECT_FALSE(split.contiguous);
  EXPECT_EQ(split.storage, lab::Storage::View);

  EXPECT_THAT(trace.layout[2].shape, ElementsAre(2, 4, 5, 5));
  EXPECT_THAT(trace.layout[3].shape, ElementsAre(2, 4, 5, 5));
  EXPECT_EQ(trace.layout[3].bytes, 2 * 4 * 5 * 5 * 8);
  EXPECT_THAT(trace.layout[4].shape, ElementsAre(2, 4, 5, 4));
  EXPECT_THAT(trace.layout[4].strides, ElementsAre(80, 20, 4, 1));
  EXPECT_THAT(trace.layout[5].shape, ElementsAre(2, 5, 16));
  EXPECT_EQ(trace.layout[5].storage, lab::Storage::Copy);
}

TEST(TraceLayout, GroupedHeadsGetTheirOwnRows) {
  const lab::Trace trace = trace_of({.kv_heads = 2});
  EXPECT_EQ(trace.layout[0].tensors, "Q");
  EXPECT_EQ(trace.layout[1].tensors, "K, V");
  EXPECT_THAT(trace.layout[1].shape, ElementsAre(2, 5, 8));
  EXPECT_EQ(trace.layout[3].tensors, "K, V");
  EXPECT_THAT(trace.layout[3].shape, ElementsAre(2, 2, 5, 4));
}

TEST(TraceLayout, PlainViewAfterTheTransposeIsRefused) {
  const lab::ViewDemonstration view = trace_of({}).view;
  EXPECT_THAT(view.transposed.shape, ElementsAre(2, 5, 4, 4));
  EXPECT_THAT(view.transposed.strides, ElementsAre(80, 4, 20, 1));
  EXPECT_FALSE(view.transposed.contiguous);
  EXPECT_FALSE(view.strides.has_value());
  EXPECT_THAT(view.refusal, HasSubstr("view_as: shape: expected"));
  EXPECT_THAT(view.refusal, HasSubstr("got [2, 5, 16]"));
  EXPECT_THAT(view.contiguous_copy.strides, ElementsAre(80, 16, 4, 1));
  EXPECT_THAT(view.view_of_copy.shape, ElementsAre(2, 5, 16));
}

TEST(TraceLayout, OneTokenOrOneHeadNeedsNoCopy) {
  EXPECT_TRUE(trace_of({.tokens = 1}).view.strides.has_value());
  EXPECT_TRUE(trace_of({.heads = 1}).view.strides.has_value());
}

TEST(TraceLayout, WithoutProjectionsTheirShapeIsStillNamed) {
  const lab::Trace trace =
      lab::trace(lab::trace_typed({.query = "1 2", .key = "1 2; 3 4", .value = "5; 6"}), kPlenty);
  EXPECT_EQ(trace.layout[0].storage, lab::Storage::Absent);
  EXPECT_THAT(trace.layout[0].shape, ElementsAre(1, 1, 2));
}

}  // namespace
}  // namespace qkv
