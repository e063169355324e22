#include "check/variant_visibility.h"

#include <utility>

#include "base/broadcast.h"

namespace qkv {
namespace {

/// One rule asked about one query; each class answers keeps(s).
struct Query {
  const Dump& dump;
  const Variant& variant;
  Index b;
  Index h;
  Index t;
};

class CausalRule {
 public:
  explicit CausalRule(const Query& query) {
    const VisibilityVariant& v = query.variant.visibility;
    triangle_ = v.triangle;
    position_ = query.t + corner_offset(query.dump, v.causal_corner, query.b);
    const auto& prefix = query.dump.rules.prefix;
    if (!prefix.empty() && !v.prefix_dropped) {
      const Index b = sample_of(v.rules[kCausal].sample, query.dump.shape, query.b, query.h);
      prefix_ = prefix[prefix.size() == 1 ? 0 : static_cast<std::size_t>(b)];
    }
  }
  bool operator()(Index s) const {
    if (s < prefix_) return true;
    if (triangle_ == Triangle::Upper) return s >= position_;
    return triangle_ == Triangle::Strict ? s < position_ : s <= position_;
  }

 private:
  Triangle triangle_ = Triangle::Intended;
  Index position_ = 0;
  Index prefix_ = 0;
};

class WindowRule {
 public:
  explicit WindowRule(const Query& query) {
    const VisibilityVariant& v = query.variant.visibility;
    const Window& window = *query.dump.rules.window;
    left_ = v.window_changed ? v.window_left : window.left;
    right_ = v.window_changed ? v.window_right : window.right;
    position_ = query.t + corner_offset(query.dump, v.window_corner, query.b);
  }
  bool operator()(Index s) const {
    return (!left_ || s >= position_ - *left_) && (!right_ || s - *right_ <= position_);
  }

 private:
  std::optional<Index> left_;
  std::optional<Index> right_;
  Index position_ = 0;
};

class PaddingRule {
 public:
  explicit PaddingRule(const Query& query)
      : rules_(query.dump.rules), axis_(query.variant.visibility.padding_axis) {
    const SampleMap map = query.variant.visibility.rules[kPadding].sample;
    sample_ = sample_of(map, query.dump.shape, query.b, query.h);
    if (axis_ == PaddingAxis::Query) fixed_ = query.t;
    if (axis_ == PaddingAxis::Head) fixed_ = query.h;
  }
  bool operator()(Index s) const {
    const Index at = axis_ == PaddingAxis::Key ? s : fixed_;
    if (!rules_.lengths.empty()) {
      const std::size_t b = rules_.lengths.size() == 1 ? 0 : static_cast<std::size_t>(sample_);
      if (at >= rules_.lengths[b]) return false;
    }
    if (!rules_.padding) return true;
    return (*rules_.padding)(broadcast_index(rules_.padding->shape(0), sample_), at);
  }

 private:
  const DumpRules& rules_;
  PaddingAxis axis_;
  Index sample_ = 0;
  Index fixed_ = 0;
};

class BooleanRule {
 public:
  explicit BooleanRule(const Query& query)
      : keep_(std::as_const(*query.dump.rules.boolean).view()),
        transposed_(query.variant.visibility.boolean_transposed),
        h_(query.h),
        t_(query.t) {
    sample_ = sample_of(query.variant.visibility.rules[kBoolean].sample, query.dump.shape, query.b,
                        query.h);
    if (keep_.shape(0) == 1) sample_ = 0;
  }
  bool operator()(Index s) const {
    return transposed_ ? broadcast_at(keep_, sample_, h_, s, t_)
                       : broadcast_at(keep_, sample_, h_, t_, s);
  }

 private:
  TensorView<const bool, 4> keep_;
  bool transposed_;
  Index sample_ = 0;
  Index h_;
  Index t_;
};

class DocumentsRule {
 public:
  explicit DocumentsRule(const Query& query) : keys_(*query.dump.rules.key_documents) {
    sample_ = sample_of(query.variant.visibility.rules[kDocuments].sample, query.dump.shape,
                        query.b, query.h);
    const auto& queries = *query.dump.rules.query_documents;
    query_ = queries(broadcast_index(queries.shape(0), sample_), query.t);
    sample_ = broadcast_index(keys_.shape(0), sample_);
  }
  bool operator()(Index s) const { return keys_(sample_, s) == query_; }

