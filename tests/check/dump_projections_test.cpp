// Dumps that hold x and weights: whatever their order in the file, q, k and v are x·Wᵀ + b.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "check/dump.h"
#include "tests/check/dump_files.h"

namespace qkv {
namespace {

using testing::constant;
using testing::heads_in;
using testing::stored;

constexpr Index kBatch = 2;
constexpr Index kTokens = 3;
constexpr Index kHeads = 4;
constexpr Index kKvHeads = 2;
constexpr Index kKeyWidth = 2;
constexpr Index kValueWidth = 3;
constexpr Index kModel = 5;

// Small integers, so that every sum is exact.
double weight_of(char kind, Index head, Index d, Index column) {
  return static_cast<double>((kind + 7 * head + 3 * d + 2 * column) % 11 - 5);
}
double bias_of(char kind, Index head, Index d) {
  return static_cast<double>((kind + 5 * head + d) % 7 - 3);
}
double input_at(Index b, Index t, Index column) {
  return static_cast<double>((b * 13 + t * 5 + column * 3) % 9 - 4);
}

/// A row of a weight: which of q, k and v, which head, which element of it.
struct Row {
  char kind;
  Index head;
  Index d;
};

std::vector<Row> rows_of(char kind, Index head) {
  std::vector<Row> rows;
  for (Index d = 0; d < (kind == 'v' ? kValueWidth : kKeyWidth); ++d)
    rows.push_back({kind, head, d});
  return rows;
}

std::vector<Row> rows_of(char kind) {
  std::vector<Row> rows;
  for (Index head = 0; head < (kind == 'q' ? kHeads : kKvHeads); ++head) {
    for (const Row& row : rows_of(kind, head)) rows.push_back(row);
  }
  return rows;
}

StoredTensor weight_tensor(const std::vector<Row>& rows, bool in_out) {
  const auto count = static_cast<Index>(rows.size());
  Tensor<double, 2> weight(in_out ? Extents<2>{kModel, count} : Extents<2>{count, kModel});
  for (Index r = 0; r < count; ++r) {
    const auto [kind, head, d] = rows[static_cast<std::size_t>(r)];
    for (Index c = 0; c < kModel; ++c) {
      (in_out ? weight(c, r) : weight(r, c)) = weight_of(kind, head, d, c);
    }
  }
  return store(weight.view());
}

StoredTensor bias_tensor(const std::vector<Row>& rows) {
  std::vector<double> values;
  for (const auto& [kind, head, d] : rows) values.push_back(bias_of(kind, head, d));
  return stored<double, 1>({static_cast<Index>(rows.size())}, values);
}

StoredTensor input_tensor(Index tokens) {
  Tensor<double, 3> x({kBatch, tokens, kModel});
  for (Index b = 0; b < kBatch; ++b) {
    for (Index t = 0; t < tokens; ++t) {
      for (Index c = 0; c < kModel; ++c) x(b, t, c) = input_at(b, t, c);
    }
  }
  return store(x.view());
}

TensorFile file_without_weights() {
  TensorFile file;
  file.metadata = {{"heads", "4"}};
  file.tensors["x"] = input_tensor(kTokens);
  file.tensors["out"] = constant<4>({kBatch, kHeads, kTokens, kValueWidth});
  return file;
}

void expect_projected(const Tensor<double, 4>& heads, char kind, bool with_bias) {
  for (Index b = 0; b < heads.shape(0); ++b) {
    for (Index h = 0; h < heads.shape(1); ++h) {
      for (Index t = 0; t < heads.shape(2); ++t) {
        for (Index d = 0; d < heads.shape(3); ++d) {
          double sum = with_bias ? bias_of(kind, h, d) : 0;
          for (Index c = 0; c < kModel; ++c) sum += input_at(b, t, c) * weight_of(kind, h, d, c);
          ASSERT_EQ(heads(b, h, t, d), sum) << kind << b << h << t << d;
        }
      }
    }
  }
}

void expect_projected(const Dump& dump, bool with_bias) {
  ASSERT_EQ(dump.query.shape(), (Extents<4>{kBatch, kHeads, kTokens, kKeyWidth}));
  ASSERT_EQ(dump.key.shape(), (Extents<4>{kBatch, kKvHeads, dump.shape.keys, kKeyWidth}));
  ASSERT_EQ(dump.value.shape(), (Extents<4>{kBatch, kKvHeads, dump.shape.keys, kValueWidth}));
  expect_projected(dump.query, 'q', with_bias);
  expect_projected(dump.key, 'k', with_bias);
  expect_projected(dump.value, 'v', with_bias);
  EXPECT_FALSE(dump.has_heads);
  EXPECT_EQ(dump.projections->query_bias.has_value(), with_bias);
}

TEST(DumpProjections, WeightsApart) {
  for (const bool in_out : {false, true}) {
    SCOPED_TRACE(in_out);
    TensorFile file = file_without_weights();
    for (const char kind : {'q', 'k', 'v'}) {
      file.tensors[std::string("w") + kind] = weight_tensor(rows_of(kind), in_out);
    }
    expect_projected(read_dump(file), false);
    for (const char kind : {'q', 'k', 'v'}) {
      file.tensors[std::string("b") + kind] = bias_tensor(rows_of(kind));
    }
    expect_projected(read_dump(file), true);
    EXPECT_FALSE(read_dump(file).projections->packing);
    file.metadata["weight_layout"] = in_out ? "in-out" : "out-in";
    expect_projected(read_dump(file), true);
  }
}

TEST(DumpProjections, Packed) {
  std::vector<Row> by_input;
  for (const char kind : {'q', 'k', 'v'}) {
    for (const Row& row : rows_of(kind)) by_input.push_back(row);
  }
  std::vector<Row> by_head;
  for (Index head = 0; head < kKvHeads; ++head) {
    const std::pair<char, Index> parts[] = {
        {'q', 2 * head}, {'q', 2 * head + 1}, {'k', head}, {'v', head}};
    for (const auto& [kind, of_head] : parts) {
      for (const Row& row : rows_of(kind, of_head)) by_head.push_back(row);
    }
  }
  for (const bool in_out : {false, true}) {
    for (const auto& [packing, rows] : {std::pair{"by-input", by_input}, {"by-head", by_head}}) {
      SCOPED_TRACE(packing);
      TensorFile file = file_without_weights();
      file.metadata["kv_heads"] = "2";
      file.metadata["packing"] = packing;
      file.tensors["wqkv"] = weight_tensor(rows, in_out);
      file.tensors["bqkv"] = bias_tensor(rows);
      const Dump dump = read_dump(file);
      expect_projected(dump, true);
      EXPECT_EQ(dump.projections->packing,
                rows[4].kind == 'q' && rows[4].head == 2 ? Packing::ByInput : Packing::ByHead);
    }
  }
}

TEST(DumpProjections, CrossAttention) {
  TensorFile file = file_without_weights();
  file.tensors["x_kv"] = input_tensor(7);
  for (const char kind : {'q', 'k', 'v'}) {
    file.tensors[std::string("w") + kind] = weight_tensor(rows_of(kind), false);
  }
  const Dump dump = read_dump(file);
  EXPECT_EQ(dump.shape.keys, 7);
  EXPECT_TRUE(dump.projections->cross);
  expect_projected(dump, false);
}

/// What the code had and what x gives may differ: that is a finding, so both are kept.
TEST(DumpProjections, BesideTheHeads) {
  TensorFile file = file_without_weights();
  for (const char kind : {'q', 'k', 'v'}) {
    file.tensors[std::string("w") + kind] = weight_tensor(rows_of(kind), false);
  }
  file.tensors["q"] = heads_in("BHTD", {kBatch, kHeads, kTokens, kKeyWidth});
  file.tensors["k"] = heads_in("BHTD", {kBatch, kKvHeads, kTokens, kKeyWidth});
  file.tensors["v"] = heads_in("BHTD", {kBatch, kKvHeads, kTokens, kValueWidth});
  const Dump dump = read_dump(file);
  EXPECT_TRUE(dump.has_heads);
  EXPECT_EQ(dump.query(1, 3, 2, 1), testing::element_at(1, 3, 2, 1));
  EXPECT_EQ(dump.projections->query_weight(5, 4), weight_of('q', 2, 1, 4));
}

TEST(DumpProjections, OfTheOutput) {
  TensorFile file = file_without_weights();
  for (const char kind : {'q', 'k', 'v'}) {
    file.tensors[std::string("w") + kind] = weight_tensor(rows_of(kind), true);
  }
  // [H·Dv, D], with D = 5.
  Tensor<double, 2> weight({12, 5});
  for (Index r = 0; r < 12; ++r) {
    for (Index c = 0; c < 5; ++c) weight(r, c) = static_cast<double>(10 * r + c);
  }
  file.tensors["wo"] = store(weight.view());
  file.tensors["bo"] = stored<double, 1>({5}, {1, 2, 3, 4, 5});
  file.tensors["out"] = heads_in("TBD", {kBatch, 1, kTokens, kModel});
  const Dump dump = read_dump(file);
  EXPECT_EQ(dump.stage, OutStage::Projected);
  EXPECT_EQ(dump.output_projection->weight.shape(), (Extents<2>{5, 12}));
  EXPECT_EQ(dump.output_projection->weight(4, 11), 114);
  EXPECT_EQ((*dump.output_projection->bias)(4), 5);
  EXPECT_FALSE(dump.context);
  EXPECT_EQ(dump.output->shape(), (Extents<3>{kBatch, kTokens, kModel}));
  EXPECT_EQ((*dump.output)(1, 2, 3), testing::element_at(1, 0, 2, 3));
}

}  // namespace
}  // namespace qkv
