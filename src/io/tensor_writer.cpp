#include <fmt/format.h>

#include <stdexcept>

#include "io/npy.h"
#include "io/npz.h"
#include "io/output_file.h"
#include "io/safetensors.h"
#include "io/tensor_layout.h"
#include "qkv/io.h"

namespace qkv {
namespace {

/// What np.savez writes without tensors; libzip does not write such an archive.
constexpr std::string_view empty_archive("PK\5\6\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 22);

std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span(text));
}

void require_no_metadata(const TensorFile& file, const char* ending) {
  if (file.metadata.empty()) return;
  throw std::invalid_argument(fmt::format(
      "write_tensors: file: expected no metadata in {}, got {} entries; write .safetensors", ending,
      file.metadata.size()));
}

void save_safetensors(const TensorFile& file, const std::string& path) {
  const SafetensorsLayout layout = lay_out_safetensors(file);
  OutputFile output(path);
  output.write(as_bytes(layout.header));
  for (const StoredTensor* const tensor : layout.tensors) output.write(tensor->bytes());
  output.commit();
}

void save_npz(const TensorFile& file, const std::string& path) {
  require_no_metadata(file, ".npz");
  OutputFile output(path);
  if (file.tensors.empty()) {
    output.write(as_bytes(empty_archive));
  } else {
    write_npz(file, output.temporary_path(), path);
  }
  output.commit();
}

void save_npy(const TensorFile& file, const std::string& path) {
  require_no_metadata(file, ".npy");
  if (file.tensors.size() != 1) {
    throw std::invalid_argument(fmt::format(
        "write_tensors: file: expected one tensor in .npy, got {}", file.tensors.size()));
  }
  const auto& [name, tensor] = *file.tensors.begin();
  const std::string header = npy_header(tensor, name);
  OutputFile output(path);
  output.write(as_bytes(header));
  output.write(tensor.bytes());
  output.commit();
}

}  // namespace

void write_tensors(const std::string& path, const TensorFile& file) {
  if (path.ends_with(".safetensors")) return save_safetensors(file, path);
  if (path.ends_with(".npz")) return save_npz(file, path);
  if (path.ends_with(".npy")) return save_npy(file, path);
  throw std::invalid_argument(
      "write_tensors: path: expected an ending .safetensors, .npz or .npy, got " + in_quotes(path));
}

}  // namespace qkv
