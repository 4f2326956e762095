// Is a Program one that can run? Programs are restored from files, so this is asked of every one,
// in words.
#pragma once

#include "ir/base/status.h"
#include "ir/program.h"
#include "ir/target.h"

namespace kiln::runtime {

Status CheckProgram(const Program& program, const Target& target);

}  // namespace kiln::runtime
