#include "api/tuning/group_bench.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <set>

#include "compiler/compile.h"
#include "compiler/engines/registry.h"
#include "ir/graph/ops.h"
#include "runtime/executable.h"

namespace kiln::api {
namespace {

using compiler::Candidate;
using graph::Graph;
using graph::Tensor;
using graph::TensorId;
using runtime::Executable;
using runtime::GuardedBuffer;

// Inputs repeat after this many elements: a prime, so that rows of any usual length differ.
constexpr int64_t kPeriod = 65537;
constexpr int64_t kWindow = int64_t{1} << 20;  // bytes of large outputs
constexpr int64_t kLooks = 4;                  // so many trials look at different windows
constexpr double kSafety = 6;
constexpr double kTf32Error = 0x1p-11;
// Tensor cores cut off what they add, 16 products at a time: towards zero, so that the errors of
// one sum do not cancel each other.
constexpr double kCutOffError = 0x1p-24 / 16;
// Hopper's tensor cores add products of 8-bit floats with about 14 bits.
constexpr double kFp8SumError = 0x1p-13;

uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

double RandomValue(DType type, uint64_t bits) {
  const double at = static_cast<double>(bits >> 11) * 0x1p-53;
  if (IsFloat(type)) return RoundTo(type, 2 * at - 1);
  if (type == DType::kBool) return at < 0.5 ? 0 : 1;
  return std::floor(at * 9) - (type == DType::kU8 ? 0 : 4);
}

// The first elements of what repeats.
std::vector<std::byte> RandomPeriod(const Tensor& tensor) {
  const int64_t size = SizeOf(tensor.dtype);
  const int64_t count = std::min(graph::MemoryBytes(tensor) / size, kPeriod);
  std::vector<std::byte> period(static_cast<size_t>(count * size));
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t bits = Mix(Mix(static_cast<uint64_t>(tensor.uid)) + static_cast<uint64_t>(i));
    StoreValue(tensor.dtype, RandomValue(tensor.dtype, bits), period.data() + i * size);
  }
  return period;
}

// Products or terms that are summed for one element of the node's result.
int64_t SumLength(const Graph& graph, const graph::Node& node) {
  if (node.inputs.empty() || node.inputs[0] == graph::kAbsent) return 1;
  const int64_t results = std::max<int64_t>(NumElements(graph[node.outputs[0]].dims), 1);
  const auto per = [&](size_t operand, size_t dim) {
    const Dims& dims = graph[node.inputs[operand]].dims;
    return NumElements(dims) / std::max<int64_t>(dims[dim], 1);
  };
  switch (node.op) {
    case graph::GraphOp::kConvFprop:
      return std::max<int64_t>(per(1, 0), 1);
    case graph::GraphOp::kConvDgrad:
    case graph::GraphOp::kConvWgrad:
      return std::max<int64_t>(per(1, 1), 1);
    case graph::GraphOp::kMatmul:
      return std::max<int64_t>(graph[node.inputs[0]].dims.back(), 1);
    case graph::GraphOp::kReduce:
      return std::max<int64_t>(NumElements(graph[node.inputs[0]].dims) / results, 1);
    default:
      return 1;
  }
}

bool IsContraction(graph::GraphOp op) {
  return op == graph::GraphOp::kConvFprop || op == graph::GraphOp::kConvDgrad ||
         op == graph::GraphOp::kConvWgrad || op == graph::GraphOp::kMatmul;
}

// Half the distance from 1 to the next number; 0 for exact types.
double RoundingError(DType type) {
  if (!IsFloat(type)) return 0;
  double step = 1;
  while (RoundTo(type, 1 + step) != 1) step /= 2;
  return step;
}

double RelativeError(const Graph& graph) {
  double error = 0, cut_off = 0;
  std::set<TensorId> read;  // also results may be, rounded as they are stored
  for (const graph::Node& node : graph.nodes) read.insert(node.inputs.begin(), node.inputs.end());
  for (const graph::Node& node : graph.nodes) {
    const double length = static_cast<double>(SumLength(graph, node));
    error += RoundingError(node.compute) * (3 + std::sqrt(length));
    for (const TensorId id : node.outputs)
      if (id != graph::kAbsent && read.contains(id)) error += RoundingError(graph[id].dtype);
    if (!IsContraction(node.op)) continue;
    if (node.compute == DType::kF32) cut_off += kCutOffError * length;
    const DType operand = graph[node.inputs[0]].dtype;
    // The error is one of the sum of the products' magnitudes, which is that much larger than a
    // typical result.
    if (IsFloat(operand) && SizeOf(operand) == 1) error += kFp8SumError * std::sqrt(length);
  }
  return kSafety * error + cut_off;
}

int64_t WorkOf(const Graph& graph) {
  int64_t work = 0;
  for (const graph::Node& node : graph.nodes)
    for (const TensorId id : node.outputs)
      if (id != graph::kAbsent) work += NumElements(graph[id].dims) * SumLength(graph, node);
  return work;
}

double TypicalValue(DType type, const std::map<int64_t, std::vector<std::byte>>& windows) {
  const int64_t size = SizeOf(type);
  int64_t count = 0, finite = 0;
  for (const auto& [first, window] : windows) count += static_cast<int64_t>(window.size()) / size;
  const int64_t step = std::max<int64_t>(count / kPeriod, 1) * size;
  double sum = 0;
  for (const auto& [first, window] : windows) {
    for (int64_t at = 0; at < static_cast<int64_t>(window.size()); at += step) {
      const double value = LoadValue(type, window.data() + at);
      if (!std::isfinite(value)) continue;
      sum += value * value;
      ++finite;
    }
  }
  return finite == 0 ? 0 : std::sqrt(sum / static_cast<double>(finite));
}

}  // namespace

