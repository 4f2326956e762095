// reduce: groups whose anchor is one or more reductions over the same dims, with any maps and views
// before and after. Deterministic; see reduce_gpu.cc and reduce_cpu.cc for the schedules.
#pragma once

#include "compiler/engines/engine.h"

namespace kiln::compiler {

extern const Engine kReduceEngine;

}  // namespace kiln::compiler
