// What somebody's attention read and wrote, and the rules it was meant to follow: a dump, as docs/dump.md describes it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/validate.h"
#include "qkv/attention.h"
#include "qkv/dtype.h"
#include "qkv/io.h"
#include "qkv/mask.h"
#include "qkv/rotary.h"
#include "qkv/tensor.h"

namespace qkv {

/// Where `out` was taken.
enum class OutStage : std::uint8_t {
  Heads,      ///< context of each head
  Merged,     ///< heads side by side, before the output projection
  Projected,  ///< after it
};

/// What a row that sees no key is meant to give.
enum class EmptyRow : std::uint8_t {
  Zero,  ///< 0: this library, ONNX, newer PyTorch
  Mean,  ///< the mean of all values: a finite fill
  NaN,   ///< not a number: −∞ fill
  Any,   ///< nobody reads it
};

/// How the rows of a packed query-key-value weight lie.
enum class Packing : std::uint8_t {
  ByInput,  ///< [q; k; v], all heads of q, then of k, then of v
  ByHead,   ///< [Hkv][q of each head of the group; k; v]
};

/// The rules of visibility, each on its own: a bug drops or bends one of them.
struct DumpRules {
  bool causal = false;
  std::optional<Corner> corner;            ///< of causal, window and ALiBi; absent where T = S
  std::vector<Index> prefix;               ///< empty, or one a sample
  std::optional<Window> window;            ///< sides only; the corner is the one above
  std::vector<Index> lengths;              ///< empty, or one a sample
  std::optional<Tensor<bool, 2>> padding;  ///< [B,S], true: takes part
  std::optional<Tensor<bool, 4>> boolean;  ///< broadcasts to [B,H,T,S], true: takes part
  std::optional<Tensor<Index, 2>> query_documents;  ///< [B,T]
  std::optional<Tensor<Index, 2>> key_documents;    ///< [B,S]

  /// All of them together.
  Mask mask() const;
};

struct DumpRotary {
  RotaryOptions options;
  Tensor<Index, 2> query_positions;  ///< [B,T]
  Tensor<Index, 2> key_positions;    ///< [B,S]
};

struct DumpQkNorm {
  std::optional<Tensor<double, 1>> query_weight;  ///< [Dk], 1 where absent
  std::optional<Tensor<double, 1>> key_weight;
  double epsilon = 1e-6;
  bool after_rotary = false;
};

/// Weights are [out, in] here, however the file holds them, and apart, however it packs them.
struct DumpProjections {
  Tensor<double, 3> input;         ///< x [B,T,D]
  Tensor<double, 3> key_input;     ///< [B,S,D]; the input again in self attention
  bool cross = false;              ///< whether the file gave x_kv
  Tensor<double, 2> query_weight;  ///< [H·Dk,D]
  Tensor<double, 2> key_weight;    ///< [Hkv·Dk,D]
  Tensor<double, 2> value_weight;  ///< [Hkv·Dv,D]
  std::optional<Tensor<double, 1>> query_bias;
  std::optional<Tensor<double, 1>> key_bias;
  std::optional<Tensor<double, 1>> value_bias;
  std::optional<Packing> packing;  ///< as the file had them, where they were one tensor
  bool stored_in_out = false;      ///< the file had them as [in, out]
};

struct DumpOutputProjection {
  Tensor<double, 2> weight;  ///< [D,H·Dv]
  std::optional<Tensor<double, 1>> bias;
};

/// Every tensor is float64 and in the order of its comment, whatever the file has.
struct Dump {
  AttentionShape shape;  ///< sizes that every tensor agrees with

  // What goes in. Before rotary positions and norm, where the rules have them.
  Tensor<double, 4> query;  ///< [B,H,T,Dk]; from x where the file has no q
  Tensor<double, 4> key;    ///< [B,Hkv,S,Dk]
  Tensor<double, 4> value;  ///< [B,Hkv,S,Dv]
  bool has_heads = false;   ///< the file has q, k and v
  std::optional<DumpProjections> projections;
  std::optional<DumpOutputProjection> output_projection;

  // What is meant.
  DumpRules rules;
  EmptyRow empty_row = EmptyRow::Zero;
  double scale = 1;
  std::optional<double> softcap;
  std::optional<Tensor<double, 4>> bias;            ///< broadcasts to [B,H,T,S]
  std::optional<std::vector<double>> alibi_slopes;  ///< [H]
  std::optional<Tensor<double, 1>> sink;            ///< [H]
  std::optional<DumpRotary> rotary;
  std::optional<DumpQkNorm> qk_norm;
  std::optional<Tensor<bool, 2>> read_rows;  ///< [B,T], false: nobody reads the row

  // What came out.
  OutStage stage = OutStage::Heads;
  std::optional<Tensor<double, 4>> context;      ///< [B,H,T,Dv], where the stage is Heads or Merged
  std::optional<Tensor<double, 3>> output;       ///< [B,T,D], where it is Projected
  std::optional<Tensor<double, 4>> weights;      ///< [B,H,T,S]
  std::optional<Tensor<double, 4>> scores;       ///< [B,H,T,S], before the softmax
  std::optional<Tensor<double, 3>> log_sum_exp;  ///< [B,H,T], to base e or 2
  bool log_sum_exp_base2 = false;
  std::optional<Tensor<double, 4>> second_context;  ///< of a second run, as context
  std::optional<Tensor<double, 3>> second_output;

  std::optional<Tensor<double, 4>>
      context_gradient;  ///< dout, as context; only where the stage is Heads or Merged
  std::optional<Tensor<double, 4>> query_gradient;  ///< as query
  std::optional<Tensor<double, 4>> key_gradient;
  std::optional<Tensor<double, 4>> value_gradient;

  DType ran_in = DType::Float32;  ///< what the code computed with
  std::string source;             ///< free text of whoever wrote the file
  std::vector<std::string>
      inferred;  ///< a sentence for each thing that the file left out: "layout: BTHD, as …"
};

/// Throws std::invalid_argument that begins with "dump: NAME:" and says what was expected and what came: a tensor missing,
/// unknown or misshapen, sizes that contradict each other, metadata that cannot be understood, a visible NaN in what goes in.
Dump read_dump(const TensorFile& file);

}  // namespace qkv
