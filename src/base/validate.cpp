#include "base/validate.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <stdexcept>

#include "base/corner.h"

namespace qkv {
namespace {

[[noreturn]] void fail(std::string_view operation, std::string_view argument,
                       const std::string& problem) {
  throw std::invalid_argument(fmt::format("{}: {}: {}", operation, argument, problem));
}

/// Extents that multiply, strides that reach, and data: whatever the shape should be.
void check_memory(std::string_view operation, const NamedView& argument) {
  const Footprint& view = argument.view;
  // The address arithmetic of the whole view has to fit; a size that does not is a mistake, not a tensor.
  constexpr double kLargest = 0x1p62;
  double reach = static_cast<double>(view.element_size);
  double count = 1;
  bool empty = false;
  for (std::size_t axis = 0; axis < view.shape.size(); ++axis) {
    if (view.shape[axis] < 0) {
      fail(operation, argument.name,
           fmt::format("expected extents of 0 or more, got {}", to_string(view.shape)));
    }
    empty = empty || view.shape[axis] == 0;
    count *= static_cast<double>(std::max<Index>(view.shape[axis], 1));
    reach += std::fabs(static_cast<double>(view.strides[axis])) *
             static_cast<double>(std::max<Index>(view.shape[axis] - 1, 0)) *
             static_cast<double>(view.element_size);
  }
  if (count >= kLargest || (!empty && reach >= kLargest)) {
    fail(operation, argument.name,
         fmt::format("expected sizes whose product and byte offsets stay below 2^62, got {} with "
                     "strides {}",
                     to_string(view.shape), to_string(view.strides)));
  }
  if (!empty && view.data == nullptr) {
    fail(operation, argument.name,
         fmt::format("expected data for shape {}, got a null pointer", to_string(view.shape)));
  }
}

void check_product(std::string_view operation, std::string_view what,
                   std::initializer_list<Index> extents) {
  double product = sizeof(double);
  for (const Index extent : extents) product *= static_cast<double>(std::max<Index>(extent, 1));
  if (product >= 0x1p62) {
    fail(operation, what,
         fmt::format("expected a product of sizes below 2^59, got {}",
                     to_string(std::span<const Index>(extents.begin(), extents.size()))));
  }
}

void check_broadcasts(std::string_view operation, const NamedView& argument,
                      const Extents<4>& full) {
  check_memory(operation, argument);
  for (std::size_t axis = 0; axis < full.size(); ++axis) {
    const Index extent = argument.view.shape[axis];
    if (extent != full[axis] && extent != 1) {
      fail(operation, argument.name,
           fmt::format("expected a shape that broadcasts to [B,H,T,S]={}, got {}", to_string(full),
                       to_string(argument.view.shape)));
    }
  }
}

Diagonal bind_alibi(std::string_view operation, const Alibi& alibi, const AttentionShape& shape,
                    const CachedTokens* tokens) {
  if (static_cast<Index>(alibi.slopes.size()) != shape.heads) {
    fail(operation, "alibi",
         fmt::format("expected one slope a query head, H={}, got {}", shape.heads,
                     alibi.slopes.size()));
  }
  for (const double slope : alibi.slopes) {
    if (!std::isfinite(slope)) {
      fail(operation, "alibi", fmt::format("expected finite slopes, got {}", slope));
    }
  }
  if (tokens != nullptr && !alibi.corner) return tokens->diagonal(shape.queries);
  return bind_corner(operation, "alibi", "the distances", alibi.corner,
                     {shape.batch, shape.heads, shape.queries, shape.keys});
}

}  // namespace

void expect_shape(std::string_view operation, const NamedView& argument,
                  std::span<const Index> expected) {
  if (!std::equal(expected.begin(), expected.end(), argument.view.shape.begin(),
                  argument.view.shape.end())) {
    fail(operation, argument.name,
         fmt::format("expected shape {}, got {}", to_string(expected),
                     to_string(argument.view.shape)));
  }
  check_memory(operation, argument);
}

void validate_outputs(std::string_view operation, std::span<const NamedView> outputs,
                      std::span<const NamedView> inputs) {
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const NamedView& output = outputs[i];
    if (overlaps_itself(output.view)) {
      fail(operation, output.name,
           fmt::format("expected an output whose elements do not overlap, got {} with strides {}",
                       to_string(output.view.shape), to_string(output.view.strides)));
    }
    for (std::size_t j = 0; j < i; ++j) {
      if (overlap(output.view, outputs[j].view)) {
        fail(operation, output.name,
             fmt::format("expected memory apart from the output {}, got overlapping views",
                         outputs[j].name));
      }
    }
    for (const NamedView& input : inputs) {
      if (overlap(output.view, input.view)) {
        fail(operation, output.name,
             fmt::format("expected memory apart from the input {}, got overlapping views",
                         input.name));
      }
    }
  }
}

