#include "lab/trace_layout.h"

#include <fmt/format.h>

#include <stdexcept>
#include <string_view>

namespace qkv::lab {
namespace {

constexpr Index kElementBytes = sizeof(double);

/// What a row says besides the layout of its tensors.
struct RowText {
  std::string_view step;
  Storage storage = Storage::Computed;
  std::string reason;
};

/// Collects rows; tensors of one step with equal layouts share a row.
class RowWriter {
 public:
  template <int Rank>
  void add(const RowText& text, std::string_view name, const TensorView<const double, Rank>& view) {
    LayoutRow row;
    row.step = text.step;
    row.tensors = name;
    row.shape.assign(view.shape().begin(), view.shape().end());
    row.strides.assign(view.strides().begin(), view.strides().end());
    row.contiguous = view.contiguous();
    row.bytes = element_count(view.shape()) * kElementBytes;
    row.storage = text.storage;
    row.reason = text.reason;
    append(std::move(row));
  }

  void add_absent(std::string_view step, std::string_view name, std::vector<Index> shape,
                  std::string_view reason) {
    LayoutRow row;
    row.step = step;
    row.tensors = name;
    row.shape = std::move(shape);
    row.storage = Storage::Absent;
    row.reason = reason;
    append(std::move(row));
  }

  std::vector<LayoutRow> take() { return std::move(rows_); }

 private:
  void append(LayoutRow row) {
    if (!rows_.empty()) {
      LayoutRow& last = rows_.back();
      if (last.step == row.step && last.shape == row.shape && last.strides == row.strides) {
        last.tensors += ", " + row.tensors;
        ++last.count;
        return;
      }
    }
    rows_.push_back(std::move(row));
  }

  std::vector<LayoutRow> rows_;
};

template <int Rank>
ViewStep view_step(std::string call, const TensorView<const double, Rank>& view, Storage storage) {
  return {std::move(call),
          {view.shape().begin(), view.shape().end()},
          {view.strides().begin(), view.strides().end()},
          view.contiguous(),
          storage};
}

void add_projected(RowWriter& rows, const Trace& trace, const Projections& projections) {
  const RowText projection{"projection", Storage::Computed,
                           "x·Wᵀ (+ b): a matrix product writes new memory; head h owns columns "
                           "h·Dh to (h + 1)·Dh − 1"};
  rows.add(projection, "Q", projections.query);
  rows.add(projection, "K", projections.key);
  rows.add(projection, "V", projections.value);
  const RowText split{"split", Storage::View,
                      "view as [B,T,H,Dh], then transpose(1, 2): only shape and strides change"};
  rows.add(split, "Q", split_heads(projections.query, trace.sizes.heads));
  rows.add(split, "K", split_heads(projections.key, trace.kv_heads));
  rows.add(split, "V", split_heads(projections.value, trace.kv_heads));
  if (!projections.rotary) return;
  const RowText rotary{"rotary", Storage::Computed,
                       "each pair of elements turns with its position: new numbers, new memory"};
  rows.add(rotary, "Q", trace.query.view());
  rows.add(rotary, "K", trace.key.view());
}

void add_given(RowWriter& rows, const Trace& trace) {
  const auto [batch, heads, queries, keys] = trace.sizes;
  const std::string_view absent =
      "Q, K and V come split already; unsplit they would have this shape";
  rows.add_absent("projection", "Q", {batch, queries, heads * trace.head_width}, absent);
  rows.add_absent("projection", "K", {batch, keys, trace.kv_heads * trace.head_width}, absent);
  rows.add_absent("projection", "V", {batch, keys, trace.kv_heads * trace.value_head_width},
                  absent);
  const RowText split{"split", Storage::Given, "read as they are, one dense block a head"};
  rows.add(split, "Q", trace.query.view());
  rows.add(split, "K", trace.key.view());
  rows.add(split, "V", trace.value.view());
}

}  // namespace

std::vector<LayoutRow> describe_layout(const Trace& trace,
                                       const std::optional<Projections>& projections) {
  RowWriter rows;
  if (projections) {
    add_projected(rows, trace, *projections);
  } else {
    add_given(rows, trace);
  }
  const bool grouped = trace.kv_heads != trace.sizes.heads;
  rows.add({"scores", Storage::Computed,
            fmt::format("Q·Kᵀ·scale; Kᵀ itself is a view, two strides exchanged{}",
                        grouped ? "; query heads of a group read the same K" : "")},
           "Q·Kᵀ", trace.scores.view());
  rows.add({"weights", Storage::Computed, "softmax(scores + M) along the last axis, row by row"},
           "P", trace.weights.view());
  rows.add({"context", Storage::Computed, "P·V: each row is a weighted sum of value vectors"},
           "P·V", trace.context.view());
  const bool viewable = trace.view.strides.has_value();
  rows.add({"merge", Storage::Copy,
            viewable ? "transpose(1, 2), then [B,T,H·Dv]; a view would do at these sizes"
                     : "transpose(1, 2), then [B,T,H·Dv]: no strides can join H and Dv, so "
                       "elements move"},
           "merged", trace.merged.view());
  return rows.take();
}

ViewDemonstration demonstrate_view(const TensorView<const double, 4>& context) {
  const auto [batch, heads, queries, width] = context.shape();
  const Extents<3> target{batch, queries, heads * width};
  const TensorView<const double, 4> transposed = context.transposed(1, 2);
  const Tensor<double, 4> copy = contiguous_copy(transposed);

  ViewDemonstration result;
  result.context = view_step("context", context, Storage::Given);
  result.transposed = view_step("context.transposed(1, 2)", transposed, Storage::View);
  result.target.assign(target.begin(), target.end());
  try {
    const auto view = view_as<3>(transposed, target);
    result.strides.emplace(view.strides().begin(), view.strides().end());
  } catch (const std::invalid_argument& error) {
    result.refusal = error.what();
  }
  result.contiguous_copy = view_step("contiguous_copy(…)", copy.view(), Storage::Copy);
  result.view_of_copy =
      view_step("view_as<3>(copy, …)", view_as<3>(copy.view(), target), Storage::View);
  return result;
}

}  // namespace qkv::lab
