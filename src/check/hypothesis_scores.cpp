// S1 to S4, X1, X2, N1 to N3, and what is added to scores: E1.
#include <fmt/format.h>

#include <cmath>
#include <numbers>

#include "check/hypothesis_list.h"

namespace qkv {
namespace {

class ScoreList {
 public:
  ScoreList(const Dump& dump, std::vector<Hypothesis>& list) : dump_(dump), list_(list) {}

  Hypothesis& add(std::string id, int rank, std::uint32_t touches, std::string text,
                  std::function<void(Variant&)> apply) {
    list_.push_back({std::move(id), std::move(text), touches, std::move(apply), {}, rank, {}});
    return list_.back();
  }

  void add_free(std::string id, int rank, std::uint32_t touches, std::string text,
                FreeParameter parameter) {
    add(std::move(id), rank, touches, std::move(text), [](Variant&) {}).free = std::move(parameter);
  }

  void scale() {
    const auto dk = static_cast<double>(dump_.shape.key_width);
    const auto with = [&](const char* id, int rank, std::string text, double value) {
      if (std::fabs(value - dump_.scale) <= 1e-12 * std::fabs(value)) return;
      add(id, rank, stage::scale, std::move(text), [value](Variant& v) {
        v.score.scale = value;
      }).parameters["scale"] = value;
    };
    with("S1", 10, "scores are not scaled", 1);
    if (dump_.shape.heads > 1) {
      const double model = dk * static_cast<double>(dump_.shape.heads);
      with("S2", 11, "scores are scaled by the model's width: 1/sqrt(H*Dk)", 1 / std::sqrt(model));
      if (dump_.projections) {
        const auto width = static_cast<double>(dump_.projections->input.shape(2));
        if (width != model) {
          with("S2", 11, "scores are scaled by the model's width: 1/sqrt(D)", 1 / std::sqrt(width));
        }
      }
    }
    with("S3", 12, "scores are scaled twice", dump_.scale * dump_.scale);
    with("S3", 12, "scores are scaled by 1/Dk", 1 / dk);
    with("S3", 12, "scores are multiplied by sqrt(Dk)", std::sqrt(dk));
    with("S3", 12, "scores are multiplied by Dk", dk);
    with("S3", 13, "scores are scaled by 1/sqrt(Dk)", 1 / std::sqrt(dk));
    with("S3", 13, "scores are scaled by 0.5", 0.5);
    with("S3", 13, "scores are scaled by 0.125", 0.125);
    add_free("S3", 20, stage::scale, "scores are scaled by another constant",
             {"scale", logarithmic(1e-4, 1e3, 141), false, true,
              [](Variant& v, double value) { v.score.scale = value; }});
    const double root = 1 / std::sqrt(dk);
    for (const double factor : {dump_.scale, root}) {
      add("S4", 12, stage::scale | stage::weight, "the scale is applied after the softmax",
          [factor](Variant& v) {
            v.score.scale = 1;
            v.softmax.weight_factor = factor;
          });
      add("E1", 16, stage::weight, "values are multiplied by the scale, beside the scores",
          [factor](Variant& v) { v.softmax.weight_factor = factor; });
      if (std::fabs(root - dump_.scale) < 1e-12) break;
    }
    add_free("E1", 35, stage::weight, "values (or the context) are multiplied by a constant",
             {"factor", both_signs(logarithmic(1e-3, 1e3, 121)), false, false,
              [](Variant& v, double value) { v.softmax.weight_factor = value; }});
  }

  void softmax() {
    struct Choice {
      SoftmaxAxis axis;
      const char* text;
      bool possible;
    };
    const Choice choices[] = {
        {SoftmaxAxis::Queries, "the softmax runs over the queries", true},
        {SoftmaxAxis::Heads, "the softmax runs over the heads", true},
        {SoftmaxAxis::Batch, "the softmax runs over the batch", true},
    };
    for (const Choice& choice : choices) {
      if (!choice.possible) continue;
      for (const EmptyPolicy policy : {EmptyPolicy::Zero, EmptyPolicy::NaN, EmptyPolicy::Mean}) {
        add("X1", 14, stage::axis | stage::empty, choice.text, [choice, policy](Variant& v) {
          v.softmax.axis = choice.axis;
          v.empty = policy;
        });
      }
    }
    if (dump_.shape.queries == dump_.shape.keys && dump_.shape.queries > 1) {
      add("X2", 16, stage::transposed | stage::axis,
          "the weights are transposed before they meet the values",
          [](Variant& v) { v.softmax.transposed = true; });
    }
    add("N2", 11, stage::exponent, "2^s stands for e^s: the scores were not multiplied by log2(e)",
        [](Variant& v) { v.softmax.exponent = std::numbers::ln2; });
    add("N2", 13, stage::exponent, "e^s after the scores were multiplied by log2(e)",
        [](Variant& v) { v.softmax.exponent = std::numbers::log2e; });
    tail();
  }

  void tail() {
    const Index keys = dump_.shape.keys;
    for (const Index tile : {4, 8, 16, 32, 64, 128, 256}) {
      const Index pad = (tile - keys % tile) % tile;
      if (pad == 0) continue;
      auto& hypothesis =
          add("N1", 12, stage::tail,
              fmt::format("the padded tail of the last tile of {} keys counts as exp(0)", tile),
              [pad](Variant& v) { v.softmax.tail = static_cast<double>(pad); });
      hypothesis.parameters["tile"] = static_cast<double>(tile);
      hypothesis.parameters["tail"] = static_cast<double>(pad);
    }
    add_free("E1", 33, stage::tail, "a sink takes weight that is not meant, as so many scores of 0",
             {"tail", logarithmic(1e-4, 1e5, 181), false, true,
              [](Variant& v, double value) { v.softmax.tail = value; }});
    if (!dump_.sink) return;
    add("E1", 13, stage::tail, "the sink is missing",
        [](Variant& v) { v.softmax.sink_missing = true; });
    add_free("E1", 34, stage::tail, "the sink is another one for all heads",
             {"tail", logarithmic(1e-4, 1e5, 181), false, true, [](Variant& v, double value) {
                v.softmax.sink_missing = true;
                v.softmax.tail = value;
              }});
  }

