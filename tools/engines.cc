// Prints the rows of the engines' registry, one a line, fields between tabs: row, name, version,
// numerical notes, knobs. tools/gen_engines.py writes docs/engines.md from it and from the heads of
// the engines' files.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <vector>

#include "compiler/engines/engine.h"
#include "compiler/engines/registry.h"

namespace kiln::compiler {
namespace {

// "name=1,2,4", the default first.
std::string KnobLine(const KnobRow& knob) {
  return fmt::format("{}={}", knob.name, fmt::join(knob.domain, ","));
}

std::string EngineLine(size_t row, const Engine& engine) {
  std::vector<std::string> knobs;
  for (const KnobRow& knob : engine.knobs) knobs.push_back(KnobLine(knob));
  return fmt::format("{}\t{}\t{}\t{}\t{}\n", row, engine.name, engine.version,
                     fmt::join(engine.notes.numerical, ","), fmt::join(knobs, ";"));
}

}  // namespace
}  // namespace kiln::compiler

int main() {
  const auto engines = kiln::compiler::Engines();
  for (size_t i = 0; i < engines.size(); ++i)
    fmt::print("{}", kiln::compiler::EngineLine(i, engines[i]));
  return 0;
}
