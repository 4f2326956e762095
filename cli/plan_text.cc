#include "cli/plan_text.h"

#include <fmt/format.h>

#include <bit>
#include <map>

#include "cli/units.h"
#include "compiler/engines/engine.h"
#include "compiler/engines/registry.h"
#include "compiler/passes/leading_group.h"

namespace kiln::cli {
namespace {

std::string TensorText(const ProgramTensor& tensor) {
  return fmt::format("  uid {}: {}{}{}{}\n", tensor.uid,
                     Info(static_cast<DType>(tensor.dtype)).text,
                     tensor.by_value ? ", host scalar" : "", tensor.is_output ? ", written" : "",
                     tensor.is_empty ? ", empty" : "");
}

std::string ScalarText(const LaunchArg& arg, DType type) {
  switch (type) {
    case DType::kF32:
      return fmt::format("{}", std::bit_cast<float>(static_cast<uint32_t>(arg.bits)));
    case DType::kF64:
      return fmt::format("{}", std::bit_cast<double>(arg.bits));
    case DType::kI64:
      return fmt::format("{}", static_cast<int64_t>(arg.bits));
    default:
      return fmt::format("{}", static_cast<int32_t>(arg.bits));
  }
}

std::string ArgumentText(const Program& program, const LaunchArg& arg, const tile::Param& param) {
  std::string text = fmt::format("    {}: ", param.name);
  if (arg.kind == LaunchArg::Kind::kScalar)
    return text + fmt::format("{} {}\n", Info(param.type).text, ScalarText(arg, param.type));
  if (arg.kind == LaunchArg::Kind::kPeerRank) return text + "i32, this device's rank\n";
  if (arg.kind == LaunchArg::Kind::kPeerLimit)
    return text + "i64, the nanoseconds of KILN_PEER_TIMEOUT_MS\n";
  if (arg.kind == LaunchArg::Kind::kFault) return text + "pointer of the device's fault word\n";
  if (arg.buffer.kind == BufferRef::Kind::kWorkspace)
    return text + fmt::format("workspace + {}\n", arg.buffer.byte_offset);
  const int64_t uid = program.tensors[static_cast<size_t>(arg.buffer.index)].uid;
  if (arg.kind == LaunchArg::Kind::kByValue)
    return text + fmt::format("{}, the host scalar of uid {}\n", Info(param.type).text, uid);
  return text + fmt::format("pointer of uid {}\n", uid);
}

}  // namespace

std::string PlanText(const compiler::Module& module, const Target& target) {
  const Program& program = module.program;
  std::map<std::string, const tile::Kernel*> kernels;
  for (const compiler::Group& group : module.groups) {
    for (const tile::Kernel& kernel : group.lowered.kernels) kernels[kernel.name] = &kernel;
  }
  std::string text = fmt::format("plan for {} ({})\n", target.arch, target.name);
  if (const int leading = compiler::LeadingGroup(module); leading >= 0) {
    const compiler::Group& group = module.groups[static_cast<size_t>(leading)];
    const compiler::Engine& engine = compiler::Engines()[static_cast<size_t>(group.engine)];
    text += fmt::format("engine {} ({}) {}\n", group.engine, engine.name,
                        compiler::KnobText(engine, group.knobs));
  }
  text += fmt::format("workspace {} bytes\ntensors\n", program.workspace_bytes);
  for (const ProgramTensor& tensor : program.tensors) text += TensorText(tensor);
  for (const Launch& launch : program.launches) {
    const KernelSource& source = program.kernels[static_cast<size_t>(launch.kernel)];
    text += fmt::format("launch {}\n    grid {} block {}", source.entry, GridText(launch.grid),
                        launch.block[0]);
    if (launch.dynamic_shared_bytes > 0)
      text += fmt::format(" shared {}", launch.dynamic_shared_bytes);
    text += "\n";
    const tile::Kernel& kernel = *kernels.at(source.entry);
    for (size_t i = 0; i < launch.args.size(); ++i)
      text += ArgumentText(program, launch.args[i], kernel.params[i]);
  }
  return text;
}

}  // namespace kiln::cli