  void overflow() {
    if (dump_.ran_in != DType::Float16) return;
    add("N3", 12, stage::product, "q*k overflows float16 before it is scaled",
        [](Variant& v) { v.score.overflow = true; });
    add("N3", 13, stage::product, "q*k saturates at the largest float16 before it is scaled",
        [](Variant& v) { v.score.saturate = true; });
  }

  void softcap() {
    if (!dump_.softcap) {
      add_free("E1", 36, stage::softcap, "a softcap is applied that is not meant",
               {"softcap", logarithmic(0.5, 200, 61), false, true,
                [](Variant& v, double value) { v.score.softcap = value; }});
      return;
    }
    const auto order = [&](SoftcapOrder softcap_order, const char* text) {
      add("E1", 12, stage::softcap, text,
          [softcap_order](Variant& v) { v.score.softcap_order = softcap_order; });
    };
    order(SoftcapOrder::Missing, "the softcap is missing");
    order(SoftcapOrder::AfterMask, "the softcap comes after the mask: hidden scores become -cap");
    if (dump_.bias || dump_.alibi_slopes) {
      order(SoftcapOrder::AfterBias, "the softcap comes after the bias");
    }
    order(SoftcapOrder::BeforeScale, "the softcap comes before the scale");
    add_free("E1", 25, stage::softcap, "the softcap is another one",
             {"softcap", logarithmic(0.1, 1000, 81), false, true,
              [](Variant& v, double value) { v.score.softcap = value; }});
  }

  void bias() {
    if (!dump_.bias) return;
    add("E1", 12, stage::bias, "the bias is missing",
        [](Variant& v) { v.score.bias_order = BiasOrder::Missing; });
    add("E1", 12, stage::bias, "the bias is scaled with the scores",
        [](Variant& v) { v.score.bias_order = BiasOrder::Scaled; });
    add("E1", 12, stage::bias, "the bias is subtracted",
        [](Variant& v) { v.score.bias_factor = -1; });
    if (dump_.shape.queries == dump_.shape.keys &&
        (dump_.bias->shape(2) > 1 || dump_.bias->shape(3) > 1)) {
      add("E1", 14, stage::bias, "the bias is transposed",
          [](Variant& v) { v.score.bias_transposed = true; });
    }
    add_free("E1", 26, stage::bias, "the bias is multiplied by a constant",
             {"factor", both_signs(logarithmic(1e-2, 1e2, 41)), false, false,
              [](Variant& v, double value) { v.score.bias_factor = value; }});
  }

  void alibi() {
    if (!dump_.alibi_slopes) return;
    const auto with = [&](const char* text, double factor) {
      add("E1", 12, stage::alibi, text, [factor](Variant& v) { v.score.alibi_factor = factor; });
    };
    with("ALiBi is missing", 0);
    with("ALiBi has the opposite sign: distance is rewarded", -1);
    with("ALiBi is scaled with the scores", dump_.scale);
    const double ratio = std::exp2(8.0 / static_cast<double>(dump_.shape.heads));
    with("ALiBi's slopes start one head early: 2^(-8h/H) with h from 0", ratio);
    with("ALiBi's slopes start one head late", 1 / ratio);
    if (dump_.shape.heads > 1) {
      add("E1", 13, stage::alibi, "ALiBi's slopes are in the opposite order of heads",
          [](Variant& v) { v.score.alibi_head = AlibiHead::Reversed; });
    }
    if (dump_.shape.heads > 1) {
      add("E1", 13, stage::alibi, "ALiBi has the first head's slope in every head",
          [](Variant& v) { v.score.alibi_head = AlibiHead::First; });
    }
    add_free("E1", 26, stage::alibi, "ALiBi's slopes are multiplied by a constant",
             {"factor", both_signs(logarithmic(1e-2, 1e2, 81)), false, false,
              [](Variant& v, double value) { v.score.alibi_factor = value; }});
    const Index difference = dump_.shape.keys - dump_.shape.queries;
    for (const Index offset : {Index{0}, difference}) {
      auto& hypothesis = add("E1", 13, stage::alibi, "ALiBi's distance starts at another corner",
                             [offset](Variant& v) { v.score.alibi_corner.offset = offset; });
      hypothesis.parameters["alibi_offset"] = static_cast<double>(offset);
      if (difference == 0) break;
    }
  }

 private:
  static std::vector<double> logarithmic(double first, double last, int count) {
    std::vector<double> grid;
    grid.reserve(static_cast<std::size_t>(count));
    for (int i = 0; i < count; ++i) {
      grid.push_back(first * std::pow(last / first, static_cast<double>(i) / (count - 1)));
    }
    return grid;
  }
  static std::vector<double> both_signs(const std::vector<double>& positive) {
    std::vector<double> grid(positive.rbegin(), positive.rend());
    for (double& value : grid) value = -value;
    grid.insert(grid.end(), positive.begin(), positive.end());
    return grid;
  }

  const Dump& dump_;
  std::vector<Hypothesis>& list_;
};

}  // namespace

void list_score_hypotheses(const Dump& dump, std::vector<Hypothesis>& list) {
  ScoreList scores(dump, list);
  scores.scale();
  scores.softmax();
  scores.overflow();
  scores.softcap();
  scores.bias();
  scores.alibi();
}

}  // namespace qkv
