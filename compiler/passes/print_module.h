// Print: a module as text.
#pragma once

#include <string>

#include "compiler/module.h"

namespace kiln::compiler {

// The module as text, for dumps: the graph, or one graph a group with its engine, or tile kernels.
std::string Print(const Module& module);

}  // namespace kiln::compiler
