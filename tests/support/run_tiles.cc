// Execution of plans by interpretation; see the header. The order is: Memory (bytes), launches,
// then the reference of one group and its tolerance.
#include "tests/support/run_tiles.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include "compiler/engines/candidates.h"
#include "compiler/engines/engine.h"
#include "compiler/engines/registry.h"
#include "ir/graph/ops.h"
#include "ir/tile/tools.h"

namespace kiln::compiler {
namespace {

using graph::Graph;
using graph::GraphOp;
using graph::Node;
using graph::Tensor;
using graph::TensorId;
using graph::TensorValues;

// Neither a number in any float type nor a likely integer.
constexpr std::byte kPoison{0xFF};

template <class... A>
Status Wrong(fmt::format_string<A...> format, A&&... args) {
  return Status::Error(Code::kExecutionFailed, format, std::forward<A>(args)...);
}

// ---- memory

// The bytes of every tensor that the caller passes, and the workspace.
struct Memory {
  std::map<int64_t, std::vector<std::byte>> tensors;  // by uid
  std::map<int64_t, double> scalars;                  // by-value ones
  std::vector<std::byte> workspace;

  std::byte* At(const Program& program, const BufferRef& ref) {
    if (ref.kind == BufferRef::Kind::kWorkspace) return workspace.data() + ref.byte_offset;
    return tensors.at(program.tensors[ref.index].uid).data() + ref.byte_offset;
  }
};

size_t SpanBytes(const Tensor& t) { return static_cast<size_t>(graph::MemoryBytes(t)); }

// The number that kernels get for a value of the client's: of a type of 4 bits its code, for
// example.
double AsRead(const Graph& lowered, const Tensor& t, double value) {
  std::array<std::byte, sizeof(double)> bytes{};
  StoreValue(t.dtype, value, bytes.data());
  const auto read = std::ranges::find(lowered.tensors, t.uid, &Tensor::uid);
  return read == lowered.tensors.end() ? value : LoadValue(read->dtype, bytes.data());
}

Memory MakeMemory(const Graph& g, const Graph& lowered, const Program& program,
                  const TensorValues& inputs) {
  Memory memory;
  memory.workspace.assign(static_cast<size_t>(program.workspace_bytes), kPoison);
  for (TensorId id : graph::Outputs(g)) memory.tensors[g[id].uid].assign(SpanBytes(g[id]), kPoison);
  for (TensorId id : graph::Inputs(g)) {
    const Tensor& t = g[id];
    if (t.by_value) {
      memory.scalars[t.uid] = AsRead(lowered, t, inputs.at(id)[0]);
      continue;
    }
    auto& bytes = memory.tensors[t.uid];
    bytes.assign(std::max(bytes.size(), SpanBytes(t)), kPoison);
    graph::Pack(t, inputs.at(id), bytes);
  }
  return memory;
}

// The bytes that belong to no element of `t` still have the poison.
Status CheckGaps(const Tensor& t, std::vector<std::byte> bytes) {
  graph::Pack(t, std::vector<double>(static_cast<size_t>(NumElements(t.dims)), 0.0), bytes);
  std::vector<std::byte> clean(SpanBytes(t), kPoison);
  graph::Pack(t, std::vector<double>(static_cast<size_t>(NumElements(t.dims)), 0.0), clean);
  bytes.resize(clean.size());
  if (bytes == clean) return {};
  const auto at = std::ranges::mismatch(bytes, clean).in1 - bytes.begin();
  return Wrong("%{}: byte {} lies between elements and was written", t.name, at);
}

// ---- launches

// A view of memory as the interpreter wants it: one vector for each place and type, so that
// pointers that alias do.
class Views {
 public:
  std::vector<double>* Of(std::byte* at, DType type, int64_t elements) {
    View& view = views_[{at, type}];
    const int size = SizeOf(type);
    for (auto i = static_cast<int64_t>(view.values.size()); i < elements; ++i)
      view.values.push_back(LoadValue(type, at + i * size));
    view.before = view.values;
    return &view.values;
  }
  void WriteBack() {
    for (auto& [key, view] : views_) {
      const auto& [at, type] = key;
      for (size_t i = 0; i < view.values.size(); ++i) {
        if (std::bit_cast<uint64_t>(view.values[i]) == std::bit_cast<uint64_t>(view.before[i]))
          continue;
        StoreValue(type, view.values[i], at + i * static_cast<size_t>(SizeOf(type)));
      }
    }
  }

