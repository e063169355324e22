#include "bench/attention_subject.h"

#include <map>
#include <string>
#include <vector>

#include "bench/draw.h"
#include "bench/oracle_check.h"
#include "bench/shared_tensor.h"
#include "qkv/reference.h"

namespace qkv::bench {
namespace {

constexpr double kOracleWork = 1e8;  // products of one check: a fraction of a second

struct Rows {
  Index first = 0;
  Index count = 0;
};

/// All rows, or as many as the oracle computes soon: the first, the middle and the last.
std::vector<Rows> checked_rows(const BenchCase& one) {
  const double of_a_row = static_cast<double>(one.batch * one.heads) *
                          static_cast<double>(one.tokens) * static_cast<double>(one.width);
  const Index each = std::max<Index>(1, static_cast<Index>(kOracleWork / 3 / of_a_row));
  if (3 * each >= one.tokens) return {{0, one.tokens}};
  return {{0, each}, {(one.tokens - each) / 2, each}, {one.tokens - each, each}};
}

template <class T>
class AttentionSubject : public Subject {
 public:
  explicit AttentionSubject(const BenchCase& bench_case) : case_(bench_case), context_(shape()) {
    Draw draw;
    query_ = draw.normal<T, 4>(shape());
    key_ = draw.normal<T, 4>(shape());
    value_ = draw.normal<T, 4>(shape());
    const Index tokens = case_.tokens;
    if (case_.mask == BenchMask::Bias) bias_ = draw.normal<T, 4>({1, 1, tokens, tokens});
    if (case_.mask == BenchMask::Boolean) {
      keeps_ = draw.coins<4>({1, 1, tokens, tokens});
      for (Index t = 0; t < tokens; ++t) keeps_(0, 0, t, t) = true;
    }
    if (case_.mask == BenchMask::PaddedQuarter) {
      keeps_ = Tensor<bool, 4>({1, 1, 1, tokens});
      for (Index s = 0; s < tokens; ++s) keeps_(0, 0, 0, s) = s < tokens - tokens / 4;
    }
    documents_ = Tensor<Index, 2>({1, tokens});
    for (Index t = 0; t < tokens; ++t) documents_(0, t) = t / kBenchDocument;
    if (case_.mask == BenchMask::Window256 || case_.mask == BenchMask::Documents512) {
      keeps_ = mask_tensor();  // for the peer, which has no such rule
    }
    for (const Rows& piece : checked_rows(case_)) {
      expected_.push_back(
          {piece, Tensor<double, 4>({case_.batch, case_.heads, piece.count, case_.width})});
    }
    if (!backward()) return;
    log_sum_exp_ = Tensor<T, 3>({case_.batch, case_.heads, tokens});
    output_gradient_ = draw.normal<T, 4>(shape());
    for (Tensor<T, 4>* gradient : {&query_gradient_, &key_gradient_, &value_gradient_}) {
      *gradient = Tensor<T, 4>(shape());
    }
  }

  Call ours() override {
    const AttentionInputs<T> inputs = rows({0, case_.tokens});
    if (backward()) {
      return [this, inputs](const engine::Options& options) {
        engine::forward(inputs, AttentionOutputs<T>{context_.view(), {}, log_sum_exp_.view()},
                        options);
        engine::backward(
            inputs, engine::ForwardResults<T>{context_.view(), log_sum_exp_.view()},
            AttentionOutputGradients<T>{output_gradient_.view(), {}, {}},
            AttentionInputGradients<T>{
                query_gradient_.view(), key_gradient_.view(), value_gradient_.view(), {}, {}},
            options);
      };
    }
    return [this, inputs](const engine::Options& options) {
      engine::forward(inputs, AttentionOutputs<T>{context_.view(), {}, {}}, options);
    };
  }

  TensorFile results() const override {
    TensorFile results;
    results.tensors["output"] = shared(context_);
    if (!backward()) return results;
    results.tensors["random.query"] = shared(query_gradient_);
    results.tensors["random.key"] = shared(key_gradient_);
    results.tensors["random.value"] = shared(value_gradient_);
    return results;
  }