// A program on the bench's memory, with a workspace of its own.
class GroupTrial final : public compiler::Trial {
 public:
  static Result<std::shared_ptr<compiler::Trial>> Make(GroupBench& bench, const Program& program) {
    auto trial = std::make_shared<GroupTrial>(bench);
    ASSIGN_OR_RETURN(trial->executable_, Executable::Create(bench.device_, program));
    ASSIGN_OR_RETURN(trial->pointers_, bench.PointersFor(program));
    if (program.workspace_bytes > 0) {
      ASSIGN_OR_RETURN(GuardedBuffer memory,
                       GuardedBuffer::Make(bench.device_, program.workspace_bytes));
      trial->workspace_ = std::make_unique<GuardedBuffer>(std::move(memory));
    }
    return std::shared_ptr<compiler::Trial>(std::move(trial));
  }
  explicit GroupTrial(GroupBench& bench) : bench_(bench) {}

  Status Run() const {
    return executable_->Execute(pointers_, workspace_ ? workspace_->get() : nullptr, nullptr);
  }

  Status Check() override {
    RETURN_IF_ERROR(bench_.Poison());
    // Whatever stood in the workspace before must not matter.
    if (workspace_ != nullptr)
      RETURN_IF_ERROR(bench_.device_.Fill(workspace_->get(), std::byte{0xff}, workspace_->bytes()));
    RETURN_IF_ERROR(Run());
    RETURN_IF_ERROR(bench_.device_.Synchronize(nullptr));
    if (workspace_ != nullptr) RETURN_IF_ERROR(workspace_->CheckZones("the workspace"));
    return bench_.CheckOutputs(bench_.trials_++);
  }

