// Pass: a free function over the module. The table in pipeline.cc is the story of the compiler.
#pragma once

#include <functional>
#include <span>
#include <string_view>

#include "compiler/module.h"
#include "ir/base/result.h"

namespace kiln::compiler {

struct Pass {
  std::string_view
      name;  // kebab-case, as KILN_DUMP=after:NAME and `kiln dump --what after:NAME` spell it
  Result<bool> (*run)(Module&, const PassContext&);  // true if the module changed
  Form before, after;
};

std::span<const Pass> Pipeline();

// Called after each pass with its name; for dumps and tests.
using PassObserver = std::function<void(std::string_view pass, const Module&)>;

// Runs all passes, verifies the form after each, writes KILN_DUMP files, and a repro file when a
// pass breaks the module. Errors name the pass.
Status RunPipeline(Module& module, const PassContext& context, const PassObserver& observer = {});

// Checks the invariants of the module's form (see module.h).
Status VerifyForm(const Module& module);

}  // namespace kiln::compiler