 private:
  struct View {
    std::vector<double> values, before;
  };
  std::map<std::pair<std::byte*, DType>, View> views_;
};

tile::Value ScalarOfBits(DType type, uint64_t bits) {
  switch (type) {
    case DType::kF32:
      return {.f = std::bit_cast<float>(static_cast<uint32_t>(bits))};
    case DType::kF64:
      return {.f = std::bit_cast<double>(bits)};
    case DType::kI32:
      return {.i = static_cast<int32_t>(static_cast<uint32_t>(bits))};
    default:
      return {.i = static_cast<int64_t>(bits)};
  }
}

tile::Value ScalarOfHost(DType type, double value) {
  if (IsFloat(type)) return {.f = RoundTo(type, value)};
  return {.i = static_cast<int64_t>(RoundTo(type, value))};
}

// A block loop's extent, which names integer parameters only.
int64_t ExtentOf(const tile::Expr& e, const std::map<std::string, int64_t>& params) {
  if (e->kind == tile::ExprKind::kInt) return e->int_value;
  if (e->kind == tile::ExprKind::kVar) return params.at(e->name);
  int64_t args[3] = {};
  for (size_t i = 0; i < e->args.size(); ++i) args[i] = ExtentOf(e->args[i], params);
  return EvalScalarInt(e->op, args[0], args[1], args[2]);
}

Status CheckGrid(const tile::Kernel& kernel, const Launch& launch,
                 std::span<const tile::Argument> args) {
  std::map<std::string, int64_t> params;
  for (size_t i = 0; i < args.size(); ++i)
    if (!kernel.params[i].is_pointer) params[kernel.params[i].name] = args[i].scalar.i;
  std::array<int64_t, 3> grid = {1, 1, 1};
  const auto visit = [&](const auto& self, const tile::Block& block) -> void {
    for (const tile::Stmt& stmt : block) {
      const auto* loop = std::get_if<tile::For>(&stmt.node);
      if (loop == nullptr || loop->bind < tile::Bind::kBlockX || loop->bind > tile::Bind::kBlockZ)
        continue;
      grid[static_cast<size_t>(loop->bind) - static_cast<size_t>(tile::Bind::kBlockX)] =
          ExtentOf(loop->extent, params);
      self(self, loop->body);
    }
  };
  visit(visit, kernel.body);
  for (size_t d = 0; d < 3; ++d) {
    if (grid[d] != launch.grid[d])
      return Wrong("{}: grid dimension {} is {}, the kernel's loop runs to {}", kernel.name, d,
                   launch.grid[d], grid[d]);
  }
  if (launch.block[0] != static_cast<uint32_t>(kernel.threads))
    return Wrong("{}: launched with {} threads, made for {}", kernel.name, launch.block[0],
                 kernel.threads);
  return {};
}

// The skeleton that the kernel calls, or null.
const tile::Call* SkeletonOf(const tile::Block& block) {
  for (const tile::Stmt& stmt : block) {
    if (const auto* call = std::get_if<tile::Call>(&stmt.node)) return call;
    const auto* loop = std::get_if<tile::For>(&stmt.node);
    if (const tile::Call* inside = loop == nullptr ? nullptr : SkeletonOf(loop->body);
        inside != nullptr)
      return inside;
  }
  return nullptr;
}

bool CallsSkeleton(const Group& group, const Target& target, const Candidate& candidate) {
  const auto plan = Engines()[candidate.engine].plan(group, target);
  if (!plan.ok()) return false;
  const Result<Lowered> lowered = (*plan)->Lower(candidate.knobs);
  return lowered.ok() && std::ranges::any_of(lowered->kernels, [](const tile::Kernel& kernel) {
           return SkeletonOf(kernel.body) != nullptr;
         });
}

// Elements that the argument's buffer has.
int64_t BufferElements(const Group& group, const LoweredArg& arg, DType type) {
  if (arg.kind == LoweredArg::Kind::kScratch)
    return group.lowered.scratch_bytes[arg.id] / SizeOf(type);
  const Tensor& t = group.graph[arg.id];
  return SpanElements(t.dims, t.strides);
}

Status RunLaunch(const Group& group, const Program& program, const LoweredLaunch& lowered,
                 const Launch& launch, Memory& memory) {
  const KernelSource& source = program.kernels[launch.kernel];
  tile::Kernel kernel = group.lowered.kernels[lowered.kernel];
  if (const tile::Call* call = SkeletonOf(kernel.body); call != nullptr)
    return Wrong("{}: only a GPU runs the skeleton {}", kernel.name, call->skeleton);
  if (kernel.name != source.entry)
    return Wrong("launch of {} stands in the place of {}", source.entry, kernel.name);
  if (source.kind == SourceKind::kTileIr) {
    ASSIGN_OR_RETURN(kernel, tile::Parse(source.text));
    if (tile::Print(kernel) != source.text)
      return Wrong("{}: the text does not survive parsing", kernel.name);
  }
  if (launch.args.size() != kernel.params.size())
    return Wrong("{}: {} arguments for {} parameters", kernel.name, launch.args.size(),
                 kernel.params.size());
  Views views;
  std::vector<tile::Argument> args(launch.args.size());
  // Twice: the first pass makes each view as long as its longest user.
  for (int pass = 0; pass < 2; ++pass) {
    for (size_t i = 0; i < args.size(); ++i) {
      const LaunchArg& arg = launch.args[i];
      const tile::Param& p = kernel.params[i];
      if (p.is_pointer != (arg.kind == LaunchArg::Kind::kPointer))
        return Wrong("{}: {} is passed as another kind", kernel.name, p.name);
      switch (arg.kind) {
        case LaunchArg::Kind::kPointer: {
          const int64_t elements = BufferElements(group, lowered.args[i], p.type);
          std::byte* at = memory.At(program, arg.buffer);
          if (arg.buffer.kind == BufferRef::Kind::kWorkspace &&
              arg.buffer.byte_offset + elements * SizeOf(p.type) > program.workspace_bytes)
            return Wrong("{}: {} ends past the workspace", kernel.name, p.name);
          args[i].buffer = views.Of(at, p.type, elements);
          break;
        }
        case LaunchArg::Kind::kScalar:
          if (arg.size != SizeOf(p.type))
            return Wrong("{}: {} has {} bytes", kernel.name, p.name, arg.size);
          args[i].scalar = ScalarOfBits(p.type, arg.bits);
          break;
        case LaunchArg::Kind::kByValue:
          if (arg.value_type != static_cast<uint8_t>(p.type))
            return Wrong("{}: {} is passed as another type", kernel.name, p.name);
          args[i].scalar =
              ScalarOfHost(p.type, memory.scalars.at(program.tensors[arg.buffer.index].uid));
          break;
        default:
          return Wrong("{}: {} is what only a GPU reads", kernel.name, p.name);
      }
    }
  }
  RETURN_IF_ERROR(CheckGrid(kernel, launch, args));
  if (Status status = tile::Interpret(kernel, args); !status.ok())
    return std::move(status).Within(kernel.name + "\n" + tile::Print(kernel));
  views.WriteBack();
  return {};
}

// ---- the reference of one group

double Epsilon(DType type) { return IsFloat(type) ? Spacing(type, 1.0) : 0; }

DType Accumulator(DType compute) {
  return IsFloat(compute) && compute != DType::kF64 ? DType::kF32 : compute;
}

// Terms that one element of the node's result sums (or multiplies) up.
double ReductionLength(const Graph& g, const Node& node) {
  const double out =
      static_cast<double>(std::max<int64_t>(1, NumElements(g[node.outputs[0]].dims)));
  if (node.op == GraphOp::kReduce)
    return static_cast<double>(NumElements(g[node.inputs[0]].dims)) / out;
  if (Has(node, graph::kWindow)) {  // taps; windows that read an element
    const auto& a = node.As<graph::ResampleAttrs>();
    double taps = 1;
    for (size_t s = 0; s < a.window.size(); ++s)
      taps *= static_cast<double>(a.window[s] / a.unit[s] * (a.unit[s] / a.stride[s] + 1) + 1);
    return taps;
  }
  if (node.op == GraphOp::kSegmentReduce)  // all places may be one segment's
    return static_cast<double>(g[node.inputs[node.inputs.size() > 2 ? 2 : 0]].dims[0]);
  if (node.op == GraphOp::kScatterAdd)
    return static_cast<double>(NumElements(g[node.inputs[1]].dims)) *
           static_cast<double>(node.inputs.size() / 2);
  return static_cast<double>(NumElements(g[node.inputs[0]].dims) +
                             NumElements(g[node.inputs[1]].dims));
}

// A loop over time carries what rounding does at one step to all that follow. Gradients of CTC are
// differences of probabilities.
std::vector<double> LoopError(const Graph& g, const Node& node, const Tensor& y,
                              const std::vector<double>& result) {
  double largest = node.op == GraphOp::kCtcLoss ? 1 : 0;
  for (const double v : result)
    if (std::isfinite(v)) largest = std::max(largest, std::abs(v));
  const double steps = static_cast<double>(g[node.inputs[0]].dims[0] + 1),
               terms = static_cast<double>(g[node.inputs[1]].dims.back() + 8);
  double error = steps * terms * Epsilon(Accumulator(node.compute)) * largest;
  if (SizeOf(y.dtype) < SizeOf(Accumulator(node.compute)))
    error += steps * Spacing(y.dtype, largest);
  return std::vector<double>(result.size(), error);
}

// The error of each element of a result from rounding, beside that of the node's operands.
std::vector<double> NodeError(const Graph& g, const Node& node, TensorId output,
                              const TensorValues& values, const std::vector<double>& result) {
  const Tensor& y = g[output];
  if (Has(node, graph::kRecurrence)) return LoopError(g, node, y, result);
  const double eps = Epsilon(Accumulator(node.compute));
  std::vector<double> error(result.size());
  const bool adds_segments = node.op == GraphOp::kSegmentReduce &&
                             node.As<graph::SegmentReduceAttrs>().mode < graph::SegmentMode::kMax;
  const bool scatters = node.op == GraphOp::kScatterAdd || adds_segments;
  const bool sums = Has(node, graph::kContraction) || Has(node, graph::kWindow) || scatters ||
                    (node.op == GraphOp::kReduce &&
                     node.As<graph::ReduceAttrs>().combine == graph::Combine::kAdd);
  std::vector<double> magnitude = result;
  if (sums) {
    Graph one = g;
    one.nodes = {node};
    one[node.outputs[0]].dtype = DType::kF64;
    TensorValues absolute;
    for (TensorId id : node.inputs) {
      absolute[id] = values.at(id);
      if (scatters && IsInteger(g[id].dtype)) continue;  // a place
      for (double& v : absolute[id]) v = std::abs(v);
    }
    if (graph::Evaluate(one, absolute).ok()) magnitude = absolute.at(node.outputs[0]);
  }
  const double steps = Has(node, graph::kContraction) || Has(node, graph::kWindow) || scatters ||
                               node.op == GraphOp::kReduce
                           ? ReductionLength(g, node) + 1
                           : 1;
  for (size_t i = 0; i < error.size(); ++i) {
    error[i] = steps * eps * std::abs(magnitude[i]);
    if (IsFloat(y.dtype) && SizeOf(y.dtype) < SizeOf(Accumulator(node.compute)))
      error[i] += Spacing(y.dtype, result[i]);
  }
  return error;
}

// The group's values with a random part of the error of each node's result added or taken off.
Result<TensorValues> Perturbed(const Graph& group, TensorValues values, uint64_t seed) {
  Graph one = group;
  uint64_t state = seed * 0x9E3779B97F4A7C15u + 1;
  for (const Node& node : group.nodes) {
    one.nodes = {node};
    RETURN_IF_ERROR(graph::Evaluate(one, values));
    // The first of several results is enough, but a loop's come from as many sums.
    const size_t count = Has(node, graph::kRecurrence) ? node.outputs.size() : 1;
    for (size_t k = 0; k < count; ++k) {
      const TensorId id = node.outputs[k];
      if (id == graph::kAbsent) continue;
      std::vector<double>& result = values.at(id);
      const DType dtype = group[id].dtype;
      if (!IsFloat(node.compute) || IsBool(dtype)) continue;
      const std::vector<double> error = NodeError(group, node, id, values, result);
      for (size_t i = 0; i < result.size(); ++i) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        if (!std::isfinite(result[i])) continue;
        // Between -1 and 1, so that errors of one size do not cancel.
        result[i] += error[i] * (static_cast<double>(state >> 11) * 0x1p-52 - 1);
        if (IsInteger(dtype)) result[i] = RoundTo(dtype, result[i]);
      }
    }
  }
  return values;
}

bool Close(double got, double want, double tolerance) {
  if (std::isnan(got) || std::isnan(want)) return std::isnan(got) && std::isnan(want);
  if (got == want) return true;
  return std::abs(got - want) <= tolerance;
}

class GroupCheck {
 public:
  GroupCheck(const Group& group, TensorValues inputs) : group_(group), inputs_(std::move(inputs)) {}

