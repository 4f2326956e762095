// Session: the narrow waist between the C interface and what is below it. A session is one device
// with a compiler for it; it turns a graph and a choice of engine into a plan, and runs plans.
// Handles, backend descriptors and the legacy API's calls use nothing else of compiler and runtime,
// so that tests of the interface put a session of their own in its place.
//
// Everything here is safe from many threads. Plans are immutable and shared. device_session.h
// implements it; registry.cc says which session a thread gets.
#pragma once

#include <cstdint>
#include <future>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ir/base/result.h"
#include "ir/graph/graph.h"
#include "ir/program.h"
#include "ir/target.h"

namespace kiln::api {

// A knob as KNOB_INFO shows it: values are indices into the engine's legal values.
struct KnobRange {
  int32_t type = 0;  // cudnnBackendKnobType_t
  int64_t minimum = 0, maximum = 0, stride = 1;
};

struct KnobValue {
  int32_t type = 0;
  int64_t value = 0;
  bool operator==(const KnobValue&) const = default;
};

// The engine of plans in which nobody names one: the compiler picks one for each group. It takes
// every graph that is compiled at all, and has the workspace knob alone.
inline constexpr int64_t kCompilersChoice = -1;

// An engine by its row in the compiler's registry, with the knobs that are set; the others take the
// engine's defaults. Rows are the same for all graphs and in all processes, so that this is what
// plans and kernel caches are written with; the global index that clients see is a place in
// EnginesOf.
struct EngineConfig {
  int64_t engine = kCompilersChoice;
  std::vector<KnobValue> knobs;
  bool operator==(const EngineConfig&) const = default;
};

struct LayoutPreference {
  int64_t uid = -1;
  std::vector<int32_t> types;  // cudnnBackendLayoutType_t
};

// EngineFacts are what an engine says of itself for one graph.
struct EngineFacts {
  std::string name;
  std::vector<KnobRange> knobs;
  std::vector<int32_t> numerical_notes;  // cudnnBackendNumericalNote_t
  std::vector<int32_t> behavior_notes;   // cudnnBackendBehaviorNote_t
  std::vector<LayoutPreference> layouts;
};

// Runs that take fewer seconds than this leave little to win, so that little is compiled to look
// for a faster configuration.
inline constexpr double kSmallProblem = 50e-6;

// A footprint is what a configuration will need, known before anything is compiled.
struct Footprint {
  int64_t workspace_bytes = 0;
  int32_t shared_memory_bytes = 0;
  double seconds = 0;  // of a run, by the engines' models
};

enum class RankMode : uint8_t { kInstant, kB, kFallback, kA };  // cudnnBackendHeurMode_t

struct RankOptions {
  RankMode mode = RankMode::kInstant;
  // The client makes the same structure with many shapes, and would rather not wait for compilers:
  // of the configurations that were remembered, one whose kernels are there comes first, unless the
  // model thinks that it takes twice as long as the best.
  bool prefers_ready = false;
};

// BuildOptions say what making a plan may do besides.
struct BuildOptions {
  // KILN_TUNE=on-miss and retune may run kernels of their own: when a plan is made, never when one
  // is executed.
  bool may_measure = false;
  void* stream = nullptr;  // the handle's: nothing is measured while it is captured
};

// A plan is a graph compiled and loaded for a device. Callers see what they must know to run it.
class Plan {
 public:
  virtual ~Plan() = default;
  // The configuration with every knob of the engine that was named; the compiler's choice stays
  // just that.
  virtual const EngineConfig& config() const = 0;
  virtual int64_t workspace_bytes() const = 0;
  // Execute wants a pointer for each of these, in this order.
  virtual std::span<const ProgramTensor> tensors() const = 0;
};

class Session : public std::enable_shared_from_this<Session> {
 public:
  virtual ~Session() = default;

  virtual const Target& target() const = 0;
  // A session on this device as if it had no more multiprocessors than `sm_count`: its models, and
  // the blocks of kernels that walk over their work. The session itself where it has no more.
  virtual std::shared_ptr<Session> Limited(int sm_count) = 0;

