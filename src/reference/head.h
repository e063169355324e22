// One query head and the kv head that it reads, in float64: what the two steps of attention work on.
#pragma once

#include <vector>

#include "base/validate.h"

namespace qkv::reference {

struct Head {
  explicit Head(const AttentionShape& shape)
      : query({shape.queries, shape.key_width}),
        key({shape.keys, shape.key_width}),
        value({shape.keys, shape.value_width}) {}

  Index b = 0;
  Index h = 0;
  Tensor<double, 2> query;  // [T,Dk]
  Tensor<double, 2> key;    // [S,Dk]
  Tensor<double, 2> value;  // [S,Dv]
};

/// Converts head h of sample b and its kv head h / g into `head`; allocates nothing.
template <class T>
void load_head(const AttentionInputs<T>& inputs, const AttentionPlan& plan, Index b, Index h,
               Head& head);

/// The score matrix of one head on its way to weights; hidden pairs stay 0.
struct HeadScores {
  explicit HeadScores(const AttentionShape& shape)
      : weights({shape.queries, shape.keys}),
        visible({shape.queries, shape.keys}),
        log_sum_exp({shape.queries}) {}

  Tensor<double, 2> weights;      // [T,S]
  Tensor<bool, 2> visible;        // [T,S]
  Tensor<double, 1> log_sum_exp;  // [T]
};

/// The score of one pair, as it enters the softmax; the mask is not asked.
template <class T>
double score(const AttentionInputs<T>& inputs, const AttentionPlan& plan, const Head& head, Index t,
             Index s);

/// Step 1, match: the weights and the log-sum-exp of query t. Writes row t of `scores` only.
template <class T>
void match(const AttentionInputs<T>& inputs, const AttentionPlan& plan, const Head& head, Index t,
           HeadScores& scores);

/// Derivative of the score of a visible pair with respect to q·k: the scale, and the softcap's slope.
template <class T>
double score_slope(const AttentionInputs<T>& inputs, const AttentionPlan& plan, const Head& head,
                   Index t, Index s);

/// Σ_i a[i]·b[i] over rows of two matrices.
double dot(const Tensor<double, 2>& a, Index a_row, const Tensor<double, 2>& b, Index b_row);

}  // namespace qkv::reference