  PeerCall peer_call() const override {
    PeerCall call;
    call.function = peer_function::attention;
    call.heads = case_.heads;
    call.causal = case_.mask == BenchMask::Causal;
    if (case_.mask == BenchMask::Window256) {
      call.rule = {PositionRule::Kind::Window, kBenchWindow};
    } else if (case_.mask == BenchMask::Documents512) {
      call.rule = {PositionRule::Kind::Documents, kBenchDocument};
    }
    call.inputs.tensors = {
        {"query", shared(query_)}, {"key", shared(key_)}, {"value", shared(value_)}};
    if (case_.mask == BenchMask::Bias) {
      call.inputs.tensors["attn_mask"] = shared(bias_);
    } else if (!keeps_.elements().empty()) {
      call.inputs.tensors["attn_mask"] = shared(keeps_);
    }
    if (backward()) call.inputs.tensors["output_gradient"] = shared(output_gradient_);
    return call;
  }

  void run_oracle() override {
    for (Expected& piece : expected_) {
      reference::forward(rows(piece.rows), AttentionOutputs<double>{piece.context.view(), {}, {}});
    }
    if (backward()) expect_gradients();
  }

  double oracle_flops() const override {
    BenchCase forward = case_;
    forward.pass = Pass::Forward;
    Index rows = 0;
    for (const Expected& piece : expected_) rows += piece.rows.count;
    const double of_rows =
        forward.flops() * static_cast<double>(rows) / static_cast<double>(case_.tokens);
    const double of_gradients = (case_.flops() - forward.flops()) /
                                static_cast<double>(case_.batch * case_.heads);  // the last head's
    return of_rows + of_gradients;
  }

  OracleCheck check(const TensorFile& results) const override {
    const double allowed = allowed_difference(case_.dtype);
    OracleCheck worst = check_output(results.at("output")).against(allowed);
    for (const auto& [name, expected] : expected_gradients_) {
      const StoredTensor& gradient = results.at(name);
      const Tensor<T, 4> got = gradient.to<T, 4>(name);
      DifferenceFromOracle difference;
      for (Index t = 0; t < case_.tokens; ++t) {
        for (Index d = 0; d < case_.width; ++d) {
          difference.add(static_cast<double>(got(case_.batch - 1, case_.heads - 1, t, d)),
                         expected(0, 0, t, d));
        }
      }
      const OracleCheck check = difference.against(allowed);
      if (check.difference > worst.difference) worst = check;
    }
    return worst;
  }

 private:
  struct Expected {
    Rows rows;
    Tensor<double, 4> context;
  };

  bool backward() const { return case_.pass == Pass::ForwardBackward; }

  DifferenceFromOracle check_output(const StoredTensor& output) const {
    const Tensor<T, 4> got = output.to<T, 4>("output");
    DifferenceFromOracle difference;
    for (const Expected& piece : expected_) {
      const TensorView<const T, 4> part =
          got.view().slice(2, piece.rows.first, piece.rows.first + piece.rows.count);
      const double* next = piece.context.data();
      detail::for_each_offset(part.shape(), part.strides(), [&](std::ptrdiff_t offset) {
        difference.add(static_cast<double>(part.data()[offset]), *next++);
      });
    }
    return difference;
  }

  Extents<4> shape() const { return {case_.batch, case_.heads, case_.tokens, case_.width}; }

