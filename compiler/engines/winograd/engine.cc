// winograd, winograd_sm90: 3x3 convolutions in f32 by Winograd's products.
//
// Takes: on GPUs, 2-D convolutions with 3x3 filters, stride and dilation 1, one group, in all three
// directions, whose sums have 16 products or more.
//
// How: both operands go to the coordinates of F(2x2, 3x3), F(3x3, 2x2) for wgrad, in scratch
// memory; 16 products are `contract_simt`'s or `wgmma_sm90_3xtf32`'s, whose knobs these are; a last
// kernel brings them back, through the epilogue. plan.h has the algorithm, transforms.h the kernels
// around the product.
//
// Wins: for f32 that keeps its bits, with many channels: 4 multiplications for 9, and errors of an
// f32 sum. NCHW 3x3, 256 channels 14x14, N 64 takes 139 us forward where cuDNN 9.19 takes 173
// (H200).
//
// Declines: other filters, strides, dilations, groups and ranks; short sums; and what the engine of
// the products declines. An infinity reaches all results of its tile, which
// CUDNN_NUMERICAL_NOTE_WINOGRAD tells clients.
#include "compiler/engines/winograd/engine.h"

#include <algorithm>

#include "compiler/engines/contract_simt/engine.h"
#include "compiler/engines/contract_wgmma/engine.h"
#include "compiler/engines/knob_types.h"
#include "compiler/engines/winograd/transforms.h"
#include "compiler/machine/machine.h"

namespace kiln::compiler {
namespace {

using EngineRef = const Engine&;

// Kernels that write 16 places at a time reach this share of what the L2 cache gives: 3.6 of an
// H200's 10.6 TB/s, or what memory gives: on an H100 all that a copy reaches (64 images of
// 256x14x14 take 136 us there, and 126 on an H200).
constexpr double kShareOfCache = 0.3409;

// Time of what the kernels around the product move.
double TransformSeconds(const Group& group, const WinogradPlan& plan, const Target& target) {
  const int64_t points = plan.a.elements() + plan.b.elements() + plan.out.elements();
  const int64_t bytes = FloorBytes(group) + points * SizeOf(DType::kF32);
  const Machine machine = MachineOf(target);
  const double rate =
      std::min(kShareOfCache * machine.l2_share() * machine.multiprocessors, machine.memory);
  return 3 * machine.StartSeconds() + static_cast<double>(bytes) / rate;
}

template <EngineRef kProduct>
Status Supports(const Group& group, const Target& target) {
  if (!target.is_cuda())
    return Status::Error(Code::kArchMismatch, "the target is {}, not a GPU", target.arch);
  ASSIGN_OR_RETURN(const WinogradPlan plan, PlanWinograd(group));
  return kProduct.supports(plan.product, target);
}

template <EngineRef kProduct>
double Cost(const Group& group, const Target& target, std::span<const int> knobs) {
  const Result<WinogradPlan> plan = PlanWinograd(group);
  if (!plan.ok()) return kNoSeconds;
  return kProduct.cost(plan->product, target, knobs) + TransformSeconds(group, *plan, target);
}

template <EngineRef kProduct>
int64_t SharedBytesOf(const Group& group, const Target& target, std::span<const int> knobs) {
  const Result<WinogradPlan> plan = PlanWinograd(group);
  return plan.ok() ? kProduct.shared_bytes(plan->product, target, knobs) : 0;
}

template <EngineRef kProduct>
std::vector<std::vector<int>> Candidates(const Group& group, const Target& target) {
  const Result<WinogradPlan> plan = PlanWinograd(group);
  if (!plan.ok()) return {DefaultKnobs(kProduct)};
  return CandidateKnobs(kProduct, plan->product, target);
}

template <EngineRef kProduct>
std::vector<Proposal> Proposals(const Group& group, const Target& target) {
  const Result<WinogradPlan> plan = PlanWinograd(group);
  if (!plan.ok()) return {};
  std::vector<Proposal> all = Propose(kProduct, plan->product, target);
  for (Proposal& p : all) p.seconds += TransformSeconds(group, *plan, target);
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
  ASSIGN_OR_RETURN(const WinogradPlan plan, PlanWinograd(group));
  ASSIGN_OR_RETURN(Lowered product, kProduct.lower(plan.product, target, knobs));
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
constexpr int kNumerical[] = {kNoteWinograd, kNoteWinogradTile4x4};
constexpr int kNumericalSm90[] = {kNoteTensorCore, kNoteWinograd, kNoteWinogradTile4x4};

template <EngineRef kProduct>
Engine EngineFor(const char* name, std::span<const int> numerical) {
  return {.name = name,
          .version = 1,
          .knobs = kProduct.knobs,
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
