#include "check/align_inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <random>
#include <stdexcept>
#include <string_view>

namespace qkv {
namespace {

/// The same numbers everywhere: the distributions of the standard library differ between platforms.
class Draw {
 public:
  explicit Draw(std::string_view seed) {
    std::uint64_t hash = 14695981039346656037U;  // FNV-1a
    for (const char c : seed) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211U;
    engine_.seed(hash);
  }

  double uniform() { return std::ldexp(static_cast<double>(engine_() >> 11), -53); }  // [0, 1)

  double normal() {  // Box-Muller
    const double radius = std::sqrt(-2 * std::log1p(-uniform()));
    return radius * std::cos(2 * std::numbers::pi * uniform());
  }

  template <class T, int Rank>
  Tensor<T, Rank> normal(const Extents<Rank>& shape, double deviation) {
    Tensor<T, Rank> result(shape);
    for (T& element : result.elements()) element = static_cast<T>(deviation * normal());
    return result;
  }

 private:
  std::mt19937_64 engine_;
};

template <class T, int Rank>
StoredTensor stored(const Tensor<T, Rank>& tensor) {
  return store(tensor.view());
}

/// true hides; every sample keeps at least one key, but for a hidden one. Sample b loses more keys the
/// larger b is, so no two samples of a small batch are alike.
Tensor<bool, 2> draw_padding(const AlignCase& align_case) {
  Tensor<bool, 2> hides({align_case.batch, align_case.keys});
  const Index step = std::max<Index>(1, align_case.keys / (align_case.batch + 1));
  for (Index b = 0; b < align_case.batch; ++b) {
    const bool hidden = align_case.mask == AlignMask::HiddenSample && b == align_case.batch - 1;
    const Index kept = hidden ? 0 : std::max<Index>(1, align_case.keys - b * step);
    for (Index s = 0; s < align_case.keys; ++s) {
      const bool left = align_case.mask == AlignMask::CausalAndLeftPadding;
      hides(b, s) = left ? s < align_case.keys - kept : s >= kept;
    }
  }
  return hides;
}

Tensor<bool, 2> causal_mask(const AlignCase& align_case) {
  Tensor<bool, 2> hides({align_case.queries, align_case.keys});
  for (Index t = 0; t < align_case.queries; ++t) {
    for (Index s = 0; s < align_case.keys; ++s) hides(t, s) = s > t;
  }
  return hides;
}

/// Hides two of five keys; each query keeps one for certain.
template <int Rank>
Tensor<bool, Rank> draw_boolean(const Extents<Rank>& shape, Draw& draw) {
  Tensor<bool, Rank> hides(shape);
  const Index keys = shape.back();
  Index row = 0;
  for (auto rest = hides.elements(); !rest.empty();
       rest = rest.subspan(static_cast<std::size_t>(keys)), ++row) {
    for (Index s = 0; s < keys; ++s) {
      rest[static_cast<std::size_t>(s)] = draw.uniform() < 0.4 && s != row % keys;
    }
  }
  return hides;
}

template <class T>
void add_masks(const AlignCase& align_case, Draw& draw, TensorFile& file) {
  const Extents<2> shared = {align_case.queries, align_case.keys};
  const Extents<3> per_head = {align_case.batch * align_case.heads, align_case.queries,
                               align_case.keys};
  if (align_case.is_causal()) file.tensors["attn_mask"] = stored(causal_mask(align_case));
  if (align_case.has_padding()) {
    file.tensors["key_padding_mask"] = stored(draw_padding(align_case));
  }
  switch (align_case.mask) {
    case AlignMask::Boolean:
      file.tensors["attn_mask"] = stored(draw_boolean<2>(shared, draw));
      break;
    case AlignMask::BooleanPerHead:
      file.tensors["attn_mask"] = stored(draw_boolean<3>(per_head, draw));
      break;
    case AlignMask::Bias:
    case AlignMask::BiasAndPadding:
      file.tensors["attn_mask"] = stored(draw.normal<T, 2>(shared, 1));
      break;
    case AlignMask::BiasPerHead:
      file.tensors["attn_mask"] = stored(draw.normal<T, 3>(per_head, 1));
      break;
    default:
      break;
  }
}

template <class T>
void add_parameters(const AlignCase& align_case, Draw& draw, TensorFile& file) {
  const Index width = align_case.model_width;
  const auto add_weight = [&](const std::string& name, Index rows, Index columns) {
    const double deviation = 1 / std::sqrt(static_cast<double>(columns));
    file.tensors[name] = stored(draw.normal<T, 2>({rows, columns}, deviation));
  };
  if (align_case.key_width || align_case.value_width) {
    add_weight("q_proj_weight", width, width);
    add_weight("k_proj_weight", width, align_case.key_width.value_or(width));
    add_weight("v_proj_weight", width, align_case.value_width.value_or(width));
  } else {
    add_weight("in_proj_weight", 3 * width, width);
  }
  add_weight("out_proj.weight", width, width);
  if (align_case.biases == AlignBiases::All) {
    file.tensors["in_proj_bias"] = stored(draw.normal<T, 1>({3 * width}, 0.3));
    file.tensors["out_proj.bias"] = stored(draw.normal<T, 1>({width}, 0.3));
  }
}

template <class T>
TensorFile draw_inputs(const AlignCase& align_case) {
  Draw draw(align_case.describe());
  TensorFile file;
  const Index width = align_case.model_width;
  const auto add_tokens = [&](const std::string& name, Index tokens, Index columns) {
    file.tensors[name] = stored(draw.normal<T, 3>({align_case.batch, tokens, columns}, 1));
  };
  add_tokens("query", align_case.queries, width);
  if (align_case.inputs == AlignInputs::Cross) {
    add_tokens("key", align_case.keys, align_case.key_width.value_or(width));
    add_tokens("value", align_case.keys, align_case.value_width.value_or(width));
  }
  add_parameters<T>(align_case, draw, file);
  add_masks<T>(align_case, draw, file);
  add_tokens("output_gradient", align_case.queries, width);
  file.tensors["weights_gradient"] = stored(draw.normal<T, 4>(
      {align_case.batch, align_case.heads, align_case.queries, align_case.keys}, 1));
  return file;
}

template <int Rank>
StoredTensor widened(const StoredTensor& tensor, const std::string& name) {
  return stored(tensor.to<double, Rank>(name));
}

}  // namespace

TensorFile draw_inputs(const AlignCase& align_case, DType dtype) {
  switch (dtype) {
    case DType::Float64:
      return draw_inputs<double>(align_case);
    case DType::Float32:
      return draw_inputs<float>(align_case);
    default:
      throw std::invalid_argument(
          fmt::format("draw inputs: dtype: expected float64 or float32, got {}", name_of(dtype)));
  }
}

TensorFile widened(const TensorFile& inputs) {
  TensorFile result = inputs;
  for (auto& [name, tensor] : result.tensors) {
    if (tensor.dtype() != DType::Float32) continue;
    switch (tensor.shape().size()) {
      case 1:
        tensor = widened<1>(tensor, name);
        break;
      case 2:
        tensor = widened<2>(tensor, name);
        break;
      case 3:
        tensor = widened<3>(tensor, name);
        break;
      case 4:
        tensor = widened<4>(tensor, name);
        break;
      default:
        throw std::invalid_argument(fmt::format("align: {}: expected 1 to 4 axes, got {}", name,
                                                to_string(tensor.shape())));
    }
  }
  return result;
}

}  // namespace qkv
