// What attributions say of one text, as something that is printed and drawn like an experiment.
#pragma once

#include "explain/report.h"
#include "lab/experiment.h"

namespace qkv::lab {

/// `title` says of which model and text; it becomes the section "explain" of the page.
Experiment explained_text(const explain::Report& report, const Text& title, std::string command);

}  // namespace qkv::lab
