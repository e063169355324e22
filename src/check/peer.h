// Somebody else's attention, to hold ours against.
//
// Peers and this library exchange named tensors in PyTorch's own terms:
//
//   inputs    query [B,T,D], key [B,S,·] and value [B,S,·] (absent in self attention), the parameters under
//             the names of nn.MultiheadAttention, attn_mask ([T,S] or [B·H,T,S]; bool: true hides; or a
//             float bias), key_padding_mask [B,S] (true hides), output_gradient [B,T,D],
//             weights_gradient [B,H,T,S]
//   results   output [B,T,D]; output_with_weights, of the call that also returned weights [B,H,T,S]; and the
//             gradients "sum.NAME", "random.NAME" and "weighted.NAME" with respect to the input NAME, where
//             the loss is Σ output, Σ output·output_gradient, or that and Σ weights·weights_gradient
//
// A peer leaves out what it does not compute.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "qkv/io.h"
#include "qkv/tensor.h"

namespace qkv {

/// Functions that peers offer.
namespace peer_function {
inline constexpr std::string_view draw_lesson = "draw the lesson's case";  ///< gives inputs
inline constexpr std::string_view lesson_class = "the lesson's class";
inline constexpr std::string_view module = "nn.MultiheadAttention";
inline constexpr std::string_view module_cpp = "torch::nn::MultiheadAttention";
inline constexpr std::string_view scaled_dot_product = "torch::scaled_dot_product_attention";
inline constexpr std::string_view decode = "decoding";               ///< the same
inline constexpr std::string_view attention = "attention of heads";  ///< see check/timed_peer.h
}  // namespace peer_function

/// Visibility by position.
struct PositionRule {
  enum class Kind : std::uint8_t {
    Window,     ///< the query's own token and size − 1 before it
    Documents,  ///< the tokens of a query's document, of which each has `size`
  };
  Kind kind = Kind::Window;
  Index size = 0;
};

struct PeerCall {
  std::string function;
  Index heads = 0;
  bool causal = false;  ///< attn_mask is the causal mask (query t sees keys up to t)
  /// What attn_mask says, for peers that take rules.
  std::optional<PositionRule> rule = std::nullopt;
  TensorFile inputs;
  std::optional<std::size_t> drawn_by;  ///< the inputs are the results of that earlier call instead
};

struct PeerResults {
  std::string version;              ///< "PyTorch 2.13.0+cpu in Python 3.11.2"
  std::vector<TensorFile> results;  ///< in the order of the calls
};

/// Why a peer cannot be asked: not installed, not built.
class PeerMissing : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Peer {
 public:
  /// Told the number of each call before it runs.
  using Progress = std::function<void(std::size_t)>;

  virtual ~Peer() = default;

  /// Throws PeerMissing where it turns out that the peer is not installed, std::runtime_error with what it
  /// said where it failed.
  virtual PeerResults run(const std::vector<PeerCall>& calls, const Progress& progress) = 0;
};

}  // namespace qkv
