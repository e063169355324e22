// Zip archives built by hand, so that their directory may lie.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tests/io/support.h"

namespace qkv::testing {

inline std::uint32_t crc32_of(std::string_view bytes) {
  std::uint32_t crc = 0xffffffff;
  for (const char byte : bytes) {
    crc ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1U ^ ((crc & 1U) != 0 ? 0xedb88320U : 0U);
  }
  return ~crc;
}

/// One member; honest as it is constructed.
struct ZipMember {
  ZipMember(std::string member_name, std::string content)
      : name(std::move(member_name)),
        packed(std::move(content)),
        size(static_cast<std::uint32_t>(packed.size())),
        packed_size(size),
        crc(crc32_of(packed)) {}

  std::string name;
  std::string packed;
  std::uint32_t size;
  std::uint32_t packed_size;
  std::uint32_t crc;
  std::uint32_t method = 0;
  std::uint32_t flags = 0;
};

/// A deflated member: one block of a deflate stream that is stored in it.
inline ZipMember deflated(const std::string& name, const std::string& content) {
  ZipMember member(name, content);
  member.packed =
      '\1' + little_endian(content.size(), 2) + little_endian(~content.size(), 2) + content;
  member.packed_size = static_cast<std::uint32_t>(member.packed.size());
  member.method = 8;
  return member;
}

/// The archive; every member's data begin where the directory says.
inline std::string zip_of(const std::vector<ZipMember>& members) {
  std::string archive;
  std::string directory;
  for (const ZipMember& member : members) {
    const std::string common = little_endian(20, 2) + little_endian(member.flags, 2) +
                               little_endian(member.method, 2) + little_endian(0x210000, 4) +
                               little_endian(member.crc, 4) + little_endian(member.packed_size, 4) +
                               little_endian(member.size, 4) +
                               little_endian(member.name.size(), 2) + little_endian(0, 2);
    directory += "PK\1\2" + little_endian(20, 2) + common + std::string(10, '\0') +
                 little_endian(archive.size(), 4) + member.name;
    archive += "PK\3\4" + common + member.name + member.packed;
  }
  const std::string end = "PK\5\6" + little_endian(0, 4) + little_endian(members.size(), 2) +
                          little_endian(members.size(), 2) + little_endian(directory.size(), 4) +
                          little_endian(archive.size(), 4) + little_endian(0, 2);
  return archive + directory + end;
}

}  // namespace qkv::testing
