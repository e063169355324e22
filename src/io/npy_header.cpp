#include <fmt/format.h>

#include <charconv>
#include <limits>
#include <optional>

#include "io/npy.h"
#include "io/tensor_layout.h"
#include "qkv/error.h"

namespace qkv {
namespace {

constexpr std::size_t version_offset = kNpyMagic.size();
constexpr std::size_t length_offset = version_offset + 2;

/// Bytes of the header's length, by the version's major number.
std::size_t length_bytes(std::byte major) { return major == std::byte{1} ? 2 : 4; }

struct ElementType {
  DType dtype;
  bool big_endian;
};

/// "<f4" and the like; nothing where no DType stores it.
std::optional<ElementType> parse_descr(std::string_view descr) {
  struct Kind {
    std::string_view name;
    DType dtype;
  };
  // ml_dtypes.bfloat16 is saved as V2 with a byte order, which plain void data ("|V2") do not have.
  constexpr Kind kinds[] = {
      {"f8", DType::Float64},  {"f4", DType::Float32}, {"f2", DType::Float16},
      {"i8", DType::Int64},    {"i4", DType::Int32},   {"i2", DType::Int16},
      {"i1", DType::Int8},     {"u8", DType::UInt64},  {"u4", DType::UInt32},
      {"u2", DType::UInt16},   {"u1", DType::UInt8},   {"b1", DType::Bool},
      {"V2", DType::BFloat16},
  };
  if (descr.empty()) return std::nullopt;
  for (const Kind& kind : kinds) {
    if (descr.substr(1) != kind.name) continue;
    const char order = descr.front();
    const bool known = order == '<' || order == '>' || order == '=';
    if (!known && !(order == '|' && size_of(kind.dtype) == 1)) return std::nullopt;
    return ElementType{kind.dtype, order == '>'};
  }
  return std::nullopt;
}

/// Reads the dict. Only what numpy.save writes is understood; nothing is evaluated.
class DictReader {
 public:
  DictReader(std::string_view text, std::uint64_t offset, const std::string& path)
      : text_(text), offset_(offset), path_(path) {}

  NpyHeader read() {
    bool has_descr = false;
    bool has_order = false;
    bool has_shape = false;
    expect('{');
    while (!take('}')) {
      const std::size_t start = skip_spaces();
      const std::string_view key = quoted_text("a key in quotes");
      expect(':');
      bool* seen = nullptr;
      if (key == "descr") {
        seen = &has_descr;
        read_descr();
      } else if (key == "fortran_order") {
        seen = &has_order;
        header_.fortran_order = read_bool();
      } else if (key == "shape") {
        seen = &has_shape;
        read_shape();
      }
      if (seen == nullptr || *seen) {
        fail("expected descr, fortran_order and shape, once each, got " + in_quotes(key), start);
      }
      *seen = true;
      if (!take(',')) {
        expect('}');
        break;
      }
    }
    if (skip_spaces() != text_.size()) fail_here("the end after the dict");
    if (!has_descr || !has_order || !has_shape) {
      fail("expected descr, fortran_order and shape, got fewer", 0);
    }
    const std::optional<std::uint64_t> bytes = byte_count(header_.dtype, header_.shape);
    if (!bytes) {
      fail(fmt::format("shape: expected fewer than 2^63 bytes, got {} {}", name_of(header_.dtype),
                       to_string(header_.shape)),
           shape_start_);
    }
    header_.data_bytes = *bytes;
    return header_;
  }

 private:
  void read_descr() {
    const std::size_t start = skip_spaces();
    if (start < text_.size() && text_[start] == '[') {
      fail("descr: expected one dtype, got a structured one", start);
    }
    const std::string_view descr = quoted_text("a dtype in quotes");
    if (descr.find('O') != std::string_view::npos) {
      fail("descr: expected numbers or bool, got Python objects", start);
    }
    if (descr.find_first_of("US") != std::string_view::npos) {
      fail("descr: expected numbers or bool, got text: store its bytes as uint8", start);
    }
    const std::optional<ElementType> type = parse_descr(descr);
    if (!type) {
      fail(
          "descr: expected f8, f4, f2, i8 to i1, u8 to u1 or b1 after <, >, = or |, or <V2 for "
          "bfloat16, got " +
              in_quotes(descr),
          start);
    }
    header_.dtype = type->dtype;
    header_.big_endian = type->big_endian;
  }

