// A trace for machines.
//
// One object:
//   source, dtype          strings; dtype is "float64", and so are the bytes below
//   sizes                  {batch, heads, kv_heads, queries, keys, head_width, value_head_width,
//                          model_width}; model_width is null where there are no projections
//   scale, self_attention
//   shapes                 list of {step, tensors, count, shape, strides, contiguous, bytes,
//                          memory, reason}; strides in elements; memory is computed, view, copy, given or
//                          absent, and of what is absent strides, contiguous and bytes are null
//   view_after_transpose   {context, transposed, target, view_strides, refusal, contiguous_copy,
//                          view_of_copy}; view_strides is null where a view is refused, refusal
//                          where it is not
//   masks, mask            {rule, shape, broadcast_shape, strides, stride_0_axes}, one a rule and
//                          one for all of them
//   sample, heads          what the following arrays are of
//   tokens                 of the sample, or null
//   visible                [heads][T][S] of booleans
//   scores                 [heads][T][S], scaled, before bias and mask
//   weights                [heads][T][S]
//   log_sum_exp            [heads][T]
//   context                [heads][T][Dv]
//   output                 [T][D], or null
//   query_walk             where a query was chosen: {query_token, head, query, scale, keys,
//                          largest, sum, context}, keys a list of {key, value, products, dot, scaled, bias,
//                          visible, exponential, weight, contribution}
//   comparisons            list of {tensor, largest_difference, tolerance, within_tolerance,
//                          compared, left_out}
//   warnings               list of {code, text}
//
// JSON has no infinity and no NaN: such numbers are the strings "Infinity", "-Infinity" and "NaN",
// which Python's float() and JavaScript's Number() read.
#pragma once

#include <string>

#include "lab/trace.h"
#include "lab/trace_text.h"

namespace qkv::lab {

/// Throws like chosen_heads, and std::invalid_argument where the chosen heads hold too many numbers
/// for one document.
std::string trace_json(const Trace& trace, const TraceChoice& choice);

}  // namespace qkv::lab
