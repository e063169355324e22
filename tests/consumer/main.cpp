// Uses an installed qkv: a causal module whose scores are all equal yields the mean of what each token sees,
// and does so again with parameters that went through a file.

#include <cmath>
#include <cstdio>
#include <exception>

#include <qkv/io.h>
#include <qkv/multi_head_attention.h>

namespace {

bool yields_means(const qkv::MultiHeadAttention<double>& module) {
  constexpr qkv::Index kTokens = 4;
  qkv::Tensor<double, 3> tokens({1, kTokens, 1});
  for (qkv::Index t = 0; t < kTokens; ++t) tokens(0, t, 0) = static_cast<double>(t);

  const auto result = module.forward({.query = tokens.view(), .mask = qkv::Mask::causal()});
  for (qkv::Index t = 0; t < kTokens; ++t) {
    const double mean = 0.5 * static_cast<double>(t);
    const double got = result.output(0, t, 0);
    if (!(std::abs(got - mean) < 1e-15)) {
      std::printf("token %d: expected %g, got %g\n", static_cast<int>(t), mean, got);
      return false;
    }
  }
  return true;
}

}  // namespace

int main() {
  try {
    const qkv::MultiHeadAttentionOptions options{.model_width = 1, .heads = 1};
    auto parameters = qkv::zero_parameters<double>(options);
    parameters.value_weight(0, 0) = 1.0;
    parameters.output_weight(0, 0) = 1.0;
    const qkv::MultiHeadAttention<double> module(options, parameters);

    qkv::write_tensors("consumer.npz",
                       qkv::save_parameters(module, qkv::ParameterNaming::Separate));
    const auto loaded =
        qkv::load_parameters<double>(qkv::read_tensors("consumer.npz"), {.heads = 1});
    return yields_means(module) && yields_means(loaded) ? 0 : 1;
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
}
