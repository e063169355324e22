// Holds our MultiHeadAttention against the official ones, case by case.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "check/align_case.h"
#include "check/align_compare.h"
#include "check/peer.h"

namespace qkv {

/// What align compares with. Absent peers are left out.
struct AlignPeers {
  Peer* python =
      nullptr;  ///< draws the lesson's case, has the lesson's class and nn.MultiheadAttention
  Peer* cpp = nullptr;  ///< has torch::nn::MultiheadAttention and scaled_dot_product_attention
};

struct AlignListener {
  /// Versions of the peers, before the first row.
  std::function<void(const std::vector<std::string>& versions)> on_versions;
  /// Every row of a case, when the case is done.
  std::function<void(const AlignCase& align_case, const std::vector<AlignRow>& rows)> on_case;
  std::function<void(std::string_view doing)> on_progress;
};

/// Whether torch::nn::MultiheadAttention can be asked: it takes one mask for all heads, and no value width
/// apart from the key width.
bool torch_cpp_module_accepts(const AlignCase& align_case) noexcept;

/// Runs every case in float64 and float32 (the lesson's in float64 only, and only where Python is there to
/// draw it). Throws PeerMissing where a peer turns out not to be installed, std::runtime_error where one
/// fails.
void align(const std::vector<AlignCase>& cases, const AlignPeers& peers,
           const AlignListener& listener);

}  // namespace qkv
