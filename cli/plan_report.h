// A plan of the engine in text and JSON.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "qkv/engine.h"

namespace qkv::cli {

/// The call that is planned, and the kv head whose blocks are drawn.
struct PlannedCall {
  Index batch = 0;
  Index heads = 0;
  Index kv_heads = 0;
  Index queries = 0;
  Index keys = 0;
  Index width = 0;
  Index value_width = 0;
  std::string function;
  std::string dtype;
  std::string mask;
  Index drawn_sample = 0;
  Index drawn_kv_head = 0;
};

std::string plan_text(const PlannedCall& call, const engine::Plan& plan,
                      const engine::BlockMap& map);
nlohmann::json plan_json(const PlannedCall& call, const engine::Plan& plan,
                         const engine::BlockMap& map);

}  // namespace qkv::cli
