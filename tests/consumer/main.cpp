// Uses an installed qkv as the README shows, checks what comes out, and sends the parameters through a file.

#include <cmath>
#include <cstdio>
#include <exception>
#include <utility>

#include <qkv/io.h>
#include <qkv/multi_head_attention.h>

namespace {

int example() {
  // Self attention, 4 heads, causal: the lesson's class, with weights that one can follow.
  qkv::MultiHeadAttentionOptions options{.model_width = 8, .heads = 4};
  auto parameters = qkv::zero_parameters<double>(options);
  for (qkv::Index i = 0; i < 8; ++i) {
    parameters.value_weight(i, i) = parameters.output_weight(i, i) = 1;
  }
  const qkv::MultiHeadAttention<double> attention(options, std::move(parameters));

  qkv::Tensor<double, 3> x({1, 3, 8});  // [B,T,D]
  for (qkv::Index t = 0; t < 3; ++t) x(0, t, 5) = static_cast<double>(t);

  // Query and key weights are zero, so every row is the mean of the values that it may see.
  const auto result = attention.forward({.query = x.view(), .mask = qkv::Mask::causal()});
  for (qkv::Index t = 0; t < 3; ++t) std::printf("%.1f ", result.output(0, t, 5));  // 0.0 0.5 1.0

  qkv::Tensor<double, 3> ones(result.output.shape());
  for (double& g : ones.elements()) g = 1;
  const auto gradients =
      attention.backward({.query = x.view(), .mask = qkv::Mask::causal()}, result, ones.view());
  std::printf("%.3f\n", gradients.query(0, 0, 5));  // 1 + 1/2 + 1/3: token 0 is in every mean

  // Parameters go to a file that PyTorch reads too, and come back.
  qkv::write_tensors("attention.safetensors",
                     qkv::save_parameters(attention, qkv::ParameterNaming::PyTorch));
  const auto loaded =
      qkv::load_parameters<double>(qkv::read_tensors("attention.safetensors"), {.heads = 4});

  const auto again = loaded.forward({.query = x.view(), .mask = qkv::Mask::causal()});
  const bool right = std::fabs(result.output(0, 2, 5) - 1) < 1e-12 &&
                     again.output(0, 2, 5) == result.output(0, 2, 5) &&
                     std::fabs(gradients.query(0, 0, 5) - (1 + 1.0 / 2 + 1.0 / 3)) < 1e-12;
  return right ? 0 : 1;
}

}  // namespace

int main() {
  try {
    return example();
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
}