template <class T>
AttentionPlan validate_inputs(std::string_view operation, const AttentionInputs<T>& inputs) {
  const NamedView query{"query", footprint(inputs.query)};
  const NamedView key{"key", footprint(inputs.key)};
  const NamedView value{"value", footprint(inputs.value)};
  for (const NamedView* view : {&query, &key, &value}) check_memory(operation, *view);

  const AttentionShape shape{.batch = inputs.query.shape(0),
                             .heads = inputs.query.shape(1),
                             .kv_heads = inputs.key.shape(1),
                             .queries = inputs.query.shape(2),
                             .keys = inputs.key.shape(2),
                             .key_width = inputs.query.shape(3),
                             .value_width = inputs.value.shape(3)};
  const bool group_fits =
      shape.kv_heads == 0 ? shape.heads == 0 : shape.heads % shape.kv_heads == 0 && shape.heads > 0;
  if (!group_fits) {
    fail(operation, "key",
         fmt::format("expected a number of kv heads that divides H={}, got {} (query {}, key {})",
                     shape.heads, shape.kv_heads, to_string(query.view.shape),
                     to_string(key.view.shape)));
  }
  expect_shape(operation, key,
               Extents<4>{shape.batch, shape.kv_heads, shape.keys, shape.key_width});
  expect_shape(operation, value,
               Extents<4>{shape.batch, shape.kv_heads, shape.keys, shape.value_width});
  return validate_options(operation, inputs, shape);
}

template <class T>
AttentionPlan validate_options(std::string_view operation, const AttentionInputs<T>& inputs,
                               const AttentionShape& shape, const CachedTokens* tokens) {
  AttentionPlan plan;
  plan.shape = shape;
  check_product(operation, "scores", {shape.batch, shape.heads, shape.queries, shape.keys});
  check_product(operation, "context", {shape.batch, shape.heads, shape.queries, shape.value_width});

  if (inputs.scale && !std::isfinite(*inputs.scale)) {
    fail(operation, "scale", fmt::format("expected a finite number, got {}", *inputs.scale));
  }
  // A width of 0 makes every score an empty sum, whatever the scale.
  plan.scale = inputs.scale.value_or(
      shape.key_width == 0 ? 1.0 : 1.0 / std::sqrt(static_cast<double>(shape.key_width)));
  if (inputs.softcap && !(std::isfinite(*inputs.softcap) && *inputs.softcap > 0)) {
    fail(operation, "softcap",
         fmt::format("expected a positive finite number, got {}", *inputs.softcap));
  }
  if (inputs.bias) {
    check_broadcasts(operation, {"bias", footprint(*inputs.bias)},
                     {shape.batch, shape.heads, shape.queries, shape.keys});
  }
  if (inputs.sink) {
    expect_shape(operation, {"sink", footprint(*inputs.sink)}, Extents<1>{shape.heads});
  }
  if (inputs.alibi) plan.alibi_offset = bind_alibi(operation, *inputs.alibi, shape, tokens);
  plan.mask = inputs.mask.bind(operation, {shape.batch, shape.heads, shape.queries, shape.keys});
  if (tokens != nullptr) BoundMaskAccess::narrow(plan.mask, *tokens);
  return plan;
}

template <class T>
NamedViews named_inputs(const AttentionInputs<T>& inputs) {
  NamedViews views;
  views.push_back({"query", footprint(inputs.query)});
  views.push_back({"key", footprint(inputs.key)});
  views.push_back({"value", footprint(inputs.value)});
  if (inputs.bias) views.push_back({"bias", footprint(*inputs.bias)});
  if (inputs.sink) views.push_back({"sink", footprint(*inputs.sink)});
  return views;
}

