#pragma once

#include <string_view>

namespace qkv {

/// The texts of docs/bugs.md and docs/bugs.zh-CN.md, so that an installed command has them.
extern const std::string_view bugs_document;
extern const std::string_view bugs_document_chinese;

}  // namespace qkv
