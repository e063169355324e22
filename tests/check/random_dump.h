// Dumps of random numbers that the engine has answered: right ones, for tests to spoil.
#pragma once

#include <cmath>
#include <random>

#include "check/dump.h"
#include "check/entering.h"
#include "qkv/engine.h"

namespace qkv {

struct RandomDumpOptions {
  AttentionShape shape{2, 4, 2, 13, 19, 16, 8};
  double gain = 1;  ///< of the queries: how far apart scores are
  unsigned seed = 1;
};

template <class T, int Rank>
Tensor<double, Rank> random_tensor(const Extents<Rank>& shape, double gain, unsigned seed) {
  std::mt19937_64 engine(seed);
  std::normal_distribution<double> normal;
  Tensor<double, Rank> tensor(shape);
  for (double& element : tensor.elements()) {
    element = static_cast<double>(static_cast<T>(gain * normal(engine)));
  }
  return tensor;
}

template <class T, int Rank>
Tensor<T, Rank> stored_as(const TensorView<const double, Rank>& view) {
  Tensor<T, Rank> result(view.shape());
  std::size_t next = 0;
  detail::for_each_offset(view.shape(), view.strides(), [&](std::ptrdiff_t offset) {
    result.elements()[next++] = static_cast<T>(view.data()[offset]);
  });
  return result;
}

/// What a T keeps of each element.
template <class T, class A, int Rank>
Tensor<double, Rank> rounded_to(const Tensor<A, Rank>& tensor) {
  Tensor<double, Rank> result(tensor.shape());
  for (std::size_t i = 0; i < tensor.elements().size(); ++i) {
    result.elements()[i] =
        static_cast<double>(static_cast<T>(static_cast<double>(tensor.elements()[i])));
  }
  return result;
}

/// The engine's answer to what the dump means, weights and lse with it, as storage T keeps them.
template <class T>
void answer(Dump& dump) {
  const Entering entering = qkv::entering(dump, arithmetic_of(dtype_of<T>, dtype_of<T>));
  const AttentionInputs<double> exact = oracle_inputs(dump, entering);
  const auto query = stored_as<T>(exact.query);
  const auto key = stored_as<T>(exact.key);
  const auto value = stored_as<T>(exact.value);
  AttentionInputs<T> inputs;
  inputs.query = query.view();
  inputs.key = key.view();
  inputs.value = value.view();
  inputs.mask = exact.mask;
  inputs.scale = exact.scale;
  inputs.softcap = exact.softcap;
  inputs.alibi = exact.alibi;
  using A = engine::Arithmetic<T>;
  const AttentionShape& shape = dump.shape;
  Tensor<A, 4> context({shape.batch, shape.heads, shape.queries, shape.value_width});
  Tensor<A, 4> weights({shape.batch, shape.heads, shape.queries, shape.keys});
  Tensor<A, 3> lse({shape.batch, shape.heads, shape.queries});
  engine::forward(inputs, {context.view(), weights.view(), lse.view()});
  dump.context = rounded_to<T>(context);
  dump.weights = rounded_to<T>(weights);
  dump.log_sum_exp = rounded_to<T>(lse);
}

/// Causal from the bottom right, with ragged lengths.
template <class T>
Dump random_dump(const RandomDumpOptions& options = {}) {
  Dump dump;
  const AttentionShape& shape = dump.shape = options.shape;
  dump.query = random_tensor<T, 4>({shape.batch, shape.heads, shape.queries, shape.key_width},
                                   options.gain, options.seed);
  dump.key = random_tensor<T, 4>({shape.batch, shape.kv_heads, shape.keys, shape.key_width}, 1,
                                 options.seed + 1);
  dump.value = random_tensor<T, 4>({shape.batch, shape.kv_heads, shape.keys, shape.value_width}, 1,
                                   options.seed + 2);
  dump.has_heads = true;
  dump.scale = 1 / std::sqrt(static_cast<double>(shape.key_width));
  dump.rules.causal = true;
  dump.rules.corner = Corner::bottom_right();
  for (Index b = 0; b < shape.batch; ++b) dump.rules.lengths.push_back(shape.keys - 3 * b);
  dump.ran_in = dtype_of<T>;
  answer<T>(dump);
  return dump;
}

}  // namespace qkv
