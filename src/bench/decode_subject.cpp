#include "bench/decode_subject.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "bench/draw.h"
#include "bench/oracle_check.h"
#include "bench/shared_tensor.h"
#include "qkv/kv_cache.h"
#include "qkv/reference.h"

namespace qkv::bench {
namespace {

/// Calls go from cache to cache, of which there are enough that none of them is left in the processor's caches.
constexpr double kBytesOfAll = 0x1p29;
/// Tokens that are drawn; longer sequences repeat them, for drawing takes longer than measuring.
constexpr Index kDrawn = 2048;

template <class T>
class DecodeSubject : public Subject {
 public:
  explicit DecodeSubject(const BenchCase& one)
      : case_(one),
        copies_(std::max<Index>(2, static_cast<Index>(std::ceil(kBytesOfAll / one.bytes())))),
        key_({copies_, one.kv_heads, one.tokens, one.width}),
        value_(key_.shape()),
        context_({one.batch, one.heads, one.new_tokens, one.width}) {
    Draw draw;
    query_ = draw.normal<T, 4>(context_.shape());
    fill(draw, key_);
    fill(draw, value_);
  }

  Call ours() override {
    return [this](const engine::Options& options) {
      if (caches_.empty()) fill_caches(options);  // in the first call, which is not measured
      AttentionInputs<T> inputs;
      inputs.query = query_.view();
      engine::forward(*caches_[next_], inputs, {.context = context_.view()}, options);
      next_ = (next_ + 1) % caches_.size();
    };
  }

  TensorFile results() const override {
    TensorFile results;
    results.tensors["output"] = shared(context_);
    return results;
  }

  PeerCall peer_call() const override {
    PeerCall call;
    call.function = peer_function::decode;
    call.heads = case_.heads;
    call.causal = true;
    call.inputs.tensors = {
        {"query", shared(query_)}, {"key", shared(key_)}, {"value", shared(value_)}};
    return call;
  }

  /// The last kv head: heads have nothing to do with one another.
  void run_oracle() override {
    const Index group = case_.heads / case_.kv_heads;
    AttentionInputs<T> inputs;
    inputs.query = TensorView<const T, 4>(query_.view()).slice(1, case_.heads - group, case_.heads);
    inputs.key = copy_of(key_, 0).slice(1, case_.kv_heads - 1, case_.kv_heads);
    inputs.value = copy_of(value_, 0).slice(1, case_.kv_heads - 1, case_.kv_heads);
    inputs.mask = Mask::causal(Corner::bottom_right());
    expected_ = Tensor<double, 4>({1, group, case_.new_tokens, case_.width});
    reference::forward(inputs, {.context = expected_.view()});
  }

  double oracle_flops() const override {
    return case_.flops() / static_cast<double>(case_.kv_heads);
  }

  OracleCheck check(const TensorFile& results) const override {
    const Tensor<float, 4> got = results.at("output").to<float, 4>("output");
    DifferenceFromOracle difference;
    const Index group = case_.heads / case_.kv_heads;
    for (Index h = 0; h < group; ++h) {
      for (Index t = 0; t < case_.new_tokens; ++t) {
        for (Index d = 0; d < case_.width; ++d) {
          difference.add(static_cast<double>(got(0, case_.heads - group + h, t, d)),
                         expected_(0, h, t, d));
        }
      }
    }
    return difference.against(allowed_difference(case_.dtype));
  }

 private:
  static TensorView<const T, 4> copy_of(const Tensor<T, 4>& all, Index copy) {
    return all.view().slice(0, copy, copy + 1);
  }

  void fill_caches(const engine::Options& options) {
    for (Index i = 0; i < copies_; ++i) {
      auto cache = std::make_unique<KvCache<T>>(KvCacheOptions{.batch = 1,
                                                               .kv_heads = case_.kv_heads,
                                                               .key_width = case_.width,
                                                               .value_width = case_.width,
                                                               .window = std::nullopt,
                                                               .target = options.target});
      cache->append(copy_of(key_, i), copy_of(value_, i));
      caches_.push_back(std::move(cache));
    }
  }

  /// Every copy holds the same numbers, in memory of its own.
  void fill(Draw& draw, Tensor<T, 4>& all) const {
    const Index drawn = std::min(kDrawn, case_.tokens);
    const Tensor<T, 4> numbers = draw.normal<T, 4>({1, case_.kv_heads, drawn, case_.width});
    for (Index i = 0; i < copies_; ++i) {
      for (Index h = 0; h < case_.kv_heads; ++h) {
        for (Index first = 0; first < case_.tokens; first += drawn) {
          const Index count = std::min(drawn, case_.tokens - first);
          std::copy_n(&numbers(0, h, 0, 0), count * case_.width, &all(i, h, first, 0));
        }
      }
    }
  }

  BenchCase case_;
  Index copies_;
  Tensor<T, 4> query_;
  Tensor<T, 4> key_;  ///< [copies,Hkv,S,D]
  Tensor<T, 4> value_;
  Tensor<float, 4> context_;
  std::vector<std::unique_ptr<KvCache<T>>> caches_;
  std::size_t next_ = 0;
  Tensor<double, 4> expected_;
};

}  // namespace

std::unique_ptr<Subject> make_decode_subject(const BenchCase& bench_case) {
  if (bench_case.dtype == DType::Float16) {
    return std::make_unique<DecodeSubject<Float16>>(bench_case);
  }
  if (bench_case.dtype == DType::BFloat16) {
    return std::make_unique<DecodeSubject<BFloat16>>(bench_case);
  }
  return std::make_unique<DecodeSubject<float>>(bench_case);
}

}  // namespace qkv::bench
