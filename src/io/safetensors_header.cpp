#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "io/safetensors.h"
#include "io/tensor_layout.h"
#include "qkv/error.h"

namespace qkv {
namespace {

struct NamedDType {
  DType dtype;
  std::string_view name;
};

constexpr NamedDType dtype_names[] = {
    {DType::Float64, "F64"},   {DType::Float32, "F32"}, {DType::Float16, "F16"},
    {DType::BFloat16, "BF16"}, {DType::Int64, "I64"},   {DType::Int32, "I32"},
    {DType::Int16, "I16"},     {DType::Int8, "I8"},     {DType::UInt64, "U64"},
    {DType::UInt32, "U32"},    {DType::UInt16, "U16"},  {DType::UInt8, "U8"},
    {DType::Bool, "BOOL"},
};

/// Feeds the parser and tells how far it has read. The parser keeps a copy of its iterator to itself,
/// hence the position outside.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* start, std::size_t* position) : start_(start), position_(position) {}
  reference operator*() const { return start_[*position_]; }
  CountingIterator& operator++() {
    ++*position_;
    return *this;
  }
  bool operator==(const CountingIterator& other) const { return *position_ == *other.position_; }
  bool operator!=(const CountingIterator& other) const { return !(*this == other); }

 private:
  const char* start_;
  std::size_t* position_;
};

/// Takes the parser's events and knows which of them the format allows next. Any other throws at once,
/// so that nesting never grows beyond the three levels there are.
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderReader(std::string_view json, const std::string& path) : json_(json), path_(path) {}

  SafetensorsHeader read() {
    std::size_t size = json_.size();
    nlohmann::json::sax_parse(CountingIterator(json_.data(), &position_),
                              CountingIterator(json_.data(), &size), this);
    return std::move(header_);
  }

  bool null() override { reject("null", token_offset(4)); }
  bool boolean(bool value) override {
    if (value) reject("true", token_offset(4));
    reject("false", token_offset(5));
  }
  bool number_integer(std::int64_t value) override {
    reject(fmt::format("{}", value), number_offset());
  }
  bool number_float(double, const std::string& text) override {
    reject(text.size() < 40 ? text : "a number", number_offset());
  }

  bool number_unsigned(std::uint64_t value) override {
    constexpr auto most = static_cast<std::uint64_t>(std::numeric_limits<Index>::max());
    if (state_ == State::ShapeItems && value <= most) {
      if (entry_.shape.size() == kMaxRank) {
        fail(fmt::format("expected at most {} axes, got more", kMaxRank), number_offset());
      }
      entry_.shape.push_back(static_cast<Index>(value));
      return true;
    }
    if (state_ == State::RangeItems && value <= most) {
      if (range_items_ == 2) fail("expected two integers, got more", number_offset());
      (range_items_ == 0 ? entry_.begin : entry_.end) = value;
      ++range_items_;
      return true;
    }
    reject(fmt::format("{}", value), number_offset());
  }

  bool string(std::string& text) override {
    if (state_ == State::DTypeValue) {
      const auto* const found =
          std::find_if(std::begin(dtype_names), std::end(dtype_names),
                       [&](const NamedDType& named) { return named.name == text; });
      if (found == std::end(dtype_names)) {
        fail(fmt::format("expected F64, F32, F16, BF16, I64 to I8, U64 to U8 or BOOL, got {}",
                         in_quotes(text)),
             string_offset());
      }
      entry_.dtype = found->dtype;
      state_ = State::Fields;
      return true;
    }
    if (state_ == State::MetadataText) {
      header_.metadata[key_] = std::move(text);
      state_ = State::MetadataKeys;
      return true;
    }
    reject("a text", string_offset());
  }

  bool key(std::string& text) override {
    if (state_ == State::Names) {
      if (!names_.insert(text).second) {
        throw FileError(
            path_,
            fmt::format("tensor {}: expected unique names, got a second one", in_quotes(text)),
            string_offset());
      }
      if (text == kSafetensorsMetadata) {
        state_ = State::Metadata;
        return true;
      }
      entry_ = {};
      entry_.name = std::move(text);
      entry_.name_offset = string_offset();
      seen_.clear();
      state_ = State::Entry;
      return true;
    }
    if (state_ == State::MetadataKeys) {
      if (header_.metadata.contains(text)) {
        fail(fmt::format("expected unique keys, got a second {}", in_quotes(text)),
             string_offset());
      }
      key_ = std::move(text);
      state_ = State::MetadataText;
      return true;
    }
    return field(text);
  }

  bool start_object(std::size_t) override {
    if (state_ == State::Start) {
      state_ = State::Names;
    } else if (state_ == State::Entry) {
      state_ = State::Fields;
    } else if (state_ == State::Metadata) {
      state_ = State::MetadataKeys;
    } else {
      reject("an object", token_offset(1));
    }
    return true;
  }

  bool end_object() override {
    if (state_ == State::Fields) {
      for (const char* const name : {"dtype", "shape", "data_offsets"}) {
        if (!seen_.contains(name)) {
          fail(fmt::format("expected dtype, shape and data_offsets, got no {}", name),
               entry_.name_offset);
        }
      }
      header_.entries.push_back(std::move(entry_));
    }
    state_ = state_ == State::Names ? State::End : State::Names;
    return true;
  }

  bool start_array(std::size_t) override {
    if (state_ == State::ShapeValue) {
      entry_.shape_offset = token_offset(1);
      state_ = State::ShapeItems;
    } else if (state_ == State::RangeValue) {
      entry_.range_offset = token_offset(1);
      state_ = State::RangeItems;
    } else {
      reject("a list", token_offset(1));
    }
    return true;
  }

