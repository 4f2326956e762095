// The winograd engines: which convolutions they take, what they cost, and the kernels in a row:
// both operands to their coordinates, the products by another engine, whose knobs are these and the
// size of tiles, and back.
#include "compiler/engines/winograd.h"

#include <algorithm>

#include "compiler/engines/contract_simt.h"
#include "compiler/engines/knob_types.h"
#include "compiler/engines/wgmma_sm90.h"
#include "compiler/engines/winograd_transforms.h"

namespace kiln::compiler {
namespace {

using EngineRef = const Engine&;

constexpr int kMadeDomain[] = {2, 4};
constexpr KnobRow kMadeKnob = {.name = "made", .cudnn_type = kKnobTileSize, .domain = kMadeDomain};

// Those of the product, and one more.
std::vector<int> KnobsWith(std::vector<int> product, int made) {
  product.push_back(made);
  return product;
}
std::span<const int> OfProduct(std::span<const int> knobs) { return knobs.first(knobs.size() - 1); }

// The plan of a size whose product its engine takes.
Result<WinogradPlan> PlanFor(const Engine& product, const Group& group, const Target& target,
                             int made) {
  if (!target.is_cuda())
    return Status::Error(Code::kArchMismatch, "the target is {}, not a GPU", target.arch);
  ASSIGN_OR_RETURN(WinogradPlan plan, PlanWinograd(group, made));
  RETURN_IF_ERROR(product.supports(plan.product, target));
  return plan;
}

constexpr double kBytesPerSecond = 3.6e12;  // of kernels that write 16 places at a time
constexpr double kLaunchSeconds = 2e-6;

// What the kernels around the product move.
double TransformSeconds(const Group& group, const WinogradPlan& plan) {
  const int64_t points = plan.a.elements() + plan.b.elements() + plan.out.elements();
  const int64_t bytes = FloorBytes(group) + points * SizeOf(DType::kF32);
  return 3 * kLaunchSeconds + static_cast<double>(bytes) / kBytesPerSecond;
}

template <EngineRef kProduct>
Status Supports(const Group& group, const Target& target) {
  return PlanFor(kProduct, group, target, kMadeDomain[0]).status();
}

template <EngineRef kProduct>
double Cost(const Group& group, const Target& target, std::span<const int> knobs) {
  const Result<WinogradPlan> plan = PlanFor(kProduct, group, target, knobs.back());
  if (!plan.ok()) return kNoSeconds;
  return kProduct.cost(plan->product, target, OfProduct(knobs)) + TransformSeconds(group, *plan);
}

template <EngineRef kProduct>
int64_t SharedBytesOf(const Group& group, const Target& target, std::span<const int> knobs) {
  const Result<WinogradPlan> plan = PlanFor(kProduct, group, target, knobs.back());
  return plan.ok() ? kProduct.shared_bytes(plan->product, target, OfProduct(knobs)) : 0;
}

template <EngineRef kProduct>
std::vector<std::vector<int>> Candidates(const Group& group, const Target& target) {
  std::vector<std::vector<int>> all;
  for (const int made : kMadeDomain) {
    const Result<WinogradPlan> plan = PlanFor(kProduct, group, target, made);
    if (!plan.ok()) continue;
    for (std::vector<int>& knobs : CandidateKnobs(kProduct, plan->product, target))
      all.push_back(KnobsWith(std::move(knobs), made));
  }
  return all;
}

template <EngineRef kProduct>
std::vector<Proposal> Proposals(const Group& group, const Target& target) {
  std::vector<Proposal> all;
  for (const int made : kMadeDomain) {
    const Result<WinogradPlan> plan = PlanFor(kProduct, group, target, made);
    if (!plan.ok()) continue;
    const double seconds = TransformSeconds(group, *plan);
    for (Proposal& p : Propose(kProduct, plan->product, target)) {
      p.knobs = KnobsWith(std::move(p.knobs), made);
      p.seconds += seconds;
      all.push_back(std::move(p));
    }
  }
  return all;
}

// The product's kernels, whose tensors are scratch buffers here.
void Append(Lowered product, const Group& group, Lowered& lowered) {
  const graph::Node& node = group.graph.nodes.front();
  const auto scratch_of = [&](graph::TensorId id) {
    return id == node.inputs[0] ? kWinogradA : id == node.inputs[1] ? kWinogradB : kWinogradOut;
  };
  const auto first_kernel = static_cast<int>(lowered.kernels.size());
  const auto first_scratch = static_cast<int>(lowered.scratch_bytes.size());
  for (LoweredLaunch& launch : product.launches) {
    launch.kernel += first_kernel;
    for (LoweredArg& arg : launch.args) {
      using Kind = LoweredArg::Kind;
      if (arg.kind == Kind::kScratch) {
        arg.id += first_scratch;
      } else if (arg.kind == Kind::kTensor || arg.kind == Kind::kTensorMap) {
        arg.kind = arg.kind == Kind::kTensor ? Kind::kScratch : Kind::kScratchMap;
        arg.id = scratch_of(arg.id);
      }
    }
    lowered.launches.push_back(std::move(launch));
  }
  std::ranges::move(product.kernels, std::back_inserter(lowered.kernels));
  std::ranges::copy(product.scratch_bytes, std::back_inserter(lowered.scratch_bytes));
}

template <EngineRef kProduct>
Result<Lowered> Lower(const Group& group, const Target& target, std::span<const int> knobs) {
  ASSIGN_OR_RETURN(const WinogradPlan plan, PlanFor(kProduct, group, target, knobs.back()));
  ASSIGN_OR_RETURN(Lowered product, kProduct.lower(plan.product, target, OfProduct(knobs)));
  Lowered lowered;
  lowered.scratch_bytes.resize(kWinogradScratches);
  lowered.scratch_bytes[kWinogradA] = plan.a.elements() * SizeOf(DType::kF32);
  lowered.scratch_bytes[kWinogradB] = plan.b.elements() * SizeOf(DType::kF32);
  lowered.scratch_bytes[kWinogradOut] = plan.out.elements() * SizeOf(DType::kF32);
  TransformWinogradPixels(group, target, plan, lowered);
  TransformWinogradOther(group, target, plan, lowered);
  Append(std::move(product), plan.product, lowered);
  TransformWinogradBack(group, target, plan, lowered);
  return lowered;
}

constexpr int kBehavior[] = {kNoteRuntimeCompilation};
constexpr int kNumerical[] = {kNoteWinograd, kNoteWinogradTile4x4, kNoteWinogradTile6x6};
constexpr int kNumericalSm90[] = {kNoteTensorCore, kNoteWinograd, kNoteWinogradTile4x4,
                                  kNoteWinogradTile6x6};

template <EngineRef kProduct>
std::span<const KnobRow> Knobs() {
  static const std::vector<KnobRow> rows = [] {
    std::vector<KnobRow> all(kProduct.knobs.begin(), kProduct.knobs.end());
    all.push_back(kMadeKnob);
    return all;
  }();
  return rows;
}

template <EngineRef kProduct>
Engine EngineFor(const char* name, std::span<const int> numerical) {
  return {.name = name,
          .version = 1,
          .knobs = Knobs<kProduct>(),
          .notes = {.numerical = numerical, .behavioral = kBehavior},
          .supports = Supports<kProduct>,
          .cost = Cost<kProduct>,
          .lower = Lower<kProduct>,
          .shared_bytes = SharedBytesOf<kProduct>,
          .candidates = Candidates<kProduct>,
          .propose = Proposals<kProduct>};
}

}  // namespace

const Engine kWinogradEngine = EngineFor<kContractSimtEngine>("winograd", kNumerical);
const Engine kWinogradSm90Engine =
    EngineFor<kWgmmaSm903xTf32Engine>("winograd_sm90", kNumericalSm90);

}  // namespace kiln::compiler
