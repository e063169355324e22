#include "tests/module/module_data.h"

#include <algorithm>
#include <cmath>

#include "tests/cases/attention_cases.h"

namespace qkv::cases {

template <class T>
MultiHeadAttention<T> random_module(const MultiHeadAttentionOptions& options, std::uint64_t seed) {
  auto parameters = zero_parameters<T>(options);
  const double scale = 1.0 / std::sqrt(static_cast<double>(options.model_width));
  for_each_parameter(parameters, [&](const std::string&, std::span<T> elements) {
    const auto values = random_tensor<double, 1>({static_cast<Index>(elements.size())}, seed++);
    std::transform(values.elements().begin(), values.elements().end(), elements.begin(),
                   [&](double x) { return static_cast<T>(scale * x); });
  });
  return {options, std::move(parameters)};
}

template <class T>
MultiHeadAttentionInputs<T> ModuleData<T>::inputs() const {
  MultiHeadAttentionInputs<T> result;
  result.query = query.view();
  if (key) result.key = key->view();
  if (value) result.value = value->view();
  if (bias) result.bias = bias->view();
  if (query_positions) result.query_positions = query_positions->view();
  if (key_positions) result.key_positions = key_positions->view();
  result.mask = mask;
  result.alibi = alibi;
  return result;
}

template <class T>
MultiHeadAttentionGradients<T> gradients_of(const MultiHeadAttention<T>& module,
                                            const MultiHeadAttentionInputs<T>& inputs,
                                            const Tensor<T, 3>& output_gradient) {
  return module.backward(inputs, module.forward(inputs), output_gradient.view());
}

template <class T>
std::vector<std::pair<std::string, std::vector<T>>> flattened(
    const MultiHeadAttentionGradients<T>& gradients) {
  std::vector<std::pair<std::string, std::vector<T>>> result;
  const auto add = [&](const std::string& name, std::span<const T> elements) {
    result.emplace_back(name, std::vector<T>(elements.begin(), elements.end()));
  };
  add("query", gradients.query.elements());
  if (gradients.key) add("key", gradients.key->elements());
  if (gradients.value) add("value", gradients.value->elements());
  if (gradients.bias) add("bias", gradients.bias->elements());
  for_each_parameter(gradients.parameters, add);
  return result;
}

#define QKV_INSTANTIATE(T)                                                                       \
  template MultiHeadAttention<T> random_module(const MultiHeadAttentionOptions&, std::uint64_t); \
  template struct ModuleData<T>;                                                                 \
  template MultiHeadAttentionGradients<T> gradients_of(                                          \
      const MultiHeadAttention<T>&, const MultiHeadAttentionInputs<T>&, const Tensor<T, 3>&);    \
  template std::vector<std::pair<std::string, std::vector<T>>> flattened(                        \
      const MultiHeadAttentionGradients<T>&);

QKV_INSTANTIATE(double)
QKV_INSTANTIATE(float)

#undef QKV_INSTANTIATE

}  // namespace qkv::cases
