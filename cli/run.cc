// kiln run GRAPH: compiles the graph for a device, runs it on random data, compares every output
// with the f64 interpreter, and times the whole and each kernel.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "cli/bindings.h"
#include "cli/check_progress.h"
#include "cli/commands.h"
#include "cli/compile_options.h"
#include "cli/console.h"
#include "cli/device_option.h"
#include "cli/graph_file.h"
#include "cli/memory.h"
#include "cli/reference.h"
#include "cli/slice.h"
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
    "  kiln run big.kiln --no-check --repeats 100 --knob threads=128\n"
    "  kiln run big.kiln --check-part 1000      images, rows or columns that fit into 1000 MB";

struct RunOptions {
  std::string graph, device = "auto", range = "-1,1";
  EngineOptions engine;
  RandomOptions random;
  int repeats = 20;
  bool no_check = false;
  int64_t check_part = 0;  // megabytes; 0 checks all
};

Status ParseRange(const std::string& text, RandomOptions& random) {
  char rest = 0;
  const int read = std::sscanf(text.c_str(), "%lf,%lf%c", &random.low, &random.high, &rest);
  if (read != 2)
    return Status::Error(Code::kInvalidValue, "--range {} is not of the form LOW,HIGH, as -1,1",
                         text);
  if (!std::isfinite(random.high - random.low))
    return Status::Error(Code::kInvalidValue, "--range {}: both ends must be finite numbers", text);
  if (random.low > random.high)
    return Status::Error(Code::kInvalidValue,
                         "--range {} is reversed: {} is above {}; --range {},{} is the same range",
                         text, random.low, random.high, random.high, random.low);
  return {};
}

// ---- printing

void PrintHead(const Graph& graph, const compiler::CompiledPlan& plan, const Target& target) {
  PrintOut("graph   {}: {} operations, {} kernel{}, {} of workspace\n", Printable(graph.name),
           graph.nodes.size(), plan.program.launches.size(),
           plan.program.launches.size() == 1 ? "" : "s", BytesText(plan.program.workspace_bytes));
  PrintOut("device  {} ({})\n", target.name, target.arch);
}

// Two numbers with as many digits as it takes to tell them apart.
std::pair<std::string, std::string> DistinctTexts(double a, double b) {
  constexpr int kAllDigits = 17;
  for (int digits = 2;; ++digits) {
    std::pair texts(fmt::format("{:.{}g}", a, digits), fmt::format("{:.{}g}", b, digits));
    if (a == b || texts.first != texts.second || digits == kAllDigits) return texts;
  }
}

void PrintComparison(const Tensor& tensor, const Comparison& c) {
  const std::string what = fmt::format("{} (uid {}) {} {}", tensor.name, tensor.uid,
                                       Info(tensor.dtype).text, DimsText(tensor.dims));
  if (c.element < 0) return PrintOut("check   {}: empty\n", what);
  const auto [error, allowed] = DistinctTexts(c.error, c.allowed);
  PrintOut("check   {}: {}; worst element {}: got {:.6g}, want {:.6g}, off by {} of {} allowed\n",
           what, c.ok() ? "right" : fmt::format("WRONG in {} of {} elements", c.wrong, c.elements),
           ElementText(tensor, c.element), c.got, c.want, error, allowed);
  if (c.nans == c.elements)
    PrintOut("        every element should be NaN, so that little was checked; --range may help\n");
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
      PrintOut("kernel  {}  {}  grid {} block {}  {}", kernel.entry, group.engine,
               GridText(launch->grid), launch->block[0], TimeText(seconds));
      if (group.kernels.size() == 1) {
        PrintOut(" (model {})  {} at {}", TimeText(group.modelled_seconds),
                 BytesText(group.floor_bytes), RateText(group.floor_bytes, seconds));
      } else if (i == 0) {
        PrintOut(" (model {} for {} kernels)  {}", TimeText(group.modelled_seconds),
                 group.kernels.size(), BytesText(group.floor_bytes));
      }
      PrintOut("\n        {}\n", CacheFile(kernel, entries));
    }
  }
  return {};
}

// ---- running

