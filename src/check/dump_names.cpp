#include "check/dump_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <numeric>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "io/tensor_layout.h"

namespace qkv {
namespace {

constexpr std::string_view kTensors[] = {
    "q",
    "k",
    "v",
    "out",
    "x",
    "x_kv",
    "wq",
    "wk",
    "wv",
    "wo",
    "wqkv",
    "bq",
    "bk",
    "bv",
    "bo",
    "bqkv",
    "lengths",
    "key_padding",
    "mask",
    "prefix",
    "bias",
    "sink",
    "q_norm",
    "k_norm",
    "lse",
    "weights",
    "scores",
    "out2",
    "dout",
    "dq",
    "dk",
    "dv",
    "metadata",
    "read_rows",
    "alibi_slopes",
    "query_documents",
    "key_documents",
    "query_positions",
    "key_positions",
};

constexpr std::string_view kKeys[] = {
    "heads",          "kv_heads",        "layout",        "out_layout",       "out_stage",
    "dtype",          "causal",          "window_left",   "window_right",     "corner",
    "mask_true",      "scale",           "softcap",       "rotary_base",      "rotary_width",
    "rotary_pairing", "qk_norm_epsilon", "qk_norm_order", "empty_row",        "lse_base",
    "weight_layout",  "packing",         "source",        "key_padding_true",
    "format",  // what transformers writes into every safetensors file
};

/// What others call it.
constexpr std::pair<std::string_view, std::string_view> kElsewhere[] = {
    {"query", "q"},
    {"key", "k"},
    {"value", "v"},
    {"output", "out"},
    {"attn_output", "out"},
    {"context", "out"},
    {"attn_mask", "mask"},
    {"attention_mask", "mask"},
    {"key_padding_mask", "key_padding"},
    {"attn_bias", "bias"},
    {"attn_weights", "weights"},
    {"logsumexp", "lse"},
    {"softmax_lse", "lse"},
    {"position_ids", "query_positions"},
    {"hidden_states", "x"},
    {"q_proj.weight", "wq"},
    {"k_proj.weight", "wk"},
    {"v_proj.weight", "wv"},
    {"o_proj.weight", "wo"},
    {"in_proj_weight", "wqkv"},
    {"in_proj_bias", "bqkv"},
    {"out_proj.weight", "wo"},
    {"num_heads", "heads"},
    {"num_kv_heads", "kv_heads"},
    {"num_key_value_heads", "kv_heads"},
    {"is_causal", "causal"},
    {"window", "window_left"},
    {"window_size", "window_left"},
    {"sliding_window", "window_left"},
    {"logit_softcapping", "softcap"},
    {"rope_theta", "rotary_base"},
};

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& letter : result) {
    letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  }
  return result;
}

/// Letters to insert, delete or replace.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

/// Empty where nothing is near.
std::string_view nearest(std::string_view name, std::span<const std::string_view> known) {
  const std::string wanted = lower(name.substr(0, 64));
  const auto is_known = [&](std::string_view other) {
    return std::find(known.begin(), known.end(), other) != known.end();
  };
  for (const auto& [elsewhere, here] : kElsewhere) {
    if (wanted == elsewhere && is_known(here)) return here;
  }
  const std::string_view found = *std::min_element(known.begin(), known.end(), [&](auto a, auto b) {
    return edit_distance(wanted, a) < edit_distance(wanted, b);
  });
  return edit_distance(wanted, found) <= std::max(wanted.size(), found.size()) / 2 ? found : "";
}

void check_known(std::string_view what, std::string_view name,
                 std::span<const std::string_view> known) {
  if (std::find(known.begin(), known.end(), name) != known.end()) return;
  const std::string_view near = nearest(name, known);
  fail_dump(name,
            fmt::format("expected a {} that docs/dump.md lists{}, got one that it does not", what,
                        near.empty() ? "" : fmt::format(" (the nearest is \"{}\")", near)));
}

}  // namespace

void fail_dump(std::string_view name, std::string_view problem) {
  const std::string quoted = in_quotes(name);
  throw std::invalid_argument(
      fmt::format("dump: {}: {}", std::string_view(quoted).substr(1, quoted.size() - 2), problem));
}

void check_dump_tensor_names(const TensorFile& file) {
  for (const auto& [name, tensor] : file.tensors) check_known("tensor", name, kTensors);
}

void check_dump_key(std::string_view key) { check_known("key of the metadata", key, kKeys); }

}  // namespace qkv