  Result<compiler::Timing> Time(double best) override {
    constexpr int kFirst = 5, kMost = 50;
    constexpr double kHopeless = 1.3;
    const auto run = [this] { return Run(); };
    const double begin = GroupBench::Clock();
    ASSIGN_OR_RETURN(const double first, bench_.device_.Measure(run, kFirst, nullptr));
    if (best > 0 && first > kHopeless * best) return compiler::Timing{.seconds = first};
    const double each = (GroupBench::Clock() - begin) / kFirst;  // with what flushes the L2
    const int rounds = bench_.options_.rounds;
    const double share = bench_.options_.seconds_per_time / rounds / std::max(each, 1e-7);
    const int repeats = static_cast<int>(std::clamp<double>(share, kFirst, kMost));
    std::vector<double> medians;
    for (int i = 0; i < rounds; ++i) {
      ASSIGN_OR_RETURN(const double median, bench_.device_.Measure(run, repeats, nullptr));
      medians.push_back(median);
    }
    std::ranges::sort(medians);
    const double median = medians[medians.size() / 2];
    const double spread = median > 0 ? (medians.back() - medians.front()) / median : 0;
    return compiler::Timing{.seconds = median, .spread = spread};
  }

 private:
  GroupBench& bench_;
  std::unique_ptr<Executable> executable_;
  std::vector<void*> pointers_;
  std::unique_ptr<GuardedBuffer> workspace_;
};

Result<std::unique_ptr<GroupBench>> GroupBench::Make(runtime::Device& device,
                                                     const compiler::Group& group,
                                                     const BenchOptions& options) {
  std::unique_ptr<GroupBench> bench(new GroupBench(device, group, options));
  bench->Expect(compiler::Inputs::kExact);
  RETURN_IF_ERROR(bench->AddSlots());
  RETURN_IF_ERROR(bench->MakeJudge());
  Status reference = bench->MakeReference();
  if (!reference.ok()) return std::move(reference).Within("the reference");
  return bench;
}

Status GroupBench::AddSlots() {
  const auto add = [&](TensorId id, TensorId Slot::* role) -> Status {
    const Tensor& tensor = group_.graph[id];
    if (tensor.is_constant()) return {};
    Slot& slot = slots_[tensor.uid];
    slot.*role = id;
    if (tensor.by_value) {
      slot.scalar = RandomPeriod(tensor);
    } else if (slot.memory == nullptr) {
      ASSIGN_OR_RETURN(GuardedBuffer memory,
                       GuardedBuffer::Make(device_, graph::MemoryBytes(tensor)));
      slot.memory = std::make_unique<GuardedBuffer>(std::move(memory));
    }
    return {};
  };
  for (const TensorId id : graph::Inputs(group_.graph)) RETURN_IF_ERROR(add(id, &Slot::input));
  for (const TensorId id : graph::Outputs(group_.graph)) RETURN_IF_ERROR(add(id, &Slot::output));
  for (const auto& [uid, slot] : slots_)
    if (slot.input >= 0 && slot.memory != nullptr) RETURN_IF_ERROR(WriteRandom(slot));
  return {};
}

// One period comes from the host; the device doubles what is there.
Status GroupBench::WriteRandom(const Slot& slot) {
  const std::vector<std::byte> period = RandomPeriod(group_.graph[slot.input]);
  auto* const memory = static_cast<std::byte*>(slot.memory->get());
  auto done = static_cast<int64_t>(period.size());
  RETURN_IF_ERROR(device_.CopyIn(memory, period.data(), done));
  for (int64_t next = 0; done > 0 && done < slot.memory->bytes(); done += next) {
    next = std::min(done, slot.memory->bytes() - done);
    RETURN_IF_ERROR(device_.CopyWithin(memory + done, memory, next));
  }
  return {};
}

Status GroupBench::MakeJudge() {
  if (!options_.judge || WorkOf(group_.graph) > options_.judged_work) return {};
  graph::TensorValues inputs;
  for (const TensorId id : graph::Inputs(group_.graph)) {
    const Tensor& tensor = group_.graph[id];
    if (tensor.is_constant()) continue;
    const Slot& slot = slots_.at(tensor.uid);
    std::vector<std::byte> image = slot.scalar;
    if (slot.memory != nullptr) {
      image.resize(static_cast<size_t>(slot.memory->bytes()));
      RETURN_IF_ERROR(device_.CopyOut(image.data(), slot.memory->get(), slot.memory->bytes()));
    }
    inputs[id] = graph::Unpack(tensor, image.data());
  }
  ASSIGN_OR_RETURN(judge_, options_.judge(group_.graph, std::move(inputs)));
  return {};
}

