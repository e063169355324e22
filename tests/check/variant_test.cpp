#include "check/variant_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numbers>

#include "check/expected.h"
#include "tests/check/small_dump.h"

namespace qkv::test {
namespace {

const AttentionShape kShape{2, 4, 2, 6, 6, 4, 3};

/// The largest difference of every row from the dump's context; NaN in one of them only is infinite.
double largest_difference(const Dump& dump, const Variant& variant) {
  const Evaluator evaluator(dump, 1);
  const auto rows = evaluator.all_rows();
  const VariantRows got = evaluator.rows(variant, rows);
  double largest = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto expected = evaluator.recorded(rows[i]);
    for (std::size_t d = 0; d < expected.size(); ++d) {
      const double value = got.values(static_cast<Index>(i), static_cast<Index>(d));
      if (std::isnan(value) && std::isnan(expected[d])) continue;
      const double difference = std::fabs(value - expected[d]);
      largest = std::isnan(difference) ? std::numeric_limits<double>::infinity()
                                       : std::max(largest, difference);
    }
  }
  return largest;
}

constexpr double kTolerance = 1e-12;

/// Every rule and every modifier.
Dump full_dump() {
  Dump dump = plain_dump({2, 4, 2, 5, 7, 4, 3});
  DumpRules& rules = dump.rules;
  rules.causal = true;
  rules.corner = Corner::bottom_right();
  rules.prefix = {1, 0};
  rules.window = Window{.left = 4, .right = 3};
  rules.lengths = {7, 5};
  rules.padding = Tensor<bool, 2>({2, 7});
  std::fill(rules.padding->elements().begin(), rules.padding->elements().end(), true);
  (*rules.padding)(0, 2) = false;
  rules.boolean = Tensor<bool, 4>({1, 4, 1, 7});
  std::fill(rules.boolean->elements().begin(), rules.boolean->elements().end(), true);
  (*rules.boolean)(0, 1, 0, 0) = false;
  rules.query_documents = Tensor<Index, 2>({2, 5});
  rules.key_documents = Tensor<Index, 2>({2, 7});
  for (Index t = 0; t < 5; ++t) (*rules.query_documents)(1, t) = t / 3;
  for (Index s = 0; s < 7; ++s) (*rules.key_documents)(1, s) = s / 4;
  dump.scale = 0.4;
  dump.softcap = 2;
  dump.bias = normal<4>({1, 4, 5, 7}, 11);
  dump.alibi_slopes = standard_alibi_slopes(4);
  dump.sink = normal<1>({4}, 12);
  DumpRotary rotary{{.base = 100, .width = 2}, Tensor<Index, 2>({2, 5}), Tensor<Index, 2>({2, 7})};
  for (Index t = 0; t < 5; ++t) rotary.query_positions(0, t) = rotary.query_positions(1, t) = t + 2;
  for (Index s = 0; s < 7; ++s) rotary.key_positions(0, s) = rotary.key_positions(1, s) = s;
  dump.rotary = rotary;
  dump.qk_norm = DumpQkNorm{normal<1>({4}, 13), normal<1>({4}, 14), 1e-5, true};
  return dump;
}

TEST(Variant, DefaultIsWhatTheOracleComputes) {
  Dump dump = full_dump();
  dump.context = expected_results(dump, DType::Float64).context.value;
  EXPECT_LE(largest_difference(dump, {}), kTolerance);
}

TEST(Variant, EmptyRowsGiveWhatThePolicySays) {
  Dump dump = plain_dump(kShape);
  dump.rules.lengths = {0, 6};
  for (const auto& [intended, first] :
       {std::pair{EmptyRow::Zero, 0.0}, std::pair{EmptyRow::NaN, std::nan("")}}) {
    dump.empty_row = intended;
    attend(dump,
           [&](const Place& at) { return at.b == 0 ? kHidden : dump.scale * product(dump, at); });
    for (Index i = 0; i < 4 * 6 * 3; ++i) dump.context->data()[i] = first;
    EXPECT_LE(largest_difference(dump, {}), kTolerance);
  }
  Variant mean;
  mean.empty = EmptyPolicy::Mean;
  attend(dump, [&](const Place& at) { return at.b == 0 ? 0 : dump.scale * product(dump, at); });
  EXPECT_LE(largest_difference(dump, mean), kTolerance);
}

struct ScoreCase {
  const char* name;
  std::function<void(Dump&)> rules;
  std::function<void(Variant&)> change;
  /// What the change makes of a score, by the definition of the class.
  std::function<double(const Dump&, const Place&)> score;
};

Index length(const Dump& dump, Index b) { return dump.rules.lengths[static_cast<std::size_t>(b)]; }

double scaled(const Dump& dump, const Place& at) { return dump.scale * product(dump, at); }

void causal(Dump& dump) { dump.rules.causal = true; }
void padded(Dump& dump) { dump.rules.lengths = {6, 4}; }
void windowed(Dump& dump) { dump.rules.window = Window{.left = 2, .right = 0}; }
void capped(Dump& dump) {
  causal(dump);
  dump.softcap = 1.5;
}
void sloped(Dump& dump) { dump.alibi_slopes = standard_alibi_slopes(4); }
void biased(Dump& dump) { dump.bias = normal<4>({1, 1, 6, 6}, 9); }

const ScoreCase kScoreCases[] = {
    {"M1", causal, [](Variant& v) { v.visibility.rules[kCausal].complement = true; },
     [](const Dump& dump, const Place& at) { return at.s > at.t ? scaled(dump, at) : kHidden; }},
    {"M2", padded, [](Variant& v) { v.visibility.padding_axis = PaddingAxis::Query; },
     [](const Dump& dump, const Place& at) {
       return at.t < length(dump, at.b) ? scaled(dump, at) : kHidden;
     }},
    {"M13", padded, [](Variant& v) { v.visibility.padding_axis = PaddingAxis::Head; },
     [](const Dump& dump, const Place& at) {
       return at.h < length(dump, at.b) ? scaled(dump, at) : kHidden;
     }},
    {"M4 times", causal,
     [](Variant& v) {
       v.visibility.rules[kCausal] = {.application = Application::Fill, .value = 0};
     },
     [](const Dump& dump, const Place& at) { return at.s <= at.t ? scaled(dump, at) : 0; }},
    {"M4 added", causal,
     [](Variant& v) {
       v.visibility.rules[kCausal] = {.application = Application::Add, .value = -1};
     },
     [](const Dump& dump, const Place& at) { return scaled(dump, at) - (at.s <= at.t ? 0 : 1); }},
    {"M7", causal, [](Variant& v) { v.visibility.rules[kCausal].dropped = true; }, scaled},
    {"M8 diagonal", causal, [](Variant& v) { v.visibility.triangle = Triangle::Strict; },
     [](const Dump& dump, const Place& at) { return at.s < at.t ? scaled(dump, at) : kHidden; }},
    {"M8 triangle", causal, [](Variant& v) { v.visibility.triangle = Triangle::Upper; },
     [](const Dump& dump, const Place& at) { return at.s >= at.t ? scaled(dump, at) : kHidden; }},
    {"M9", windowed,
     [](Variant& v) {
       v.visibility.window_changed = true;
       v.visibility.window_left = v.visibility.window_right = 1;
     },
     [](const Dump& dump, const Place& at) {
       return std::abs(at.s - at.t) <= 1 ? scaled(dump, at) : kHidden;
     }},
    {"M10", causal, [](Variant& v) { v.visibility.causal_corner.offset = 2; },
     [](const Dump& dump, const Place& at) {
       return at.s <= at.t + 2 ? scaled(dump, at) : kHidden;
     }},
    {"M11", padded, [](Variant& v) { v.visibility.rules[kPadding].sample = SampleMap::Tiled; },
     [](const Dump& dump, const Place& at) {
       return at.s < length(dump, (at.b * 4 + at.h) % 2) ? scaled(dump, at) : kHidden;
     }},
    {"S1", causal, [](Variant& v) { v.score.scale = 1; },
     [](const Dump& dump, const Place& at) { return at.s <= at.t ? product(dump, at) : kHidden; }},
    {"N2", sloped, [](Variant& v) { v.softmax.exponent = std::numbers::ln2; },
     [](const Dump& dump, const Place& at) {
       const double slope = (*dump.alibi_slopes)[static_cast<std::size_t>(at.h)];
       return std::numbers::ln2 *
              (scaled(dump, at) - slope * std::abs(static_cast<double>(at.t - at.s)));
     }},
    {"E1 softcap after the mask", capped,
     [](Variant& v) { v.score.softcap_order = SoftcapOrder::AfterMask; },
     [](const Dump& dump, const Place& at) {
       return at.s <= at.t ? 1.5 * std::tanh(scaled(dump, at) / 1.5) : -1.5;
     }},
    {"E1 ALiBi sign", sloped, [](Variant& v) { v.score.alibi_factor = -1; },
     [](const Dump& dump, const Place& at) {
       const double slope = (*dump.alibi_slopes)[static_cast<std::size_t>(at.h)];
       return scaled(dump, at) + slope * std::abs(static_cast<double>(at.t - at.s));
     }},
    {"E1 bias scaled", biased, [](Variant& v) { v.score.bias_order = BiasOrder::Scaled; },
     [](const Dump& dump, const Place& at) {
       return dump.scale * (product(dump, at) + (*dump.bias)(0, 0, at.t, at.s));
     }},
};

TEST(Variant, ScoresAreThoseOfTheClass) {
  for (const ScoreCase& test : kScoreCases) {
    Dump dump = plain_dump(kShape);
    test.rules(dump);
    attend(dump, [&](const Place& at) { return test.score(dump, at); });
    Variant variant;
    test.change(variant);
    EXPECT_LE(largest_difference(dump, variant), kTolerance) << test.name;
    EXPECT_GT(largest_difference(dump, {}), 1e-3) << test.name;
  }
}

/// Weights [B,H,T,S] of plain attention.
Tensor<double, 4> plain_weights(const Dump& dump) {
  const AttentionShape& shape = dump.shape;
  Tensor<double, 4> weights({shape.batch, shape.heads, shape.queries, shape.keys});
  for (Index b = 0; b < shape.batch; ++b) {
    for (Index h = 0; h < shape.heads; ++h) {
      for (Index t = 0; t < shape.queries; ++t) {
        double sum = 0;
        for (Index s = 0; s < shape.keys; ++s) sum += std::exp(scaled(dump, {b, h, t, s}));
        for (Index s = 0; s < shape.keys; ++s) {
          weights(b, h, t, s) = std::exp(scaled(dump, {b, h, t, s})) / sum;
        }
      }
    }
  }
  return weights;
}

/// out[b,h,t,d] = Σ_s weight(b,h,t,s)·v[b,h/g,s,d]
void aggregate(Dump& dump, const std::function<double(const Place&)>& weight) {
  const AttentionShape& shape = dump.shape;
  for (Index b = 0; b < shape.batch; ++b) {
    for (Index h = 0; h < shape.heads; ++h) {
      for (Index t = 0; t < shape.queries; ++t) {
        for (Index d = 0; d < shape.value_width; ++d) {
          double sum = 0;
          for (Index s = 0; s < shape.keys; ++s) {
            sum += weight({b, h, t, s}) * dump.value(b, h / shape.group(), s, d);
          }
          (*dump.context)(b, h, t, d) = sum;
        }
      }
    }
  }
}

struct WeightCase {
  const char* name;
  std::function<void(Variant&)> change;
  std::function<double(const Tensor<double, 4>& weights, const Dump&, const Place&)> weight;
};

/// exp(score) of one place over the sum along another axis.
template <class Along>
double over(const Dump& dump, const Place& at, Index count, Along along) {
  double sum = 0;
  for (Index i = 0; i < count; ++i) sum += std::exp(scaled(dump, along(i)));
  return std::exp(scaled(dump, at)) / sum;
}

const WeightCase kWeightCases[] = {
    {"S4", [](Variant& v) { v.softmax.weight_factor = 0.5; },
     [](const auto& weights, const Dump&, const Place& at) {
       return 0.5 * weights(at.b, at.h, at.t, at.s);
     }},
    {"X1 queries", [](Variant& v) { v.softmax.axis = SoftmaxAxis::Queries; },
     [](const auto&, const Dump& dump, const Place& at) {
       return over(dump, at, 6, [&](Index i) { return Place{at.b, at.h, i, at.s}; });
     }},
    {"X1 heads", [](Variant& v) { v.softmax.axis = SoftmaxAxis::Heads; },
     [](const auto&, const Dump& dump, const Place& at) {
       return over(dump, at, 4, [&](Index i) { return Place{at.b, i, at.t, at.s}; });
     }},
    {"X1 batch", [](Variant& v) { v.softmax.axis = SoftmaxAxis::Batch; },
     [](const auto&, const Dump& dump, const Place& at) {
       return over(dump, at, 2, [&](Index i) { return Place{i, at.h, at.t, at.s}; });
     }},
    {"X2", [](Variant& v) { v.softmax.transposed = true; },
     [](const auto& weights, const Dump&, const Place& at) {
       return weights(at.b, at.h, at.s, at.t);
     }},
    {"H4 mean of weights", [](Variant& v) { v.head_mean = HeadMean::Weights; },
     [](const auto& weights, const Dump&, const Place& at) {
       double sum = 0;
       for (Index h = 0; h < 4; ++h) sum += weights(at.b, h, at.t, at.s);
       return sum / 4;
     }},
    {"N1", [](Variant& v) { v.softmax.tail = 2; },
     [](const auto&, const Dump& dump, const Place& at) {
       double sum = 2;
       for (Index s = 0; s < 6; ++s) sum += std::exp(scaled(dump, {at.b, at.h, at.t, s}));
       return std::exp(scaled(dump, at)) / sum;
     }},
};

TEST(Variant, ARowWhoseScoresAllOverflowIsNoNumber) {
  // Row 0 sees key 0 alone, whose product is below −65,520; row 1 sees key 1, too, whose product fits.
  Dump dump = plain_dump({1, 1, 1, 2, 2, 1, 1}, DType::Float16);
  dump.rules.causal = true;
  dump.query(0, 0, 0, 0) = dump.query(0, 0, 1, 0) = 300;
  dump.key(0, 0, 0, 0) = -300;
  dump.key(0, 0, 1, 0) = 0.01;
  (*dump.context)(0, 0, 0, 0) = std::numeric_limits<double>::quiet_NaN();
  (*dump.context)(0, 0, 1, 0) = dump.value(0, 0, 1, 0);
  Variant variant;
  variant.score.overflow = true;
  EXPECT_LT(largest_difference(dump, variant), kTolerance);
  variant.empty = EmptyPolicy::Zero;
  (*dump.context)(0, 0, 0, 0) = 0;
  EXPECT_LT(largest_difference(dump, variant), kTolerance);
}

TEST(Variant, WeightsAreThoseOfTheClass) {
  for (const WeightCase& test : kWeightCases) {
    Dump dump = plain_dump(kShape);
    const Tensor<double, 4> weights = plain_weights(dump);
    aggregate(dump, [&](const Place& at) { return test.weight(weights, dump, at); });
    Variant variant;
    test.change(variant);
    EXPECT_LE(largest_difference(dump, variant), kTolerance) << test.name;
    EXPECT_GT(largest_difference(dump, {}), 1e-3) << test.name;
  }
}

TEST(Variant, MasksAfterTheSoftmaxLeaveTheOtherWeights) {
  Dump dump = plain_dump(kShape);
  causal(dump);
  const Tensor<double, 4> weights = plain_weights(dump);
  aggregate(dump,
            [&](const Place& at) { return at.s <= at.t ? weights(at.b, at.h, at.t, at.s) : 0; });
  Variant variant;
  variant.visibility.rules[kCausal].application = Application::AfterSoftmax;
  EXPECT_LE(largest_difference(dump, variant), kTolerance);
}

/// q, k or v [B,heads,T,D] as [B,T,heads·D] in memory.
std::vector<double> merged(const Tensor<double, 4>& heads) {
  std::vector<double> memory;
  for (Index b = 0; b < heads.shape(0); ++b) {
    for (Index t = 0; t < heads.shape(2); ++t) {
      for (Index h = 0; h < heads.shape(1); ++h) {
        for (Index d = 0; d < heads.shape(3); ++d) memory.push_back(heads(b, h, t, d));
      }
    }
  }
  return memory;
}

TEST(Variant, SplitsByAViewReadMemoryInItsOrder) {
  Dump dump = plain_dump(kShape);
  Dump seen = dump;
  for (const auto member : {&Dump::query, &Dump::key, &Dump::value}) {
    const std::vector<double> memory = merged(dump.*member);
    std::copy(memory.begin(), memory.end(), (seen.*member).data());
  }
  attend(seen, [&](const Place& at) { return scaled(seen, at); });
  dump.context = seen.context;
  Variant variant;
  variant.split = {HeadOrder::View, HeadOrder::View, HeadOrder::View};
  EXPECT_LE(largest_difference(dump, variant), kTolerance);
}

TEST(Variant, MergesByAViewWriteMemoryInItsOrder) {
  Dump dump = plain_dump(kShape);
  dump.stage = OutStage::Merged;
  attend(dump, [&](const Place& at) { return scaled(dump, at); });
  // What a reader of [B,T,H·Dv] makes of [B,H,T,Dv].
  const Tensor<double, 4> right = *dump.context;
  const auto [batch, heads, queries, width] = right.shape();
  const double* memory = right.data();
  for (Index b = 0; b < batch; ++b) {
    for (Index t = 0; t < queries; ++t) {
      for (Index h = 0; h < heads; ++h) {
        for (Index d = 0; d < width; ++d) (*dump.context)(b, h, t, d) = *memory++;
      }
    }
  }
  Variant variant;
  variant.output.merge = HeadOrder::View;
  EXPECT_LE(largest_difference(dump, variant), kTolerance);
  EXPECT_GT(largest_difference(dump, {}), 1e-3);
}

TEST(Variant, AttendsOverTheHeads) {
  Dump dump = plain_dump({2, 4, 4, 6, 6, 4, 3});
  for (Index b = 0; b < 2; ++b) {
    for (Index h = 0; h < 4; ++h) {
      for (Index t = 0; t < 6; ++t) {
        std::vector<double> weight;
        double sum = 0;
        for (Index other = 0; other < 4; ++other) {
          double score = 0;
          for (Index d = 0; d < 4; ++d) score += dump.query(b, h, t, d) * dump.key(b, other, t, d);
          weight.push_back(std::exp(dump.scale * score));
          sum += weight.back();
        }
        for (Index d = 0; d < 3; ++d) {
          double value = 0;
          for (Index other = 0; other < 4; ++other) {
            value += weight[static_cast<std::size_t>(other)] * dump.value(b, other, t, d);
          }
          (*dump.context)(b, h, t, d) = value / sum;
        }
      }
    }
  }
  Variant variant;
  variant.attended = Attended::Heads;
  EXPECT_LE(largest_difference(dump, variant), kTolerance);
}

/// x, weights, and out = projected context.
Dump projected_dump() {
  Dump dump = plain_dump({2, 3, 3, 5, 5, 4, 4});
  DumpProjections p{normal<3>({2, 5, 12}, 21),
                    normal<3>({2, 5, 12}, 21),
                    false,
                    normal<2>({12, 12}, 22),
                    normal<2>({12, 12}, 23),
                    normal<2>({12, 12}, 24),
                    {},
                    {},
                    {},
                    Packing::ByInput};
  dump.projections = p;
  dump.has_heads = false;
  return dump;
}

/// x·Wᵀ, or x·W, split into heads.
Tensor<double, 4> project(const Tensor<double, 3>& x, const Tensor<double, 2>& weight,
                          bool transposed = false) {
  Tensor<double, 4> heads({2, 3, 5, 4});
  for (Index b = 0; b < 2; ++b) {
    for (Index t = 0; t < 5; ++t) {
      for (Index row = 0; row < 12; ++row) {
        double sum = 0;
        for (Index i = 0; i < 12; ++i)
          sum += x(b, t, i) * (transposed ? weight(i, row) : weight(row, i));
        heads(b, row / 4, t, row % 4) = sum;
      }
    }
  }
  return heads;
}

TEST(Variant, ProjectsByOtherWeights) {
  Dump dump = projected_dump();
  const DumpProjections& p = *dump.projections;
  const auto expect = [&](const Tensor<double, 4>& q, const Tensor<double, 4>& k,
                          const Tensor<double, 4>& v, const ProjectionVariant& projection) {
    Dump seen = dump;
    seen.query = q;
    seen.key = k;
    seen.value = v;
    attend(seen, [&](const Place& at) { return scaled(seen, at); });
    dump.context = seen.context;
    dump.query = project(p.input, p.query_weight);
    dump.key = project(p.input, p.key_weight);
    dump.value = project(p.input, p.value_weight);
    Variant variant;
    variant.projection = projection;
    EXPECT_LE(largest_difference(dump, variant), 1e-10);
  };
  const auto q = project(p.input, p.query_weight);
  const auto k = project(p.input, p.key_weight);
  const auto v = project(p.input, p.value_weight);
  expect(q, k, v, {});
  ProjectionVariant wrong_value;
  wrong_value.weight[kValue] = kKey;
  expect(q, k, k, wrong_value);
  ProjectionVariant transposed;
  transposed.transposed[kKey] = true;
  expect(q, project(p.input, p.key_weight, true), v, transposed);
  ProjectionVariant packed;
  packed.packed_order = {kValue, kQuery, kKey};  // [v; q; k] read out of [q; k; v]
  expect(k, v, q, packed);
}

TEST(Variant, UnitsGrowWithTheDtype) {
  Dump dump = plain_dump(kShape);
  attend(dump, [&](const Place& at) { return scaled(dump, at); });
  double smaller = 0;
  for (const DType dtype : {DType::Float64, DType::Float32, DType::Float16, DType::BFloat16}) {
    dump.ran_in = dtype;
    const Evaluator evaluator(dump, 1);
    const auto rows = evaluator.rows({}, evaluator.all_rows());
    EXPECT_GT(rows.units(0, 0), 4 * smaller);
    smaller = rows.units(0, 0);
  }
}

}  // namespace
}  // namespace qkv::test