  bool read_bool() {
    const std::size_t start = skip_spaces();
    for (const std::string_view literal : {"True", "False"}) {
      if (text_.substr(start, literal.size()) == literal) {
        next_ = start + literal.size();
        return literal == "True";
      }
    }
    fail_here("True or False");
  }

  void read_shape() {
    shape_start_ = skip_spaces();
    expect('(');
    bool after_comma = true;
    while (!take(')')) {
      if (!after_comma) fail_here("a comma or )");
      if (header_.shape.size() == kMaxRank) {
        fail(fmt::format("shape: expected at most {} axes, got more", kMaxRank), shape_start_);
      }
      header_.shape.push_back(read_extent());
      after_comma = take(',');
      // (3) is a number in Python, not a tuple.
      if (!after_comma && header_.shape.size() == 1) fail_here("a comma");
    }
  }

  Index read_extent() {
    const std::size_t start = skip_spaces();
    Index extent = 0;
    const char* const first = text_.data() + start;
    const auto [end, error] = std::from_chars(first, text_.data() + text_.size(), extent);
    if (error != std::errc{} || extent < 0) fail_here("an integer from 0 to 2^63 - 1");
    next_ = start + static_cast<std::size_t>(end - first);
    return extent;
  }

  std::string_view quoted_text(const char* what) {
    const std::size_t start = skip_spaces();
    const char quote = start < text_.size() ? text_[start] : ' ';
    if (quote != '\'' && quote != '"') fail_here(what);
    const std::size_t end = text_.find(quote, start + 1);
    if (end == std::string_view::npos) fail("expected a closing quote, got none", start);
    next_ = end + 1;
    return text_.substr(start + 1, end - start - 1);
  }

  std::size_t skip_spaces() {
    next_ = std::min(text_.find_first_not_of(" \n\t", next_), text_.size());
    return next_;
  }

  bool take(char wanted) {
    skip_spaces();
    if (next_ == text_.size() || text_[next_] != wanted) return false;
    ++next_;
    return true;
  }

  void expect(char wanted) {
    if (!take(wanted)) fail_here(fmt::format("{}", wanted));
  }

  [[noreturn]] void fail_here(const std::string& expected) {
    const std::size_t start = skip_spaces();
    fail(fmt::format(
             "expected {}, got {}", expected,
             start == text_.size() ? std::string("its end") : in_quotes(text_.substr(start, 16))),
         start);
  }

  [[noreturn]] void fail(const std::string& problem, std::size_t position) const {
    throw FileError(path_, "header: " + problem, offset_ + position);
  }

  std::string_view text_;
  std::uint64_t offset_;  ///< of the text in the file
  const std::string& path_;
  std::size_t next_ = 0;
  std::size_t shape_start_ = 0;
  NpyHeader header_;
};

}  // namespace

std::uint64_t npy_data_offset(std::span<const std::byte> prefix, const std::string& path) {
  if (!as_text(prefix).starts_with(kNpyMagic)) {
    throw FileError(path,
                    "expected the .npy magic \\x93NUMPY, got " +
                        in_quotes(as_text(prefix).substr(0, kNpyMagic.size())),
                    0);
  }
  const auto require = [&](std::size_t size, const char* what) {
    if (prefix.size() >= size) return;
    throw FileError(path, fmt::format("expected {}, got the end of the file", what), prefix.size());
  };
  require(length_offset, "the format's version");
  const std::byte major = prefix[version_offset];
  const std::byte minor = prefix[version_offset + 1];
  if (major < std::byte{1} || major > std::byte{3} || minor != std::byte{0}) {
    throw FileError(path,
                    fmt::format("version: expected 1.0, 2.0 or 3.0, got {}.{}",
                                static_cast<int>(major), static_cast<int>(minor)),
                    version_offset);
  }
  const std::size_t text_offset = length_offset + length_bytes(major);
  require(text_offset, "the header's length");
  std::uint64_t length = 0;
  for (std::size_t index = text_offset; index-- > length_offset;) {
    length = length << 8 | std::to_integer<std::uint64_t>(prefix[index]);
  }
  return text_offset + length;
}

NpyHeader parse_npy_header(std::span<const std::byte> bytes, const std::string& path) {
  const std::size_t text_offset = length_offset + length_bytes(bytes[version_offset]);
  return DictReader(as_text(bytes.subspan(text_offset)), text_offset, path).read();
}

}  // namespace qkv