  Status Run(const TensorValues& got, TileRun& run) {
    TensorValues want = inputs_;
    RETURN_IF_ERROR(graph::Evaluate(group_.graph, want));
    for (TensorId id : graph::Outputs(group_.graph)) {
      const Tensor& t = group_.graph[id];
      for (size_t i = 0; i < got.at(id).size(); ++i) {
        const double mine = got.at(id)[i], reference = want.at(id)[i];
        ++run.elements;
        if (Close(mine, reference, Spacing(t.dtype, reference))) continue;
        ++run.loose;
        RETURN_IF_ERROR(CheckLoosely(id, i, mine, reference));
      }
    }
    return {};
  }

 private:
  // Within four times of what random rounding errors do to the reference.
  Status CheckLoosely(TensorId id, size_t i, double mine, double reference) {
    for (uint64_t seed = perturbed_.size(); seed < 6; ++seed) {
      ASSIGN_OR_RETURN(TensorValues values, Perturbed(group_.graph, inputs_, seed));
      perturbed_.push_back(std::move(values));
    }
    const Tensor& t = group_.graph[id];
    // An output may be wider than what its node computes in.
    const Node& producer = group_.graph.nodes[graph::Producers(group_.graph)[id]];
    double tolerance =
        std::max(Spacing(t.dtype, reference), Spacing(Accumulator(producer.compute), reference));
    for (const TensorValues& values : perturbed_) {
      const double moved = values.at(id)[i];
      if (std::isnan(moved) != std::isnan(reference) || std::isinf(moved) != std::isinf(reference))
        return {};
      if (std::isfinite(moved))
        tolerance =
            std::max(tolerance, 4 * std::abs(moved - reference) + Spacing(t.dtype, reference));
    }
    if (Close(mine, reference, tolerance)) return {};
    return Wrong("%{} {} element {} is {}, not {} (+- {})\n{}", t.name, DimsText(t.dims), i, mine,
                 reference, tolerance, graph::Print(group_.graph));
  }

