#include "module/projection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <stdexcept>

#include "tests/cases/attention_cases.h"
#include "tests/module/module_data.h"

namespace qkv {
namespace {

using cases::difference;
using cases::random_tensor;
using cases::same_bits;
using testing::StrEq;
using testing::ThrowsMessage;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

constexpr Index kBatch = 2, kTokens = 3, kIn = 4, kOut = 5;

struct Projection : testing::Test {
  Tensor<double, 3> x = random_tensor<double, 3>({kBatch, kTokens, kIn}, 1);
  Tensor<double, 3> dy = random_tensor<double, 3>({kBatch, kTokens, kOut}, 2);
  Tensor<double, 2> weight = random_tensor<double, 2>({kOut, kIn}, 3);
  std::optional<Tensor<double, 1>> bias = random_tensor<double, 1>({kOut}, 4);

  Tensor<double, 3> projected(const TensorView<const double, 3>& input) const {
    Tensor<double, 3> y({input.shape(0), input.shape(1), kOut});
    project<double>(input, weight, bias, y);
    return y;
  }
};

TEST_F(Projection, ForwardIsTheSumThatTheFormulaSays) {
  const auto y = projected(x.view());
  for (Index b = 0; b < kBatch; ++b) {
    for (Index t = 0; t < kTokens; ++t) {
      for (Index o = 0; o < kOut; ++o) {
        double sum = (*bias)(o);
        for (Index i = 0; i < kIn; ++i) sum += weight(o, i) * x(b, t, i);
        EXPECT_NEAR(y(b, t, o), sum, 1e-14);
      }
    }
  }
}

TEST_F(Projection, GradientsAreTheSumsThatTheFormulasSay) {
  Tensor<double, 3> dx = random_tensor<double, 3>({kBatch, kTokens, kIn}, 5);
  const Tensor<double, 3> before = dx;
  add_input_gradient<double>(dy.view(), weight, dx);
  const auto dw = weight_gradient<double>(dy.view(), x.view());
  const auto db = bias_gradient<double>(dy.view());

  Tensor<double, 2> dw_expected({kOut, kIn});
  Tensor<double, 1> db_expected({kOut});
  Tensor<double, 3> dx_expected = before;
  for (Index b = 0; b < kBatch; ++b) {
    for (Index t = 0; t < kTokens; ++t) {
      for (Index o = 0; o < kOut; ++o) {
        db_expected(o) += dy(b, t, o);
        for (Index i = 0; i < kIn; ++i) {
          dw_expected(o, i) += dy(b, t, o) * x(b, t, i);
          dx_expected(b, t, i) += dy(b, t, o) * weight(o, i);
        }
      }
    }
  }
  EXPECT_LE((difference(dx, dx_expected)), 1e-14);
  EXPECT_LE((difference(dw, dw_expected)), 1e-14);
  EXPECT_LE((difference(db, db_expected)), 1e-14);
}

TEST_F(Projection, AnyStridesGiveTheSameBits) {
  const auto expected = projected(x.view());
  const auto check = [&](const TensorView<const double, 3>& view, const char* what) {
    EXPECT_TRUE(same_bits(projected(view), expected)) << what;
    const auto dw = weight_gradient<double>(dy.view(), x.view());
    EXPECT_TRUE(same_bits(weight_gradient<double>(dy.view(), view), dw)) << what;
  };

  Tensor<double, 3> wide({kBatch, kTokens, kIn + 3});
  Tensor<double, 3> time_major({kTokens, kBatch, kIn});
  Tensor<double, 3> columns({kBatch, kIn, kTokens});
  Tensor<double, 3> reversed({kBatch, kTokens, kIn});
  for (Index b = 0; b < kBatch; ++b) {
    for (Index t = 0; t < kTokens; ++t) {
      for (Index i = 0; i < kIn; ++i) {
        wide(b, t, i + 1) = time_major(t, b, i) = columns(b, i, t) = x(b, t, i);
        reversed(b, kTokens - 1 - t, i) = x(b, t, i);
      }
    }
  }
  check(std::as_const(wide).view().slice(2, 1, kIn + 1), "columns of a wider tensor");
  check(std::as_const(time_major).view().transposed(0, 1), "time-major");
  check(std::as_const(columns).view().transposed(1, 2), "tokens along the last axis");
  check({&reversed(0, kTokens - 1, 0), {kBatch, kTokens, kIn}, {kTokens * kIn, -kIn, 1}},
        "negative stride");
}

TEST_F(Projection, ABroadcastInputIsReadAsIfRepeated) {
  const TensorView<const double, 3> repeated(x.data(), {kBatch, kTokens, kIn}, {0, kIn, 1});
  const auto y = projected(repeated);
  const auto expected = projected(contiguous_copy(repeated).view());
  EXPECT_TRUE(same_bits(y, expected));
}

TEST_F(Projection, NothingInNothingOut) {
  for (const Extents<2> extents : {Extents<2>{0, kTokens}, {kBatch, 0}}) {
    const Tensor<double, 3> none({extents[0], extents[1], kIn});
    const Tensor<double, 3> no_gradient({extents[0], extents[1], kOut});
    EXPECT_EQ(projected(none.view()).elements().size(), 0U);
    const auto dw = weight_gradient<double>(no_gradient.view(), none.view());
    EXPECT_EQ(dw.shape(), (Extents<2>{kOut, kIn}));
    for (const double entry : dw.elements()) EXPECT_EQ(entry, 0);
    const auto db = bias_gradient<double>(no_gradient.view());
    for (const double entry : db.elements()) EXPECT_EQ(entry, 0);
  }
}

TEST_F(Projection, GarbageWithoutGradientChangesNoBitOfTheWeightGradient) {
  for (Index o = 0; o < kOut; ++o) dy(1, 0, o) = 0;
  const auto expected = weight_gradient<double>(dy.view(), x.view());
  for (const double garbage : {kNan, kInfinity, -kInfinity}) {
    for (Index i = 0; i < kIn; ++i) x(1, 0, i) = garbage;
    const auto actual = weight_gradient<double>(dy.view(), x.view());
    EXPECT_TRUE(same_bits(actual, expected)) << garbage;
  }
}

TEST_F(Projection, GarbageReachesExactlyTheRowsThatUseIt) {
  for (Index o = 0; o < kOut; ++o) dy(1, 0, o) = o == 2 ? 3 : 0;
  const auto clean = weight_gradient<double>(dy.view(), x.view());
  x(1, 0, 0) = kNan;
  x(1, 0, 1) = kInfinity;
  const auto dw = weight_gradient<double>(dy.view(), x.view());
  for (Index o = 0; o < kOut; ++o) {
    for (Index i = 0; i < kIn; ++i) {
      if (o == 2 && i == 0) {
        EXPECT_TRUE(std::isnan(dw(o, i)));
      } else if (o == 2 && i == 1) {
        EXPECT_EQ(dw(o, i), kInfinity);
      } else {
        EXPECT_NEAR(dw(o, i), clean(o, i), 1e-14);
      }
    }
  }
}

}  // namespace
}  // namespace qkv
