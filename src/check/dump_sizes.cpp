#include "check/dump_sizes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "check/dump_names.h"

namespace qkv {
namespace {

constexpr std::string_view kSymbols[] = {"B", "H", "Hkv", "T", "S", "Dk", "Dv", "D", "rows"};

std::string_view symbol(DumpSize size) { return kSymbols[static_cast<std::size_t>(size)]; }

std::string symbols(const DumpAxis& axis) {
  std::vector<std::string_view> names;
  names.reserve(axis.size());
  for (const DumpSize size : axis) names.push_back(symbol(size));
  return fmt::format("{}", fmt::join(names, "·"));
}

std::string symbols(const std::vector<DumpAxis>& axes) {
  std::vector<std::string> names;
  names.reserve(axes.size());
  for (const DumpAxis& axis : axes) names.push_back(symbols(axis));
  return fmt::format("[{}]", fmt::join(names, ", "));
}

}  // namespace

void DumpSizes::set(DumpSize size, Index value, const std::string& source) {
  entry(size) = {value, source};
}

void DumpSizes::solve(const std::vector<SizedTensor>& tensors) {
  take_all(tensors);
  if (!entry(DumpSize::H).value) {
    fail_dump("heads",
              "expected the number of heads in the metadata, as no shape tells it; got none");
  }
  if (entry(DumpSize::Packed).value) {
    unpack();
    take_all(tensors);
  }
  for (const DumpSize size :
       {DumpSize::B, DumpSize::Hkv, DumpSize::T, DumpSize::S, DumpSize::Dk, DumpSize::Dv}) {
    if (!entry(size).value) {
      fail_dump(symbol(size), "expected a tensor whose shape tells this size, got none");
    }
  }
  if (const auto [heads, kv_heads] = std::pair((*this)[DumpSize::H], (*this)[DumpSize::Hkv]);
      heads % kv_heads != 0) {
    fail_dump(
        entry(DumpSize::Hkv).source,
        fmt::format("expected key/value heads whose number divides H = {} by {}, got Hkv = {}",
                    heads, entry(DumpSize::H).source, kv_heads));
  }
  for (const SizedTensor& tensor : tensors) {
    if (tensor.broadcasts) check_broadcast(tensor);
  }
}

/// Until no tensor tells anything new.
void DumpSizes::take_all(const std::vector<SizedTensor>& tensors) {
  bool changed = true;
  while (changed) {
    changed = false;
    for (const SizedTensor& tensor : tensors) {
      if (!tensor.broadcasts) changed |= take(tensor);
    }
  }
}

/// Whether the tensor told a size.
bool DumpSizes::take(const SizedTensor& tensor) {
  if (tensor.shape.size() != tensor.axes.size()) {
    fail_dump(tensor.name, fmt::format("expected {} {}, {}, got {}", tensor.axes.size(),
                                       tensor.axes.size() == 1 ? "axis" : "axes", describe(tensor),
                                       to_string(tensor.shape)));
  }
  bool changed = false;
  for (std::size_t i = 0; i < tensor.axes.size(); ++i) {
    const DumpAxis& axis = tensor.axes[i];
    if (tensor.shape[i] <= 0) {
      fail_dump(tensor.name, fmt::format("expected {} with no empty axis, got {}", describe(tensor),
                                         to_string(tensor.shape)));
    }
    Index rest = tensor.shape[i];
    std::optional<DumpSize> unknown;
    std::size_t unknowns = 0;
    bool divides = true;
    for (const DumpSize size : axis) {
      if (const auto value = entry(size).value) {
        divides = divides && rest % *value == 0;
        rest /= *value;
      } else {
        unknown = size;
        ++unknowns;
      }
    }
    if (!divides || (unknowns == 0 && rest != 1)) fail(tensor, {axis});
    if (unknowns == 1) {
      entry(*unknown) = {rest, tensor.name};
      changed = true;
    }
  }
  return changed;
}

/// From the rows of a packed weight: H·Dk + Hkv·(Dk + Dv).
void DumpSizes::unpack() {
  const Index rows = (*this)[DumpSize::Packed];
  const Index heads = (*this)[DumpSize::H];
  const std::string source = entry(DumpSize::Packed).source;
  if (!entry(DumpSize::Hkv).value) {
    set(DumpSize::Hkv, heads, "heads");
    inferred_.push_back(fmt::format("kv_heads: {}, as many as heads", heads));
  }
  const Index kv_heads = (*this)[DumpSize::Hkv];
  const auto ask = [&]() {
    fail_dump(
        source,
        fmt::format("expected H·Dk + Hkv·(Dk + Dv) rows for H = {} and Hkv = {} (kv_heads in the "
                    "metadata), got {}",
                    heads, kv_heads, rows));
  };
  // Each width that is still unknown is the other one, or both are the same.
  const bool has_key = entry(DumpSize::Dk).value.has_value();
  const bool has_value = entry(DumpSize::Dv).value.has_value();
  if (!has_key || !has_value) {
    const Index known = has_key     ? (heads + kv_heads) * (*this)[DumpSize::Dk]
                        : has_value ? kv_heads * (*this)[DumpSize::Dv]
                                    : 0;
    const Index shares = has_key ? kv_heads : has_value ? heads + kv_heads : heads + 2 * kv_heads;
    if (rows <= known || (rows - known) % shares != 0) ask();
    const Index width = (rows - known) / shares;
    if (!has_key) set(DumpSize::Dk, width, source);
    if (!has_value) set(DumpSize::Dv, width, source);
  }
  const Index key_width = (*this)[DumpSize::Dk];
  if (rows != heads * key_width + kv_heads * (key_width + (*this)[DumpSize::Dv])) ask();
}

void DumpSizes::check_broadcast(const SizedTensor& tensor) const {
  if (tensor.shape.size() > tensor.axes.size()) {
    fail_dump(tensor.name, fmt::format("expected a shape that broadcasts to {}, got {}",
                                       describe(tensor), to_string(tensor.shape)));
  }
  const std::size_t absent = tensor.axes.size() - tensor.shape.size();
  std::vector<DumpAxis> wrong;
  for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
    const DumpAxis& axis = tensor.axes[absent + i];
    if (tensor.shape[i] != 1 && tensor.shape[i] != extent(axis)) wrong.push_back(axis);
  }
  if (!wrong.empty()) fail(tensor, wrong);
}