  const Group& group_;
  TensorValues inputs_;
  std::vector<TensorValues> perturbed_;
};

// The tensor whose memory an input is in: what a scatter leaves is no argument of its kernel.
TensorId InMemory(const Graph& graph, TensorId id) {
  for (const graph::Node& node : graph.nodes)
    if (node.op == graph::GraphOp::kScatter && node.inputs[2] == id) return node.outputs[0];
  return id;
}

// Runs the launches of one group, from `launch` on, and compares what they wrote.
Status RunGroup(TileRun& run, int index, size_t& launch, Memory& memory) {
  const Group& group = run.module.groups[index];
  const Program& program = run.module.program;
  TensorValues inputs, got;
  std::map<TensorId, BufferRef> places;
  for (size_t l = 0; l < group.lowered.launches.size(); ++l) {
    const LoweredLaunch& lowered = group.lowered.launches[l];
    if (launch + l >= program.launches.size())
      return Wrong("group {}: launch {} is missing", index, l);
    for (size_t a = 0; a < lowered.args.size(); ++a)
      if (lowered.args[a].kind == LoweredArg::Kind::kTensor)
        places[lowered.args[a].id] = program.launches[launch + l].args[a].buffer;
  }
  for (TensorId id : graph::Inputs(group.graph)) {
    const Tensor& t = group.graph[id];
    if (t.by_value) {
      inputs[id] = {memory.scalars.at(run.module.graph[group.outer[id]].uid)};
    } else if (const auto place = places.find(InMemory(group.graph, id)); place != places.end()) {
      inputs[id] = graph::Unpack(t, memory.At(program, place->second));
    } else {
      inputs[id].assign(static_cast<size_t>(NumElements(t.dims)), 0.0);  // gives its shape only
    }
  }
  for (const LoweredLaunch& lowered : group.lowered.launches)
    RETURN_IF_ERROR(RunLaunch(group, program, lowered, program.launches[launch++], memory));
  for (TensorId id : graph::Outputs(group.graph)) {
    if (NumElements(group.graph[id].dims) == 0) {
      got[id] = {};
    } else if (const auto place = places.find(id); place != places.end()) {
      got[id] = graph::Unpack(group.graph[id], memory.At(program, place->second));
    } else {
      return Wrong("group {}: nothing writes %{}\n{}", index, group.graph[id].name,
                   graph::Print(group.graph));
    }
  }
  return GroupCheck(group, std::move(inputs)).Run(got, run);
}

}  // namespace