// The interpreter's values against the device's, of the whole graph or of a part of it.
Result<bool> Check(const Graph& graph, Device& device, const Bindings& bindings,
                   graph::TensorValues inputs, uint64_t seed, const std::optional<Slice>& slice) {
  const Graph& checked = slice ? slice->graph : graph;
  if (slice) {
    for (auto& [id, values] : inputs) values = PartOf(graph, *slice, id, values);
  }
  CheckProgress progress(checked, ProgressOptions::OfStderr());
  const auto observer = [&progress](const graph::Node& node) { progress.Begin(node); };
  ASSIGN_OR_RETURN(Reference reference, Interpret(checked, std::move(inputs), seed, observer));
  bool ok = true;
  for (const TensorId id : graph::Outputs(graph)) {
    ASSIGN_OR_RETURN(std::vector<double> got, bindings.Read(device, graph[id]));
    if (slice) got = PartOf(graph, *slice, id, got);
    ASSIGN_OR_RETURN(const Comparison comparison,
                     CompareClosely(checked, id, seed, got, reference, observer));
    PrintComparison(checked[id], comparison);
    if (slice)
      PrintOut("        that is the part {} of {}\n", PlacesText(*slice, id),
               DimsText(graph[id].dims));
    ok = ok && comparison.ok();
  }
  return ok;
}

// The part that --check-part asks for, and a refusal before anything is allocated: the system ends
// a process that takes more than there is.
Result<std::optional<Slice>> PlanCheck(const Graph& graph, const compiler::CompiledPlan& plan,
                                       const Target& target, const RunOptions& options) {
  const int64_t free = AvailableBytes();
  const int64_t run = RunBytes(graph, plan.program.workspace_bytes, !target.is_cuda());
  if (run > free) {
    return Status::Error(Code::kHostAllocationFailed,
                         "running {} takes {} of memory, and {} are free", graph.name,
                         BytesText(run), BytesText(free));
  }
  if (options.no_check) return std::optional<Slice>();
  if (options.check_part > 0) {
    const int64_t most = std::min(options.check_part << 20, free - run);
    Slice slice = SliceOf(graph, most, options.random.seed);
    RETURN_IF_ERROR(graph::Verify(slice.graph).Within("a part of the graph"));
    const int64_t least = CheckBytes(slice.graph);
    if (least <= most) return std::optional(std::move(slice));
    return Status::Error(Code::kNotSupported,
                         "no part of {} can be checked in {}: the smallest that stands for itself "
                         "takes {}, since its operations sum, search or count along the other dims",
                         graph.name, BytesText(most), BytesText(least));
  }
  const int64_t check = CheckBytes(graph);
  if (check <= free - run) return std::optional<Slice>();
  return Status::Error(Code::kHostAllocationFailed,
                       "checking {} takes {} of memory beside the {} of the run, and {} are free: "
                       "the interpreter has every tensor in double precision, twice. "
                       "--check-part MB checks a part of so many megabytes, --no-check nothing",
                       graph.name, BytesText(check), BytesText(run), BytesText(free));
}

Result<bool> Run(RunOptions options) {
  RETURN_IF_ERROR(ParseRange(options.range, options.random));
  ASSIGN_OR_RETURN(const Graph graph, ReadGraph(options.graph));
  ASSIGN_OR_RETURN(const compiler::EngineChoice choice, options.engine.Choice());
  ASSIGN_OR_RETURN(Device* const device, OpenDevice(options.device));
  ASSIGN_OR_RETURN(
      const compiler::CompiledPlan plan,
      compiler::Compile(graph, device->target(), choice, {}, RecordsAdvisor(device->target())));
  ASSIGN_OR_RETURN(const std::optional<Slice> slice,
                   PlanCheck(graph, plan, device->target(), options));
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
    ASSIGN_OR_RETURN(
        ok, Check(graph, *device, bindings, std::move(inputs), options.random.seed, slice));
  }
  ASSIGN_OR_RETURN(const double seconds, device->Measure(execute, options.repeats, nullptr));
  PrintOut("time    {}, median of {}\n", TimeText(seconds), options.repeats);
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
  CLI::Option* no_check = command->add_flag("--no-check", options->no_check,
                                            "do not run the interpreter, which is slow");
  command
      ->add_option("--check-part", options->check_part,
                   "check a part that the interpreter needs so many megabytes for")
      ->type_name("MB")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30))
      ->excludes(no_check);
  options->engine.AddTo(*command);
  command->footer(kFooter);
  command->callback([options, &exit_status] {
    const Result<bool> ok = Run(*options);
    exit_status = !ok.ok() ? Fail(ok.status()) : *ok ? kExitOk : kExitFailed;
  });
}

}  // namespace kiln::cli
