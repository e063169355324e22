// A trace for machines.
//
// One object:
//   source                 string
//   dtype                  "float64"; bytes below are of it
//   sizes                  {batch, heads, kv_heads, queries, keys, head_width, value_head_width, model_width}; model_width
//                          is null where there are no projections
//   scale, self_attention
//   shapes                 list of {step, tensors, count, shape, strides, contiguous, bytes, memory, reason}; strides in
//                          elements and null where the tensor is not there; memory is computed, view, copy,
//                          given or absent
//   view_after_transpose   {context, transposed, target, view_strides, refusal, contiguous_copy, view_of_copy};
//                          view_strides is null where the view is refused, refusal null where it is not
//   masks, mask            {rule, shape, broadcast_shape, strides, stride_0_axes}, one a rule and one for all
//   sample, heads          what the following arrays are of
//   tokens                 of the sample, or null
//   visible                [heads][T][S] of booleans
//   scores                 [heads][T][S], scaled, before bias and mask
//   weights                [heads][T][S]
//   log_sum_exp            [heads][T]
//   context                [heads][T][Dv]
//   output                 [T][D], or null
//   query_walk             where a query was chosen: {query_token, query, scale, keys: [{key, value, products, dot,
//                          scaled, bias, visible, exponential, weight, contribution}], largest, sum, context}
//   comparisons            list of {tensor, largest_difference, tolerance, within_tolerance, compared, left_out}
//   warnings               list of {code, text}
//
// JSON has no infinity and no NaN: such numbers are the strings "Infinity", "-Infinity" and "NaN", which
// Python's float() and JavaScript's Number() read.
#pragma once

#include <string>

#include "lab/trace.h"
#include "lab/trace_text.h"

namespace qkv::lab {

/// Throws like chosen_heads.
std::string trace_json(const Trace& trace, const TraceChoice& choice);

}  // namespace qkv::lab
