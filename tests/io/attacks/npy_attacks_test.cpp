// .npy headers that lie, each held against the offset and the message of its error.

#include "io/npy.h"
#include "tests/io/support.h"

namespace qkv {
namespace {

using testing::expect_file_error;
using testing::in_memory;
using testing::little_endian;
using testing::npy_of;

struct Attack {
  const char* name;
  std::string file;
  std::uint64_t offset;
  std::string problem;
};

void PrintTo(const Attack& attack, std::ostream* stream) { *stream << attack.name; }

constexpr std::uint64_t kDict = 10;  // where it begins in version 1
const std::string kBeforeShape = "{'descr': '<f4', 'fortran_order': False, 'shape': ";
const std::uint64_t kShape = kDict + kBeforeShape.size();

std::string with_descr(const std::string& descr) {
  return npy_of("{'descr': " + descr + ", 'fortran_order': False, 'shape': (2,), }", "12345678");
}

std::string with_shape(const std::string& shape) {
  return npy_of(kBeforeShape + shape + ", }", "12345678");
}

std::vector<Attack> attacks() {
  const std::string magic = "\x93NUMPY";
  const std::string good = kBeforeShape + "(2,), }";
  std::string axes;
  for (int axis = 0; axis < 65; ++axis) axes += "1,";
  return {
      {"Nothing", "", 0, "expected the .npy magic \\x93NUMPY, got \"\""},
      {"HalfAMagic", "\x93NUM", 0, "expected the .npy magic \\x93NUMPY, got \"\\x93NUM\""},
      {"OnlyMagic", magic, 6, "expected the format's version, got the end of the file"},
      {"HalfAVersion", magic + '\1', 7, "expected the format's version, got the end of the file"},
      {"OnlyVersion", magic + std::string("\1\0", 2), 8,
       "expected the header's length, got the end of the file"},
      {"HalfALength", magic + std::string("\2\0\1\0\0", 5), 11,
       "expected the header's length, got the end of the file"},
      {"Version0", magic + std::string("\0\0\0\0\0\0", 6), 6,
       "version: expected 1.0, 2.0 or 3.0, got 0.0"},
      {"Version4", magic + std::string("\4\0\0\0\0\0", 6), 6,
       "version: expected 1.0, 2.0 or 3.0, got 4.0"},
      {"Version1Point1", magic + std::string("\1\1\0\0", 4), 6,
       "version: expected 1.0, 2.0 or 3.0, got 1.1"},
      {"HeaderBeyondTheFile", magic + std::string("\1\0", 2) + little_endian(65535, 2) + "{}", 12,
       "header: expected 65545 bytes before the data, got 12"},
      {"HeaderOf4Gigabytes", magic + std::string("\2\0", 2) + little_endian(0xffffffff, 4) + "{}",
       14, "header: expected 4294967307 bytes before the data, got 14"},
      {"EmptyHeader", npy_of(""), kDict, "header: expected {, got its end"},
      {"NotADict", npy_of("('descr')"), kDict, "header: expected {, got \"('descr')\""},
      {"Unclosed", npy_of("{'descr': '<f4'"), kDict + 15, "header: expected }, got its end"},
      {"UnclosedKey", npy_of("{'descr"), kDict + 1, "header: expected a closing quote, got none"},
      {"KeyWithoutQuotes", npy_of("{descr: '<f4'}"), kDict + 1,
       "header: expected a key in quotes, got \"descr: '<f4'}\""},
      {"NoColon", npy_of("{'descr' '<f4'}"), kDict + 9, "header: expected :, got \"'<f4'}\""},
      {"NoFields", npy_of("{}"), kDict,
       "header: expected descr, fortran_order and shape, got fewer"},
      {"NoShape", npy_of("{'descr': '<f4', 'fortran_order': False}"), kDict,
       "header: expected descr, fortran_order and shape, got fewer"},
      {"UnknownKey", npy_of("{'x': 1}"), kDict + 1,
       "header: expected descr, fortran_order and shape, once each, got \"x\""},
      {"KeyTwice", npy_of("{'descr': '<f4', 'descr': '<f4'}"), kDict + 17,
       "header: expected descr, fortran_order and shape, once each, got \"descr\""},
      {"TextAfterTheDict", npy_of(good + " x", "12345678"), kDict + good.size() + 1,
       "header: expected the end after the dict, got \"x\""},
      {"ZeroAfterTheDict", npy_of(good + '\0', "12345678"), kDict + good.size(),
       "header: expected the end after the dict, got \"\\x00\""},
      {"Objects", with_descr("'|O'"), kDict + 10,
       "header: descr: expected numbers or bool, got Python objects"},
      {"Structured", with_descr("[('x', '<f4')]"), kDict + 10,
       "header: descr: expected one dtype, got a structured one"},
      {"Complex", with_descr("'<c8'"), kDict + 10, "bfloat16, got \"<c8\""},
      {"Void", with_descr("'|V2'"), kDict + 10, "or <V2 for bfloat16, got \"|V2\""},
      {"Text", with_descr("'<U4'"), kDict + 10, "got text: store its bytes as uint8"},
      {"Time", with_descr("'<M8[ns]'"), kDict + 10, "got \"<M8[ns]\""},
      {"LongDouble", with_descr("'<f16'"), kDict + 10, "got \"<f16\""},
      {"NoByteOrder", with_descr("'f4'"), kDict + 10, "got \"f4\""},
      {"NoByteOrderOfSeveral", with_descr("'|f4'"), kDict + 10, "got \"|f4\""},
      {"OddByteOrder", with_descr("'!f4'"), kDict + 10, "got \"!f4\""},
      {"EmptyDescr", with_descr("''"), kDict + 10, "got \"\""},
      {"DescrIsNumber", with_descr("4"), kDict + 10,
       "header: expected a dtype in quotes, got \"4, 'fortran_orde\""},
      {"OrderIsNumber", npy_of("{'fortran_order': 1}"), kDict + 18,
       "header: expected True or False, got \"1}\""},
      {"ShapeIsNumber", with_shape("2"), kShape, "header: expected (, got \"2, }\""},
      {"ShapeIsList", with_shape("[2]"), kShape, "header: expected (, got \"[2], }\""},
      {"ShapeIsNoTuple", with_shape("(2)"), kShape + 2, "header: expected a comma, got \"), }\""},
      {"NegativeExtent", with_shape("(2, -1)"), kShape + 4,
       "header: expected an integer from 0 to 2^63 - 1, got \"-1), }\""},
      {"FractionalExtent", with_shape("(2.5,)"), kShape + 2,
       "header: expected a comma, got \".5,)"},
      {"ExtentOf2To63", with_shape("(9223372036854775808,)"), kShape + 1,
       "header: expected an integer from 0 to 2^63 - 1, got \"9223372036854775\""},
      {"ExtentIsExpression", with_shape("(1+1,)"), kShape + 2, "header: expected a comma"},
      {"TwoCommas", with_shape("(1,,2)"), kShape + 3, "header: expected an integer"},
      {"NoCommaBetween", with_shape("(1,2 2)"), kShape + 5, "header: expected a comma or )"},
      {"UnclosedShape", npy_of(kBeforeShape + "(2,"), kShape + 3, "header: expected an integer"},
      {"TooManyAxes", with_shape("(" + axes + ")"), kShape,
       "header: shape: expected at most 64 axes, got more"},
      {"ShapeOverflows", with_shape("(4611686018427387904, 4)"), kShape,
       "header: shape: expected fewer than 2^63 bytes, got float32 [4611686018427387904, 4]"},
      {"EmptyShapeOverflows", with_shape("(0, 4611686018427387904, 4)"), kShape,
       "header: shape: expected fewer than 2^63 bytes"},
      {"TooFewData", with_shape("(3,)"), kShape + 7 + 8,
       "data: expected 12 bytes for float32 [3], got 8"},
      {"FarTooFewData", with_shape("(1000000000000,)"), kShape + 19 + 8,
       "data: expected 4000000000000 bytes for float32 [1000000000000], got 8"},
      {"TooManyData", with_shape("(1,)"), kShape + 7 + 4,
       "data: expected 4 bytes for float32 [1], got 8"},
      {"BadBool", npy_of("{'descr': '|b1', 'fortran_order': False, 'shape': (2,), }", "\1\2"),
       kDict + 57 + 1, "data: expected 0 or 1 in a bool tensor, got 2"},
  };
}

class NpyAttack : public ::testing::TestWithParam<Attack> {};

TEST_P(NpyAttack, IsRefusedWithItsOffset) {
  const Attack& attack = GetParam();
  const FileBytes file = in_memory(attack.file);
  expect_file_error([&] { read_npy(file, "w.npy"); }, attack.offset, attack.problem);
}

INSTANTIATE_TEST_SUITE_P(All, NpyAttack, ::testing::ValuesIn(attacks()),
                         [](const auto& attack) { return attack.param.name; });

TEST(NpyAttack, NoPrefixOfAFileIsAFile) {
  const std::string whole = with_shape("(2,)");
  EXPECT_EQ(read_npy(in_memory(whole), "whole").shape(), std::vector<Index>{2});
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const FileBytes file = in_memory(std::string_view(whole).substr(0, size));
    EXPECT_THROW(read_npy(file, "cut"), FileError) << size;
  }
}

// Rearranging must not walk through axes that hold nothing.
TEST(NpyAttack, EmptyFortranOrderTakesNoTime) {
  const std::string file =
      npy_of("{'descr': '<f4', 'fortran_order': True, 'shape': (100000000000, 10000000, 0), }");
  EXPECT_TRUE(read_npy(in_memory(file), "empty").bytes().empty());
}

}  // namespace
}  // namespace qkv
