#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <optional>
#include <utility>

#include "lab/experiment_implementations_parts.h"

namespace qkv::lab {
namespace {

constexpr Index kBatch = 2;
constexpr Index kHeads = 8;
constexpr Index kHeadWidth = 64;
constexpr Index kModelWidth = kHeads * kHeadWidth;

using View = TensorView<const float, 4>;

/// Where query, key and value lie; the same numbers in each.
struct Layout {
  Text name;
  View query;
  View key;
  View value;
};

struct LayoutResult {
  Text name;
  std::string key_strides;
  bool contiguous = false;
  double seconds = 0;
  double copy_seconds = 0;  ///< to copy all three into contiguous memory; 0 where they are
  bool same_bits = false;   ///< as from contiguous inputs
};

Tensor<float, 4> run(const Layout& layout, const engine::Options& options) {
  Tensor<float, 4> context(layout.query.shape());
  engine::forward<float>({.query = layout.query, .key = layout.key, .value = layout.value},
                         {.context = context.view()}, options);
  return context;
}

LayoutResult measure(const Layout& layout, const Tensor<float, 4>& expected,
                     const ExperimentOptions& options) {
  const engine::Options threads = engine_options(options);
  LayoutResult result{layout.name, to_string(layout.key.strides()), layout.key.contiguous(), 0, 0,
                      false};
  Tensor<float, 4> context = run(layout, threads);
  result.same_bits =
      std::memcmp(context.data(), expected.data(), expected.elements().size_bytes()) == 0;
  result.seconds = fastest_seconds(
      [&] {
        engine::forward<float>({.query = layout.query, .key = layout.key, .value = layout.value},
                               {.context = context.view()}, threads);
      },
      options);
  if (result.contiguous) return result;
  result.copy_seconds = fastest_seconds(
      [&] {
        contiguous_copy(layout.query);
        contiguous_copy(layout.key);
        contiguous_copy(layout.value);
      },
      options);
  return result;
}

std::vector<LayoutResult> measure_all(const ExperimentOptions& options) {
  const Index tokens = options.quick ? 256 : 1024;
  NormalNumbers numbers(options.seed);
  // What the projection of the lesson's class gives: query, key and value side by side.
  const auto fused = numbers.tensor<float, 3>({kBatch, tokens, 3 * kModelWidth});
  const auto part = [&](Index i) {
    return fused.view().slice(2, i * kModelWidth, (i + 1) * kModelWidth);
  };
  const auto heads = [&](Index i) { return split_heads(part(i), kHeads); };
  const auto separate = [&](Index i) { return contiguous_copy(part(i)); };
  const Tensor<float, 3> token_major[3] = {separate(0), separate(1), separate(2)};
  const auto merged_heads = [&](std::size_t i) {
    return split_heads(token_major[i].view(), kHeads);
  };
  const Tensor<float, 4> head_major[3] = {contiguous_copy(heads(0)), contiguous_copy(heads(1)),
                                          contiguous_copy(heads(2))};
  const Tensor<float, 4> columns = contiguous_copy(heads(1).transposed(2, 3));  // [B,H,Dk,S]
  const std::vector<Layout> layouts = {
      {{"contiguous [B,H,T,Dh]", "连续的 [B,H,T,Dh]"},
       head_major[0].view(),
       head_major[1].view(),
       head_major[2].view()},
      {{"views of [B,T,D]: view, transpose(1, 2)", "[B,T,D] 的视图：view、transpose(1, 2)"},
       merged_heads(0),
       merged_heads(1),
       merged_heads(2)},
      {{"views of [B,T,3·D]: chunk, view, transpose(1, 2)",
        "[B,T,3·D] 的视图：chunk、view、transpose(1, 2)"},
       heads(0),
       heads(1),
       heads(2)},
      {{"keys stored as [B,H,Dh,T]", "key 存成 [B,H,Dh,T]"},
       head_major[0].view(),
       columns.view().transposed(2, 3),
       head_major[2].view()}};
  const Tensor<float, 4> expected = run(layouts[0], engine_options(options));
  std::vector<LayoutResult> results;
  results.reserve(layouts.size());
  for (const Layout& layout : layouts) results.push_back(measure(layout, expected, options));
  return results;
}

Table layout_table(const std::vector<LayoutResult>& results) {
  Table table{"layouts",
              {"The same attention on inputs that lie differently in memory, float32",
               "同一注意力，输入在内存中的排布不同，float32"},
              {{"layout", {"query, key and value", "query、key、value"}, {}},
               {"strides", {"strides of the keys", "key 的 stride"}, {}},
               {"contiguous", {"contiguous", "连续"}, {}},
               {"seconds", {"time", "耗时"}, same("s")},
               {"copy_seconds", {"time to copy them first", "先拷贝成连续的耗时"}, same("s")},
               {"same_bits", {"same bits", "逐位相同"}, {}}},
              {}};
  const auto yes = [](bool is) { return is ? Text{"yes", "是"} : Text{"no", "否"}; };
  for (const LayoutResult& result : results) {
    table.rows.push_back(
        {result.name, result.key_strides, yes(result.contiguous), Measured{result.seconds, {}, {}},
         result.contiguous ? Cell(std::string("–")) : Cell(Measured{result.copy_seconds, {}, {}}),
         yes(result.same_bits)});
  }
  return table;
}

/// The end of the lesson's class: context [B,H,T,Dh] → transpose(1, 2) → view(b, t, d), with and without contiguous().
struct MergeDemonstration {
  Tensor<float, 4> context{{2, 4, 5, 8}};
  Extents<3> target = {2, 5, 32};
  View transposed = std::as_const(context).view().transposed(1, 2);
  Tensor<float, 4> copy = contiguous_copy(transposed);

