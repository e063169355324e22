#include "engine/huge_page_memory.h"

#include <sys/mman.h>

#include "engine/workspace.h"

namespace qkv::engine {

HugePageMemory::HugePageMemory(std::size_t bytes)
    : bytes_(bytes),
      alignment_(std::align_val_t{bytes < kHugePage ? kAlignment : kHugePage}),
      data_(static_cast<std::byte*>(::operator new(bytes, alignment_))) {
  if (bytes >= kHugePage) ::madvise(data_, bytes, MADV_HUGEPAGE);  // a wish
}

HugePageMemory::~HugePageMemory() { ::operator delete(data_, alignment_); }

}  // namespace qkv::engine