// The generic engines stand first in the registry, and their default knobs take every group.
Result<Program> GroupBench::ReferenceOf(const compiler::Group& group, const Target& target) {
  const auto engines = compiler::Engines();
  Candidate generic;
  for (size_t e = 0; e < engines.size() && generic.engine < 0; ++e)
    if (compiler::Supports(engines[e], group, target).ok()) generic.engine = static_cast<int>(e);
  generic.knobs = compiler::DefaultKnobs(engines[static_cast<size_t>(generic.engine)]);
  return compiler::CompileGroup(group, target, generic);
}

Status GroupBench::MakeReference() {
  ASSIGN_OR_RETURN(const Program program, ReferenceOf(group_, device_.target()));
  ASSIGN_OR_RETURN(const std::shared_ptr<compiler::Trial> trial, GroupTrial::Make(*this, program));
  RETURN_IF_ERROR(Poison());
  RETURN_IF_ERROR(static_cast<GroupTrial&>(*trial).Run());
  RETURN_IF_ERROR(device_.Synchronize(nullptr));
  return KeepRightOutputs();
}

Status GroupBench::KeepRightOutputs() {
  for (auto& [uid, slot] : slots_) {
    if (slot.output < 0) continue;
    if (judge_) RETURN_IF_ERROR(JudgeOutput(slot));
    for (int64_t look = 0; look < kLooks; ++look) {
      for (const int64_t first : WindowsOf(slot.memory->bytes(), look)) {
        if (slot.right.contains(first)) continue;
        ASSIGN_OR_RETURN(slot.right[first], Window(slot, first));
      }
    }
    slot.typical = TypicalValue(group_.graph[slot.output].dtype, slot.right);
  }
  return {};
}

void GroupBench::Expect(compiler::Inputs inputs) {
  inputs_ = inputs;
  relative_error_ = RelativeError(group_.graph);
  if (inputs == compiler::Inputs::kRounded) relative_error_ += kSafety * kTf32Error;
}

Result<std::shared_ptr<compiler::Trial>> GroupBench::Prepare(const Program& program) {
  return GroupTrial::Make(*this, program);
}

bool GroupBench::IsCompiled(const Program& program) {
  return std::ranges::all_of(program.kernels,
                             [&](const KernelSource& kernel) { return device_.IsReady(kernel); });
}

double GroupBench::Clock() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Elements that no kernel writes stay NaN, or -1, or what they were as an input.
Status GroupBench::Poison() {
  for (const auto& [uid, slot] : slots_) {
    if (slot.output < 0) continue;
    RETURN_IF_ERROR(slot.input >= 0
                        ? WriteRandom(slot)
                        : device_.Fill(slot.memory->get(), std::byte{0xff}, slot.memory->bytes()));
  }
  return {};
}

Result<std::vector<void*>> GroupBench::PointersFor(const Program& program) const {
  std::vector<void*> pointers;
  for (const ProgramTensor& tensor : program.tensors) {
    const auto slot = slots_.find(tensor.uid);
    if (slot == slots_.end())
      return Status::Error(Code::kInternal, "the group has no tensor {}", tensor.uid);
    const bool on_host = slot->second.memory == nullptr;
    pointers.push_back(on_host ? const_cast<std::byte*>(slot->second.scalar.data())
                               : slot->second.memory->get());
  }
  return pointers;
}

Status GroupBench::CheckOutputs(int64_t trial) {
  for (const auto& [uid, slot] : slots_) {
    const TensorId id = slot.output >= 0 ? slot.output : slot.input;
    if (slot.memory != nullptr) RETURN_IF_ERROR(slot.memory->CheckZones(group_.graph[id].name));
    if (slot.output < 0) continue;
    RETURN_IF_ERROR(CompareOutput(slot, trial));
    if (judge_ && inputs_ == compiler::Inputs::kExact) RETURN_IF_ERROR(JudgeOutput(slot));
  }
  return {};
}

