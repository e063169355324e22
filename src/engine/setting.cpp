#include "engine/setting.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <omp.h>

#include <algorithm>
#include <stdexcept>

namespace qkv::engine {

std::vector<std::string> targets() {
  std::vector<std::string> names;
  for (const kernels::Target& target : kernels::targets()) names.emplace_back(target.name);
  return names;
}

Setting setting_of(std::string_view operation, const Options& options) {
  Setting setting;
  setting.threads = options.threads.value_or(omp_get_max_threads());
  if (setting.threads < 1) {
    throw std::invalid_argument(
        fmt::format("{}: threads: expected 1 or more, got {}", operation, setting.threads));
  }
  const auto all = kernels::targets();
  const auto found = std::find_if(all.begin(), all.end(), [&](const kernels::Target& target) {
    return !options.target || target.name == *options.target;
  });
  if (found == all.end()) {
    throw std::invalid_argument(fmt::format("{}: target: expected one of {}, got \"{}\"", operation,
                                            fmt::join(targets(), ", "), *options.target));
  }
  setting.target = &*found;
  if (options.dropout) {
    const double probability = options.dropout->probability;
    if (!(probability >= 0 && probability < 1)) {
      throw std::invalid_argument(
          fmt::format("{}: dropout: expected a probability of at least 0 and below 1, got {}",
                      operation, probability));
    }
    if (probability > 0) setting.dropout = options.dropout;
  }
  return setting;
}

}  // namespace qkv::engine
