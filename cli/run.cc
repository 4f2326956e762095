// kiln run GRAPH: compiles the graph for a device, runs it on random data, compares every output
// with the f64 interpreter, and times the whole and each kernel.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "cli/bindings.h"
#include "cli/commands.h"
#include "cli/compile_options.h"
#include "cli/device_option.h"
#include "cli/graph_file.h"
#include "cli/reference.h"
#include "cli/units.h"
#include "compiler/compile.h"
#include "runtime/cuda/cuda_compiler.h"
#include "runtime/device_select.h"
#include "runtime/executable.h"

namespace kiln::cli {
namespace {

using graph::Graph;
using graph::Tensor;
using graph::TensorId;
using runtime::Device;
using runtime::Executable;

constexpr const char* kFooter =
    "Prints the worst element of each output, the median time, and for each kernel its name, "
    "engine,\n"
    "launch, times and the file in the kernel cache that holds its source.\n"
    "\n"
    "What an output may be off by follows from data types, compute types and the lengths of sums: "
    "the\n"
    "interpreter runs twice, the second time with every result disturbed by what those allow.\n"
    "\n"
    "Examples:\n"
    "  kiln run examples/graphs/conv_scale_bias_relu.json\n"
    "  kiln run examples/graphs/softmax.kiln --device cpu --seed 7 --range -30,30\n"
    "  kiln run big.kiln --no-check --repeats 100 --knob threads=128";

struct RunOptions {
  std::string graph, device = "auto", range = "-1,1";
  EngineOptions engine;
  RandomOptions random;
  int repeats = 20;
  bool no_check = false;
};

Status ParseRange(const std::string& text, RandomOptions& random) {
  char rest = 0;
  const int read = std::sscanf(text.c_str(), "%lf,%lf%c", &random.low, &random.high, &rest);
  if (read == 2 && random.low <= random.high) return {};
  return Status::Error(Code::kInvalidValue, "--range {} is not of the form LOW,HIGH", text);
}

// ---- printing
// -----------------------------------------------------------------------------------------

void PrintHead(const Graph& graph, const compiler::CompiledPlan& plan, const Target& target) {
  fmt::print("graph   {}: {} operations, {} kernel{}, {} of workspace\n", graph.name,
             graph.nodes.size(), plan.program.launches.size(),
             plan.program.launches.size() == 1 ? "" : "s", BytesText(plan.program.workspace_bytes));
  fmt::print("device  {} ({})\n", target.name, target.arch);
}

void PrintComparison(const Tensor& tensor, const Comparison& c) {
  const std::string what = fmt::format("{} (uid {}) {} {}", tensor.name, tensor.uid,
                                       Info(tensor.dtype).text, DimsText(tensor.dims));
  if (c.element < 0) return fmt::print("check   {}: empty\n", what);
  fmt::print(
      "check   {}: {}; worst element {}: got {:.6g}, want {:.6g}, off by {:.2g} of {:.2g} "
      "allowed\n",
      what, c.ok() ? "right" : fmt::format("WRONG in {} of {} elements", c.wrong, c.elements),
      ElementText(tensor, c.element), c.got, c.want, c.error, c.allowed);
}

// "kernel.cu" of the entry that the cache holds for a kernel; the newest where several compilers
// made one.
std::string CacheFile(const KernelSource& kernel, const std::vector<runtime::CacheEntry>& entries) {
  const runtime::CacheEntry* newest = nullptr;
  for (const runtime::CacheEntry& entry : entries) {
    const bool is_ours = std::ranges::any_of(entry.fields, [&](const runtime::KeyField& field) {
      return field.name == "entry" && field.value == kernel.entry;
    });
    if (is_ours && (newest == nullptr || entry.last_used_ns > newest->last_used_ns))
      newest = &entry;
  }
  if (newest == nullptr) return "in memory only; `kiln doctor` says why";
  const std::string folder =
      fmt::format("{}/{}/{}", runtime::ProcessKernelCache().disk().directory(),
                  newest->key.substr(0, 2), newest->key);
  return folder + (kernel.kind == SourceKind::kCuda ? "/kernel.cu" : "/kernel.tile");
}

// One launch of a program as a program of its own, for timing. Its kernel is in memory already.
Result<double> TimeLaunch(Device& device, const Program& program, const Launch& launch,
                          const Bindings& bindings, int repeats) {
  Program alone{.tensors = program.tensors,
                .kernels = {program.kernels[static_cast<size_t>(launch.kernel)]},
                .launches = {launch},
                .workspace_bytes = program.workspace_bytes};
  alone.launches[0].kernel = 0;
  ASSIGN_OR_RETURN(const std::unique_ptr<Executable> executable,
                   Executable::Create(device, std::move(alone)));
  return device.Measure(
      [&] { return executable->Execute(bindings.pointers(), bindings.workspace(), nullptr); },
      repeats, nullptr);
}

// Launches follow their groups; the modelled time and the bytes are of a whole group.
Status PrintKernels(Device& device, const compiler::CompiledPlan& plan, const Bindings& bindings,
                    int repeats) {
  const std::vector<runtime::CacheEntry> entries = runtime::ProcessKernelCache().List();
  auto launch = plan.program.launches.begin();
  for (const compiler::GroupReport& group : plan.groups) {
    for (size_t i = 0; i < group.kernels.size(); ++i, ++launch) {
      const KernelSource& kernel = plan.program.kernels[static_cast<size_t>(launch->kernel)];
      ASSIGN_OR_RETURN(const double seconds,
                       TimeLaunch(device, plan.program, *launch, bindings, repeats));
      fmt::print("kernel  {}  {}  grid {} block {}  {}", kernel.entry, group.engine,
                 GridText(launch->grid), launch->block[0], TimeText(seconds));
      if (group.kernels.size() == 1) {
        fmt::print(" (model {})  {} at {}", TimeText(group.modelled_seconds),
                   BytesText(group.floor_bytes), RateText(group.floor_bytes, seconds));
      } else if (i == 0) {
        fmt::print(" (model {} for {} kernels)  {}", TimeText(group.modelled_seconds),
                   group.kernels.size(), BytesText(group.floor_bytes));
      }
      fmt::print("\n        {}\n", CacheFile(kernel, entries));
    }
  }
  return {};
}

// ---- running
// ------------------------------------------------------------------------------------------

Result<bool> Check(const Graph& graph, Device& device, const Bindings& bindings,
                   graph::TensorValues inputs, uint64_t seed) {
  ASSIGN_OR_RETURN(const Reference reference, Interpret(graph, std::move(inputs), seed));
  bool ok = true;
  for (const TensorId id : graph::Outputs(graph)) {
    ASSIGN_OR_RETURN(const std::vector<double> got, bindings.Read(device, graph[id]));
    const Comparison comparison = Compare(graph, id, reference, got);
    PrintComparison(graph[id], comparison);
    ok = ok && comparison.ok();
  }
  return ok;
}

Result<bool> Run(RunOptions options) {
  RETURN_IF_ERROR(ParseRange(options.range, options.random));
  ASSIGN_OR_RETURN(const Graph graph, ReadGraph(options.graph));
  ASSIGN_OR_RETURN(const compiler::EngineChoice choice, options.engine.Choice());
  ASSIGN_OR_RETURN(Device* const device, OpenDevice(options.device));
  ASSIGN_OR_RETURN(
      const compiler::CompiledPlan plan,
      compiler::Compile(graph, device->target(), choice, {}, RecordsAdvisor(device->target())));
  ASSIGN_OR_RETURN(const std::unique_ptr<Executable> executable,
                   Executable::Create(*device, plan.program));
  graph::TensorValues inputs = RandomInputs(graph, options.random);
  ASSIGN_OR_RETURN(const Bindings bindings, Bindings::Make(*device, graph, plan.program, inputs));
  const auto execute = [&] {
    return executable->Execute(bindings.pointers(), bindings.workspace(), nullptr);
  };
  PrintHead(graph, plan, device->target());
  RETURN_IF_ERROR(execute());
  RETURN_IF_ERROR(device->Synchronize(nullptr));
  bool ok = true;
  if (!options.no_check) {
    ASSIGN_OR_RETURN(ok, Check(graph, *device, bindings, std::move(inputs), options.random.seed));
  }
  ASSIGN_OR_RETURN(const double seconds, device->Measure(execute, options.repeats, nullptr));
  fmt::print("time    {}, median of {}\n", TimeText(seconds), options.repeats);
  RETURN_IF_ERROR(PrintKernels(*device, plan, bindings, options.repeats));
  return ok;
}

}  // namespace

void AddRun(CLI::App& app, int& exit_status) {
  auto options = std::make_shared<RunOptions>();
  CLI::App* command = app.add_subcommand("run", "run a graph on random data, check it, time it");
  command->add_option("GRAPH", options->graph, "the graph; see `kiln --help`")->required();
  AddDeviceOption(*command, options->device);
  command->add_option("--seed", options->random.seed, "of the random data")->capture_default_str();
  command->add_option("--range", options->range, "of floating-point data")
      ->type_name("LOW,HIGH")
      ->capture_default_str();
  command->add_option("--repeats", options->repeats, "executions that are timed")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  command->add_flag("--no-check", options->no_check, "do not run the interpreter, which is slow");
  options->engine.AddTo(*command);
  command->footer(kFooter);
  command->callback([options, &exit_status] {
    const Result<bool> ok = Run(*options);
    exit_status = !ok.ok() ? Fail(ok.status()) : *ok ? kExitOk : kExitFailed;
  });
}

}  // namespace kiln::cli