double Spacing(DType type, double value) {
  struct Row {
    DType type;
    int mantissa, lowest;  // stored bits, exponent of the smallest subnormal
  };
  static constexpr Row kRows[] = {{DType::kF32, 23, -149}, {DType::kF64, 52, -1074},
                                  {DType::kF16, 10, -24},  {DType::kBF16, 7, -133},
                                  {DType::kE4M3, 3, -9},   {DType::kE5M2, 2, -16},
                                  {DType::kE8M0, 0, -127}, {DType::kE2M1, 1, -1}};
  const auto row = std::ranges::find(kRows, type, &Row::type);
  if (row == std::end(kRows) || !std::isfinite(value)) return 0;
  if (value == 0) return std::ldexp(1.0, row->lowest);
  return std::ldexp(1.0, std::max(std::ilogb(value) - row->mantissa, row->lowest));
}

Candidate Interpretable(const Group& group, const Target& target) {
  const Candidate chosen{.engine = group.engine, .knobs = group.knobs, .seconds = group.cost};
  if (!CallsSkeleton(group, target, chosen)) return chosen;
  std::set<int> skeletons = {group.engine};
  for (Candidate& candidate : RankCandidates(group, target)) {
    if (skeletons.contains(candidate.engine)) continue;
    if (!CallsSkeleton(group, target, candidate)) return std::move(candidate);
    skeletons.insert(candidate.engine);
  }
  return chosen;
}

