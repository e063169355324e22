#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <tuple>

#include "io/safetensors.h"
#include "io/tensor_layout.h"
#include "qkv/error.h"

namespace qkv {
namespace {

/// Throws unless the range lies in the data and holds exactly the tensor's elements.
void check_range(const SafetensorsEntry& entry, std::uint64_t data_size, const std::string& path) {
  const auto fail = [&](const std::string& problem, std::uint64_t offset) {
    throw FileError(path, fmt::format("tensor {}: {}", in_quotes(entry.name), problem), offset);
  };
  if (entry.begin > entry.end) {
    fail(fmt::format("data_offsets: expected begin <= end, got [{}, {}]", entry.begin, entry.end),
         entry.range_offset);
  }
  if (entry.end > data_size) {
    fail(fmt::format("data_offsets: expected to lie in the {} bytes of data, got [{}, {}]",
                     data_size, entry.begin, entry.end),
         entry.range_offset);
  }
  const std::optional<std::uint64_t> bytes = byte_count(entry.dtype, entry.shape);
  if (!bytes) {
    fail(fmt::format("shape: expected fewer than 2^63 bytes, got {} {}", name_of(entry.dtype),
                     to_string(entry.shape)),
         entry.shape_offset);
  } else if (*bytes != entry.end - entry.begin) {
    fail(fmt::format("data_offsets: expected {} bytes for {} {}, got {}", *bytes,
                     name_of(entry.dtype), to_string(entry.shape), entry.end - entry.begin),
         entry.range_offset);
  }
}

/// Throws unless the ranges, sorted by where they begin, follow each other and fill the data.
void check_coverage(const std::vector<SafetensorsEntry>& sorted, std::uint64_t data_offset,
                    std::uint64_t data_size, const std::string& path) {
  std::uint64_t covered = 0;
  for (const SafetensorsEntry& entry : sorted) {
    if (entry.begin < covered) {
      throw FileError(path,
                      fmt::format("tensor {}: data_offsets: expected no overlap with the tensor "
                                  "before it, which ends at {}, got [{}, {}]",
                                  in_quotes(entry.name), covered, entry.begin, entry.end),
                      entry.range_offset);
    }
    if (entry.begin > covered) {
      throw FileError(
          path,
          fmt::format("tensor {}: data_offsets: expected no gap after the tensor before "
                      "it, which ends at {}, got [{}, {}]",
                      in_quotes(entry.name), covered, entry.begin, entry.end),
          entry.range_offset);
    }
    covered = entry.end;
  }
  if (covered != data_size) {
    throw FileError(
        path,
        fmt::format("data: expected the file to end with its last tensor, got {} more bytes",
                    data_size - covered),
        data_offset + covered);
  }
}

}  // namespace

TensorFile read_safetensors(const FileBytes& file, const std::string& path) {
  if (file.bytes.size() < kSafetensorsLengthBytes) {
    throw FileError(path,
                    fmt::format("header length: expected {} bytes, got {}", kSafetensorsLengthBytes,
                                file.bytes.size()),
                    file.bytes.size());
  }
  std::uint64_t header_size = 0;
  std::memcpy(&header_size, file.bytes.data(), sizeof(header_size));
  const std::uint64_t room = file.bytes.size() - kSafetensorsLengthBytes;
  if (header_size > std::min(room, kSafetensorsMaxHeader)) {
    throw FileError(
        path,
        fmt::format("header length: expected at most {}, got {}",
                    room < kSafetensorsMaxHeader ? fmt::format("the {} bytes that follow", room)
                                                 : fmt::format("{} bytes", kSafetensorsMaxHeader),
                    header_size),
        0);
  }
  const auto data = file.bytes.subspan(kSafetensorsLengthBytes + header_size);
  const std::uint64_t data_offset = file.bytes.size() - data.size();
  SafetensorsHeader header = parse_safetensors_header(
      as_text(file.bytes.subspan(kSafetensorsLengthBytes, header_size)), path);

  std::vector<SafetensorsEntry>& entries = header.entries;
  for (const SafetensorsEntry& entry : entries) check_range(entry, data.size(), path);
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  check_coverage(entries, data_offset, data.size(), path);

  TensorFile result;
  result.metadata = std::move(header.metadata);
  for (SafetensorsEntry& entry : entries) {
    const auto bytes = data.subspan(entry.begin, entry.end - entry.begin);
    const auto bad = entry.dtype == DType::Bool ? find_bad_bool(bytes) : std::nullopt;
    if (bad) {
      throw FileError(path,
                      fmt::format("tensor {}: expected 0 or 1 in a bool tensor, got {}",
                                  in_quotes(entry.name), static_cast<int>(bytes[*bad])),
                      data_offset + entry.begin + *bad);
    }
    result.tensors.emplace(std::move(entry.name),
                           StoredTensor(entry.dtype, std::move(entry.shape), bytes, file.owner));
  }
  return result;
}

}  // namespace qkv