  // The engines that Describe has facts of for this graph: kCompilersChoice, then rows of the
  // registry in its order, to which later releases only append. Never empty.
  virtual std::vector<int64_t> EnginesOf(const graph::Graph& graph) const = 0;
  // Error: no such engine exists, or it declines the graph (with its reason).
  virtual Result<EngineFacts> Describe(const graph::Graph& graph, int64_t engine) const = 0;
  // Configurations of engines in EnginesOf, best first. Not empty: where no engine alone takes the
  // graph, or the list of the mode has none that keeps to the limit of the workspace, the
  // compiler's choice is the list. Error: the graph cannot be compiled.
  virtual Result<std::vector<EngineConfig>> Rank(const graph::Graph& graph,
                                                 const RankOptions& options) const = 0;
  // Keeps the configuration for later rankings that prefer what is ready.
  virtual void Remember(const EngineConfig& config) = 0;
  // True if building the plan needs no compiler: all its kernels are loaded, or on disk.
  virtual bool IsReady(const graph::Graph& graph, const EngineConfig& config) const = 0;
  // Begins to compile what building the plan needs, on threads that nobody has to wait for. Ready
  // when it has been tried: at once where nothing is missing.
  virtual std::shared_future<void> CompileBeside(const graph::Graph&, const EngineConfig&) {
    std::promise<void> nothing;
    nothing.set_value();
    return nothing.get_future().share();
  }
  // Error: the engine declines, or a knob has no such value.
  virtual Result<Footprint> Measure(const graph::Graph& graph,
                                    const EngineConfig& config) const = 0;
  virtual Result<std::shared_ptr<const Plan>> Build(const graph::Graph& graph,
                                                    const EngineConfig& config,
                                                    const BuildOptions& options) = 0;

  // Launches on `stream`; allocates nothing, waits for nothing, and reads host memory only through
  // the pointers of by-value tensors. pointers[i] belongs to plan.tensors()[i]. `plan` is of this
  // session.
  virtual Status Execute(const Plan& plan, std::span<void* const> pointers, void* workspace,
                         void* stream) = 0;
  // Puts the launches of such an Execute into an empty cudaGraph_t as its nodes; or, to update, in
  // the place of those that this plan put there. Host work only.
  enum class GraphUse : uint8_t { kPopulate, kUpdate };
  virtual Status FillGraph(const Plan& plan, std::span<void* const> pointers, void* workspace,
                           void* cuda_graph, GraphUse use) = 0;
  // Measures groups of the configuration's plan that are not on record, on memory of its own, and
  // keeps what it measured, as KILN_TUNE allows: for clients that ask which plan is fastest. True
  // if there are new records, by which rankings may be others than before.
  virtual bool Explore(const graph::Graph&, const EngineConfig&, void*) { return false; }
  // Seconds of one Execute, by the clock; waits for the device. For such clients.
  virtual Result<double> Time(const Plan&, std::span<void* const>, void*, void*) {
    return Status::Text(Code::kNotSupported, "nothing is timed here");
  }
  // Device memory for such a client that has none to time on, for as long as it is held.
  virtual Result<std::shared_ptr<void>> AllocateForTiming(int64_t) {
    return Status::Text(Code::kNotSupported, "there is no memory to lend");
  }
  // Device memory for what is launched on `stream` next: taken and given back in the order of the
  // stream, also while it is captured, so that nobody waits.
  virtual Result<std::shared_ptr<void>> AllocateOnStream(int64_t, void* /*stream*/) {
    return Status::Text(Code::kNotSupported, "there is no memory to lend");
  }
  // An error where a kernel of an earlier Execute waited too long for another device, once for each
  // such fault. Execute fails with it, too, and launches nothing. Waits for nothing.
  virtual Status TakeFault() { return {}; }
  // True if the memory is known to be another device's than this session's.
  virtual bool BelongsToOtherDevice(const void*) const { return false; }
};

// The session of the calling thread's current GPU, or of the CPU where there is none or KILN_DEVICE
// says so. One a device and process; later calls return the same.
Result<std::shared_ptr<Session>> OpenSession();
// A session that compiles for a described device but cannot execute: plans without a handle, whose
// kernels go to the kernel cache for the process that will. One a description and process.
Result<std::shared_ptr<Session>> OpenSessionFor(const Target& target);
// A session that nobody shares, and that remembers nothing of earlier graphs: for measuring.
std::shared_ptr<Session> NewSessionFor(const Target& target);

// The version of the CUDA runtime that cuDNN would report: NVRTC's where it is found, as 12040; 0
// without one.
int64_t CudaRuntimeVersion();

}  // namespace kiln::api