 private:
  const Tensor<Index, 2>& keys_;
  Index query_ = 0;
  Index sample_ = 0;
};

template <class Keeps>
void apply(const RuleVariant& rule, bool complement_of_all, bool position_rule, const Keeps& keeps,
           std::vector<KeyVisibility>& keys) {
  if (rule.dropped) return;
  for (std::size_t s = 0; s < keys.size(); ++s) {
    if (keeps(static_cast<Index>(s)) != rule.complement) continue;
    KeyVisibility& key = keys[s];
    if (position_rule) key.rest = false;
    if (complement_of_all) {
      key.hidden = true;
      continue;
    }
    switch (rule.application) {
      case Application::Hide:
        key.hidden = true;
        ++key.hiding;
        break;
      case Application::Fill:
        key.filled = true;
        key.fill = rule.value;
        break;
      case Application::Add:
        key.added = rule.value;  // rules that are added together are added once
        break;
      case Application::AddToOthers:
        key.added = -rule.value;  // beside what Scorer adds to all
        break;
      case Application::AfterSoftmax:
        key.erased = true;
        break;
    }
  }
}

}  // namespace

Index sample_of(SampleMap map, const AttentionShape& shape, Index b, Index h) {
  switch (map) {
    case SampleMap::First:
      return 0;
    case SampleMap::Tiled:
      return (b * shape.heads + h) % shape.batch;
    case SampleMap::Head:
      return h % shape.batch;
    case SampleMap::Next:
      return (b + 1) % shape.batch;
    default:
      return b;
  }
}

Index corner_offset(const Dump& dump, const CornerVariant& variant, Index b) {
  const AttentionShape& shape = dump.shape;
  if (variant.by_length && !dump.rules.lengths.empty()) {
    const auto& lengths = dump.rules.lengths;
    return lengths[lengths.size() == 1 ? 0 : static_cast<std::size_t>(b)] - shape.queries;
  }
  if (variant.offset) return *variant.offset;
  return dump.rules.corner ? dump.rules.corner->offset(b, shape.queries, shape.keys) : 0;
}

void visibility_of(const Dump& dump, const Variant& variant, Index b, Index h, Index t,
                   std::vector<KeyVisibility>& keys) {
  std::fill(keys.begin(), keys.end(), KeyVisibility{});
  const VisibilityVariant& v = variant.visibility;
  if (variant.attended != Attended::Keys) {
    if (!dump.rules.causal || v.rules[kCausal].dropped) return;
    const Index own = variant.attended == Attended::Heads ? h : b;
    for (std::size_t s = 0; s < keys.size(); ++s) keys[s].hidden = static_cast<Index>(s) > own;
    return;
  }
  const Query query{dump, variant, b, h, t};
  const DumpRules& rules = dump.rules;
  const bool all = v.complement;
  if (rules.causal) apply(v.rules[kCausal], all, true, CausalRule(query), keys);
  if (v.unmeant_causal) {
    const Index last = t + *v.unmeant_causal;
    apply(
        {}, all, true, [last](Index s) { return s <= last; }, keys);
  }
  if (rules.window) apply(v.rules[kWindow], all, true, WindowRule(query), keys);
  if (!rules.lengths.empty() || rules.padding) {
    apply(v.rules[kPadding], all, false, PaddingRule(query), keys);
  }
  if (rules.boolean) apply(v.rules[kBoolean], all, false, BooleanRule(query), keys);
  if (rules.query_documents && rules.key_documents) {
    apply(v.rules[kDocuments], all, true, DocumentsRule(query), keys);
  }
  if (all) {
    for (KeyVisibility& key : keys) key.hidden = !key.hidden;
  }
}

}  // namespace qkv
