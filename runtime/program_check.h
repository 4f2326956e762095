// Checks whether a Program can run. Programs are restored from files, so every one is checked, and
// the answer is a sentence.
#pragma once

#include "ir/base/status.h"
#include "ir/program.h"
#include "ir/target.h"

namespace kiln::runtime {

Status CheckProgram(const Program& program, const Target& target);

}  // namespace kiln::runtime
