// What the tests of this layer share: files in a directory of their own, bytes built by hand, and errors
// held against path, offset and message.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/file_map.h"
#include "qkv/error.h"
#include "qkv/io.h"
#include "tests/temporary_directory.h"

namespace qkv::testing {

inline void write_file(const std::string& path, std::string_view content) {
  std::ofstream stream(path, std::ios::binary);
  stream.write(content.data(), static_cast<std::streamsize>(content.size()));
}

inline std::string read_file(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

/// The text's bytes in memory of exactly their size, so that a sanitizer sees the first one too far.
inline FileBytes in_memory(std::string_view text) {
  const std::shared_ptr<std::byte[]> owner(new std::byte[text.size()]);
  std::copy_n(reinterpret_cast<const std::byte*>(text.data()), text.size(), owner.get());
  return {{owner.get(), text.size()}, owner};
}

/// The integer in `width` little-endian bytes.
inline std::string little_endian(std::uint64_t value, int width) {
  std::string bytes;
  for (int i = 0; i < width; ++i) bytes += static_cast<char>(value >> (8 * i) & 0xff);
  return bytes;
}

/// A safetensors file with this header, right or wrong.
inline std::string safetensors_of(std::string_view header, std::string_view data = "") {
  return little_endian(header.size(), 8) + std::string(header) + std::string(data);
}

/// A version 1.0 .npy file with this dict, right or wrong.
inline std::string npy_of(std::string_view dict, std::string_view data = "") {
  return std::string("\x93NUMPY\1\0", 8) + little_endian(dict.size(), 2) + std::string(dict) +
         std::string(data);
}

/// Expects a FileError with this offset whose message contains `problem`.
template <class Function>
void expect_file_error(Function read, std::optional<std::uint64_t> offset,
                       const std::string& problem) {
  try {
    read();
    ADD_FAILURE() << "expected a FileError: " << problem;
  } catch (const FileError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr(problem));
    EXPECT_EQ(error.offset(), offset) << error.what();
    EXPECT_THAT(error.what(), ::testing::StartsWith(error.path() + ": "));
  }
}

template <class Function>
void expect_invalid_argument(Function call, const std::string& message) {
  try {
    call();
    ADD_FAILURE() << "expected std::invalid_argument: " << message;
  } catch (const std::invalid_argument& error) {
    EXPECT_STREQ(error.what(), message.c_str());
  }
}

}  // namespace qkv::testing