  std::optional<std::vector<Index>> view_of(const View& from) const {
    return view_strides(from.shape(), from.strides(), target);
  }
};

Table merge_table(const MergeDemonstration& merge) {
  Table table{"merge",
              {"Merging the heads: which tensors have a view [2, 5, 32]",
               "合并 head：哪些张量有 [2, 5, 32] 的视图"},
              {{"tensor", {"tensor", "张量"}, {}},
               {"shape", {"shape", "形状"}, {}},
               {"strides", {"strides", "stride"}, {}},
               {"view", {"strides of the view", "视图的 stride"}, {}}},
              {}};
  const auto add = [&](Text name, const View& tensor) {
    const auto view = merge.view_of(tensor);
    table.rows.push_back(
        {std::move(name), to_string(tensor.shape()), to_string(tensor.strides()),
         view ? Cell(to_string(*view)) : Cell(Text{"none: copy first", "没有：要先拷贝"})});
  };
  add({"context.transpose(1, 2)", "context.transpose(1, 2)"}, merge.transposed);
  add({"context.transpose(1, 2).contiguous()", "context.transpose(1, 2).contiguous()"},
      std::as_const(merge.copy).view());
  return table;
}

}  // namespace

void add_layouts(const ExperimentOptions& options, Experiment& experiment) {
  report(options, "strides", 0.9);
  const std::vector<LayoutResult> results = measure_all(options);
  const MergeDemonstration merge;
  experiment.tables.push_back(layout_table(results));
  experiment.tables.push_back(merge_table(merge));
  const bool same_bits = std::ranges::all_of(results, &LayoutResult::same_bits);
  experiment.effects.push_back(
      {"strides_change_no_bit",
       {"Splitting heads moves nothing: attention reads the views where they lie, and the result "
        "has the same bits.",
        "拆分 head 不搬动数据：注意力直接读视图，结果逐位相同。"},
       {fmt::format("Contiguous {}, views of [B,T,3·D] {}, copying them first {} more.",
                    duration(results[0].seconds), duration(results[2].seconds),
                    duration(results[2].copy_seconds)),
        fmt::format("连续 {}，[B,T,3·D] 的视图 {}，若先拷贝再多花 {}。",
                    duration(results[0].seconds), duration(results[2].seconds),
                    duration(results[2].copy_seconds))},
       same_bits && !results[1].contiguous && !results[2].contiguous});
  experiment.effects.push_back(
      {"merging_needs_a_copy",
       {"After transpose(1, 2) no strides read the heads as merged: view needs contiguous() first.",
        "transpose(1, 2) 之后没有哪组 stride 能直接读成合并的 head：view 之前必须 contiguous()。"},
       {fmt::format("Strides {} have no view {}; their copy has.",
                    to_string(merge.transposed.strides()), to_string(merge.target)),
        fmt::format("stride 为 {} 时没有 {} 的视图，拷贝之后才有。",
                    to_string(merge.transposed.strides()), to_string(merge.target))},
       !merge.view_of(merge.transposed) && merge.view_of(std::as_const(merge.copy).view())});
}

}  // namespace qkv::lab
