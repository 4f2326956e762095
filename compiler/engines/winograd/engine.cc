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
#include <memory>
#include <utility>

#include "compiler/engines/contract_simt/engine.h"
#include "compiler/engines/contract_wgmma/engine.h"
#include "compiler/engines/engine_of.h"
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

class WinogradEnginePlan {
 public:
  static Result<WinogradEnginePlan> Of(const Engine& engine, const Group& group,
                                       const Target& target) {
    if (!target.is_cuda())
      return Status::Error(Code::kArchMismatch, "the target is {}, not a GPU", target.arch);
    ASSIGN_OR_RETURN(WinogradPlan plan, PlanWinograd(group));
    // The product's plan refers to its group, which has to stay where it is.
    auto own = std::make_unique<const WinogradPlan>(std::move(plan));
    ASSIGN_OR_RETURN(auto product, engine.plan(own->product, target));
    return WinogradEnginePlan(engine, group, target, std::move(own), std::move(product));
  }

  std::vector<Proposal> Proposals() const {
    std::vector<Proposal> all = Propose(engine_, *product_);
    for (Proposal& p : all) p.seconds += transforms_;
    return all;
  }

  Estimate EstimateOf(std::span<const int> knobs) const {
    Estimate of = product_->EstimateOf(knobs);
    of.seconds += transforms_;
    return of;
  }

  Result<Lowered> Lower(std::span<const int> knobs) const {
    ASSIGN_OR_RETURN(Lowered product, product_->Lower(knobs));
    Lowered lowered;
    lowered.scratch_bytes.resize(kWinogradScratches);
    lowered.scratch_bytes[kWinogradA] = plan_->a.elements() * SizeOf(DType::kF32);
    lowered.scratch_bytes[kWinogradB] = plan_->b.elements() * SizeOf(DType::kF32);
    lowered.scratch_bytes[kWinogradOut] = plan_->out.elements() * SizeOf(DType::kF32);
    TransformWinogradPixels(group_, target_, *plan_, lowered);
    TransformWinogradOther(group_, target_, *plan_, lowered);
    Append(std::move(product), plan_->product, lowered);
    TransformWinogradBack(group_, target_, *plan_, lowered);
    return lowered;
  }

 private:
  WinogradEnginePlan(const Engine& engine, const Group& group, const Target& target,
                     std::unique_ptr<const WinogradPlan> plan,
                     std::unique_ptr<const EnginePlan> product)
      : engine_(engine),
        group_(group),
        target_(target),
        plan_(std::move(plan)),
        product_(std::move(product)),
        transforms_(TransformSeconds(group, *plan_, target)) {}

  const Engine& engine_;  // of the product
  const Group& group_;
  const Target& target_;
  std::unique_ptr<const WinogradPlan> plan_;
  std::unique_ptr<const EnginePlan> product_;
  double transforms_;  // seconds
};

template <EngineRef kProduct>
Result<WinogradEnginePlan> PlanOf(const Group& group, const Target& target) {
  return WinogradEnginePlan::Of(kProduct, group, target);
}

constexpr int kNumerical[] = {kNoteWinograd, kNoteWinogradTile4x4};
constexpr int kNumericalSm90[] = {kNoteTensorCore, kNoteWinograd, kNoteWinogradTile4x4};

}  // namespace

const Engine kWinogradEngine =
    EngineOf<PlanOf<kContractSimtEngine>>({.name = "winograd",
                                           .version = 1,
                                           .knobs = kContractSimtEngine.knobs,
                                           .numerical = kNumerical});
const Engine kWinogradSm90Engine =
    EngineOf<PlanOf<kWgmmaSm903xTf32Engine>>({.name = "winograd_sm90",
                                              .version = 1,
                                              .knobs = kWgmmaSm903xTf32Engine.knobs,
                                              .numerical = kNumericalSm90});

}  // namespace kiln::compiler
