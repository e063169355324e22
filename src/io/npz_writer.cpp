#include <fmt/format.h>
#include <zip.h>

#include <array>
#include <ctime>
#include <memory>
#include <stdexcept>
#include <vector>

#include "io/npy.h"
#include "io/npz.h"
#include "io/tensor_layout.h"
#include "qkv/error.h"

namespace qkv {
namespace {

struct DiscardArchive {
  void operator()(zip_t* archive) const { zip_discard(archive); }
};
using Archive = std::unique_ptr<zip_t, DiscardArchive>;

[[noreturn]] void throw_write_error(const std::string& path, zip_t* archive) {
  throw FileError(path, fmt::format("cannot write: {}", zip_strerror(archive)));
}

/// The earliest time that a zip archive can hold, so that equal tensors give equal archives.
std::time_t earliest_time() {
  std::tm fields{};
  fields.tm_year = 80;
  fields.tm_mday = 1;
  fields.tm_isdst = -1;
  return std::mktime(&fields);
}

/// `header` and the tensor must live until the archive is written.
void add_member(zip_t* archive, const std::string& name, std::string& header,
                const StoredTensor& tensor, const std::string& path) {
  std::array<zip_buffer_fragment_t, 2> parts{};
  parts[0].data = reinterpret_cast<zip_uint8_t*>(header.data());
  parts[0].length = header.size();
  // The library's interface is not const-correct; it only reads.
  auto* const data = const_cast<std::byte*>(tensor.bytes().data());
  parts[1].data = reinterpret_cast<zip_uint8_t*>(data);
  parts[1].length = tensor.bytes().size();
  const zip_uint64_t used = tensor.bytes().empty() ? 1 : 2;
  zip_source_t* const source = zip_source_buffer_fragment(archive, parts.data(), used, 0);
  if (source == nullptr) throw_write_error(path, archive);
  const zip_int64_t index =
      zip_file_add(archive, (name + ".npy").c_str(), source, ZIP_FL_ENC_UTF_8);
  if (index < 0) {
    zip_source_free(source);
    throw std::invalid_argument(
        fmt::format("write_tensors: {}: expected the name of a member, got: {}", in_quotes(name),
                    zip_strerror(archive)));
  }
  const auto member = static_cast<zip_uint64_t>(index);
  if (zip_set_file_compression(archive, member, ZIP_CM_STORE, 0) != 0 ||
      zip_file_set_mtime(archive, member, earliest_time(), 0) != 0) {
    throw_write_error(path, archive);
  }
}

}  // namespace

void write_npz(const TensorFile& file, const std::string& destination, const std::string& path) {
  std::vector<std::string> headers;
  for (const auto& [name, tensor] : file.tensors) {
    if (!is_npz_name(name)) {
      throw std::invalid_argument(fmt::format(
          "write_tensors: name: expected one that a member of an archive can have, got {}",
          in_quotes(name)));
    }
    headers.push_back(npy_header(tensor, name));
  }
  int code = 0;
  Archive archive(zip_open(destination.c_str(), ZIP_CREATE | ZIP_TRUNCATE, &code));
  if (archive == nullptr) {
    zip_error_t error;
    zip_error_init_with_code(&error, code);
    const std::string reason = zip_error_strerror(&error);
    zip_error_fini(&error);
    throw FileError(path, "cannot write: " + reason);
  }
  auto header = headers.begin();
  for (const auto& [name, tensor] : file.tensors) {
    add_member(archive.get(), name, *header++, tensor, path);
  }
  if (zip_close(archive.get()) != 0) throw_write_error(path, archive.get());
  static_cast<void>(archive.release());
}

}  // namespace qkv
