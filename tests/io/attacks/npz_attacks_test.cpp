// Archives that lie, each held against the message of its error, which names the member.

#include "io/npz.h"
#include "tests/io/attacks/zip_archive.h"
#include "tests/io/support.h"

namespace qkv {
namespace {

using testing::deflated;
using testing::expect_file_error;
using testing::in_memory;
using testing::little_endian;
using testing::npy_of;
using testing::zip_of;
using testing::ZipMember;

const std::string kHeader = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }";
constexpr std::uint64_t kDataOffset = 67;

std::string two_floats() { return npy_of(kHeader, "12345678"); }

void expect_refused(const std::string& archive, std::optional<std::uint64_t> offset,
                    const std::string& problem) {
  const FileBytes file = in_memory(archive);
  expect_file_error([&] { read_npz(file, "w.npz"); }, offset, "w.npz: " + problem);
}

TEST(NpzAttack, HonestArchivesAreRead) {
  const std::string archive = zip_of({{"a.npy", two_floats()}, deflated("b/c.npy", two_floats())});
  const TensorFile file = read_npz(in_memory(archive), "w.npz");
  ASSERT_EQ(file.tensors.size(), 2U);
  for (const char* const name : {"a", "b/c"}) {
    const std::span<const std::byte> bytes = file.at(name).bytes();
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()), "12345678");
  }
}

TEST(NpzAttack, ArchivesWithoutADirectory) {
  expect_refused("PK\3\4", std::nullopt, "cannot read the archive's directory: ");
  const std::string whole = zip_of({{"a.npy", two_floats()}});
  for (std::size_t size = 1; size < whole.size(); ++size) {
    const FileBytes file = in_memory(std::string_view(whole).substr(0, size));
    EXPECT_THROW(read_npz(file, "cut"), FileError) << size;
  }
}

TEST(NpzAttack, DirectoriesThatClaimBillionsOfMembers) {
  const std::uint64_t count = 1ULL << 40U;
  const std::string end64 = "PK\6\6" + little_endian(44, 8) + little_endian(45, 2) +
                            little_endian(45, 2) + little_endian(0, 8) + little_endian(count, 8) +
                            little_endian(count, 8) + little_endian(0, 8) + little_endian(0, 8);
  const std::string locator =
      "PK\6\7" + little_endian(0, 4) + little_endian(0, 8) + little_endian(1, 4);
  const std::string end =
      "PK\5\6" + little_endian(0, 4) + std::string(12, '\xff') + std::string(2, '\0');
  expect_refused(end64 + locator + end, std::nullopt, "cannot read the archive's directory: ");
}

TEST(NpzAttack, SameNameTwice) {
  expect_refused(zip_of({{"a.npy", two_floats()}, {"a.npy", two_floats()}}), std::nullopt,
                 "member \"a.npy\": expected unique names, got a second one");
}

TEST(NpzAttack, NamesThatAreNotTensors) {
  for (const std::string name : {"a.txt", ".npy", "/a.npy", "../a.npy", "a/../b.npy", "a//b.npy",
                                 "./a.npy", "a/.npy", "a\\b.npy", "a/", "npy"}) {
    SCOPED_TRACE(name);
    const FileBytes file = in_memory(zip_of({{name, two_floats()}}));
    expect_file_error([&] { read_npz(file, "w.npz"); }, std::nullopt,
                      "expected a name of the form NAME.npy, got \"");
  }
}

TEST(NpzAttack, MethodsOtherThanStoredAndDeflated) {
  ZipMember member("a.npy", two_floats());
  member.method = 14;
  expect_refused(zip_of({member}), std::nullopt,
                 "member \"a.npy\": expected stored or deflated data, got method 14");
}

TEST(NpzAttack, Encrypted) {
  ZipMember member("a.npy", two_floats());
  member.flags = 1;
  expect_refused(zip_of({member}), std::nullopt, "member \"a.npy\": cannot unpack: ");
}

TEST(NpzAttack, WrongChecksum) {
  ZipMember member("a.npy", two_floats());
  ++member.crc;
  expect_refused(zip_of({member}), std::nullopt, "member \"a.npy\": cannot unpack: CRC error");
}

TEST(NpzAttack, BrokenDeflation) {
  ZipMember member = deflated("a.npy", two_floats());
  member.packed[1] = '\7';
  expect_refused(zip_of({member}), std::nullopt, "member \"a.npy\": cannot unpack: ");
}

TEST(NpzAttack, SizesThatDisagreeWithTheTensor) {
  for (const bool pack : {false, true}) {
    const std::string longer = two_floats() + "9";
    const std::string shorter = two_floats().substr(0, kDataOffset + 7);
    for (const std::string& content : {longer, shorter}) {
      const ZipMember member = pack ? deflated("a.npy", content) : ZipMember("a.npy", content);
      expect_refused(zip_of({member}), kDataOffset,
                     "member \"a.npy\": at byte 67: data: expected 8 bytes for float32 [2], got a "
                     "member of " +
                         std::to_string(content.size()) + " bytes");
    }
  }
}

// The directory agrees with the .npy header, but the deflated data go on or end early.
TEST(NpzAttack, DeflatedDataOfAnotherSize) {
  const auto declared = static_cast<std::uint32_t>(two_floats().size());
  ZipMember longer = deflated("a.npy", two_floats() + std::string(1000, '9'));
  longer.size = declared;
  EXPECT_THROW(read_npz(in_memory(zip_of({longer})), "w.npz"), FileError);
  ZipMember shorter = deflated("a.npy", two_floats().substr(0, kDataOffset + 3));
  shorter.size = declared;
  EXPECT_THROW(read_npz(in_memory(zip_of({shorter})), "w.npz"), FileError);
}

// The member's header and directory agree on 4 terabytes of which there are 8 bytes.
TEST(NpzAttack, SizesThatTheArchiveCannotHold) {
  const std::string content =
      npy_of("{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000,), }", "12345678");
  ZipMember member = deflated("a.npy", content);
  member.size = static_cast<std::uint32_t>(content.size() - 8 + 4'000'000'000);
  EXPECT_THROW(read_npz(in_memory(zip_of({member})), "w.npz"), FileError);
}

TEST(NpzAttack, MembersThatShareTheirData) {
  const std::string archive = zip_of({{"a.npy", two_floats()}, {"b.npy", two_floats()}});
  std::string shared = archive;
  const std::size_t first = archive.find("PK\1\2");
  const std::size_t second = archive.find("PK\1\2", first + 1);
  constexpr std::size_t packed_size_field = 20;
  shared.replace(second + packed_size_field, 4, little_endian(archive.size() - 10, 4));
  expect_refused(shared, std::nullopt,
                 "member \"b.npy\": expected members that fit the archive's " +
                     std::to_string(archive.size()) + " bytes, got overlapping ones: ");
}

TEST(NpzAttack, MembersThatAreNotNpy) {
  expect_refused(zip_of({{"a.npy", "hello"}}), 0,
                 "member \"a.npy\": at byte 0: expected the .npy magic \\x93NUMPY, got \"hello\"");
  expect_refused(zip_of({{"a.npy", ""}}), 0,
                 "member \"a.npy\": at byte 0: expected the .npy magic");
  expect_refused(zip_of({{"a.npy", two_floats().substr(0, 30)}}), 30,
                 "member \"a.npy\": at byte 30: header: expected 67 bytes before the data, got 30");
}

}  // namespace
}  // namespace qkv
