// The sizes that a module's options amount to, and the shapes of its parameters.
#pragma once

#include <string_view>

#include "qkv/multi_head_attention.h"

namespace qkv {

/// Options with their defaults filled in.
struct ModuleSizes {
  Index model_width = 0;
  Index key_input_width = 0;
  Index value_input_width = 0;
  Index heads = 0;             // H
  Index kv_heads = 0;          // Hkv
  Index head_width = 0;        // Dk
  Index value_head_width = 0;  // Dv
  Index query_rows = 0;        // H·Dk
  Index key_rows = 0;          // Hkv·Dk
  Index value_rows = 0;        // Hkv·Dv
  Index merged_width = 0;      // H·Dv
};

/// Throws std::invalid_argument where the options do not fit together.
ModuleSizes checked_sizes(const MultiHeadAttentionOptions& options);

/// Throws std::invalid_argument where a parameter is missing, misshapen, or one that the options lack.
template <class T>
void check_parameters(std::string_view operation, const MultiHeadAttentionOptions& options,
                      const MultiHeadAttentionParameters<T>& parameters);

}  // namespace qkv
