// kiln dump GRAPH --what …: any stage between the graph and the machine's code, for any
// architecture. Stages up to CUDA source come from the compiler alone; PTX asks NVRTC, LLVM's text
// asks the CPU plug-in.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>

#include "cli/choices.h"
#include "cli/commands.h"
#include "cli/compile_options.h"
#include "cli/console.h"
#include "cli/graph_file.h"
#include "cli/plan_text.h"
#include "compiler/compile.h"
#include "compiler/passes/print_module.h"
#include "ir/base/similar_names.h"
#include "runtime/cpu_plugin.h"
#include "runtime/cuda/dynamic_library.h"
#include "runtime/cuda/nvrtc.h"

namespace kiln::cli {
namespace {

constexpr const char* kFooter =
    "STAGE is one of\n"
    "  graph       the graph as Kiln reads it, in Kiln's text\n"
    "  after:PASS  what a pass leaves; `kiln dump --what after:?` lists the passes\n"
    "  tile        the kernels as loops over tiles, before code generation\n"
    "  cuda        CUDA C++, as NVRTC gets it; compiles with plain nvcc\n"
    "  ptx         what NVRTC makes of that\n"
    "  llvm        what the CPU plug-in makes of the tile kernels, optimised\n"
    "  plan        the launches with all their arguments, and the workspace\n"
    "\n"
    "A graph may become several kernels. Each is a translation unit of its own: with -o FOLDER/ "
    "each gets a\n"
    "file there, --kernel picks one, and otherwise they follow each other.\n"
    "\n"
    "Examples:\n"
    "  kiln dump examples/graphs/pointwise_dag.kiln > kernel.cu && nvcc --cubin -arch=sm_90a "
    "kernel.cu\n"
    "  kiln dump examples/graphs/softmax.kiln --what after:partition\n"
    "  kiln dump examples/graphs/conv_scale_bias_relu.json --what ptx --arch sm_80 -o conv.ptx";

struct DumpOptions {
  std::string graph, what = "cuda", arch = "sm_90a", output;
  int kernel = -1;
  EngineOptions engine;
};

// A text that is printed: one for stages of the graph, one a kernel after that.
struct Piece {
  std::string name, text;
};

// The module as each pass left it, as far as the stage needs it.
struct Compiled {
  std::string after_pass;  // text of the pass that was asked for
  compiler::Module module;
};

constexpr std::string_view kStages[] = {"graph", "after:PASS", "tile", "cuda",
                                        "ptx",   "llvm",       "plan"};

std::vector<std::string_view> PassNames() {
  std::vector<std::string_view> names;
  for (const compiler::Pass& pass : compiler::Pipeline()) names.push_back(pass.name);
  return names;
}

// "?" asks for the stages, "after:?" for the passes.
std::optional<std::string> StagesText(const std::string& what) {
  if (what == "?") return fmt::format("the stages are {}", fmt::join(kStages, ", "));
  if (what == "after:?") return fmt::format("the passes are {}", fmt::join(PassNames(), ", "));
  return std::nullopt;
}

Status CheckStage(const DumpOptions& options, const Target& target) {
  const std::string& what = options.what;
  if (constexpr std::string_view kAfter = "after:"; what.starts_with(kAfter)) {
    const std::string pass = what.substr(kAfter.size());
    const std::vector<std::string_view> passes = PassNames();
    if (std::ranges::find(passes, pass) != passes.end()) return {};
    const std::vector<std::string_view> near = SimilarNames(pass, passes, 1);
    return Status::Error(Code::kInvalidValue, "--what {}: there is no pass {}{}; the passes are {}",
                         what, pass, near.empty() ? "" : fmt::format(", perhaps {}", near.front()),
                         fmt::join(passes, ", "));
  }
  if (std::ranges::find(kStages, what) == std::end(kStages)) {
    return Status::Error(Code::kInvalidValue, "--what {}: there are {}", what,
                         fmt::join(kStages, ", "));
  }
  if ((what == "cuda" || what == "ptx") && !target.is_cuda())
    return Status::Error(Code::kInvalidValue, "--what {}: the CPU target has none", what);
  return {};
}

Result<Compiled> CompileUpTo(const graph::Graph& graph, const Target& target,
                             const DumpOptions& options) {
  ASSIGN_OR_RETURN(const compiler::EngineChoice choice, options.engine.Choice());
  const std::string_view last = compiler::Pipeline().back().name;
  Compiled compiled;
  const auto observe = [&](std::string_view pass, const compiler::Module& module) {
    if (options.what == fmt::format("after:{}", pass)) compiled.after_pass = Print(module);
    if (pass == last) compiled.module = module;
  };
  ASSIGN_OR_RETURN(const compiler::CompiledPlan plan,
                   compiler::Compile(graph, target, choice, observe));
  compiled.module.program = plan.program;
  return compiled;
}

Result<std::string> Ptx(const KernelSource& kernel) {
  ASSIGN_OR_RETURN(const runtime::Nvrtc* const nvrtc, runtime::ProcessNvrtc());
  ASSIGN_OR_RETURN(runtime::NvrtcResult result, nvrtc->Compile(kernel, runtime::NvrtcOutput::kPtx));
  return std::move(result.bytes);
}

// Two exports of the plug-in, as runtime/cpu/plugin.h declares them: only the plug-in's side may
// include it.
using EmitLlvmFunction = int (*)(const char* tile_text, char** out, char* error, size_t error_size);
using FreeTextFunction = void (*)(char* text);

Result<std::string> LlvmText(const KernelSource& kernel) {
  ASSIGN_OR_RETURN(const runtime::CpuPlugin plugin, runtime::ProcessCpuPlugin());
  const std::vector<std::string> path = {plugin.path};
  ASSIGN_OR_RETURN(const runtime::DynamicLibrary library,
                   runtime::DynamicLibrary::Open("the CPU plug-in", path, ""));
  const auto emit = reinterpret_cast<EmitLlvmFunction>(library.Find("KilnCpuEmitLlvm"));
  const auto free = reinterpret_cast<FreeTextFunction>(library.Find("KilnCpuFreeText"));
  if (emit == nullptr || free == nullptr) {
    return Status::Error(Code::kPrerequisiteMissing, "{} is of another version: it prints no LLVM",
                         plugin.path);
  }
  char* text = nullptr;
  char error[4096] = "";
  if (emit(kernel.text.c_str(), &text, error, sizeof error) != 0)
    return Status::Error(Code::kInternal, "{}: {}", kernel.entry, error);
  std::string llvm = text;
  free(text);
  return llvm;
}

Result<std::string> KernelText(const std::string& what, const KernelSource& kernel) {
  if (what == "ptx") return Ptx(kernel);
  if (what == "llvm") return LlvmText(kernel);
  return kernel.text;
}

std::vector<Piece> TilePieces(const compiler::Module& module) {
  std::vector<Piece> pieces;
  for (const compiler::Group& group : module.groups) {
    for (const tile::Kernel& kernel : group.lowered.kernels)
      pieces.push_back({kernel.name + ".tile", tile::Print(kernel)});
  }
  return pieces;
}

Result<std::vector<Piece>> Pieces(const DumpOptions& options) {
  ASSIGN_OR_RETURN(const graph::Graph graph, ReadGraph(options.graph));
  ASSIGN_OR_RETURN(const Target target,
                   TargetFromArch(options.what == "llvm" ? "cpu" : options.arch));
  RETURN_IF_ERROR(CheckStage(options, target));
  if (options.what == "graph") return std::vector<Piece>{{graph.name + ".kiln", Print(graph)}};
  ASSIGN_OR_RETURN(const Compiled compiled, CompileUpTo(graph, target, options));
  if (options.what == "plan")
    return std::vector<Piece>{{graph.name + ".plan", PlanText(compiled.module, target)}};
  if (options.what.starts_with("after:"))
    return std::vector<Piece>{{graph.name + ".txt", compiled.after_pass}};
  if (options.what == "tile") return TilePieces(compiled.module);
  const std::string suffix = options.what == "cuda"   ? "cu"
                             : options.what == "llvm" ? "ll"
                                                      : options.what;
  std::vector<Piece> pieces;
  for (const KernelSource& kernel : compiled.module.program.kernels) {
    ASSIGN_OR_RETURN(std::string text, KernelText(options.what, kernel));
    pieces.push_back({fmt::format("{}.{}", kernel.entry, suffix), std::move(text)});
  }
  return pieces;
}

Status PickKernel(const DumpOptions& options, std::vector<Piece>& pieces) {
  if (options.kernel < 0) return {};
  if (options.kernel >= static_cast<int>(pieces.size())) {
    return Status::Error(Code::kInvalidValue, "--kernel {}: there are kernels 0 to {}",
                         options.kernel, static_cast<int>(pieces.size()) - 1);
  }
  pieces = {std::move(pieces[static_cast<size_t>(options.kernel)])};
  return {};
}

Status WriteFile(const std::filesystem::path& path, std::string_view text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) return Status::Error(Code::kInvalidValue, "{}: cannot be written", path.string());
  return {};
}

Status WriteAll(const std::string& output, const std::vector<Piece>& pieces) {
  std::error_code ignored;
  if (output.ends_with('/') || std::filesystem::is_directory(output, ignored)) {
    std::filesystem::create_directories(output, ignored);
    for (const Piece& piece : pieces)
      RETURN_IF_ERROR(WriteFile(std::filesystem::path(output) / piece.name, piece.text));
    return {};
  }
  std::string text;
  for (const Piece& piece : pieces) text += (text.empty() ? "" : "\n") + piece.text;
  if (!text.ends_with('\n') && !text.empty()) text += '\n';
  if (!output.empty()) return WriteFile(output, text);
  if (!WriteRaw(stdout, text) || std::fflush(stdout) != 0)
    return Status::Error(Code::kExecutionFailed, "the standard output cannot be written");
  return {};
}

Status Dump(const DumpOptions& options) {
  ASSIGN_OR_RETURN(std::vector<Piece> pieces, Pieces(options));
  RETURN_IF_ERROR(PickKernel(options, pieces));
  return WriteAll(options.output, pieces);
}

}  // namespace

void AddDump(CLI::App& app, int& exit_status) {
  auto options = std::make_shared<DumpOptions>();
  CLI::App* command =
      app.add_subcommand("dump", "any stage from the graph to CUDA, PTX or LLVM; needs no GPU");
  command->add_option("GRAPH", options->graph, "the graph; see `kiln --help`")->required();
  AnswerQuestions(command->add_option("--what", options->what, "what to print, see below")
                      ->type_name("STAGE")
                      ->capture_default_str(),
                  StagesText);
  AddArchOption(*command, options->arch);
  command->add_option("--kernel", options->kernel, "only this kernel, counted from 0")
      ->check(CLI::NonNegativeNumber);
  command->add_option("-o,--output", options->output, "a file, or a folder for a file a kernel")
      ->type_name("PATH");
  options->engine.AddTo(*command);
  command->footer(kFooter);
  command->callback([options, &exit_status] {
    if (const Status status = Dump(*options); !status.ok()) exit_status = Fail(status);
  });
}

}  // namespace kiln::cli
