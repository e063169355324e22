// How long runs tell what they are at, and how they are stopped.
#pragma once

#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace qkv {

/// Told what is being done and how much of the whole is done, 0 to 1; false asks to stop.
using Progress = std::function<bool(std::string_view what, double done)>;

/// A run was stopped by whoever listens to its progress.
class Interrupted : public std::runtime_error {
 public:
  Interrupted() : std::runtime_error("interrupted") {}
};

/// What a part of a run tells becomes what the whole tells: `what` it is at, and from `begin` to `end` of the whole. Empty where
/// nobody listens.
inline Progress part_of(const Progress& whole, std::string what, double begin, double end) {
  if (!whole) return {};
  return [whole, what = std::move(what), begin, end](std::string_view, double done) {
    return whole(what, begin + done * (end - begin));
  };
}

}  // namespace qkv