namespace {

// A GPU for which no engine runs attention, or layers of a recurrent network, as one kernel, and
// which waits for no other device.
constexpr int kBeforeSkeletons = 75;

}  // namespace

bool HasWholeSkeletons(const Graph& graph, const Target& target) {
  const auto groups = GroupsOf(graph, target);
  return groups.ok() && std::ranges::any_of(groups->all, [](const Group& group) {
           const bool is_stack =
               group.kind == GroupKind::kRecurrence &&
               std::ranges::count_if(group.graph.nodes, [](const graph::Node& node) {
                 return Has(node, graph::kRecurrence);
               }) > 1;
           return group.kind == GroupKind::kAttention || group.kind == GroupKind::kPeers ||
                  is_stack;
         });
}

Result<TileRun> RunTiles(const Graph& graph, const Target& wanted, const TensorValues& inputs,
                         const EngineChoice& choice) {
  TileRun run;
  const bool takes_whole = choice.engine < 0 && HasWholeSkeletons(graph, wanted);
  Target target = wanted;
  if (takes_whole) target.sm_version = kBeforeSkeletons;
  ASSIGN_OR_RETURN(run.plan, Compile(
                                 graph, target, choice,
                                 [&](std::string_view pass, const Module& module) {
                                   if (pass == "emit") run.module = module;
                                 },
                                 [&](const Group& group) { return Interpretable(group, target); }));
  if (run.plan.program.launches != run.module.program.launches)
    return Wrong("the plan is not what emit made");
  Memory memory = MakeMemory(graph, run.module.graph, run.module.program, inputs);
  const Memory before = memory;
  size_t launch = 0;
  for (size_t g = 0; g < run.module.groups.size(); ++g) {
    if (Status status = RunGroup(run, static_cast<int>(g), launch, memory); !status.ok()) {
      const Group& group = run.module.groups[g];
      return std::move(status).Within(fmt::format("{}, group {} ({} {})", target.arch, g,
                                                  Engines()[group.engine].name,
                                                  KnobText(Engines()[group.engine], group.knobs)));
    }
  }
  if (launch != run.module.program.launches.size())
    return Wrong("{} launches belong to no group", run.module.program.launches.size() - launch);
  for (TensorId id : graph::Inputs(graph)) {
    const Tensor& t = graph[id];
    const bool written = std::ranges::any_of(graph::Outputs(graph),
                                             [&](TensorId y) { return graph[y].uid == t.uid; });
    if (!t.by_value && !written && memory.tensors.at(t.uid) != before.tensors.at(t.uid))
      return Wrong("input %{} was written", t.name);
  }
  for (TensorId id : graph::Outputs(graph)) {
    const std::vector<std::byte>& bytes = memory.tensors.at(graph[id].uid);
    RETURN_IF_ERROR(CheckGaps(graph[id], bytes));
    run.outputs[id] = graph::Unpack(graph[id], bytes.data());
  }
  return run;
}

