#include "check/dump.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <tuple>

#include "tests/check/dump_files.h"
#include "tests/temporary_directory.h"

namespace qkv {
namespace {

using testing::constant;
using ::testing::Contains;
using testing::dump_of_heads;
using testing::dump_of_projections;
using testing::element_at;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::heads_in;
using ::testing::Not;
using testing::stored;

/// Every element tells its place.
void expect_places(const Tensor<double, 4>& tensor, const Extents<4>& shape) {
  ASSERT_EQ(tensor.shape(), shape);
  for (Index b = 0; b < shape[0]; ++b) {
    for (Index h = 0; h < shape[1]; ++h) {
      for (Index t = 0; t < shape[2]; ++t) {
        for (Index d = 0; d < shape[3]; ++d) {
          ASSERT_EQ(tensor(b, h, t, d), element_at(b, h, t, d)) << b << h << t << d;
        }
      }
    }
  }
}

class DumpLayout : public ::testing::TestWithParam<std::tuple<const char*, const char*>> {};

TEST_P(DumpLayout, ComesOutInOneOrder) {
  const auto [layout, out_layout] = GetParam();
  TensorFile file = dump_of_heads(layout, out_layout);
  file.tensors["dout"] = file.tensors["out2"] = file.tensors["out"];
  file.tensors["dq"] = file.tensors["q"];
  file.tensors["dk"] = file.tensors["k"];
  file.tensors["dv"] = file.tensors["v"];
  file.metadata = {{"layout", layout}, {"out_layout", out_layout}, {"heads", "4"}};
  const Dump dump = read_dump(file);
  EXPECT_EQ(dump.stage, std::string(out_layout).size() == 4 ? OutStage::Heads : OutStage::Merged);
  EXPECT_TRUE(dump.has_heads);
  expect_places(dump.query, {2, 4, 3, 6});
  expect_places(dump.key, {2, 2, 5, 6});
  expect_places(dump.value, {2, 2, 5, 7});
  expect_places(dump.context.value(), {2, 4, 3, 7});
  expect_places(dump.second_context.value(), {2, 4, 3, 7});
  expect_places(dump.context_gradient.value(), {2, 4, 3, 7});
  expect_places(dump.query_gradient.value(), {2, 4, 3, 6});
  expect_places(dump.key_gradient.value(), {2, 2, 5, 6});
  expect_places(dump.value_gradient.value(), {2, 2, 5, 7});
}

INSTANTIATE_TEST_SUITE_P(All, DumpLayout,
                         ::testing::Combine(::testing::Values("BHTD", "BTHD", "TBHD", "BTD", "TBD"),
                                            ::testing::Values("BHTD", "BTHD", "TBHD", "BTD",
                                                              "TBD")),
                         [](const auto& layouts) {
                           return std::string(std::get<0>(layouts.param)) + "_" +
                                  std::get<1>(layouts.param);
                         });

TEST(Dump, SizesAndDefaults) {
  const Dump dump = read_dump(dump_of_heads());
  EXPECT_EQ(dump.shape.batch, 2);
  EXPECT_EQ(dump.shape.heads, 4);
  EXPECT_EQ(dump.shape.kv_heads, 2);
  EXPECT_EQ(dump.shape.queries, 3);
  EXPECT_EQ(dump.shape.keys, 5);
  EXPECT_EQ(dump.shape.key_width, 6);
  EXPECT_EQ(dump.shape.value_width, 7);
  EXPECT_EQ(dump.scale, 1 / std::sqrt(6.0));
  EXPECT_EQ(dump.ran_in, DType::Float64);
  EXPECT_EQ(dump.empty_row, EmptyRow::Zero);
  EXPECT_EQ(dump.rules.mask().describe(), "none");
  EXPECT_FALSE(dump.rules.corner || dump.softcap || dump.bias || dump.alibi_slopes || dump.sink ||
               dump.rotary || dump.qk_norm || dump.read_rows || dump.projections);
}

TEST(Dump, OfBfloat16) {
  TensorFile file = dump_of_heads();
  file.tensors["out"] = store(file.tensors["out"].to<BFloat16, 4>("out").view());
  const Dump dump = read_dump(file);
  EXPECT_EQ(dump.ran_in, DType::BFloat16);
  EXPECT_EQ((*dump.context)(1, 3, 2, 5), static_cast<double>(BFloat16(element_at(1, 3, 2, 5))));
  file.metadata["dtype"] = "float32";
  EXPECT_EQ(read_dump(file).ran_in, DType::Float32);
}

struct Inference {
  const char* name;
  std::function<TensorFile()> file;
  const char* noted;
};

class DumpInference : public ::testing::TestWithParam<Inference> {};

TEST_P(DumpInference, IsNoted) {
  const Dump dump = read_dump(GetParam().file());
  EXPECT_THAT(dump.inferred, Contains(HasSubstr(GetParam().noted)));
}

TensorFile with(TensorFile file, const std::function<void(TensorFile&)>& change) {
  change(file);
  return file;
}

INSTANTIATE_TEST_SUITE_P(
    Each, DumpInference,
    ::testing::Values(
        Inference{"DefaultLayout", [] { return dump_of_heads(); }, "layout: BHTD"},
        Inference{"OneOfThreeLayouts",
                  [] {
                    return with(dump_of_heads(), [](auto& file) {
                      for (const char* name : {"k", "v", "out"})
                        file.tensors[name] = file.tensors["q"];
                    });
                  },
                  "layout: BHTD, the default, though BTHD and TBHD would fit too"},
        // As BHTD there would be 3 heads on 5.
        Inference{"OnlyLayout", [] { return dump_of_heads("BTHD", "BTHD"); },
                  "layout: BTHD, which alone fits"},
        Inference{"LayoutByTheMask",
                  [] {
                    return with(dump_of_heads(), [](auto& file) {
                      for (const char* name : {"k", "v", "out"})
                        file.tensors[name] = file.tensors["q"];
                      file.tensors["mask"] = stored<bool, 2>({4, 4}, std::vector<bool>(16, true));
                      file.metadata = {{"mask_true", "keep"}};
                      file.tensors["lengths"] = stored<Index, 1>({2}, {4, 4});
                    });
                  },
                  "layout: BTHD, which alone fits"},
        Inference{"OutLayout", [] { return dump_of_heads("BHTD", "BTHD"); }, "out_layout: BTHD"},
        Inference{"MergedOut", [] { return dump_of_heads("BHTD", "TBD"); }, "out_layout: TBD"},
        Inference{"WeightLayout", [] { return dump_of_projections(); }, "weight_layout: out-in"},
        Inference{"Stage",
                  [] {
                    return with(dump_of_projections(), [](auto& file) {
                      file.tensors["wo"] = constant<2>({9, 28});
                    });
                  },
                  "out_stage: merged, which alone fits"},
        Inference{"Scale", [] { return dump_of_heads(); }, "scale: 1/√Dk = 0.408248"},
        Inference{"DType", [] { return dump_of_heads(); }, "dtype: float64, that of out"},
        Inference{"KeyValueHeads",
                  [] {
                    return with(dump_of_projections(), [](auto& file) {
                      for (const char* name : {"wq", "wk", "wv"}) file.tensors.erase(name);
                      file.tensors["wqkv"] = constant<2>({84, 9});
                    });
                  },
                  "kv_heads: 4, as many as heads"},
        Inference{
            "KeyDocuments",
            [] {
              return with(dump_of_projections(), [](auto& file) {
                file.tensors["query_documents"] = stored<Index, 2>({2, 3}, {0, 0, 1, 0, 1, 1});
              });
            },
            "key_documents: those of the queries"},
        Inference{"Positions",
                  [] {
                    return with(dump_of_projections(),
                                [](auto& file) { file.metadata["rotary_base"] = "10000"; });
                  },
                  "query_positions: 0, 1, 2, …"},
        Inference{"Norm",
                  [] {
                    return with(dump_of_heads(),
                                [](auto& file) { file.tensors["q_norm"] = constant<1>({6}); });
                  },
                  "k_norm: 1 everywhere"}),
    [](const auto& inference) { return std::string(inference.param.name); });

TEST(Dump, WhatTheFileSaysIsNotInferred) {
  TensorFile file = dump_of_heads();
  file.metadata = {
      {"layout", "BHTD"}, {"out_layout", "BHTD"}, {"scale", "0.25"}, {"dtype", "float16"}};
  const Dump dump = read_dump(file);
  EXPECT_THAT(dump.inferred, ElementsAre());
  EXPECT_EQ(dump.scale, 0.25);
}

/// A layout told for q, k and v serves out too where both its readings fit.
TEST(Dump, LayoutTellsThatOfOut) {
  TensorFile file;
  for (const char* name : {"q", "k", "v", "out"})
    file.tensors[name] = heads_in("BTHD", {2, 3, 3, 4});
  file.metadata["layout"] = "BTHD";
  expect_places(read_dump(file).context.value(), {2, 3, 3, 4});
  // One head and one query: the layouts say the same.
  for (const char* name : {"q", "k", "v", "out"})
    file.tensors[name] = heads_in("BTHD", {2, 1, 1, 4});
  file.metadata.clear();
  expect_places(read_dump(file).context.value(), {2, 1, 1, 4});
}

TEST(Dump, MetadataOfATensorInAnNpz) {
  const std::string json =
      R"({"causal": "bottom-right", "softcap": 30.5, "heads": 4, "empty_row": "nan"})";
  TensorFile file = dump_of_heads();
  file.tensors["metadata"] =
      stored<std::uint8_t, 1>({static_cast<Index>(json.size())}, {json.begin(), json.end()});
  const TemporaryDirectory directory;
  for (const std::string name : {"dump.npz", "dump.safetensors"}) {
    SCOPED_TRACE(name);
    const std::string path = directory.file(name);
    write_tensors(path, file);
    const Dump dump = read_dump(read_tensors(path));
    EXPECT_EQ(dump.rules.mask().describe(), "causal (bottom-right)");
    EXPECT_EQ(dump.softcap, 30.5);
    EXPECT_EQ(dump.empty_row, EmptyRow::NaN);
    expect_places(dump.query, {2, 4, 3, 6});
  }
}

TEST(Dump, MetadataOfSafetensors) {
  TensorFile file = dump_of_heads();
  file.metadata = {{"causal", "-1"}, {"lse_base", "2"}, {"source", "by hand"}, {"format", "pt"}};
  const TemporaryDirectory directory;
  const std::string path = directory.file("dump.safetensors");
  write_tensors(path, file);
  const Dump dump = read_dump(read_tensors(path));
  EXPECT_EQ(dump.rules.mask().describe(), "causal (offset [-1])");
  EXPECT_TRUE(dump.log_sum_exp_base2);
  EXPECT_EQ(dump.source, "by hand");
}

/// Each rule hides what its definition says, and mask() is all of them together.
TEST(Dump, RulesOfVisibility) {
  TensorFile file = dump_of_heads();
  file.metadata = {{"causal", "bottom-right"},
                   {"window_left", "3"},
                   {"key_padding_true", "drop"},
                   {"mask_true", "keep"}};
  file.tensors["prefix"] = stored<Index, 1>({2}, {1, 0});
  file.tensors["lengths"] = stored<std::int32_t, 1>({2}, {4, 5});
  file.tensors["key_padding"] = stored<Index, 2>({2, 5}, {0, 0, 0, 0, 0, 1, 0, 0, 0, 0});
  file.tensors["mask"] =
      stored<std::uint8_t, 2>({3, 5}, {1, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 1});
  file.tensors["query_documents"] = stored<Index, 2>({2, 3}, {7, 7, 7, 7, 8, 8});
  file.tensors["key_documents"] = stored<Index, 2>({2, 5}, {7, 7, 7, 7, 7, 7, 7, 8, 8, 8});
  const Dump dump = read_dump(file);
  const BoundMask mask = dump.rules.mask().bind("test", {2, 4, 3, 5});
  const auto row = [&](Index b, Index t) {
    std::string keys;
    for (Index s = 0; s < 5; ++s) keys += mask.visible(b, 2, t, s) ? '1' : '0';
    return keys;
  };
  EXPECT_EQ(row(0, 0), "11000");  // query 0 at key 2, which the boolean mask hides
  EXPECT_EQ(row(0, 1), "11110");
  EXPECT_EQ(row(0, 2), "01100");  // window from key 1, boolean mask without 3, length 4
  EXPECT_EQ(row(1, 0), "01000");  // key 0 is padding, key 2 hidden by the boolean mask
  EXPECT_EQ(row(1, 1), "00110");  // document 8 begins at key 2
  EXPECT_EQ(row(1, 2), "00101");
}

TEST(Dump, WindowWithACornerOfItsOwn) {
  TensorFile file = dump_of_heads();
  file.metadata = {{"window_left", "0"}, {"window_right", "1"}, {"corner", "2"}};
  EXPECT_EQ(read_dump(file).rules.mask().describe(), "window (left 0, right 1, offset [2])");
}

TEST(Dump, CausalWithTheCornerBesideIt) {
  TensorFile file = dump_of_heads();
  file.metadata = {{"causal", "true"}, {"corner", "bottom-right"}};
  EXPECT_EQ(read_dump(file).rules.mask().describe(), "causal (bottom-right)");
}

TEST(Dump, ScoreModifiers) {
  TensorFile file = dump_of_heads();
  file.metadata = {{"corner", "top-left"}};
  file.tensors["bias"] = stored<float, 3>({4, 1, 1}, {0, 1, 2, 3});
  file.tensors["alibi_slopes"] = stored<float, 1>({4}, {0.5F, 0.25F, 0.125F, 0.0625F});
  file.tensors["sink"] = stored<double, 1>({4}, {1, 2, 3, 4});
  file.tensors["read_rows"] = stored<bool, 2>({2, 3}, {true, true, true, true, true, false});
  const Dump dump = read_dump(file);
  EXPECT_EQ(dump.bias->shape(), (Extents<4>{1, 4, 1, 1}));
  EXPECT_EQ((*dump.bias)(0, 3, 0, 0), 3);
  EXPECT_THAT(*dump.alibi_slopes, ElementsAre(0.5, 0.25, 0.125, 0.0625));
  EXPECT_EQ((*dump.sink)(2), 3);
  EXPECT_FALSE((*dump.read_rows)(1, 2));
}

TEST(Dump, RotaryPositionsAndNorm) {
  TensorFile file = dump_of_heads();
  file.metadata = {{"rotary_base", "500000"},
                   {"rotary_width", "4"},
                   {"rotary_pairing", "interleaved"},
                   {"qk_norm_epsilon", "1e-5"},
                   {"qk_norm_order", "after-rotary"}};
  file.tensors["query_positions"] = stored<Index, 1>({3}, {4, 5, 6});
  file.tensors["q_norm"] = stored<double, 1>({6}, {1, 2, 3, 4, 5, 6});
  const Dump dump = read_dump(file);
  EXPECT_EQ(dump.rotary->options.base, 500000);
  EXPECT_EQ(dump.rotary->options.width, 4);
  EXPECT_EQ(dump.rotary->options.pairing, RotaryPairing::Interleaved);
  EXPECT_THAT(dump.rotary->query_positions.elements(), ElementsAre(4, 5, 6, 4, 5, 6));
  EXPECT_THAT(dump.rotary->key_positions.elements(), ElementsAre(0, 1, 2, 3, 4, 0, 1, 2, 3, 4));
  EXPECT_EQ((*dump.qk_norm->query_weight)(5), 6);
  EXPECT_FALSE(dump.qk_norm->key_weight);
  EXPECT_EQ(dump.qk_norm->epsilon, 1e-5);
  EXPECT_TRUE(dump.qk_norm->after_rotary);
}

TEST(Dump, KeysOfSelfAttentionStandWhereTheQueriesDo) {
  TensorFile file = dump_of_projections();
  file.metadata["rotary_base"] = "10000";
  file.tensors["query_positions"] = stored<Index, 2>({2, 3}, {0, 1, 2, 5, 6, 7});
  EXPECT_THAT(read_dump(file).rotary->key_positions.elements(), ElementsAre(0, 1, 2, 5, 6, 7));
}

TEST(Dump, Results) {
  TensorFile file = dump_of_heads();
  file.tensors["weights"] = heads_in("BHTD", {2, 4, 3, 5});
  file.tensors["scores"] = heads_in("BHTD", {2, 4, 3, 5});
  file.tensors["lse"] = constant<3>({2, 4, 3}, std::numeric_limits<double>::quiet_NaN());
  file.tensors["out"] = constant<4>({2, 4, 3, 7}, std::numeric_limits<double>::quiet_NaN());
  const Dump dump = read_dump(file);
  expect_places(dump.weights.value(), {2, 4, 3, 5});
  expect_places(dump.scores.value(), {2, 4, 3, 5});
  EXPECT_TRUE(std::isnan((*dump.log_sum_exp)(1, 3, 2)));  // what comes out may be anything
}

TEST(Dump, GarbageThatNobodySees) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  TensorFile file = dump_of_heads();
  Tensor<double, 4> key = file.tensors["k"].to<double, 4>("k");
  Tensor<double, 4> query = file.tensors["q"].to<double, 4>("q");
  key(1, 0, 4, 2) = nan;                                      // beyond the length of its sample
  query(0, 1, 2, 0) = nan;                                    // a row that nobody reads
  key(0, 1, 0, 0) = std::numeric_limits<double>::infinity();  // hidden by the bias
  file.tensors["k"] = store(key.view());
  file.tensors["q"] = store(query.view());
  file.tensors["lengths"] = stored<Index, 1>({2}, {5, 4});
  file.tensors["read_rows"] = stored<bool, 2>({2, 3}, {true, true, false, true, true, true});
  file.tensors["bias"] =
      stored<double, 1>({5}, {-std::numeric_limits<double>::infinity(), 0, 0, 0, 0});
  EXPECT_TRUE(std::isnan(read_dump(file).key(1, 0, 4, 2)));
}

}  // namespace
}  // namespace qkv
