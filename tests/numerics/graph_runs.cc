#include "tests/numerics/graph_runs.h"

#include <algorithm>
#include <cmath>

#include "cli/bindings.h"
#include "cli/reference.h"
#include "compiler/compile.h"
#include "runtime/executable.h"
#include "tests/support/random_graph.h"

namespace kiln::testing {
namespace {

// The worst element of an output that is wrong.
Status CheckOutput(const graph::Graph& graph, graph::TensorId output, uint64_t seed,
                   const std::vector<double>& got, cli::Reference& reference) {
  ASSIGN_OR_RETURN(const cli::Comparison c,
                   cli::CompareClosely(graph, output, seed, got, reference));
  if (c.ok()) return {};
  return Status::Error(Code::kUnexpectedValue,
                       "{} of {} elements of {} are wrong; at {} it is {:.9g}, by the interpreter "
                       "{:.9g}, which may be off by {:.3g}",
                       c.wrong, c.elements, graph[output].name,
                       cli::ElementText(graph[output], c.element), c.got, c.want, c.allowed);
}

Status RunPlan(runtime::Device& device, const graph::Graph& graph, graph::TensorValues inputs,
               uint64_t seed, const runtime::Executable& executable, GraphRun& run) {
  ASSIGN_OR_RETURN(const cli::Bindings bindings,
                   cli::Bindings::Make(device, graph, executable.program(), inputs));
  RETURN_IF_ERROR(executable.Execute(bindings.pointers(), bindings.workspace(), nullptr));
  RETURN_IF_ERROR(device.Synchronize(nullptr));
  RETURN_IF_ERROR(bindings.CheckInputs(device, graph));
  ASSIGN_OR_RETURN(cli::Reference reference, cli::Interpret(graph, std::move(inputs), seed));
  for (const graph::TensorId id : graph::Outputs(graph)) {
    ASSIGN_OR_RETURN(const std::vector<double> got, bindings.Read(device, graph[id]));
    run.elements += std::ssize(got);
    run.finite += std::ranges::count_if(got, [](double value) { return std::isfinite(value); });
    RETURN_IF_ERROR(CheckOutput(graph, id, seed, got, reference));
  }
  return {};
}

}  // namespace

GraphRun RunGraph(runtime::Device& device, const graph::Graph& graph, uint64_t seed) {
  return RunGraph(device, graph, graph::RandomInputs(graph, seed), seed);
}

GraphRun RunGraph(runtime::Device& device, const graph::Graph& graph, graph::TensorValues inputs,
                  uint64_t seed) {
  GraphRun run;
  const auto end = [&run](Outcome outcome, const Status& status) {
    run.outcome = outcome;
    run.text = status.message();
    return run;
  };
  Result<compiler::CompiledPlan> plan = compiler::Compile(graph, device.target());
  if (!plan.ok()) return end(Outcome::kRefused, plan.status());
  run.kernels = static_cast<int>(plan->program.launches.size());
  const auto executable = runtime::Executable::Create(device, std::move(plan->program));
  if (!executable.ok()) return end(Outcome::kRefused, executable.status());
  const Status status = RunPlan(device, graph, std::move(inputs), seed, **executable, run);
  return status.ok() ? run : end(Outcome::kWrong, status);
}

}  // namespace kiln::testing
