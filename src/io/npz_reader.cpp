#include <fmt/format.h>
#include <zip.h>

#include <algorithm>
#include <memory>
#include <new>
#include <optional>
#include <vector>

#include "io/npy.h"
#include "io/npz.h"
#include "io/tensor_layout.h"
#include "qkv/error.h"

namespace qkv {
namespace {

struct CloseArchive {
  void operator()(zip_t* archive) const { zip_discard(archive); }
};
struct CloseMember {
  void operator()(zip_file_t* member) const { zip_fclose(member); }
};
using Archive = std::unique_ptr<zip_t, CloseArchive>;
using OpenMember = std::unique_ptr<zip_file_t, CloseMember>;

/// What the archive's directory says of a member. Nothing of it is relied on.
struct Member {
  zip_uint64_t index = 0;
  std::string name;  ///< of the tensor
  zip_uint64_t size = 0;
  zip_uint64_t packed_size = 0;
  std::string path;  ///< for messages: archive and member
};

[[noreturn]] void throw_zip_error(const std::string& path, const char* action, zip_error_t* error) {
  if (zip_error_code_zip(error) == ZIP_ER_MEMORY) throw std::bad_alloc();
  throw FileError(path, fmt::format("cannot {}: {}", action, zip_error_strerror(error)));
}

Archive open_archive(const FileBytes& file, const std::string& path) {
  zip_error_t error;
  zip_error_init(&error);
  const std::unique_ptr<zip_error_t, void (*)(zip_error_t*)> finish(&error, zip_error_fini);
  zip_source_t* const source =
      zip_source_buffer_create(file.bytes.data(), file.bytes.size(), 0, &error);
  if (source == nullptr) throw_zip_error(path, "read the archive", &error);
  Archive archive(zip_open_from_source(source, ZIP_RDONLY, &error));
  if (archive == nullptr) {
    zip_source_free(source);
    throw_zip_error(path, "read the archive's directory", &error);
  }
  return archive;
}

Member describe(zip_t* archive, zip_uint64_t index, const std::string& path) {
  constexpr std::string_view ending = ".npy";
  constexpr zip_uint64_t needed =
      ZIP_STAT_NAME | ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE | ZIP_STAT_COMP_METHOD;
  zip_stat_t status;
  if (zip_stat_index(archive, index, 0, &status) != 0 || (status.valid & needed) != needed) {
    throw_zip_error(path, "read the archive's directory", zip_get_error(archive));
  }
  const std::string_view name = status.name;
  Member member{index, "", status.size, status.comp_size,
                fmt::format("{}: member {}", path, in_quotes(name))};
  if (name.ends_with(ending)) member.name = name.substr(0, name.size() - ending.size());
  if (!is_npz_name(member.name)) {
    throw FileError(member.path, "expected a name of the form NAME.npy, got " + in_quotes(name));
  }
  if (status.comp_method != ZIP_CM_STORE && status.comp_method != ZIP_CM_DEFLATE) {
    throw FileError(member.path, fmt::format("expected stored or deflated data, got method {}",
                                             status.comp_method));
  }
  return member;
}

/// Unpacks until `bytes` holds `size` bytes or the member ends.
void unpack(zip_file_t* open, std::vector<std::byte>& bytes, std::uint64_t size,
            const std::string& path) {
  constexpr std::uint64_t first_step = 1U << 16U;
  std::size_t filled = bytes.size();
  while (filled < size) {
    const std::uint64_t step = std::max<std::uint64_t>(filled, first_step);
    const auto target = static_cast<std::size_t>(std::min(size, filled + step));
    bytes.reserve(target);  // resize alone would round the capacity up
    bytes.resize(target);
    while (filled < target) {
      const zip_int64_t count = zip_fread(open, bytes.data() + filled, target - filled);
      if (count < 0) throw_zip_error(path, "unpack", zip_file_get_error(open));
      if (count == 0) {
        bytes.resize(filled);
        return;
      }
      filled += static_cast<std::size_t>(count);
    }
  }
}

StoredTensor read_member(zip_t* archive, const Member& member) {
  const OpenMember open(zip_fopen_index(archive, member.index, 0));
  if (open == nullptr) throw_zip_error(member.path, "unpack", zip_get_error(archive));
  const auto bytes = std::make_shared<std::vector<std::byte>>();
  unpack(open.get(), *bytes, kNpyPrefixBytes, member.path);
  const std::uint64_t data_offset = npy_data_offset(*bytes, member.path);
  unpack(open.get(), *bytes, data_offset, member.path);
  if (bytes->size() == data_offset) {
    const NpyHeader header = parse_npy_header(*bytes, member.path);
    if (data_offset + header.data_bytes != member.size) {
      throw FileError(member.path,
                      fmt::format("data: expected {} bytes for {} {}, got a member of {} bytes",
                                  header.data_bytes, name_of(header.dtype), to_string(header.shape),
                                  member.size),
                      data_offset);
    }
    unpack(open.get(), *bytes, member.size, member.path);
    // At the end the checksum is compared.
    std::byte more{};
    const zip_int64_t count = zip_fread(open.get(), &more, 1);
    if (count < 0) throw_zip_error(member.path, "unpack", zip_file_get_error(open.get()));
    if (count > 0) {
      throw FileError(member.path, "expected its data to end where it says, got more",
                      bytes->size());
    }
  }
  return read_npy({*bytes, bytes}, member.path);
}

}  // namespace

bool is_npz_name(std::string_view name) {
  while (true) {
    const std::string_view part = name.substr(0, name.find('/'));
    if (part.empty() || part == "." || part == "..") return false;
    const auto is_bad = [](char character) {
      const auto code = static_cast<unsigned char>(character);
      return character == '\\' || code < 0x20 || code == 0x7f;
    };
    if (std::any_of(part.begin(), part.end(), is_bad)) return false;
    if (part.size() == name.size()) return true;
    name.remove_prefix(part.size() + 1);
  }
}

TensorFile read_npz(const FileBytes& file, const std::string& path) {
  const Archive archive = open_archive(file, path);
  const auto count = static_cast<zip_uint64_t>(zip_get_num_entries(archive.get(), 0));
  TensorFile result;
  zip_uint64_t packed = 0;
  for (zip_uint64_t index = 0; index < count; ++index) {
    const Member member = describe(archive.get(), index, path);
    if (result.tensors.contains(member.name)) {
      throw FileError(member.path, "expected unique names, got a second one");
    }
    // Members that share their data would unpack to more than deflation can honestly hold.
    if (member.packed_size > file.bytes.size() - packed) {
      throw FileError(
          member.path,
          fmt::format("expected members that fit the archive's {} bytes, got overlapping "
                      "ones: {} bytes after {}",
                      file.bytes.size(), member.packed_size, packed));
    }
    packed += member.packed_size;
    result.tensors.emplace(member.name, read_member(archive.get(), member));
  }
  return result;
}

}  // namespace qkv
