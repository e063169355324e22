#include "model/packed_encoder.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "model/elementwise.h"
#include "model/gelu.h"
#include "model/norm.h"
#include "module/projection.h"
#include "qkv/engine.h"

namespace qkv {
namespace {

/// Where the tokens that are no padding stand in a batch.
class PackedRows {
 public:
  PackedRows(const Extents<2>& shape, const std::optional<Tensor<bool, 2>>& keep) : shape_(shape) {
    for (Index row = 0; row < shape[0] * shape[1]; ++row) {
      const bool kept = !keep || keep->elements()[static_cast<std::size_t>(row)];
      (kept ? rows_ : padding_).push_back(row);
    }
  }

  Index count() const noexcept { return static_cast<Index>(rows_.size()); }
  bool all() const noexcept { return padding_.empty(); }

  /// [B,T,W] → [1,N,W].
  template <class T>
  void gather(const Tensor<T, 3>& padded, Tensor<T, 3>& packed) const {
    const Index width = padded.shape(2);
#pragma omp parallel for schedule(static)
    for (Index i = 0; i < count(); ++i) {
      std::copy_n(padded.data() + at(rows_, i) * width, width, packed.data() + i * width);
    }
  }

  /// [1,N,W] → [B,T,W]; padding stays what it is.
  template <class T>
  void scatter(const Tensor<T, 3>& packed, Tensor<T, 3>& padded) const {
    const Index width = padded.shape(2);
#pragma omp parallel for schedule(static)
    for (Index i = 0; i < count(); ++i) {
      std::copy_n(packed.data() + i * width, width, padded.data() + at(rows_, i) * width);
    }
  }

  /// [B,T,W] that is 0 at padding, and anything else elsewhere.
  template <class T>
  Tensor<T, 3> cleared(Index width) const {
    auto padded = Tensor<T, 3>::uninitialized({shape_[0], shape_[1], width});
    const auto count = static_cast<Index>(padding_.size());
#pragma omp parallel for schedule(static)
    for (Index i = 0; i < count; ++i) {
      std::fill_n(padded.data() + at(padding_, i) * width, width, T{0});
    }
    return padded;
  }

 private:
  static Index at(const std::vector<Index>& rows, Index i) noexcept {
    return rows[static_cast<std::size_t>(i)];
  }

  Extents<2> shape_;
  std::vector<Index> rows_;
  std::vector<Index> padding_;
};

/// The blocks of one call. Memory is taken once, for the first block: pages that are new to a process are slow.
template <class T>
class PackedRun {
 public:
  PackedRun(const EncoderOptions& options, const Tensor<T, 3>& embedding,
            const std::optional<Tensor<bool, 2>>& keep)
      : options_(options),
        scale_(score_scale(block_options(options).attention)),
        rows_({embedding.shape(0), embedding.shape(1)}, keep),
        query_(padded()),
        key_(padded()),
        value_(padded()),
        context_(padded()),
        x_(packed(options.model_width)),
        gathered_(packed(options.model_width)),
        added_(packed(options.model_width)),
        hidden_(packed(options.mlp_width)) {
    if (keep && !rows_.all()) mask_ = Mask::key_padding(keep->view(), Polarity::Keep);
    rows_.gather(embedding, x_);
  }

  bool empty() const noexcept { return rows_.count() == 0; }

  void normalise(const NormParameters<T>& p) { norm_in_place(x_, p, options_.norm_epsilon); }

  void attend(const MultiHeadAttentionParameters<T>& p) {
    project_padded(p.query_weight, p.query_bias, query_);
    project_padded(p.key_weight, p.key_bias, key_);
    project_padded(p.value_weight, p.value_bias, value_);
    const auto heads = [&](const Tensor<T, 3>& merged) {
      return split_heads(merged.view(), options_.heads);
    };
    engine::forward<T>({.query = heads(query_),
                        .key = heads(key_),
                        .value = heads(value_),
                        .mask = mask_,
                        .scale = scale_},
                       {.context = split_heads(context_.view(), options_.heads)});
    rows_.gather(context_, gathered_);
    project(std::as_const(gathered_).view(), p.output_weight, p.output_bias, added_);
    add(added_, x_);
  }

  void apply(const MlpParameters<T>& p) {
    project(std::as_const(x_).view(), p.in_weight, std::optional(p.in_bias), hidden_);
    gelu(hidden_);
    project(std::as_const(hidden_).view(), p.out_weight, std::optional(p.out_bias), added_);
    add(added_, x_);
  }

  /// [B,T,D].
  Tensor<T, 3> output() const {
    Tensor<T, 3> output = padded();
    rows_.scatter(x_, output);
    return output;
  }

 private:
  Tensor<T, 3> padded() const { return rows_.cleared<T>(options_.model_width); }
  Tensor<T, 3> packed(Index width) const {
    return Tensor<T, 3>::uninitialized({1, rows_.count(), width});
  }
  void project_padded(const Tensor<T, 2>& weight, const std::optional<Tensor<T, 1>>& bias,
                      Tensor<T, 3>& padded) {
    const auto x = std::as_const(x_).view();
    if (rows_.all()) return project(x, weight, bias, padded);
    project(x, weight, bias, added_);
    rows_.scatter(added_, padded);
  }

  const EncoderOptions& options_;
  double scale_;
  PackedRows rows_;
  Mask mask_;
  Tensor<T, 3> query_;  // [B,T,D], 0 at padding
  Tensor<T, 3> key_;
  Tensor<T, 3> value_;
  Tensor<T, 3> context_;
  Tensor<T, 3> x_;  // [1,N,D]
  Tensor<T, 3> gathered_;
  Tensor<T, 3> added_;
  Tensor<T, 3> hidden_;  // [1,N,F]
};

}  // namespace

template <class T>
Tensor<T, 3> encode_packed(const EncoderOptions& options, const EncoderParameters<T>& parameters,
                           const Tensor<T, 3>& embedding,
                           const std::optional<Tensor<bool, 2>>& keep) {
  PackedRun<T> run(options, embedding, keep);
  if (run.empty()) return Tensor<T, 3>(embedding.shape());
  run.normalise(parameters.embedding_norm);
  for (const BlockParameters<T>& block : parameters.blocks) {
    run.attend(block.attention.projections);
    run.normalise(block.attention_norm);
    run.apply(*block.mlp);
    run.normalise(block.mlp->norm);
  }
  return run.output();
}

template Tensor<double, 3> encode_packed(const EncoderOptions&, const EncoderParameters<double>&,
                                         const Tensor<double, 3>&,
                                         const std::optional<Tensor<bool, 2>>&);
template Tensor<float, 3> encode_packed(const EncoderOptions&, const EncoderParameters<float>&,
                                        const Tensor<float, 3>&,
                                        const std::optional<Tensor<bool, 2>>&);

}  // namespace qkv
