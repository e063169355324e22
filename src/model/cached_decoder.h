// A decoder that reads its tokens once: keys and values of those so far are kept.
#pragma once

#include <span>
#include <vector>

#include "model/decoder.h"
#include "qkv/kv_cache.h"

namespace qkv {

template <class T>
class CachedDecoder {
 public:
  /// Refers to the decoder. Throws std::invalid_argument where a block's attention is changed in more than scale and tying.
  explicit CachedDecoder(const Decoder<T>& decoder);

  /// Reads one sequence's next tokens, one or more, and returns the logits [V] after the last of them. Throws
  /// std::invalid_argument where the sequence becomes longer than the context.
  std::vector<T> read(std::span<const Index> tokens);

 private:
  void run_block(Index block, Tensor<T, 3>& x);

  const Decoder<T>& decoder_;
  std::vector<KvCache<T>> caches_;  // one a block
  Index length_ = 0;
};

}  // namespace qkv
