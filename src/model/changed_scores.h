// Masking and softmax of one head's scores as a ChangedAttention has them, and the way back.
#pragma once

#include <cstdint>
#include <optional>

#include "model/changed_attention.h"

namespace qkv {

/// Which cells of the scores a mask hides or fills. Refers to its arguments.
class ChangedMask {
 public:
  /// Throws std::invalid_argument where rules or padding do not fit the sizes.
  ChangedMask(const ChangedAttention& options, const MaskShape& shape,
              const std::optional<Tensor<bool, 2>>& keep);

  const MaskShape& shape() const noexcept { return rules_.shape(); }
  bool hidden(Index b, Index h, Index t, Index s) const noexcept {
    return !rules_.visible(b, h, t, s) ||
           (padding_ == PaddingUse::HideKeys && keep_ != nullptr && !(*keep_)(b, s));
  }
  bool filled(Index b, Index h, Index t, Index s) const noexcept;

 private:
  BoundMask rules_;
  PaddingUse padding_;
  const Tensor<bool, 2>* keep_ = nullptr;  // null without padding
};

/// A head of a sample.
struct HeadIndex {
  Index sample = 0;
  Index head = 0;
};

/// scores [T,S] become weights. Where they are masked after the softmax, `normalised` [T,S] gets the weights before that.
template <class T>
void weigh(const ChangedAttention& options, const ChangedMask& mask, const HeadIndex& at, T* scores,
           T* normalised);

/// The derivatives with respect to the weights [T,S] become those with respect to the scores. `normalised` is the softmax.
template <class T>
void weigh_backward(const ChangedAttention& options, const ChangedMask& mask, const HeadIndex& at,
                    const T* normalised, T* gradients);

}  // namespace qkv