  bool end_array() override {
    if (state_ == State::RangeItems && range_items_ != 2) {
      fail(fmt::format("expected two integers, got {}", range_items_), entry_.range_offset);
    }
    state_ = State::Fields;
    return true;
  }

  bool binary(nlohmann::json::binary_t&) override { reject("binary data", token_offset(1)); }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    const std::size_t index = position == 0 ? 0 : position - 1;
    throw FileError(path_,
                    fmt::format("header: expected JSON in UTF-8, got {}",
                                index >= json_.size() ? std::string("its end")
                                                      : in_quotes(json_.substr(index, 16))),
                    kSafetensorsLengthBytes + std::min(index, json_.size()));
  }

 private:
  /// What may come next.
  enum class State {
    Start,
    Names,   ///< of tensors, or "__metadata__", or the end
    Entry,   ///< the object of a tensor
    Fields,  ///< dtype, shape, data_offsets, or their end
    DTypeValue,
    ShapeValue,
    ShapeItems,
    RangeValue,
    RangeItems,
    Metadata,  ///< its object
    MetadataKeys,
    MetadataText,
    End,
  };

  bool field(const std::string& text) {
    if (text == "dtype") {
      state_ = State::DTypeValue;
    } else if (text == "shape") {
      state_ = State::ShapeValue;
    } else if (text == "data_offsets") {
      state_ = State::RangeValue;
      range_items_ = 0;
    } else {
      fail(fmt::format("expected dtype, shape and data_offsets, got {}", in_quotes(text)),
           string_offset());
    }
    if (!seen_.insert(text).second) fail("expected it once, got a second one", string_offset());
    return true;
  }

  /// Throws that something of the wrong type came.
  [[noreturn]] void reject(const std::string& got, std::uint64_t offset) const {
    fail(fmt::format("expected {}, got {}", expectation(), got), offset);
  }

  [[noreturn]] void fail(const std::string& problem, std::uint64_t offset) const {
    throw FileError(path_, subject() + ": " + problem, offset);
  }

  const char* expectation() const {
    switch (state_) {
      case State::Entry:
        return "an object with dtype, shape and data_offsets";
      case State::DTypeValue:
        return "a text";
      case State::ShapeValue:
      case State::RangeValue:
        return "a list of integers";
      case State::ShapeItems:
      case State::RangeItems:
        return "integers from 0 to 2^63 - 1";
      case State::MetadataText:
        return "a text";
      default:
        return "an object";
    }
  }

  std::string subject() const {
    std::string tensor = "tensor " + in_quotes(entry_.name);
    switch (state_) {
      case State::Entry:
      case State::Fields:
        return tensor;
      case State::DTypeValue:
        return tensor + ": dtype";
      case State::ShapeValue:
      case State::ShapeItems:
        return tensor + ": shape";
      case State::RangeValue:
      case State::RangeItems:
        return tensor + ": data_offsets";
      case State::Metadata:
      case State::MetadataKeys:
        return "__metadata__";
      case State::MetadataText:
        return "__metadata__: " + in_quotes(key_);
      default:
        return "header";
    }
  }

  /// Where the token begins that ends at the current position.
  std::uint64_t token_offset(std::size_t length) const {
    return kSafetensorsLengthBytes + position_ - length;
  }

  /// The same for a number, after which the parser has read one character more if there was one.
  std::uint64_t number_offset() const {
    const auto in_number = [&](std::size_t index) {
      return std::string_view("+-.0123456789Ee").find(json_[index]) != std::string_view::npos;
    };
    std::size_t start = position_;
    while (start > 0 && !in_number(start - 1)) --start;
    while (start > 0 && in_number(start - 1)) --start;
    return kSafetensorsLengthBytes + start;
  }

  /// The same for a text: the next quote to the left that no backslash escapes.
  std::uint64_t string_offset() const {
    std::size_t start = position_ - 1;
    for (bool escaped = true; escaped;) {
      start = json_.rfind('"', start - 1);
      const std::size_t before = json_.find_last_not_of('\\', start - 1);
      escaped = (start - before) % 2 == 0;
    }
    return kSafetensorsLengthBytes + start;
  }

  std::string_view json_;
  const std::string& path_;
  std::size_t position_ = 0;
  State state_ = State::Start;
  SafetensorsHeader header_;
  std::set<std::string> names_;
  SafetensorsEntry entry_;
  std::set<std::string> seen_;  ///< fields of entry_
  int range_items_ = 0;
  std::string key_;  ///< of the metadata
};

}  // namespace

std::string_view safetensors_name(DType dtype) {
  return std::find_if(std::begin(dtype_names), std::end(dtype_names),
                      [&](const NamedDType& named) { return named.dtype == dtype; })
      ->name;
}

SafetensorsHeader parse_safetensors_header(std::string_view json, const std::string& path) {
  // The parser would take a zero byte for the end and ignore what follows.
  if (const std::size_t zero = json.find('\0'); zero != std::string_view::npos) {
    throw FileError(path, "header: expected JSON in UTF-8, got a zero byte",
                    kSafetensorsLengthBytes + zero);
  }
  if (json.empty() || json.front() != '{') {
    throw FileError(
        path, "header: expected JSON that begins with {, got " + in_quotes(json.substr(0, 16)),
        kSafetensorsLengthBytes);
  }
  return HeaderReader(json, path).read();
}

}  // namespace qkv
