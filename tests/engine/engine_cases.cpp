#include "tests/engine/engine_cases.h"

namespace qkv::cases {
namespace {

/// Rows around blocks (6, 12) and tiles (48, 96), keys around panels (2 … 32) and segments (256), widths around panels;
/// B, H, Hkv, T, S, Dk and Dv pairwise different where it matters.
std::vector<CaseShape> edge_shapes() {
  std::vector<CaseShape> shapes;
  const auto add = [&](Index batch, Index heads, Index kv_heads, Index queries, Index keys,
                       Index key_width, Index value_width) {
    shapes.push_back({batch, heads, kv_heads, queries, keys, key_width, value_width});
  };
  add(1, 1, 1, 1, 1, 1, 1);
  add(2, 4, 2, 1, 9, 3, 5);
  add(3, 2, 1, 2, 31, 8, 33);
  add(2, 6, 2, 5, 32, 7, 4);
  add(2, 3, 1, 7, 33, 16, 31);
  add(2, 2, 2, 11, 64, 65, 1);
  add(3, 4, 1, 12, 65, 5, 17);
  add(2, 6, 3, 13, 17, 2, 32);
  add(1, 2, 1, 24, 255, 9, 16);
  add(2, 1, 1, 25, 256, 32, 15);
  add(1, 3, 3, 47, 257, 33, 8);
  add(2, 4, 2, 48, 15, 1, 64);
  add(1, 2, 2, 49, 511, 4, 3);
  add(1, 8, 2, 3, 513, 6, 12);
  add(1, 2, 1, 95, 97, 63, 40);
  add(1, 2, 2, 96, 128, 17, 9);
  add(1, 1, 1, 97, 769, 10, 2);
  add(2, 5, 1, 19, 300, 12, 7);
  add(1, 32, 4, 1, 600, 11, 6);
  add(1, 2, 1, 200, 20, 3, 48);
  add(4, 1, 1, 300, 260, 2, 3);
  return shapes;
}

}  // namespace

std::vector<AttentionCase> engine_cases() {
  std::vector<AttentionCase> result;
  for (const CaseShape& shape : edge_shapes()) {
    result.push_back({shape, {}, result.size()});
    for (const Feature feature : all_features()) {
      result.push_back({shape, {feature}, result.size()});
    }
  }
#ifndef QKV_SANITIZED  // pairs touch no memory that one alone does not, and are four of five cases
  for (const CaseShape& shape :
       {CaseShape{2, 6, 2, 9, 40, 5, 7}, CaseShape{1, 4, 1, 13, 270, 8, 3},
        CaseShape{3, 2, 2, 50, 70, 4, 9}, CaseShape{2, 3, 3, 5, 530, 3, 18},
        CaseShape{3, 4, 2, 1, 33, 6, 5}, CaseShape{2, 2, 1, 97, 48, 4, 6},
        CaseShape{1, 6, 3, 25, 257, 3, 4}, CaseShape{2, 1, 1, 3, 200, 17, 33},
        CaseShape{1, 2, 2, 49, 193, 2, 8}}) {
    for (const AttentionCase& one : alone_and_in_pairs(shape)) {
      if (one.features.size() == 2) result.push_back(one);
    }
  }
#endif
  return result;
}

}  // namespace qkv::cases