Status CheckOnBoth(const Graph& graph, const graph::TensorValues& inputs, double tolerance) {
  for (const char* arch : {"sm_90a", "cpu"}) {
    const Result<TileRun> run = CheckTiles(graph, *TargetFromArch(arch), inputs, {}, tolerance);
    if (!run.ok()) return Wrong("{}: {}\n{}", arch, run.status().message(), graph::Print(graph));
  }
  return {};
}

Status CompareOutput(const Tensor& tensor, const std::vector<double>& got,
                     const std::vector<double>& want, double tolerance) {
  // Operands are about 1. What is less by so much has cancelled: gradients of CTC add up to 0.
  double largest = 1e-6;
  for (double v : want)
    if (std::isfinite(v)) largest = std::max(largest, std::abs(v));
  for (size_t i = 0; i < want.size(); ++i) {
    const double allowed =
        Spacing(tensor.dtype, want[i]) + (IsFloat(tensor.dtype) ? tolerance * largest : 0);
    if (Close(got[i], want[i], allowed)) continue;
    return Wrong("%{} {} element {} is {}, not {} (+- {})", tensor.name, DimsText(tensor.dims), i,
                 got[i], want[i], allowed);
  }
  return {};
}

Result<TileRun> CheckTiles(const Graph& graph, const Target& target, const TensorValues& inputs,
                           const EngineChoice& choice, double tolerance) {
  ASSIGN_OR_RETURN(TileRun run, RunTiles(graph, target, inputs, choice));
  TensorValues want = inputs;
  // Elements of an input that share a place (stride 0) have the value that was put there last.
  for (auto& [id, values] : want) {
    std::vector<std::byte> bytes;
    graph::Pack(graph[id], values, bytes);
    values = graph::Unpack(graph[id], bytes.data());
  }
  RETURN_IF_ERROR(graph::Evaluate(graph, want));
  for (TensorId id : graph::Outputs(graph)) {
    if (Status status = CompareOutput(graph[id], run.outputs.at(id), want.at(id), tolerance);
        !status.ok())
      return std::move(status).Within(target.arch);
  }
  return run;
}

}  // namespace kiln::compiler