  Mask mask_of(const Rows& rows) const {
    const Corner corner = Corner::at({rows.first});
    const Index end = rows.first + rows.count;
    switch (case_.mask) {
      case BenchMask::Causal:
        return Mask::causal(corner);
      case BenchMask::PaddedQuarter: {
        const TensorView<const bool, 4> flags = keeps_.view();
        return Mask::key_padding(view_as<2>(flags, {1, case_.tokens}), Polarity::Keep);
      }
      case BenchMask::Boolean: {
        const TensorView<const bool, 4> flags = keeps_.view();
        return Mask::boolean(flags.slice(2, rows.first, end), Polarity::Keep);
      }
      case BenchMask::Window256:
        return Mask::sliding_window({kBenchWindow - 1, 0, corner});
      case BenchMask::Documents512: {
        const TensorView<const Index, 2> keys = documents_.view();
        return Mask::documents(keys.slice(1, rows.first, end), keys);
      }
      default:
        return {};
    }
  }

  AttentionInputs<T> rows(const Rows& rows) const {
    const Index end = rows.first + rows.count;
    AttentionInputs<T> inputs;
    inputs.query = query_.view().slice(2, rows.first, end);
    inputs.key = key_.view();
    inputs.value = value_.view();
    inputs.mask = mask_of(rows);
    if (case_.mask == BenchMask::Bias) {
      inputs.bias = TensorView<const T, 4>(bias_.view()).slice(2, rows.first, end);
    }
    return inputs;
  }

  /// What a rule says, key by key.
  Tensor<bool, 4> mask_tensor() const {
    const Index tokens = case_.tokens;
    Tensor<bool, 4> keeps({1, 1, tokens, tokens});
    const BoundMask bound = mask_of({0, tokens}).bind("bench", {1, 1, tokens, tokens});
    for (Index t = 0; t < tokens; ++t) {
      for (Index s = 0; s < tokens; ++s) keeps(0, 0, t, s) = bound.visible(0, 0, t, s);
    }
    return keeps;
  }

  /// Of the last head: heads have nothing to do with one another.
  void expect_gradients() {
    const auto last = [&](const Tensor<T, 4>& all) {
      return TensorView<const T, 4>(all.view())
          .slice(0, case_.batch - 1, case_.batch)
          .slice(1, case_.heads - 1, case_.heads);
    };
    AttentionInputs<T> inputs = rows({0, case_.tokens});
    inputs.query = last(query_);
    inputs.key = last(key_);
    inputs.value = last(value_);
    Tensor<double, 4> output_gradient({1, 1, case_.tokens, case_.width});
    const TensorView<const T, 4> drawn = last(output_gradient_);
    for (Index t = 0; t < case_.tokens; ++t) {
      for (Index d = 0; d < case_.width; ++d) {
        output_gradient(0, 0, t, d) = static_cast<double>(drawn(0, 0, t, d));
      }
    }
    const auto expected = [&](const char* name) {
      return (expected_gradients_[name] = Tensor<double, 4>(output_gradient.shape())).view();
    };
    reference::backward(
        inputs, AttentionOutputGradients<double>{output_gradient.view(), {}, {}},
        AttentionInputGradients<double>{
            expected("random.query"), expected("random.key"), expected("random.value"), {}, {}});
  }

  BenchCase case_;
  Tensor<T, 4> query_;
  Tensor<T, 4> key_;
  Tensor<T, 4> value_;
  Tensor<T, 4> context_;
  Tensor<T, 3> log_sum_exp_;
  Tensor<T, 4> output_gradient_;
  Tensor<T, 4> query_gradient_;
  Tensor<T, 4> key_gradient_;
  Tensor<T, 4> value_gradient_;
  Tensor<T, 4> bias_;
  Tensor<bool, 4> keeps_;  ///< [1,1,T or 1,T], empty without a mask that a peer needs as a tensor
  Tensor<Index, 2> documents_;
  std::vector<Expected> expected_;
  std::map<std::string, Tensor<double, 4>> expected_gradients_;
};

}  // namespace

std::unique_ptr<Subject> make_attention_subject(const BenchCase& bench_case) {
  if (bench_case.dtype == DType::Float64)
    return std::make_unique<AttentionSubject<double>>(bench_case);
  return std::make_unique<AttentionSubject<float>>(bench_case);
}

}  // namespace qkv::bench