// All of a small output; of a large one windows at even distances, other ones in the next trial,
// and always the last, where ragged tiles are.
//
//   |0 . . . 0 . . . 0 .|    the first trial's windows, of which every fourth
//   |. 1 . . . 1 . . . 1|    the second's …
std::vector<int64_t> GroupBench::WindowsOf(int64_t bytes, int64_t trial) const {
  if (bytes <= options_.compared_bytes) return {0};
  const int64_t windows = CeilDiv(bytes, kWindow);
  const int64_t distance = std::max(CeilDiv(bytes, options_.compared_bytes), kLooks);
  std::vector<int64_t> firsts;
  for (int64_t w = trial % kLooks * distance / kLooks; w < windows; w += distance)
    firsts.push_back(w * kWindow);
  const int64_t last = (windows - 1) * kWindow;
  if (firsts.empty() || firsts.back() != last) firsts.push_back(last);
  return firsts;
}

Result<std::vector<std::byte>> GroupBench::Window(const Slot& slot, int64_t first) const {
  const int64_t bytes = slot.memory->bytes();
  const bool whole = bytes <= options_.compared_bytes;
  std::vector<std::byte> window(
      static_cast<size_t>(whole ? bytes : std::min(kWindow, bytes - first)));
  RETURN_IF_ERROR(device_.CopyOut(window.data(),
                                  static_cast<const std::byte*>(slot.memory->get()) + first,
                                  static_cast<int64_t>(window.size())));
  return window;
}

Status GroupBench::CompareOutput(const Slot& slot, int64_t trial) const {
  for (const int64_t first : WindowsOf(slot.memory->bytes(), trial)) {
    ASSIGN_OR_RETURN(const std::vector<std::byte> got, Window(slot, first));
    RETURN_IF_ERROR(CompareSpan(slot, first, got));
  }
  return {};
}

Status GroupBench::CompareSpan(const Slot& slot, int64_t first,
                               std::span<const std::byte> got) const {
  constexpr int64_t kLine = 4096;  // bytes; most of a right result has the very same ones
  const Tensor& tensor = group_.graph[slot.output];
  const int64_t size = SizeOf(tensor.dtype), bytes = static_cast<int64_t>(got.size());
  const std::byte* want = slot.right.at(first).data();
  const double output_error = 2 * RoundingError(tensor.dtype);
  const double least = IsFloat(tensor.dtype) ? 0x1p-20 * slot.typical : 1;
  for (int64_t line = 0; line < bytes; line += kLine) {
    const int64_t end = std::min(line + kLine, bytes);
    if (std::memcmp(got.data() + line, want + line, static_cast<size_t>(end - line)) == 0) continue;
    for (int64_t at = line; at < end; at += size) {
      if (std::memcmp(got.data() + at, want + at, static_cast<size_t>(size)) == 0) continue;
      const double g = LoadValue(tensor.dtype, got.data() + at);
      const double w = LoadValue(tensor.dtype, want + at);
      if (g == w || (std::isnan(g) && std::isnan(w))) continue;
      const double larger = std::max(std::abs(w), slot.typical);
      const double allowed = output_error * std::abs(w) + relative_error_ * larger + least;
      if (std::isfinite(g) && std::isfinite(w) && std::abs(g - w) <= allowed) continue;
      return Status::Error(Code::kUnexpectedValue,
                           "element {} of {} in memory is {:.6g}, by the generic engine {:.6g}; "
                           "{:.2g} is allowed",
                           (first + at) / size, tensor.name, g, w, allowed);
    }
  }
  return {};
}

Status GroupBench::JudgeOutput(const Slot& slot) const {
  std::vector<std::byte> image(static_cast<size_t>(slot.memory->bytes()));
  RETURN_IF_ERROR(device_.CopyOut(image.data(), slot.memory->get(), slot.memory->bytes()));
  return judge_(slot.output, graph::Unpack(group_.graph[slot.output], image.data()));
}

}  // namespace kiln::api
