// The pipeline: its table is the story of the compiler. RunPipeline runs it, with dumps, the
// verifier of each form, and a repro file when a pass breaks the module.
#include <fstream>
#include <string>
#include <unordered_set>

#include "compiler/pass.h"
#include "compiler/passes/canonicalise.h"
#include "compiler/passes/decompose.h"
#include "compiler/passes/emit.h"
#include "compiler/passes/group_key.h"
#include "compiler/passes/materialise.h"
#include "compiler/passes/partition.h"
#include "compiler/passes/pick_engine.h"
#include "compiler/passes/plain_types.h"
#include "compiler/passes/print_module.h"
#include "compiler/passes/schedule.h"
#include "compiler/passes/simplify.h"
#include "ir/base/env.h"
#include "ir/base/hash.h"
#include "ir/base/log.h"
#include "ir/base/write_guard.h"
#include "ir/graph/ops.h"
#include "ir/tile/tools.h"

namespace kiln::compiler {
namespace {

constexpr Pass kPipeline[] = {
    {"canonicalise", Canonicalise, Form::kApi, Form::kApi},
    {"decompose", Decompose, Form::kApi, Form::kPrimitive},
    {"plain-types", PlainTypes, Form::kPrimitive, Form::kPrimitive},
    {"simplify", Simplify, Form::kPrimitive, Form::kPrimitive},
    {"partition", Partition, Form::kPrimitive, Form::kGrouped},
    {"materialise", Materialise, Form::kGrouped, Form::kGrouped},
    {"pick-engine", PickEngine, Form::kGrouped, Form::kGrouped},
    {"schedule", Schedule, Form::kGrouped, Form::kTiled},
    {"emit", Emit, Form::kTiled, Form::kProgram},
};

constexpr bool FormsChain(std::span<const Pass> passes) {
  for (size_t i = 1; i < passes.size(); ++i)
    if (passes[i].before != passes[i - 1].after) return false;
  return true;
}
static_assert(FormsChain(kPipeline), "each pass starts from the form its predecessor leaves");

// `what` stands in the comma list, or "after:*" does for a pass.
bool DumpWanted(std::string_view what) {
  const std::string& list = GetEnv(Env::kDump);
  if (list.empty()) return false;
  for (size_t at = 0; at <= list.size();) {
    const size_t comma = std::min(list.find(',', at), list.size());
    const std::string_view item = std::string_view(list).substr(at, comma - at);
    if (item == what || (item == "after:*" && what.starts_with("after:"))) return true;
    at = comma + 1;
  }
  return false;
}

// Nothing in a process with raised privileges, whose working folder somebody else chose.
std::string WriteFile(std::string_view name, std::string_view text) {
  const std::string path = fmt::format("{}/{}", GetEnv(Env::kDumpDir), name);
  if (IsPrivileged()) return path + ", which a process with raised privileges does not write";
  const WriteGuard guard;
  std::ofstream file(path);
  file << text << std::flush;
  if (!file) LOG(kWarn, "could not write {}", path);
  return path;
}

std::string FileStem(const Module& module) {
  return fmt::format("kiln-{}-{}", module.graph.name,
                     HashBytes(graph::Print(module.graph)).Hex().substr(0, 8));
}

void DumpKernels(const Module& module, const std::string& stem) {
  for (const KernelSource& kernel : module.program.kernels) {
    const bool cuda = kernel.kind == SourceKind::kCuda;
    if (DumpWanted(cuda ? "cuda" : "tile"))
      WriteFile(fmt::format("{}-{}.{}", stem, kernel.entry, cuda ? "cu" : "tile"), kernel.text);
  }
}

}  // namespace

std::span<const Pass> Pipeline() { return kPipeline; }

Status VerifyForm(const Module& module) {
  if (module.form <= Form::kPrimitive) RETURN_IF_ERROR(graph::Verify(module.graph));
  for (const graph::Node& node : module.graph.nodes) {
    if (module.form >= Form::kPrimitive && Has(node, graph::kComposite))
      return Status::Error(Code::kInternal, "composite op {} is left after decompose",
                           graph::Info(node.op).mnemonic);
  }
  if (module.form < Form::kGrouped) return {};
  std::unordered_set<std::string> seen;
  for (const Group& group : module.groups) {
    if (!seen.insert(GroupKey(group)).second) continue;
    RETURN_IF_ERROR(graph::Verify(group.graph));
    for (const tile::Kernel& kernel : group.lowered.kernels) RETURN_IF_ERROR(tile::Verify(kernel));
  }
  return {};
}

Status RunPipeline(Module& module, const PassContext& context, const PassObserver& observer) {
  const bool dumping = !GetEnv(Env::kDump).empty();
  // The client's graph, for the repro file; printing it costs a fraction of a compile.
  const graph::Graph original = module.graph;
  const std::string stem = dumping ? FileStem(module) : "";
  if (DumpWanted("import")) WriteFile(stem + "-import.kiln", graph::Print(module.graph));
  for (const Pass& pass : kPipeline) {
    Result<bool> changed = pass.run(module, context);
    // A pass before partition reports what is wrong with the client's graph; that is an answer, not
    // a bug.
    if (!changed.ok()) return std::move(changed).status().Within(pass.name);
    if (DumpWanted(fmt::format("after:{}", pass.name)))
      WriteFile(fmt::format("{}-{}.txt", stem, pass.name), Print(module));
    if (observer) observer(pass.name, module);
    if (pass.after == Form::kProgram) break;  // the kernels were verified after schedule
    if (Status status = VerifyForm(module); !status.ok()) {
      const std::string path = WriteFile(
          fmt::format("kiln-repro-{}.kiln", HashBytes(graph::Print(original)).Hex().substr(0, 8)),
          graph::Print(original));
      return Status::Error(Code::kInternal, "pass {} broke the graph ({}); please report {}",
                           pass.name, status.message(), path);
    }
  }
  if (dumping) DumpKernels(module, stem);
  return {};
}

}  // namespace kiln::compiler
