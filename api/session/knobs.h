// Knobs: configurations as the C interface has them, and choices as the compiler has them. The API
// shows a knob's value as its index in the engine's legal values, which is what clients enumerate
// and store; the compiler knows the values themselves. All of the session that speaks to both sides
// translates here, so that a wrong index is refused in one place, in one sentence.
#pragma once

#include <span>

#include "api/session/session.h"
#include "compiler/compile.h"
#include "compiler/engines/engine.h"

namespace kiln::api {

// The row of the registry at `index`, which is one.
const compiler::Engine& EngineAt(int64_t index);

// Error: there is no such engine, it has no such knob, or the knob has no such value.
Result<compiler::EngineChoice> ChoiceOf(const EngineConfig& config);

// The configuration of an engine with `values` for all of its knobs, in their order.
// CUDNN_KNOB_TYPE_WORKSPACE is every engine's, since it speaks of the whole plan; it is left out
// where it would be 0.
EngineConfig ConfigOf(int engine_index, std::span<const int> values, bool least_workspace = false);

// The compiler's choice among plans of the least workspace.
EngineConfig LeastWorkspaceOfAny();

// The way in which the engine of the choice treats its inputs; exactly, where the compiler chooses.
compiler::Inputs InputsOf(const compiler::EngineChoice& choice);

}  // namespace kiln::api
