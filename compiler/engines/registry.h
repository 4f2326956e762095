// The registry of engines. It is append-only: plans and kernel caches are written with positions in
// it.
#pragma once

#include <span>
#include <string_view>

#include "compiler/engines/engine.h"

namespace kiln::compiler {

std::span<const Engine> Engines();
// The index of an engine in Engines(), or -1.
int EngineIndex(std::string_view name);

}  // namespace kiln::compiler
