#pragma once

#include <string>

namespace qkv {

/// The texts of docs/bugs.md and docs/bugs.zh-CN.md, so that an installed command has them.
const std::string& bugs_document();
const std::string& bugs_document_chinese();

}  // namespace qkv
