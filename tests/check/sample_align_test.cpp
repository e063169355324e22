#include "check/sample_align.h"

#include <algorithm>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/check/results.h"

namespace qkv {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TensorFile real_layer(const std::string& name) {
  return read_tensors(QKV_SOURCE_DIR "/data/" + name + ".safetensors");
}

bool passes(const SampleReport& report) {
  return std::all_of(report.rows.begin(), report.rows.end(),
                     [](const SampleRow& row) { return row.passed(); });
}

std::set<std::string> tensors_of(const SampleReport& report, const std::string& computed_by) {
  std::set<std::string> tensors;
  for (const SampleRow& row : report.rows) {
    if (row.computed_by == computed_by) tensors.insert(row.tensor);
  }
  return tensors;
}

class RealLayer : public ::testing::TestWithParam<const char*> {};

TEST_P(RealLayer, EveryRecordedTensorIsWithinTheTolerance) {
  const SampleReport report = align_sample(real_layer(GetParam()));
  for (const SampleRow& row : report.rows) {
    EXPECT_LE(row.difference, 1e-5) << row.computed_by << " " << row.tensor;
    EXPECT_GT(row.largest_entry, 0.1) << row.tensor;
  }
  for (const std::string by : {"module, float32", "module, float64"}) {
    EXPECT_THAT(tensors_of(report, by),
                ::testing::IsSupersetOf({"q", "k", "v", "weights", "context", "out"}));
  }
  EXPECT_THAT(tensors_of(report, "oracle on q, k, v"), ElementsAre("context", "weights"));
}

INSTANTIATE_TEST_SUITE_P(Data, RealLayer,
                         ::testing::Values("minilm-layer0", "minilm-layer4", "smollm2-layer11"),
                         [](const auto& parameter) {
                           std::string name = parameter.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(SampleAlign, RowsThatSeeNoKeyAreLeftOutAndCounted) {
  // Padding on the left and a causal mask: a padded query sees padding only, in each of 9 heads.
  const TensorFile file = real_layer("smollm2-layer11");
  const auto keep = file.at("attention_mask").to<bool, 2>("attention_mask");
  const Index padded = std::count(keep.elements().begin(), keep.elements().end(), false);
  ASSERT_GT(padded, 0);
  for (const SampleRow& row : align_sample(file).rows) {
    if (row.tensor == "weights") {
      EXPECT_EQ(row.rows_left_out, 9 * padded);
      EXPECT_EQ(row.rows, 9 * (2 * 23 - padded));
    } else if (row.tensor == "context" || row.tensor == "out") {
      EXPECT_EQ(row.rows_left_out, padded);
    } else {
      EXPECT_EQ(row.rows_left_out, 0);
    }
  }
}

TEST(SampleAlign, CorruptedWeightFails) {
  const TensorFile file =
      with_changed_element<float>(real_layer("minilm-layer0"), "v_proj.weight", 0.01F);
  const SampleReport report = align_sample(file);
  EXPECT_FALSE(passes(report));
  for (const SampleRow& row : report.rows) {
    const bool depends_on_it =
        row.computed_by != "oracle on q, k, v" &&
        (row.tensor == "v" || row.tensor == "context" || row.tensor == "out");
    EXPECT_EQ(row.passed(), !depends_on_it) << row.computed_by << " " << row.tensor;
  }
}

TEST(SampleAlign, WrongPositionsFail) {
  TensorFile file = real_layer("smollm2-layer11");
  file.metadata["rope_theta"] = "10000";
  const SampleReport report = align_sample(file);
  for (const SampleRow& row : report.rows) {
    if (row.tensor == "q") {
      EXPECT_FALSE(row.passed());
    } else if (row.tensor == "q_before_rope") {
      EXPECT_TRUE(row.passed());
    }
  }
}

TEST(SampleAlign, ReportSaysWhatTheLayerIs) {
  const SampleReport report = align_sample(real_layer("smollm2-layer11"));
  EXPECT_EQ(
      report.layer,
      "B=2 T=23 H=9 Hkv=3 Dh=64, mask: causal (top-left) & key padding [2, 23], rotary positions "
      "of base 100000");
  EXPECT_THAT(report.source, HasSubstr("SmolLM2-135M-Instruct"));
}

TEST(SampleAlign, NothingRecordedIsAnError) {
  TensorFile file = real_layer("minilm-layer0");
  for (const std::string name : {"q", "k", "v", "weights", "context", "out"}) {
    file.tensors.erase(name);
  }
  try {
    align_sample(file);
    FAIL() << "no error";
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), HasSubstr("expected recorded results"));
  }
}

}  // namespace
}  // namespace qkv
