// Headers that lie, each held against the offset and the message of its error.

#include "io/safetensors.h"
#include "tests/io/support.h"

namespace qkv {
namespace {

using testing::expect_file_error;
using testing::in_memory;
using testing::little_endian;
using testing::safetensors_of;

struct Attack {
  const char* name;
  std::string file;
  std::uint64_t offset;
  std::string problem;
};

void PrintTo(const Attack& attack, std::ostream* stream) { *stream << attack.name; }

/// One float32 tensor "w" with these fields, and 8 bytes of data.
std::string with_fields(const std::string& fields) {
  return safetensors_of("{\"w\":{" + fields + "}}", "12345678");
}

std::string with_shape(const std::string& shape) {
  return with_fields("\"dtype\":\"F32\",\"shape\":" + shape + ",\"data_offsets\":[0,8]");
}

std::string with_range(const std::string& range) {
  return with_fields("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":" + range);
}

std::string entry(const std::string& name, int begin, int end) {
  const std::string bytes = std::to_string(end - begin);
  return "\"" + name + "\":{\"dtype\":\"U8\",\"shape\":[" + bytes + "],\"data_offsets\":[" +
         std::to_string(begin) + "," + std::to_string(end) + "]}";
}

// Offsets in the files of with_fields: 8 bytes of length, then {"w":{ and the fields.
constexpr std::uint64_t kName = 9;     // "w"
constexpr std::uint64_t kFields = 14;  // the first field
constexpr std::uint64_t kShape = kFields + std::string_view(R"("dtype":"F32","shape":)").size();
constexpr std::uint64_t kRange =
    kFields + std::string_view(R"("dtype":"F32","shape":[2],"data_offsets":)").size();

std::vector<Attack> attacks() {
  const std::string good = R"("dtype":"F32","shape":[2],"data_offsets":[0,8])";
  std::string axes = "[2";
  for (int axis = 0; axis < 64; ++axis) axes += ",1";
  axes += "]";
  return {
      {"NoLength", "abc", 3, "header length: expected 8 bytes, got 3"},
      {"NothingAtAll", "", 0, "header length: expected 8 bytes, got 0"},
      {"LengthBeyondTheFile", little_endian(3, 8) + "{}", 0,
       "header length: expected at most the 2 bytes that follow, got 3"},
      {"LengthThatOverflows", little_endian(~0ULL, 8) + "{}", 0,
       "header length: expected at most the 2 bytes that follow, got 18446744073709551615"},
      {"EmptyHeader", safetensors_of(""), 8, "header: expected JSON that begins with {, got \"\""},
      {"SpaceFirst", safetensors_of(" {}"), 8, "expected JSON that begins with {, got \" {}\""},
      {"List", safetensors_of("[]"), 8, "expected JSON that begins with {, got \"[]\""},
      {"Unclosed", safetensors_of("{"), 9, "header: expected JSON in UTF-8, got its end"},
      {"TwoObjects", safetensors_of("{}{}"), 10, "header: expected JSON in UTF-8, got \"{}\""},
      {"ZeroByte", safetensors_of(std::string("{}\0\0", 4)), 10,
       "header: expected JSON in UTF-8, got a zero byte"},
      {"Comment", safetensors_of("{/**/}"), 9, "header: expected JSON in UTF-8, got \"/**/}\""},
      {"NotUtf8", safetensors_of("{\"\xff\":1}"), 10, "expected JSON in UTF-8, got \"\\xff"},
      {"LoneSurrogate", safetensors_of(R"({"\ud800":1})"), 16, "expected JSON in UTF-8"},
      {"ManyBrackets", safetensors_of("{\"w\":" + std::string(1'000'000, '[')), 13,
       "tensor \"w\": expected an object with dtype, shape and data_offsets, got a list"},
      {"ManyBraces", safetensors_of("{\"w\":{\"dtype\":" + std::string(1'000'000, '{')), 22,
       "tensor \"w\": dtype: expected a text, got an object"},
      {"NestedShape", with_shape("[[2]]"), kShape + 1,
       "tensor \"w\": shape: expected integers from 0 to 2^63 - 1, got a list"},
      {"TensorIsText", safetensors_of(R"({"w":"x"})"), 13,
       "tensor \"w\": expected an object with dtype, shape and data_offsets, got a text"},
      {"TensorIsNull", safetensors_of(R"({"w":null})"), 13, "tensor \"w\": expected an object"},
      {"TensorIsTrue", safetensors_of(R"({"w":true})"), 13, "data_offsets, got true"},
      {"TensorIsFalse", safetensors_of(R"({"w":false})"), 13, "data_offsets, got false"},
      {"TensorIsNumber", safetensors_of(R"({"w": 12 })"), 14, "data_offsets, got 12"},
      {"SameNameTwice", safetensors_of("{" + entry("a", 0, 1) + "," + entry("a", 1, 2) + "}", "xy"),
       8 + 1 + entry("a", 0, 1).size() + 1,
       "tensor \"a\": expected unique names, got a second one"},
      {"SameNameEscaped",
       safetensors_of("{" + entry("a", 0, 1) + "," + entry("\\u0061", 1, 2) + "}", "xy"),
       8 + 1 + entry("a", 0, 1).size() + 1,
       "tensor \"a\": expected unique names, got a second one"},
      {"UnknownField", with_fields(good + ",\"x\":1"), kFields + good.size() + 1,
       "tensor \"w\": expected dtype, shape and data_offsets, got \"x\""},
      {"EscapedUnknownField", with_fields(good + R"(,"\"\\":1)"), kFields + good.size() + 1,
       R"(tensor "w": expected dtype, shape and data_offsets, got "\"\\")"},
      {"FieldTwice", with_fields(good + ",\"shape\":[2]"), kFields + good.size() + 1,
       "tensor \"w\": shape: expected it once, got a second one"},
      {"NoDtype", with_fields(R"("shape":[2],"data_offsets":[0,8])"), kName,
       "tensor \"w\": expected dtype, shape and data_offsets, got no dtype"},
      {"NoShape", with_fields(R"("dtype":"F32","data_offsets":[0,8])"), kName, "got no shape"},
      {"NoRange", with_fields(R"("dtype":"F32","shape":[2])"), kName, "got no data_offsets"},
      {"NoFields", with_fields(""), kName, "got no dtype"},
      {"UnknownDtype", with_fields(R"("dtype":"F8_E4M3","shape":[2],"data_offsets":[0,8])"),
       kFields + 8,
       "tensor \"w\": dtype: expected F64, F32, F16, BF16, I64 to I8, U64 to U8 or "
       "BOOL, got \"F8_E4M3\""},
      {"DtypeInLowerCase", with_fields(R"("dtype":"f32","shape":[2],"data_offsets":[0,8])"),
       kFields + 8, "got \"f32\""},
      {"DtypeIsNumber", with_fields(R"("dtype":1.5)"), kFields + 8,
       "tensor \"w\": dtype: expected a text, got 1.5"},
      {"ShapeIsNumber", with_shape("2"), kShape,
       "tensor \"w\": shape: expected a list of integers, got 2"},
      {"ShapeIsText", with_shape("\"2\""), kShape,
       "tensor \"w\": shape: expected a list of integers, got a text"},
      {"NegativeExtent", with_shape("[2, -1]"), kShape + 4,
       "tensor \"w\": shape: expected integers from 0 to 2^63 - 1, got -1"},
      {"FractionalExtent", with_shape("[2.0]"), kShape + 1,
       "tensor \"w\": shape: expected integers from 0 to 2^63 - 1, got 2.0"},
      {"ExponentExtent", with_shape("[2e0]"), kShape + 1, "got 2e0"},
      {"ExtentOf2To63", with_shape("[9223372036854775808]"), kShape + 1,
       "expected integers from 0 to 2^63 - 1, got 9223372036854775808"},
      {"ExtentOf2To64", with_shape("[18446744073709551616]"), kShape + 1,
       "expected integers from 0 to 2^63 - 1, got 18446744073709551616"},
      {"ExtentBeyondDouble", with_shape("[1e999]"), kShape + 5, "expected JSON in UTF-8"},
      {"ExtentOfManyDigits", with_shape("[" + std::string(50, '1') + "]"), kShape + 1,
       "expected integers from 0 to 2^63 - 1, got a number"},
      {"ShapeOverflows", with_shape("[4611686018427387904,4]"), kShape,
       "shape: expected fewer than 2^63 bytes, got float32 [4611686018427387904, 4]"},
      {"ShapeOverflowsTo8", with_shape("[4611686018427387905,4]"), kShape,
       "shape: expected fewer than 2^63 bytes"},
      {"EmptyShapeOverflows", with_shape("[0,4611686018427387904,4]"), kShape,
       "shape: expected fewer than 2^63 bytes"},
      {"TooManyAxes", with_shape(axes), kShape + 1 + 64 * 2,
       "tensor \"w\": shape: expected at most 64 axes, got more"},
      {"RangeIsText", with_range("\"0,8\""), kRange,
       "tensor \"w\": data_offsets: expected a list of integers, got a text"},
      {"RangeOfOne", with_range("[8]"), kRange,
       "tensor \"w\": data_offsets: expected two integers, got 1"},
      {"RangeOfThree", with_range("[0,8,8]"), kRange + 5,
       "tensor \"w\": data_offsets: expected two integers, got more"},
      {"RangeOfNone", with_range("[]"), kRange, "data_offsets: expected two integers, got 0"},
      {"NegativeRange", with_range("[-8,0]"), kRange + 1,
       "data_offsets: expected integers from 0 to 2^63 - 1, got -8"},
      {"RangeBackwards", with_range("[8,0]"), kRange,
       "tensor \"w\": data_offsets: expected begin <= end, got [8, 0]"},
      {"RangeBeyondTheData", with_range("[0,9]"), kRange,
       "data_offsets: expected to lie in the 8 bytes of data, got [0, 9]"},
      {"RangeFarBeyondTheData", with_range("[9223372036854775799,9223372036854775807]"), kRange,
       "data_offsets: expected to lie in the 8 bytes of data"},
      {"RangeTooShort", with_range("[0,7]"), kRange,
       "tensor \"w\": data_offsets: expected 8 bytes for float32 [2], got 7"},
      {"ShapeTooLarge", with_shape("[2,1000000000]"), kRange + 11,
       "expected 8000000000 bytes for float32 [2, 1000000000], got 8"},
      {"Overlap", safetensors_of("{" + entry("a", 0, 4) + "," + entry("b", 2, 6) + "}", "123456"),
       8 + 1 + entry("a", 0, 4).size() + 1 + entry("b", 2, 6).find("[2,6]"),
       "tensor \"b\": data_offsets: expected no overlap with the tensor before it, which ends at "
       "4, got [2, 6]"},
      {"SameRange", safetensors_of("{" + entry("a", 0, 4) + "," + entry("b", 0, 4) + "}", "1234"),
       8 + 1 + entry("a", 0, 4).size() + 1 + entry("b", 0, 4).find("[0,4]"), "expected no overlap"},
      {"EmptyInsideAnother",
       safetensors_of("{" + entry("a", 0, 4) + "," + entry("b", 2, 2) + "}", "1234"),
       8 + 1 + entry("a", 0, 4).size() + 1 + entry("b", 2, 2).find("[2,2]"), "expected no overlap"},
      {"Gap", safetensors_of("{" + entry("a", 0, 4) + "," + entry("b", 5, 6) + "}", "123456"),
       8 + 1 + entry("a", 0, 4).size() + 1 + entry("b", 5, 6).find("[5,6]"),
       "tensor \"b\": data_offsets: expected no gap after the tensor before it, which ends at 4, "
       "got [5, 6]"},
      {"GapAtTheStart", safetensors_of("{" + entry("a", 1, 4) + "}", "1234"),
       8 + 1 + entry("a", 1, 4).find("[1,4]"), "expected no gap after the tensor before it"},
      {"BytesAfterTheLast", safetensors_of("{" + entry("a", 0, 4) + "}", "123456"),
       8 + 2 + entry("a", 0, 4).size() + 4,
       "data: expected the file to end with its last tensor, got 2 more bytes"},
      {"DataWithoutTensors", safetensors_of("{}", "1"), 10, "got 1 more bytes"},
      {"MetadataIsText", safetensors_of(R"({"__metadata__":"x"})"), 24,
       "__metadata__: expected an object, got a text"},
      {"MetadataIsList", safetensors_of(R"({"__metadata__":[]})"), 24, "got a list"},
      {"MetadataOfNumbers", safetensors_of(R"({"__metadata__":{"k":1}})"), 29,
       "__metadata__: \"k\": expected a text, got 1"},
      {"MetadataNested", safetensors_of(R"({"__metadata__":{"k":{}}})"), 29,
       "__metadata__: \"k\": expected a text, got an object"},
      {"MetadataTwice", safetensors_of(R"({"__metadata__":{},"__metadata__":{}})"), 27,
       "tensor \"__metadata__\": expected unique names, got a second one"},
      {"MetadataKeyTwice", safetensors_of(R"({"__metadata__":{"k":"","k":""}})"), 32,
       "__metadata__: expected unique keys, got a second \"k\""},
      {"BadBool",
       safetensors_of(R"({"m":{"dtype":"BOOL","shape":[3],"data_offsets":[0,3]}})",
                      std::string("\1\0\2", 3)),
       8 + std::string_view(R"({"m":{"dtype":"BOOL","shape":[3],"data_offsets":[0,3]}})").size() +
           2,
       "tensor \"m\": expected 0 or 1 in a bool tensor, got 2"},
      {"NameWithTerminalCodes", safetensors_of(R"({"\u001b[2J\u0000":1})"), 27,
       R"(tensor "\x1b[2J\x00": expected an object)"},
      {"LongName", safetensors_of("{\"" + std::string(500, 'n') + "\":1}"), 8 + 504,
       "tensor \"" + std::string(80, 'n') + "…\": expected an object"},
  };
}

class SafetensorsAttack : public ::testing::TestWithParam<Attack> {};

TEST_P(SafetensorsAttack, IsRefusedWithItsOffset) {
  const Attack& attack = GetParam();
  const FileBytes file = in_memory(attack.file);
  expect_file_error([&] { read_safetensors(file, "w.safetensors"); }, attack.offset,
                    attack.problem);
}

INSTANTIATE_TEST_SUITE_P(All, SafetensorsAttack, ::testing::ValuesIn(attacks()),
                         [](const auto& attack) { return attack.param.name; });

// A file cut anywhere is refused, and so is every one that a byte was appended to.
TEST(SafetensorsAttack, NoPrefixOfAFileIsAFile) {
  const std::string whole =
      safetensors_of("{" + entry("a", 0, 4) + "," + entry("b", 4, 9) + "}", "123456789");
  EXPECT_EQ(read_safetensors(in_memory(whole), "whole").tensors.size(), 2U);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const FileBytes file = in_memory(std::string_view(whole).substr(0, size));
    EXPECT_THROW(read_safetensors(file, "cut"), FileError) << size;
  }
  EXPECT_THROW(read_safetensors(in_memory(whole + "x"), "longer"), FileError);
}

TEST(SafetensorsAttack, HeadersAreCapped) {
  // The length alone decides; the bytes that follow are those of a hole in the file.
  const TemporaryDirectory directory;
  const std::string path = directory.file("sparse.safetensors");
  testing::write_file(path, little_endian(100'000'001, 8) + "{");
  std::filesystem::resize_file(path, 200'000'000);
  expect_file_error([&] { read_tensors(path); }, 0,
                    "header length: expected at most 100000000 bytes, got 100000001");
}

}  // namespace
}  // namespace qkv