template <class T, class R>
void validate_outputs(std::string_view operation, const AttentionInputs<T>& inputs,
                      const AttentionShape& shape, const AttentionOutputs<R>& outputs) {
  NamedViews views;
  views.push_back({"context", footprint(outputs.context)});
  expect_shape(operation, views.back(),
               Extents<4>{shape.batch, shape.heads, shape.queries, shape.value_width});
  if (outputs.weights) {
    views.push_back({"weights", footprint(*outputs.weights)});
    expect_shape(operation, views.back(),
                 Extents<4>{shape.batch, shape.heads, shape.queries, shape.keys});
  }
  if (outputs.log_sum_exp) {
    views.push_back({"log_sum_exp", footprint(*outputs.log_sum_exp)});
    expect_shape(operation, views.back(), Extents<3>{shape.batch, shape.heads, shape.queries});
  }
  validate_outputs(operation, views, named_inputs(inputs));
}

template <class T, class R>
void validate_gradients(std::string_view operation, const AttentionInputs<T>& inputs,
                        const AttentionShape& shape,
                        const AttentionOutputGradients<R>& output_gradients,
                        const AttentionInputGradients<R>& input_gradients,
                        std::span<const NamedView> also_read) {
  const Extents<4> scores{shape.batch, shape.heads, shape.queries, shape.keys};
  NamedViews read = named_inputs(inputs);
  for (const NamedView& view : also_read) read.push_back(view);
  const auto reads = [&](const NamedView& view, std::span<const Index> expected) {
    expect_shape(operation, view, expected);
    read.push_back(view);
  };
  reads({"context gradient", footprint(output_gradients.context)},
        Extents<4>{shape.batch, shape.heads, shape.queries, shape.value_width});
  if (output_gradients.weights) {
    reads({"weights gradient", footprint(*output_gradients.weights)}, scores);
  }
  if (output_gradients.log_sum_exp) {
    reads({"log_sum_exp gradient", footprint(*output_gradients.log_sum_exp)},
          Extents<3>{shape.batch, shape.heads, shape.queries});
  }

  NamedViews written;
  const auto writes = [&](const NamedView& view, std::span<const Index> expected) {
    expect_shape(operation, view, expected);
    written.push_back(view);
  };
  writes({"query gradient", footprint(input_gradients.query)}, inputs.query.shape());
  writes({"key gradient", footprint(input_gradients.key)}, inputs.key.shape());
  writes({"value gradient", footprint(input_gradients.value)}, inputs.value.shape());
  if (input_gradients.bias) {
    if (!inputs.bias) {
      fail(operation, "bias gradient", "expected none, as the inputs have no bias, got one");
    }
    writes({"bias gradient", footprint(*input_gradients.bias)}, inputs.bias->shape());
  }
  if (input_gradients.sink) {
    if (!inputs.sink) {
      fail(operation, "sink gradient", "expected none, as the inputs have no sink, got one");
    }
    writes({"sink gradient", footprint(*input_gradients.sink)}, Extents<1>{shape.heads});
  }
  validate_outputs(operation, written, read);
}

#define QKV_INSTANTIATE_RESULTS(T, R)                                                         \
  template void validate_outputs(std::string_view, const AttentionInputs<T>&,                 \
                                 const AttentionShape&, const AttentionOutputs<R>&);          \
  template void validate_gradients(std::string_view, const AttentionInputs<T>&,               \
                                   const AttentionShape&, const AttentionOutputGradients<R>&, \
                                   const AttentionInputGradients<R>&, std::span<const NamedView>);
#define QKV_INSTANTIATE(T)                                                             \
  template AttentionPlan validate_inputs(std::string_view, const AttentionInputs<T>&); \
  template AttentionPlan validate_options(std::string_view, const AttentionInputs<T>&, \
                                          const AttentionShape&, const CachedTokens*); \
  template NamedViews named_inputs(const AttentionInputs<T>&);                         \
  QKV_INSTANTIATE_RESULTS(T, double)                                                   \
  QKV_INSTANTIATE_RESULTS(T, float)
QKV_INSTANTIATE(double)
QKV_INSTANTIATE(float)
QKV_INSTANTIATE(Float16)
QKV_INSTANTIATE(BFloat16)
#undef QKV_INSTANTIATE
#undef QKV_INSTANTIATE_RESULTS

}  // namespace qkv
