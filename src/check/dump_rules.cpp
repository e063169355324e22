#include "check/dump_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "check/dump_names.h"

namespace qkv {
namespace {

const DumpChoices<Polarity> kPolarities = {{"keep", Polarity::Keep}, {"drop", Polarity::Drop}};

/// A key that means nothing without something else.
void check_needs(const DumpText& text, const std::string& key, bool is_there,
                 std::string_view needed) {
  if (text.has(key) && !is_there) {
    fail_dump(key, fmt::format("expected {} beside it, got none", needed));
  }
}

/// What `causal` or `corner` say of a corner: true says that there is one.
std::optional<Corner> read_corner(const DumpText& text, const std::string& key) {
  const auto value = text.text(key);
  if (!value || *value == "false" || *value == "true") return std::nullopt;
  if (*value == "top-left") return Corner::top_left();
  if (*value == "bottom-right") return Corner::bottom_right();
  if (value->find_first_not_of("-0123456789") != std::string::npos) {
    DumpText::fail(key, "false, true, top-left, bottom-right or the key position of query 0",
                   *value);
  }
  return Corner::at({*text.whole_number(key, -kMostDumpKeys, kMostDumpKeys)});
}

void read_causal(const DumpTensors& tensors, const DumpText& text, const AttentionShape& shape,
                 DumpRules& rules) {
  rules.causal = text.has("causal") && *text.text("causal") != "false";
  const auto of_causal = read_corner(text, "causal");
  const auto of_others = read_corner(text, "corner");
  if (of_causal && of_others && of_causal->describe() != of_others->describe()) {
    fail_dump("corner", fmt::format("expected the one of causal, {}, or none; got {}",
                                    of_causal->describe(), of_others->describe()));
  }
  rules.corner = of_causal ? of_causal : of_others;
  if (tensors.has("prefix") && !rules.causal) {
    fail_dump("prefix", "expected causal in the metadata beside it, got none");
  }
  if (rules.corner || shape.queries == shape.keys) return;
  const char* user = rules.causal                  ? "causal"
                     : rules.window                ? "window"
                     : tensors.has("alibi_slopes") ? "alibi_slopes"
                                                   : nullptr;
  if (user == nullptr) return;
  fail_dump(rules.causal ? "causal" : "corner",
            fmt::format("expected top-left, bottom-right or the key position of query 0 for {}, as "
                        "T = {} and S = {} differ; got none",
                        user, shape.queries, shape.keys));
}

std::optional<Window> read_window(const DumpText& text) {
  const auto left = text.whole_number("window_left", 0, kMostDumpKeys);
  const auto right = text.whole_number("window_right", 0, kMostDumpKeys);
  if (!left && !right) return std::nullopt;
  return Window{left, right, std::nullopt};
}

/// Numbers of keys, one a sample.
std::vector<Index> read_lengths(const DumpTensors& tensors, const std::string& name, Index keys) {
  if (!tensors.has(name)) return {};
  std::vector<Index> lengths = tensors.integers(name);
  for (const Index length : lengths) {
    if (length < 0 || length > keys) {
      fail_dump(name, fmt::format("expected lengths from 0 to S = {}, got {}", keys, length));
    }
  }
  return lengths;
}

/// Throws where true is not said to mean anything.
template <int Rank>
void make_keep(const DumpText& text, const std::string& key, Tensor<bool, Rank>& flags) {
  const auto polarity = text.choice(key, kPolarities);
  if (!polarity) fail_dump(key, "expected keep or drop: what true or 1 means; got none");
  if (*polarity == Polarity::Keep) return;
  for (bool& flag : flags.elements()) flag = !flag;
}

void read_documents(const DumpTensors& tensors, const AttentionShape& shape, DumpRules& rules,
                    std::vector<std::string>& inferred) {
  if (!tensors.has("query_documents")) return;
  rules.query_documents = tensors.integer_rows("query_documents");
  if (tensors.has("key_documents")) {
    rules.key_documents = tensors.integer_rows("key_documents");
    return;
  }
  if (shape.queries != shape.keys) {
    fail_dump("key_documents",
              fmt::format("expected [B, S] = [{}, {}] beside query_documents, as T = {}; got none",
                          shape.batch, shape.keys, shape.queries));
  }
  rules.key_documents = rules.query_documents;
  inferred.emplace_back("key_documents: those of the queries");
}

Tensor<Index, 2> counted(Index batch, Index tokens) {
  Tensor<Index, 2> positions({batch, tokens});
  for (Index b = 0; b < batch; ++b) {
    for (Index t = 0; t < tokens; ++t) positions(b, t) = t;
  }
  return positions;
}

}  // namespace

Mask DumpRules::mask() const {
  Mask mask;
  if (causal) {
    mask = prefix.empty() ? Mask::causal(corner) : Mask::prefix_causal(prefix, corner);
  }
  if (window) mask = mask & Mask::sliding_window({window->left, window->right, corner});
  if (!lengths.empty()) mask = mask & Mask::key_lengths(lengths);
  if (padding) mask = mask & Mask::key_padding(padding->view(), Polarity::Keep);
  if (boolean) mask = mask & Mask::boolean(boolean->view(), Polarity::Keep);
  if (query_documents && key_documents) {
    mask = mask & Mask::documents(query_documents->view(), key_documents->view());
  }
  return mask;
}

DumpRules read_dump_rules(const DumpTensors& tensors, const DumpText& text,
                          const AttentionShape& shape, std::vector<std::string>& inferred) {
  check_needs(text, "key_padding_true", tensors.has("key_padding"), "the tensor key_padding");
  check_needs(text, "mask_true", tensors.has("mask"), "the tensor mask");
  DumpRules rules;
  rules.window = read_window(text);
  read_causal(tensors, text, shape, rules);
  rules.prefix = read_lengths(tensors, "prefix", shape.keys);
  rules.lengths = read_lengths(tensors, "lengths", shape.keys);
  if (tensors.has("key_padding")) {
    rules.padding = tensors.flags("key_padding");
    make_keep(text, "key_padding_true", *rules.padding);
  }
  if (tensors.has("mask")) {
    rules.boolean = tensors.broadcast_flags("mask");
    make_keep(text, "mask_true", *rules.boolean);
  }
  read_documents(tensors, shape, rules, inferred);
  return rules;
}

std::optional<DumpRotary> read_dump_rotary(const DumpTensors& tensors, const DumpText& text,
                                           const AttentionShape& shape,
                                           std::vector<std::string>& inferred) {
  const auto base = text.positive_number("rotary_base");
  for (const char* key : {"rotary_width", "rotary_pairing"}) {
    check_needs(text, key, base.has_value(), "rotary_base in the metadata");
  }
  for (const std::string name : {"query_positions", "key_positions"}) {
    if (tensors.has(name) && !base) {
      fail_dump(name, "expected rotary_base in the metadata beside it, got none");
    }
  }
  if (!base) return std::nullopt;

  DumpRotary rotary;
  rotary.options.base = *base;
  rotary.options.width = text.whole_number("rotary_width", 0, shape.key_width);
  if (const Index width = rotary.options.width.value_or(shape.key_width); width % 2 != 0) {
    fail_dump("rotary_width",
              fmt::format("expected an even number up to Dk = {}, got {}", shape.key_width, width));
  }
  const DumpChoices<RotaryPairing> pairings = {{"halves", RotaryPairing::Halves},
                                               {"interleaved", RotaryPairing::Interleaved}};
  rotary.options.pairing = text.choice("rotary_pairing", pairings).value_or(RotaryPairing::Halves);
  if (!text.has("rotary_pairing")) inferred.emplace_back("rotary_pairing: halves");

  const bool has_query = tensors.has("query_positions");
  const bool has_key = tensors.has("key_positions");
  const bool is_square = shape.queries == shape.keys;
  if (!has_query && !is_square) {
    fail_dump("query_positions",
              fmt::format("expected [B, T] = [{}, {}] or one row, as T and S = {} differ; got none",
                          shape.batch, shape.queries, shape.keys));
  }
  if (has_query) rotary.query_positions = tensors.integer_rows("query_positions", shape.batch);
  if (has_key) rotary.key_positions = tensors.integer_rows("key_positions", shape.batch);
  if (!has_query) {
    rotary.query_positions = has_key ? rotary.key_positions : counted(shape.batch, shape.queries);
    inferred.emplace_back(has_key ? "query_positions: those of the keys"
                                  : "query_positions: 0, 1, 2, …");
  }
  if (!has_key) {
    rotary.key_positions = is_square ? rotary.query_positions : counted(shape.batch, shape.keys);
    inferred.emplace_back(is_square ? "key_positions: those of the queries"
                                    : "key_positions: 0, 1, 2, …");
  }
  return rotary;
}

std::optional<DumpQkNorm> read_dump_qk_norm(const DumpTensors& tensors, const DumpText& text,
                                            std::vector<std::string>& inferred) {
  const bool has_query = tensors.has("q_norm");
  const bool has_key = tensors.has("k_norm");
  const bool is_there = has_query || has_key || text.has("qk_norm_epsilon");
  check_needs(text, "qk_norm_order", is_there, "q_norm, k_norm or qk_norm_epsilon");
  if (!is_there) return std::nullopt;

  DumpQkNorm norm;
  norm.query_weight = tensors.optional_numbers<1>("q_norm");
  norm.key_weight = tensors.optional_numbers<1>("k_norm");
  if (!has_query) inferred.emplace_back("q_norm: 1 everywhere");
  if (!has_key) inferred.emplace_back("k_norm: 1 everywhere");
  if (const auto epsilon = text.number("qk_norm_epsilon")) {
    if (*epsilon < 0) DumpText::fail("qk_norm_epsilon", "0 or more", *text.text("qk_norm_epsilon"));
    norm.epsilon = *epsilon;
  } else {
    inferred.emplace_back("qk_norm_epsilon: 1e-6");
  }
  const DumpChoices<bool> orders = {{"before-rotary", false}, {"after-rotary", true}};
  norm.after_rotary = text.choice("qk_norm_order", orders).value_or(false);
  return norm;
}

}  // namespace qkv
