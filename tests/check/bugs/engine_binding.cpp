// The engine's forward pass as a C function, for dumps that Python makes.
#include <cstdint>
#include <cstdio>
#include <exception>
#include <type_traits>
#include <vector>

#include "qkv/engine.h"

namespace {

using qkv::Index;

extern "C" {

/// Null where there is none.
struct Array {
  void* data;
  std::int64_t shape[4];
  std::int64_t strides[4];
};

struct EngineCall {
  std::int32_t dtype;  ///< 0 float64, 1 float32, 2 float16, 3 bfloat16
  std::int32_t causal;
  std::int32_t windowed;
  std::int32_t mask_drops;     ///< true in the mask: hidden
  std::int32_t padding_drops;  ///< true in the padding: hidden
  std::int64_t offset;         ///< key position of query 0
  std::int64_t left;           ///< negative: unbounded
  std::int64_t right;
  double scale;
  double softcap;  ///< 0: none
  Array query, key, value, bias, mask;
  Array padding;  ///< [1,1,B,S]
  Array sink;     ///< [1,1,1,H]
  Array lengths;  ///< of int64, [1,1,1,B]
  Array prefix;
  Array slopes;                          ///< of double, [1,1,1,H]
  Array query_documents, key_documents;  ///< of int64, [1,1,B,T] and [1,1,B,S]
  Array context, weights, log_sum_exp;   ///< float64 of float64, else float32
};
}

template <class T>
qkv::TensorView<T, 4> view(const Array& array) {
  qkv::Extents<4> shape{};
  qkv::Extents<4> strides{};
  for (std::size_t i = 0; i < 4; ++i) {
    shape[i] = array.shape[i];
    strides[i] = array.strides[i];
  }
  return {static_cast<T*>(array.data), shape, strides};
}

/// Its last axes.
template <class T, int Rank>
qkv::TensorView<T, Rank> inner(const Array& array) {
  qkv::Extents<Rank> shape{};
  qkv::Extents<Rank> strides{};
  for (std::size_t i = 0; i < Rank; ++i) {
    shape[i] = array.shape[4 - Rank + i];
    strides[i] = array.strides[4 - Rank + i];
  }
  return {static_cast<T*>(array.data), shape, strides};
}

template <class T>
std::vector<T> list(const Array& array) {
  const auto* data = static_cast<const T*>(array.data);
  return {data, data + array.shape[3]};
}

qkv::Polarity polarity(std::int32_t drops) {
  return drops != 0 ? qkv::Polarity::Drop : qkv::Polarity::Keep;
}

qkv::Mask mask_of(const EngineCall& call) {
  const qkv::Corner corner = qkv::Corner::at({call.offset});
  qkv::Mask mask;
  if (call.causal != 0) {
    mask = mask & (call.prefix.data ? qkv::Mask::prefix_causal(list<Index>(call.prefix), corner)
                                    : qkv::Mask::causal(corner));
  }
  if (call.windowed != 0) {
    qkv::Window window;
    if (call.left >= 0) window.left = call.left;
    if (call.right >= 0) window.right = call.right;
    window.corner = corner;
    mask = mask & qkv::Mask::sliding_window(window);
  }
  if (call.lengths.data) mask = mask & qkv::Mask::key_lengths(list<Index>(call.lengths));
  if (call.padding.data) {
    const auto flags = inner<const bool, 2>(call.padding);
    mask = mask & qkv::Mask::key_padding(flags, polarity(call.padding_drops));
  }
  if (call.query_documents.data) {
    mask = mask & qkv::Mask::documents(inner<const Index, 2>(call.query_documents),
                                       inner<const Index, 2>(call.key_documents));
  }
  if (call.mask.data) {
    mask = mask & qkv::Mask::boolean(view<const bool>(call.mask), polarity(call.mask_drops));
  }
  return mask;
}

template <class T>
void forward(const EngineCall& call) {
  using Computed = qkv::engine::Arithmetic<T>;
  qkv::AttentionInputs<T> inputs;
  inputs.query = view<const T>(call.query);
  inputs.key = view<const T>(call.key);
  inputs.value = view<const T>(call.value);
  inputs.mask = mask_of(call);
  inputs.scale = call.scale;
  if (call.softcap > 0) inputs.softcap = call.softcap;
  if (call.bias.data) inputs.bias = view<const T>(call.bias);
  if (call.slopes.data) inputs.alibi = {list<double>(call.slopes), qkv::Corner::at({call.offset})};
  if (call.sink.data) inputs.sink = inner<const T, 1>(call.sink);
  qkv::AttentionOutputs<Computed> outputs;
  outputs.context = view<Computed>(call.context);
  if (call.weights.data) outputs.weights = view<Computed>(call.weights);
  if (call.log_sum_exp.data) outputs.log_sum_exp = inner<Computed, 3>(call.log_sum_exp);
  qkv::engine::forward(inputs, outputs);
}

}  // namespace

/// 0, or 1 with what went wrong in `message`.
extern "C" int qkv_engine_forward(const EngineCall* call, char* message, std::size_t size) {
  try {
    switch (call->dtype) {
      case 0:
        forward<double>(*call);
        break;
      case 1:
        forward<float>(*call);
        break;
      case 2:
        forward<qkv::Float16>(*call);
        break;
      default:
        forward<qkv::BFloat16>(*call);
    }
    return 0;
  } catch (const std::exception& error) {
    std::snprintf(message, size, "%s", error.what());
    return 1;
  }
}