/// Nothing where a size is not known (yet) or the product is no Index.
std::optional<Index> DumpSizes::extent(const DumpAxis& axis) const {
  Index product = 1;
  for (const DumpSize size : axis) {
    const auto value = entry(size).value;
    if (!value || __builtin_mul_overflow(product, *value, &product)) return std::nullopt;
  }
  return product;
}

std::string DumpSizes::describe(const SizedTensor& tensor) const {
  std::vector<std::string> numbers;
  bool some_known = false;
  for (const DumpAxis& axis : tensor.axes) {
    const auto value = extent(axis);
    some_known = some_known || value.has_value();
    numbers.push_back(value ? std::to_string(*value) : symbols(axis));
  }
  if (!some_known) return symbols(tensor.axes);
  return fmt::format("{} = [{}]", symbols(tensor.axes), fmt::join(numbers, ", "));
}

void DumpSizes::fail(const SizedTensor& tensor, const std::vector<DumpAxis>& wrong) const {
  std::vector<std::string> reasons;
  for (const DumpAxis& axis : wrong) {
    for (const DumpSize size : axis) {
      if (const Entry& known = entry(size); known.value) {
        reasons.push_back(fmt::format("{} = {} by {}", symbol(size), *known.value, known.source));
      }
    }
  }
  fail_dump(tensor.name,
            fmt::format("expected {}{}, got {}: {}", tensor.broadcasts ? "what broadcasts to " : "",
                        describe(tensor), to_string(tensor.shape), fmt::join(reasons, ", ")));
}

AttentionShape DumpSizes::shape() const noexcept {
  return {(*this)[DumpSize::B], (*this)[DumpSize::H],  (*this)[DumpSize::Hkv], (*this)[DumpSize::T],
          (*this)[DumpSize::S], (*this)[DumpSize::Dk], (*this)[DumpSize::Dv]};
}

}  // namespace qkv
