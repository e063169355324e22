// What read_dump says of a dump that it cannot take.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>

#include "check/dump.h"
#include "tests/check/dump_files.h"

namespace qkv {
namespace {

using testing::constant;
using testing::dump_of_heads;
using testing::dump_of_projections;
using testing::heads_in;
using testing::stored;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

struct Malformed {
  const char* name;
  std::function<void(TensorFile&)> change;
  const char* message;
};

std::string message_of(const TensorFile& file) {
  try {
    read_dump(file);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "no error";
}

std::string name_of_case(const ::testing::TestParamInfo<Malformed>& info) {
  return info.param.name;
}

/// A change to a dump of q, k, v and out: B=2, H=4 on Hkv=2, T=3, S=5, Dk=6, Dv=7.
class DumpOfHeads : public ::testing::TestWithParam<Malformed> {};

TEST_P(DumpOfHeads, IsRefused) {
  TensorFile file = dump_of_heads();
  GetParam().change(file);
  EXPECT_EQ(message_of(file), GetParam().message);
}

/// A tensor with one element replaced.
StoredTensor with_element(const StoredTensor& tensor, Index b, Index h, Index t, Index d,
                          double value) {
  auto copy = tensor.to<double, 4>("tensor");
  copy(b, h, t, d) = value;
  return store(copy.view());
}

INSTANTIATE_TEST_SUITE_P(
    Names, DumpOfHeads,
    ::testing::Values(
        Malformed{"Missing", [](auto& file) { file.tensors.erase("out"); },
                  "dump: out: expected the output of the attention, got none"},
        Malformed{"MissingValue", [](auto& file) { file.tensors.erase("v"); },
                  "dump: v: expected all of q, k, v or none, got q without it"},
        Malformed{"Neither",
                  [](auto& file) {
                    for (const char* name : {"q", "k", "v"}) file.tensors.erase(name);
                  },
                  "dump: q: expected q, k and v, or x with wq, wk and wv (or wqkv); got neither"},
        Malformed{"Misspelt",
                  [](auto& file) {
                    file.tensors["read_row"] = constant<2>({2, 3});
                  },
                  "dump: read_row: expected a tensor that docs/dump.md lists (the nearest is "
                  "\"read_rows\"), got one that it does not"},
        Malformed{"Elsewhere",
                  [](auto& file) {
                    file.tensors["attn_mask"] = constant<2>({3, 5});
                  },
                  "dump: attn_mask: expected a tensor that docs/dump.md lists (the nearest is "
                  "\"mask\"), got one that it does not"},
        Malformed{"UnknownKey", [](auto& file) { file.metadata["kv_head"] = "2"; },
                  "dump: kv_head: expected a key of the metadata that docs/dump.md lists (the "
                  "nearest is \"kv_heads\"), got one that it does not"},
        Malformed{"ControlCharacters", [](auto& file) { file.metadata["\x1b[2J"] = ""; },
                  "dump: \\x1b[2J: expected a key of the metadata that docs/dump.md lists, "
                  "got one that it does not"},
        Malformed{"SomeGradients", [](auto& file) { file.tensors["dq"] = file.tensors["q"]; },
                  "dump: dout: expected all of dout, dq, dk, dv or none, got dq without it"},
        Malformed{"BiasWithoutWeight", [](auto& file) { file.tensors["bo"] = constant<1>({6}); },
                  "dump: bo: expected wo beside it, got none"},
        Malformed{"InputWithoutWeights",
                  [](auto& file) {
                    file.tensors["x"] = constant<3>({2, 3, 6});
                  },
                  "dump: wq: expected all of x, wq, wk, wv or none, got x without it"}),
    name_of_case);

INSTANTIATE_TEST_SUITE_P(
    Shapes, DumpOfHeads,
    ::testing::Values(
        Malformed{"Batch",
                  [](auto& file) {
                    file.metadata["layout"] = "BHTD";
                    file.tensors["k"] = heads_in("BHTD", {3, 2, 5, 6});
                  },
                  "dump: k: expected [B, Hkv, S, Dk] = [2, Hkv, S, 6], got [3, 2, 5, 6]: B = 2 by "
                  "q (layout BHTD, out_layout BHTD, out_stage heads, weight_layout out-in; no "
                  "other fits)"},
        Malformed{
            "OutOfOtherRows",
            [](auto& file) {
              file.tensors["out"] = heads_in("BHTD", {2, 4, 8, 7});
            },
            "dump: out: expected [B, H, T, Dv] = [2, 4, 3, 7], got [2, 4, 8, 7]: T = 3 by q "
            "(layout BHTD, out_layout BHTD, out_stage heads, weight_layout out-in; no other fits)"},
        Malformed{"Axes",
                  [](auto& file) {
                    file.metadata = {{"layout", "BHTD"}, {"out_layout", "BHTD"}};
                    file.tensors["v"] = constant<3>({2, 5, 14});
                  },
                  "dump: v: expected 4 axes, [B, Hkv, S, Dv] = [2, 2, 5, Dv], got [2, 5, 14]"},
        Malformed{"Heads",
                  [](auto& file) {
                    file.metadata = {{"layout", "BHTD"}, {"out_layout", "BHTD"}, {"heads", "8"}};
                  },
                  "dump: q: expected [B, H, T, Dk] = [2, 8, T, Dk], got [2, 4, 3, 6]: H = 8 by "
                  "heads"},
        Malformed{"HeadsThatDoNotDivide",
                  [](auto& file) {
                    file.metadata = {{"layout", "BHTD"}, {"out_layout", "BHTD"}};
                    file.tensors["k"] = heads_in("BHTD", {2, 3, 5, 6});
                    file.tensors["v"] = heads_in("BHTD", {2, 3, 5, 7});
                  },
                  "dump: k: expected key/value heads whose number divides H = 4 by q, got Hkv = 3"},
        Malformed{"Empty",
                  [](auto& file) {
                    file.metadata = {{"layout", "BHTD"}, {"out_layout", "BHTD"}};
                    file.tensors["k"] = constant<4>({2, 2, 0, 6});
                  },
                  "dump: k: expected [B, Hkv, S, Dk] = [2, 2, S, 6] with no empty axis, got [2, 2, "
                  "0, 6]"},
        Malformed{"MergedOutOfUnknownHeads",
                  [](auto& file) {
                    file.tensors.clear();
                    file.tensors["q"] = file.tensors["k"] = file.tensors["v"] =
                        file.tensors["out"] = constant<3>({2, 3, 8});
                    file.metadata = {{"layout", "BTD"}, {"out_layout", "BTD"}};
                  },
                  "dump: heads: expected the number of heads in the metadata, as no shape tells "
                  "it; got none"},
        Malformed{"Mask",
                  [](auto& file) {
                    file.metadata = {{"layout", "BHTD"}, {"out_layout", "BHTD"}};
                    file.tensors["mask"] = constant<4>({2, 1, 1, 3});
                  },
                  "dump: mask: expected what broadcasts to [B, H, T, S] = [2, 4, 3, 5], got [2, 1, "
                  "1, 3]: S = 5 by k"},
        Malformed{"Slopes",
                  [](auto& file) {
                    file.metadata = {{"layout", "BHTD"}, {"out_layout", "BHTD"}};
                    file.tensors["alibi_slopes"] = constant<1>({2});
                  },
                  "dump: alibi_slopes: expected [H] = [4], got [2]: H = 4 by q"}),
    name_of_case);

INSTANTIATE_TEST_SUITE_P(
    Readings, DumpOfHeads,
    ::testing::Values(
        Malformed{"Layout",
                  [](auto& file) {
                    for (const char* name : {"k", "v", "out"}) {
                      file.tensors[name] = file.tensors["q"];
                    }
                    file.metadata["heads"] = "3";
                  },
                  "dump: layout: expected BTHD or TBHD, for all of them fit the shapes, and the "
                  "default, BHTD, does not; got none"},
        Malformed{"OutLayout",
                  [](auto& file) {
                    for (const char* name : {"q", "k", "v", "out"}) {
                      file.tensors[name] = constant<4>({2, 8, 8, 64});
                    }
                  },
                  "dump: out: [2, 8, 8, 64] fits BHTD and BTHD: say which with out_layout"},
        Malformed{"MergedOutLayout",
                  [](auto& file) {
                    for (const char* name : {"q", "k", "v"}) {
                      file.tensors[name] = constant<4>({3, 4, 3, 7});
                    }
                    file.tensors["out"] = constant<3>({3, 3, 28});
                  },
                  "dump: out: [3, 3, 28] fits BTD and TBD: say which with out_layout"},
        Malformed{"MaskOfTwoAxes",
                  [](auto& file) {
                    for (const char* name : {"q", "k", "v", "out"}) {
                      file.tensors[name] = constant<4>({3, 4, 3, 7});
                    }
                    file.tensors["mask"] = constant<2>({3, 3});
                    file.metadata["layout"] = "BHTD";
                  },
                  "dump: mask: [3, 3] fits [T, S] and [B, S]: say which with four axes"},
        Malformed{"BiasOfThreeAxes",
                  [](auto& file) {
                    for (const char* name : {"q", "k", "v", "out"}) {
                      file.tensors[name] = constant<4>({4, 4, 3, 7});
                    }
                    file.tensors["bias"] = constant<3>({4, 3, 3});
                    file.metadata["layout"] = "BHTD";
                  },
                  "dump: bias: [4, 3, 3] fits [H, T, S] and [B, T, S]: say which with four axes"},
        Malformed{"StageOfFourAxes", [](auto& file) { file.metadata["out_stage"] = "merged"; },
                  "dump: out_stage: expected heads for an out of four axes, got \"merged\""},
        Malformed{"StageOfThreeAxes",
                  [](auto& file) {
                    file.tensors["out"] = constant<3>({2, 3, 28});
                    file.metadata["out_stage"] = "heads";
                  },
                  "dump: out_stage: expected merged or projected for an out of three axes, got "
                  "\"heads\""},
        Malformed{"ProjectedWithoutWeight",
                  [](auto& file) {
                    file.tensors["out"] = constant<3>({2, 3, 28});
                    file.metadata["out_stage"] = "projected";
                  },
                  "dump: wo: expected the weight of the output projection, as out is projected; "
                  "got none"}),
    name_of_case);

INSTANTIATE_TEST_SUITE_P(
    Metadata, DumpOfHeads,
    ::testing::Values(
        Malformed{"Choice", [](auto& file) { file.metadata["lse_base"] = "10"; },
                  "dump: lse_base: expected e or 2, got \"10\""},
        Malformed{"Number", [](auto& file) { file.metadata["scale"] = "1/8"; },
                  "dump: scale: expected a finite number, got \"1/8\""},
        Malformed{"Infinite", [](auto& file) { file.metadata["scale"] = "inf"; },
                  "dump: scale: expected a finite number, got \"inf\""},
        Malformed{"Positive", [](auto& file) { file.metadata["softcap"] = "0"; },
                  "dump: softcap: expected a positive number, got \"0\""},
        Malformed{"WholeNumber", [](auto& file) { file.metadata["heads"] = "4.0"; },
                  "dump: heads: expected a whole number from 1 to 16777216, got \"4.0\""},
        Malformed{"Huge", [](auto& file) { file.metadata["heads"] = "9223372036854775807"; },
                  "dump: heads: expected a whole number from 1 to 16777216, got "
                  "\"9223372036854775807\""},
        Malformed{"NegativeWindow", [](auto& file) { file.metadata["window_left"] = "-1"; },
                  "dump: window_left: expected a whole number from 0 to 9007199254740992, got "
                  "\"-1\""},
        Malformed{"Causal", [](auto& file) { file.metadata["causal"] = "yes"; },
                  "dump: causal: expected false, true, top-left, bottom-right or the key position "
                  "of query 0, got \"yes\""},
        Malformed{"CausalWithoutCorner", [](auto& file) { file.metadata["causal"] = "True"; },
                  "dump: causal: expected top-left, bottom-right or the key position of query 0 "
                  "for causal, as T = 3 and S = 5 differ; got none"},
        Malformed{"WindowWithoutCorner", [](auto& file) { file.metadata["window_left"] = "2"; },
                  "dump: corner: expected top-left, bottom-right or the key position of query 0 "
                  "for window, as T = 3 and S = 5 differ; got none"},
        Malformed{"AlibiWithoutCorner",
                  [](auto& file) { file.tensors["alibi_slopes"] = constant<1>({4}); },
                  "dump: corner: expected top-left, bottom-right or the key position of query 0 "
                  "for alibi_slopes, as T = 3 and S = 5 differ; got none"},
        Malformed{"TwoCorners",
                  [](auto& file) {
                    file.metadata = {{"causal", "top-left"}, {"corner", "bottom-right"}};
                  },
                  "dump: corner: expected the one of causal, top-left, or none; got bottom-right"},
        Malformed{"PrefixWithoutCausal",
                  [](auto& file) {
                    file.tensors["prefix"] = stored<Index, 1>({2}, {1, 1});
                  },
                  "dump: prefix: expected causal in the metadata beside it, got none"},
        Malformed{"Polarity",
                  [](auto& file) {
                    file.tensors["mask"] = stored<std::uint8_t, 1>({5}, {1, 1, 1, 1, 1});
                  },
                  "dump: mask_true: expected keep or drop: what true or 1 means; got none"},
        Malformed{"PolarityOfNothing",
                  [](auto& file) { file.metadata["key_padding_true"] = "keep"; },
                  "dump: key_padding_true: expected the tensor key_padding beside it, got none"},
        Malformed{"PositionsWithoutBase",
                  [](auto& file) {
                    file.tensors["query_positions"] = stored<Index, 1>({3}, {0, 1, 2});
                  },
                  "dump: query_positions: expected rotary_base in the metadata beside it, got "
                  "none"},
        Malformed{"BaseWithoutPositions",
                  [](auto& file) { file.metadata["rotary_base"] = "10000"; },
                  "dump: query_positions: expected [B, T] = [2, 3] or one row, as T and S = 5 "
                  "differ; got none"},
        Malformed{"OddRotaryWidth",
                  [](auto& file) {
                    file.metadata = {{"rotary_base", "10000"}, {"rotary_width", "3"}};
                  },
                  "dump: rotary_width: expected an even number up to Dk = 6, got 3"},
        Malformed{"OrderWithoutNorm",
                  [](auto& file) { file.metadata["qk_norm_order"] = "after-rotary"; },
                  "dump: qk_norm_order: expected q_norm, k_norm or qk_norm_epsilon beside it, got "
                  "none"},
        Malformed{"KeyDocuments",
                  [](auto& file) {
                    file.tensors["query_documents"] = stored<Index, 2>({2, 3}, {0, 0, 0, 0, 0, 0});
                  },
                  "dump: key_documents: expected [B, S] = [2, 5] beside query_documents, as T = 3; "
                  "got none"}),
    name_of_case);

void set_json(TensorFile& file, const std::string& json) {
  file.tensors["metadata"] =
      stored<std::uint8_t, 1>({static_cast<Index>(json.size())}, {json.begin(), json.end()});
}

INSTANTIATE_TEST_SUITE_P(
    Json, DumpOfHeads,
    ::testing::Values(
        Malformed{"NoJson", [](auto& file) { set_json(file, "{causal"); },
                  "dump: metadata: expected a JSON object, got \"what is no JSON\""},
        Malformed{"NoObject", [](auto& file) { set_json(file, "[1]"); },
                  "dump: metadata: expected a JSON object, got \"array\""},
        Malformed{"Nested", [](auto& file) { set_json(file, R"({"heads": [4]})"); },
                  "dump: heads: expected a text, a number or a boolean, got \"array\""},
        Malformed{"Twice",
                  [](auto& file) {
                    file.metadata["heads"] = "4";
                    set_json(file, R"({"heads": 4})");
                  },
                  "dump: heads: expected one value, got \"one in the file's metadata and one in "
                  "the tensor \\\"metadata\\\"\""},
        Malformed{"NoBytes", [](auto& file) { file.tensors["metadata"] = constant<1>({3}); },
                  "dump: metadata: expected a uint8 tensor of one axis and at most 1048576 bytes, "
                  "got \"float64 [3]\""}),
    name_of_case);

INSTANTIATE_TEST_SUITE_P(
    Elements, DumpOfHeads,
    ::testing::Values(
        Malformed{"IntegerQuery",
                  [](auto& file) {
                    file.tensors["q"] = stored<Index, 4>({2, 4, 3, 6}, std::vector<Index>(144));
                  },
                  "dump: q: expected a floating-point dtype, got int64"},
        Malformed{"FloatMask",
                  [](auto& file) {
                    file.tensors["mask"] = constant<2>({3, 5});
                    file.metadata["mask_true"] = "keep";
                  },
                  "dump: mask: expected bool or integers 0 and 1 (a mask that is added is called "
                  "bias), got float64"},
        Malformed{"FlagOfTwo",
                  [](auto& file) {
                    file.tensors["key_padding"] =
                        stored<Index, 2>({2, 5}, {0, 0, 0, 0, 0, 0, 0, 0, 2, 0});
                    file.metadata["key_padding_true"] = "keep";
                  },
                  "dump: key_padding: expected 0 or 1, got 2 at element 8"},
        Malformed{"Length",
                  [](auto& file) {
                    file.tensors["lengths"] = stored<Index, 1>({2}, {5, 6});
                  },
                  "dump: lengths: expected lengths from 0 to S = 5, got 6"},
        Malformed{"VisibleNaNInTheQuery",
                  [](auto& file) {
                    file.tensors["q"] = with_element(file.tensors["q"], 1, 2, 0, 4, kNaN);
                  },
                  "dump: q: expected finite numbers where they are visible, got nan at b=1, h=2, "
                  "t=0, d=4: a visible NaN in the inputs"},
        Malformed{"VisibleNaNInAKey",
                  [](auto& file) {
                    file.metadata["causal"] = "bottom-right";
                    file.tensors["k"] = with_element(file.tensors["k"], 0, 1, 4, 5, kNaN);
                  },
                  "dump: k: expected finite numbers where they are visible, got nan at b=0, h=1, "
                  "s=4, d=5: a visible NaN in the inputs"},
        Malformed{"VisibleInfinityInAValue",
                  [](auto& file) {
                    file.tensors["v"] = with_element(file.tensors["v"], 1, 1, 0, 6,
                                                     std::numeric_limits<double>::infinity());
                  },
                  "dump: v: expected finite numbers where they are visible, got inf at b=1, h=1, "
                  "s=0, d=6: a visible infinity in the inputs"},
        Malformed{"ValueWhoseSquareIsNone",
                  [](auto& file) {
                    file.tensors["v"] = with_element(file.tensors["v"], 1, 1, 0, 6, -1e200);
                  },
                  "dump: v: expected magnitudes below 2^480, so that float64 holds the squares of "
                  "products, got -1e+200 at b=1, h=1, s=0, d=6"},
        Malformed{"ValuesWhoseSquaresVanish",
                  [](auto& file) {
                    file.tensors["v"] = constant<4>({2, 2, 5, 7}, 1e-300);
                  },
                  "dump: v: expected zeros or a magnitude of at least 2^-400, whose square "
                  "float64 holds, got 1e-300 at most"},
        Malformed{"OneAxis",
                  [](auto& file) {
                    file.tensors["lengths"] = stored<Index, 2>({2, 1}, {5, 5});
                  },
                  "dump: lengths: expected 1 axis, [B] = [2], got [2, 1] (layout BHTD, out_layout "
                  "BHTD, out_stage heads, weight_layout out-in; no other fits)"},
        Malformed{"NameThatNothingIsNear",
                  [](auto& file) { file.tensors["array"] = constant<1>({2}); },
                  "dump: array: expected a tensor that docs/dump.md lists, got one that it does "
                  "not"},
        Malformed{"VisibleNaNInTheBias",
                  [](auto& file) {
                    file.tensors["bias"] = constant<2>({3, 5}, kNaN);
                  },
                  "dump: bias: expected finite numbers where they are visible, got nan at b=0, "
                  "h=0, t=0, s=0: a visible NaN in the inputs"},
        Malformed{"Sink", [](auto& file) { file.tensors["sink"] = constant<1>({4}, kNaN); },
                  "dump: sink: expected finite numbers, got nan at element 0"}),
    name_of_case);

/// A change to a dump of x, wq, wk, wv and a merged out: B=2, H=4 on Hkv=2, T=S=3, Dk=6, Dv=7, D=9.
class DumpOfProjections : public ::testing::TestWithParam<Malformed> {};

TEST_P(DumpOfProjections, IsRefused) {
  TensorFile file = dump_of_projections();
  file.metadata["weight_layout"] = "out-in";
  file.metadata["out_layout"] = "BTD";
  GetParam().change(file);
  EXPECT_EQ(message_of(file), GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(
    All, DumpOfProjections,
    ::testing::Values(
        Malformed{"WeightOfAnotherWidth",
                  [](auto& file) {
                    file.tensors["wk"] = constant<2>({12, 8});
                  },
                  "dump: wk: expected [Hkv·Dk, D] = [12, 9], got [12, 8]: D = 9 by x"},
        Malformed{"RowsThatNoHeadsMake",
                  [](auto& file) {
                    file.tensors["wq"] = constant<2>({26, 9});
                  },
                  "dump: wq: expected [H·Dk, D] = [H·Dk, 9], got [26, 9]: H = 4 by heads"},
        Malformed{"Bias", [](auto& file) { file.tensors["bv"] = constant<1>({28}); },
                  "dump: bv: expected [Hkv·Dv] = [14], got [28]: Hkv = 2 by wk, Dv = 7 by wv"},
        Malformed{"PackedAndApart",
                  [](auto& file) {
                    file.tensors["wqkv"] = constant<2>({84, 9});
                  },
                  "dump: wq: expected none beside wqkv, got both"},
        Malformed{"PackedRows",
                  [](auto& file) {
                    for (const char* name : {"wq", "wk", "wv"}) file.tensors.erase(name);
                    file.tensors["wqkv"] = constant<2>({50, 9});
                  },
                  "dump: wqkv: expected H·Dk + Hkv·(Dk + Dv) rows for H = 4 and Hkv = 4 (kv_heads "
                  "in the metadata), got 50"},
        Malformed{"MoreKeysThanTokens",
                  [](auto& file) {
                    file.tensors["q"] = heads_in("BHTD", {2, 4, 3, 6});
                    file.tensors["k"] = heads_in("BHTD", {2, 2, 5, 6});
                    file.tensors["v"] = heads_in("BHTD", {2, 2, 5, 7});
                    file.metadata["layout"] = "BHTD";
                  },
                  "dump: x: expected [B, S, D] = [2, 5, 9], got [2, 3, 9]: S = 5 by k"},
        Malformed{"VisibleNaN",
                  [](auto& file) {
                    auto x = file.tensors["x"].template to<double, 3>("x");
                    x(1, 2, 8) = kNaN;
                    file.tensors["x"] = store(x.view());
                  },
                  "dump: x: expected finite numbers where they are visible, got nan at b=1, token "
                  "2, d=8: a visible NaN in the inputs"},
        Malformed{"NaNInAWeight",
                  [](auto& file) {
                    file.tensors["wk"] = constant<2>({12, 9}, kNaN);
                  },
                  "dump: wk: expected finite numbers, got nan at element 0"},
        Malformed{"GradientsOfAProjectedOut",
                  [](auto& file) {
                    file.tensors["wo"] = constant<2>({9, 28});
                    file.tensors["out"] = file.tensors["dout"] = constant<3>({2, 3, 9});
                    file.tensors["dq"] = heads_in("BHTD", {2, 4, 3, 6});
                    file.tensors["dk"] = heads_in("BHTD", {2, 2, 3, 6});
                    file.tensors["dv"] = heads_in("BHTD", {2, 2, 3, 7});
                  },
                  "dump: dout: expected gradients of an out per head or merged only, got a "
                  "projected out"}),
    name_of_case);

/// 8 KB that claim 2 GB: refused before anything is allocated.
TEST(DumpErrors, ProjectionsOutOfProportion) {
  TensorFile file;
  file.metadata = {{"heads", "1"}};
  file.tensors["x"] = constant<3>({1, 16000, 1});
  for (const char* name : {"wq", "wk", "wv"}) file.tensors[name] = constant<2>({16000, 1});
  file.tensors["wo"] = constant<2>({1, 16000});
  file.tensors["out"] = constant<3>({1, 16000, 1});
  EXPECT_EQ(message_of(file),
            "dump: x: expected projections to at most 64 elements for each of the file's 96000, "
            "got 768000000");
}

}  // namespace
}  // namespace qkv
