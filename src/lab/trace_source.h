// What `qkv trace` looks at: a file, given sizes, or a few numbers typed in.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lab/trace.h"
#include "qkv/io.h"

namespace qkv::lab {

/// What a file does not say itself. Everything here adds to what it does say.
struct FileOptions {
  std::optional<Index> heads = std::nullopt;  ///< else metadata "num_heads" or the shape of q
  std::optional<Index> kv_heads =
      std::nullopt;  ///< else metadata "num_kv_heads", the shape of k, or heads
  std::optional<std::string>
      mask_tensor;  ///< name of a boolean tensor that broadcasts to [B,H,T,S]
  std::optional<Polarity> true_means = std::nullopt;  ///< obligatory with mask_tensor
  std::optional<std::string> bias_tensor =
      std::nullopt;  ///< name of a tensor that broadcasts to [B,H,T,S]
  std::optional<double> scale = std::nullopt;
};

/// A layer sample as data/README.md describes it; or q, k and v [B,H,T,D]; or x [B,T,D] with the
/// weights of its projections under any naming that load_parameters knows. Throws FileError where
/// the file cannot be read, std::invalid_argument where it does not hold what is needed.
TraceInput trace_file(const std::string& path, const FileOptions& options);

struct SizeOptions {
  Index batch = 2;
  Index tokens = 5;
  Index model_width = 16;
  Index heads = 4;
  std::optional<Index> kv_heads = std::nullopt;
  std::optional<Index> keys =
      std::nullopt;  ///< tokens of a second input that keys and values come from
  std::uint64_t seed = 17;
  std::optional<double> scale = std::nullopt;
};

/// Standard normal input, weights with standard deviation 1/√D. Throws std::invalid_argument where
/// sizes are negative, heads do not divide the width, or more memory than the limit would be
/// needed.
TraceInput trace_sizes(const SizeOptions& options, double memory_limit);

/// Numbers typed in: rows separated by ';', numbers in a row by blanks or ','.
struct TypedOptions {
  std::optional<std::string> input =
      std::nullopt;  ///< x [T,D]: query, key and value are x unless given below
  std::optional<std::string> query = std::nullopt;  ///< [T,H·Dk]
  std::optional<std::string> key = std::nullopt;    ///< [S,Hkv·Dk]
  std::optional<std::string> value = std::nullopt;  ///< [S,Hkv·Dv]
  Index heads = 1;
  std::optional<Index> kv_heads = std::nullopt;
  std::optional<double> scale = std::nullopt;
};

inline constexpr Index kMostTypedTokens = 6;

/// Throws std::invalid_argument where the text is no matrix of 1 to 6 rows, or matrices do not fit.
TraceInput trace_typed(const TypedOptions& options);

/// Rules that any of these sources may get on top of its own.
struct MaskOptions {
  bool causal = false;
  std::optional<Corner> corner = std::nullopt;  ///< of the causal rule
  std::vector<Index> prefix_lengths = {};       ///< makes it causal
  std::optional<Window> window = std::nullopt;
  std::vector<Index> lengths = {};  ///< keys that are no padding: one for all, or one a sample
};

/// The rules together. Throws std::invalid_argument "operation: --option: …" where a number is negative, or T and S differ
/// and a corner is missing.
Mask make_mask(std::string_view operation, const MaskOptions& options, Index queries, Index keys);

/// In self attention, queries past their sample's length count as padding from then on.
/// Throws std::invalid_argument where a number is negative, or T and S differ and a corner is
/// missing.
void add_mask(TraceInput& input, const MaskOptions& options);

/// "1 0; 0 1" → [2,2]. `name` is the option's, for messages. Throws std::invalid_argument on an
/// empty text, rows of different lengths, and what is not a finite number.
Tensor<double, 2> parse_matrix(const std::string& name, std::string_view text);

}  // namespace qkv::lab
