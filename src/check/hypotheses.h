// The catalogue as code: what each class of bugs would have computed on a dump.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "check/diagnosis.h"
#include "check/variant.h"

namespace qkv {

/// Parts of a Variant, as bits: two hypotheses that touch none in common can be true together.
namespace stage {
inline constexpr std::uint32_t projection = 1u << 0, split = 1u << 1, norm = 1u << 2,
                               rotary = 1u << 3, head_map = 1u << 4, scale = 1u << 5,
                               softcap = 1u << 6, bias = 1u << 7, alibi = 1u << 8,
                               product = 1u << 9, empty = 1u << 10, attended = 1u << 11,
                               head_mean = 1u << 12, axis = 1u << 13, exponent = 1u << 14,
                               tail = 1u << 15, weight = 1u << 16, transposed = 1u << 17,
                               merge = 1u << 18, output = 1u << 19, first_rule = 1u << 20;
inline constexpr std::uint32_t rule(std::size_t i) { return first_rule << i; }
inline constexpr std::uint32_t all_rules = 31u << 20;
}  // namespace stage

/// A number that a hypothesis leaves open.
struct FreeParameter {
  std::string name;
  std::vector<double> grid;  ///< ascending; every value of it is tried
  bool integer = false;      ///< else refined between the neighbours of the best
  bool logarithmic = false;
  std::function<void(Variant&, double)> set;

  /// A few values of the grid, for where it is tried beside many other things.
  std::vector<double> coarse_grid() const;
};

struct Hypothesis {
  std::string id;
  std::string text;
  std::uint32_t touches = 0;
  std::function<void(Variant&)> apply;
  std::map<std::string, double> parameters;
  /// Among equal explanations the lowest is the likeliest; of one class only it is named.
  int rank = 0;
  std::optional<FreeParameter> free;
  bool fitted = false;  ///< its parameter was free

  Variant variant(const Variant& base = {}) const {
    Variant result = base;
    apply(result);
    return result;
  }
};

struct Catalogue {
  std::vector<Hypothesis> hypotheses;
  std::vector<NotShown> lacking;  ///< classes of which this dump lacks what they need
};

/// What could have been computed instead of what the dump means, as far as out can tell.
Catalogue catalogue_for(const Dump& dump);

/// Every class, in the order of the catalogue.
const std::vector<std::string>& catalogue_ids();

/// What would tell two classes apart where a dump cannot.
std::string what_separates(const std::vector<std::string>& ids);

}  // namespace qkv
