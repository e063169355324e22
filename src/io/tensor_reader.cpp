#include <fmt/format.h>

#include <algorithm>

#include "io/npy.h"
#include "io/npz.h"
#include "io/safetensors.h"
#include "io/tensor_file.h"
#include "io/tensor_layout.h"
#include "qkv/error.h"

namespace qkv {

TensorFile read_tensors(const FileBytes& file, const std::string& path) {
  constexpr std::size_t json_offset = kSafetensorsLengthBytes;
  const std::string_view text =
      as_text(file.bytes.first(std::min<std::size_t>(file.bytes.size(), 16)));
  if (text.starts_with(kNpyMagic)) return {{{"array", read_npy(file, path)}}, {}};
  // A safetensors header may be as long as "PK\3\4" says, but then JSON follows.
  const bool json_follows = text.size() > json_offset && text[json_offset] == '{';
  if (!json_follows && (text.starts_with("PK\3\4") || text.starts_with("PK\5\6"))) {
    return read_npz(file, path);
  }
  if (json_follows) return read_safetensors(file, path);
  throw FileError(path,
                  text.empty()
                      ? "expected a safetensors, .npz or .npy file, got an empty file"
                      : "expected a safetensors, .npz or .npy file, got one that begins with " +
                            in_quotes(text),
                  0);
}

TensorFile read_tensors(const std::string& path) { return read_tensors(map_file(path), path); }

}  // namespace qkv
