// attention_grad_sm90, attention_grad_sm90_atomic: gradients of attention on Hopper.
//
// Takes: on sm_90, operands of f16, bf16 or 8-bit floats that tensor maps can read, sequences one
// behind another among them; rows of up to 256 (of 8 bits 128), those of v as wide as they like, k
// and v with any numbers of heads; gradients of a bias and a sink, dropout, all masks of the
// pattern (patterns/attention_grad.h).
//
// How: scores are made again and stay in registers, five products on wgmma. A block has 128 keys,
// or 64 where rows are longer than 128: then one group of warps makes dv and the other dk. It adds
// to dq in f32, in the order of keys, or in any order (_atomic). Sums of a bias's gradient begin
// with a store by who comes first. Operands of 8 bits are widened to f16 by a kernel before it.
// Kernels: zeroes, the skeleton (attention_grad_sm90.cuh, …_wide_, …_runs_, …_bytes_), and dq from
// the sums, which lie in the order of fragments.
//
// Wins: for 16-bit gradients on Hopper: cuDNN 9.19 takes 1.22 times as long in the geometric mean
// of docs/results.md, and 1.02 at least (H200).
//
// Declines: other GPUs and types; gradients that are scattered by elements; the gradient of a bias
// with operands of 8 bits; shapes of q, k, v and dy that do not fit one another. _atomic declines
// nothing more, and is offered to clients that allow any order.
#include <algorithm>

#include "compiler/engines/attention/engines.h"
#include "compiler/engines/attention/family.h"
#include "compiler/engines/attention/grad_functions.h"
#include "compiler/engines/attention/grad_sums.h"
#include "compiler/engines/attention/grad_widened.h"
#include "compiler/engines/attention/moves.h"
#include "compiler/engines/attention/runs.h"
#include "compiler/kernel/attention_members.h"
#include "compiler/kernel/group_checks.h"
#include "compiler/kernel/map_dims.h"
#include "compiler/kernel/skeleton_call.h"
#include "compiler/machine/machine.h"
#include "ir/graph/ops.h"

namespace kiln::compiler {
namespace {

using graph::Graph;
using graph::TensorId;
using tile::Call;

// 0: what a depth takes. Blocks of 128 have too few registers beside rows of 128.
constexpr int kQueriesDomain[] = {0, 64, 128};
constexpr KnobRow kKnobRows[] = {
    {.name = "tile_queries", .cudnn_type = kKnobTileRows, .domain = kQueriesDomain},
};

constexpr int64_t kRunsAlignment = 1024;  // bytes, of what the skeleton lays out itself
constexpr int kPanel = 64, kMostDepth = 256, kStages = 2;
// Keys of a tile, by rows of up to 128 and of more, of which registers hold dk and dv for fewer.
constexpr int kKeys = 128, kKeysOfWide = 64, kMostNarrow = 128;
constexpr int kStep = 16;  // columns that an instruction multiplies
// Registers of the producer group, which asks masks for bounds, and of the consumers; by blocks of
// 64 queries and of 128, of which consumers want all that there are.
constexpr int kRegisters[][2] = {{40, 232}, {24, 240}};
// Bytes of q, dy and sums of the heads whose tiles run at one time, by rows of 64, of up to 128 and
// of more; in any order and in order. As measured: in any order L2 holds them, and tiles of 64 keys
// add to sums so often that those should stay there; in order few enough not to wait long.
constexpr int64_t kSectionBytes[][3] = {{32 << 20, 64 << 20, 32 << 20},
                                        {32 << 20, 16 << 20, 16 << 20}};

// Five products at 500 of the 919 TFLOP/s of an H200's wgmma at 1.7 GHz; masks hide half. Sums of
// dq at 3.0 of the 4.1 TB/s of its copies.
constexpr double kShareOfWgmma = 0.544, kShareOfMemory = 3.0 / 4.1;
double FlopsPerSecond(const Machine& machine) {
  return 2 * machine.wgmma.f16 * machine.clock * machine.multiprocessors * kShareOfWgmma;
}

struct GradSm90 {
  static constexpr int kVersion = 9;
  static constexpr auto kArithmetic = AttentionArithmetic::k16;
  static constexpr std::span<const KnobRow> kKnobs = kKnobRows;
  static constexpr auto kRunsOn = RunsOnWgmma;

  // An operand or a result, and its runs where no map has the tensor.
  struct Rows {
    OperandRows rows = {};
    TensorMapSpec map = {};
    RowRun run = {};
  };
  struct Plan : AttentionGradProblem {
    Rows q = {}, k = {}, v = {}, dy = {}, dk = {}, dv = {};
    bool has_runs = false;
    TensorMapSpec beside_map = {};
    int row_columns = 0, width_columns = 0;  // of q and k, of dy and v, in whole steps
    bool is_wide() const { return depth > kMostNarrow; }
  };
  static Result<Plan> PlanOf(const Group& group);
  static Status TakeTile(Plan& p, const Target& target, std::span<const int> knobs);
  static int64_t SharedBytes(const Plan& p);
  static std::vector<std::vector<int>> Others(const Plan& p);
};
using Plan = GradSm90::Plan;

int64_t GradSm90::SharedBytes(const Plan& p) {
  const int64_t block = int64_t{p.queries_tile} * p.depth * 2;
  const int64_t slopes = p.keys_tile * p.queries_tile * 2;
  // Wide ones have weights beside slopes, others room for results.
  return 2 * p.keys_tile * p.depth * 2 + 2 * kStages * block + kStages * slopes +
         (p.is_wide() ? kStages * slopes : 2 * int64_t{64} * p.depth * 2) +
         (p.beside == graph::kAbsent ? 0 : kStages * slopes) +
         2 * kStages * int64_t{p.queries_tile} * 4 + 24 * kStages + 176 +
         (p.has_runs ? kRunsAlignment : 0);
}

// Operands of 8 bits are read as f16 in scratch buffers, and their results stored by threads.
void TakeWidened(const Graph& g, Plan& p) {
  for (GradSm90::Rows* of : {&p.q, &p.dy, &p.k, &p.v}) of->map = WidenedMap(g, of->rows, 64);
}

// The tensor maps of all operands and results; or why there are none.
Status TakeMaps(const Graph& g, Plan& p) {
  const AttentionGrad& a = p.grad;
  RETURN_IF_ERROR(CheckInMemory(g, {a.q, a.k, a.v, a.dy}));
  if (ScatterOf(g, a, a.dk) != nullptr || ScatterOf(g, a, a.dv) != nullptr)
    return Status::Error(Code::kUnsupportedGraphPattern,
                         "gradients are scattered; tensor maps write memory as it is");
  for (GradSm90::Rows* of : {&p.q, &p.dy, &p.k, &p.v, &p.dk, &p.dv}) {
    ASSIGN_OR_RETURN(of->map, AttentionMapOf(g[of->rows.id], of->rows.places, of->rows.depth, 64));
  }
  return {};
}

// True if all rows lie in runs that maps read and write.
bool TakeRuns(const Graph& g, Plan& p) {
  for (GradSm90::Rows* of : {&p.q, &p.dy, &p.k, &p.v, &p.dk, &p.dv}) {
    const TensorId id = of->rows.id;
    const bool is_result = id == p.grad.dk || id == p.grad.dv;
    const auto run = is_result ? StoreRunOf(g, id, ScatterOf(g, p.grad, id)) : RunOf(g, of->rows);
    if (!run || run->is_paged) return false;
    of->run = *run;
    const Result<TensorMapSpec> map = MapOfRun(g, *run, g[id].dims[of->rows.depth]);
    if (!map.ok()) return false;
    of->map = *map;
    if (is_result) SetBox(of->map, of->run, 64);
  }
  p.has_runs = true;
  return true;
}

Result<Plan> GradSm90::PlanOf(const Group& group) {
  const Graph& g = group.graph;
  ASSIGN_OR_RETURN(AttentionGradProblem problem,
                   AttentionGradProblemOf(group, kMostDepth, kPanel, OperandBits::k16Or8));
  Plan p{std::move(problem)};
  const AttentionGrad& a = p.grad;
  p.row_columns = static_cast<int>(AlignUp(g[a.q].dims.back(), kStep));
  p.width_columns = static_cast<int>(AlignUp(g[a.dy].dims.back(), kStep));
  if (p.has_bytes) {
    if (p.width != p.depth || p.depth > kMostNarrow)
      return Status::Error(Code::kUnsupportedShape,
                           "rows of {} and {} of 8 bits: up to {} are supported, as many of both",
                           p.depth, p.width, kMostNarrow);
    p.row_columns = p.width_columns = p.depth;
  }
  p.depth = p.width = std::max(p.depth, p.width);  // blocks of shared memory are of one size
  if (a.dbias != graph::kAbsent &&
      p.bias_heads * p.queries * p.keys != NumElements(g[a.dbias].dims))
    return Status::Error(Code::kUnsupportedGraphPattern,
                         "{}, the gradient of a bias, sums over queries or keys", g[a.dbias].name);
  p.keys_tile = p.is_wide() ? kKeysOfWide : kKeys;
  const int64_t rank = g[a.exp].rank();
  p.q.rows = {a.q, rank - 2, rank - 1};
  p.dy.rows = {a.dy, rank - 2, rank - 1};
  p.k.rows = {a.k, rank - 1, rank - 2};
  p.v.rows = {a.v, rank - 1, rank - 2};
  p.dk.rows = {a.dk, rank - 2, rank - 1};
  p.dv.rows = {a.dv, rank - 2, rank - 1};
  if (p.has_bytes) {
    RETURN_IF_ERROR(CheckInMemory(g, {a.q, a.k, a.v, a.dy}));
    TakeWidened(g, p);
    p.reads |= p.beside != graph::kAbsent;
    p.beside = graph::kAbsent;
    return p;
  }
  const Status maps = TakeMaps(g, p);
  if (!maps.ok() && !TakeRuns(g, p)) return maps;
  if (p.beside != graph::kAbsent) {
    // Tensor maps read the tensor beside scores, and skeletons hand it to them; elsewhere scores
    // read it themselves.
    const auto map = AttentionMapOf(g[p.beside], rank - 2, rank - 1, 64);
    p.reads = !map.ok();
    if (map.ok())
      p.beside_map = *map;
    else
      p.beside = graph::kAbsent;
  }
  RETURN_IF_ERROR(CheckStores(p.dk.map, g[a.dk]));
  RETURN_IF_ERROR(CheckStores(p.dv.map, g[a.dv]));
  return p;
}

// Tensors beside a place take registers, and so do the places of runs.
bool TakesLargeBlocks(const Plan& p) {
  const AttentionGrad& a = p.grad;
  return p.depth == kPanel && !p.reads && p.beside == graph::kAbsent && a.is_plain &&
         a.kept == graph::kAbsent && !p.has_runs;
}

Status GradSm90::TakeTile(Plan& p, const Target& target, std::span<const int> knobs) {
  p.queries_tile = knobs[0] > 0 ? knobs[0] : TakesLargeBlocks(p) ? 128 : 64;
  if (p.depth > kPanel && p.queries_tile > 64)
    return Status::Error(Code::kUnsupportedShape,
                         "blocks of {} queries have too few registers for rows of {}",
                         p.queries_tile, p.depth);
  for (TensorMapSpec* map : {&p.q.map, &p.dy.map, &p.beside_map}) map->box[1] = p.queries_tile;
  for (TensorMapSpec* map : {&p.k.map, &p.v.map}) map->box[1] = static_cast<int>(p.keys_tile);
  if (p.has_runs) {
    for (GradSm90::Rows* of : {&p.q, &p.dy}) SetBox(of->map, of->run, p.queries_tile);
    for (GradSm90::Rows* of : {&p.k, &p.v}) SetBox(of->map, of->run, p.keys_tile);
  }
  // Blocks that leave no room for what lies beside them have scores read it.
  if (p.beside != graph::kAbsent && SharedBytes(p) > target.shared_limit()) {
    p.beside = graph::kAbsent;
    p.reads = true;
  }
  const Machine machine = MachineOf(target);
  TakeParts(p, target, FlopsPerSecond(machine), machine.memory * kShareOfMemory);
  if (p.bias_heads > 0)
    p.bias_sums = p.bias_heads * p.key_tiles() * p.query_tiles() * p.keys_tile * p.queries_tile;
  return {};
}

// ---- kernels

// A group with its plan, and whether sums are added up in order.
struct Gradients {
  const Group& group;
  const Target& target;
  const Plan& plan;
  bool is_ordered;
  const Graph& g() const { return group.graph; }
};

// Whether the gradient of the bias is a sum over the dim that is `back` from behind the last one.
bool SumsBias(const Graph& g, const AttentionGrad& a, int64_t back) {
  const Dims &of = g[a.dbias].dims, &scores = g[a.exp].dims;
  const auto rank = static_cast<int64_t>(scores.size());
  return rank >= back && of[rank - back] == 1 && scores[rank - back] > 1;
}

// Whether each block of the bias's sums has a first step, which stores it.
bool StoresWholeBias(Gradients of) {
  const AttentionGrad& a = of.plan.grad;
  return MasksOf(a).empty() &&
         (of.is_ordered || (!SumsBias(of.g(), a, 3) && !SumsBias(of.g(), a, 4)));
}

// In order, since zeroes made ahead want heads one after the other; of sums over heads, too, the
// order is that of heads.
bool GoesByImages(Gradients of) {
  const AttentionGrad& a = of.plan.grad;
  return of.is_ordered && of.plan.outer > 1 && a.dbias != graph::kAbsent &&
         !SumsBias(of.g(), a, 3) && SumsBias(of.g(), a, 4);
}

// Whether the tensor beside scores has several places in the dim that is `back` from behind the
// last one.
bool HasBesideOfEach(Gradients of, size_t back) {
  if (of.plan.beside == graph::kAbsent) return false;
  const Dims& dims = of.g()[of.plan.beside].dims;
  return dims.size() >= back && dims[dims.size() - back] > 1;
}

KernelBuilder SkeletonBuilder(Gradients of) {
  KernelBuilder b(
      of.group, of.target,
      fmt::format("attention_grad_sm90: {} keys, blocks of {} queries{}", of.plan.keys_tile,
                  of.plan.queries_tile, of.is_ordered ? ", in order" : ""),
      IndexTypeInMemory(of.g()));
  for (const char* reserved : {"bx", "shape"}) b.Name(reserved);
  for (const char* reserved : kAttentionGradFunctions) b.Name(reserved);
  for (const char* reserved : {"finish_keys", "finish_values"}) b.Name(reserved);
  for (const char* moved : {"query", "grad", "key", "value", "store_keys", "store_values"})
    for (const char* part : {"", "_run"}) b.Name(fmt::format("{}{}", moved, part));
  return b;
}

void AddMaps(const Plan& plan, KernelBuilder& b, Call& call) {
  const std::pair<const char*, const GradSm90::Rows*> all[] = {
      {"q_map", &plan.q},   {"k_map", &plan.k},   {"v_map", &plan.v},
      {"dy_map", &plan.dy}, {"dk_map", &plan.dk}, {"dv_map", &plan.dv}};
  for (size_t i = 0; i < std::size(all); ++i) {
    const auto& [name, of] = all[i];
    if (!plan.has_bytes)
      call.maps.push_back(b.Map(name, plan.has_runs ? of->run.tensor : of->rows.id, of->map));
    else if (i < 4)
      call.maps.push_back(
          b.ScratchMap(name, AttentionGradSums::Others(plan) + static_cast<int>(i), of->map));
  }
}

// The kernel itself allocates the memory that functions copy to, and has its name; it is empty
// where none do.
std::string TakeMemory(const Plan& plan, KernelBuilder& b, DType type, Call& call,
                       tile::Block& before) {
  const int64_t bytes = GradSm90::SharedBytes(plan);
  if (!plan.has_runs) {
    call.shared_bytes = bytes;
    return {};
  }
  const std::string memory = b.Name("memory");
  before.push_back({tile::Alloc{memory, type, tile::Space::kShared, bytes / 2}});
  call.buffers.push_back(memory);
  call.config.push_back({attention::kBytes, bytes});
  return memory;
}

// Buffers of sums, and of turns to add to them.
void AddBuffers(const Plan& plan, KernelBuilder& b, Call& call) {
  const AttentionGrad& a = plan.grad;
  const std::string summed = AttentionGradSums::Sums(b, plan, false);
  if (plan.has_bytes)
    for (const auto& largest : {a.largest_slope, a.of_dk.largest, a.of_dv.largest})
      call.buffers.push_back(largest ? b.Pointer(largest->result) : summed);
  for (const std::string& buffer :
       {summed, b.Scratch(AttentionGradSums::kTurns, DType::kI32, false),
        plan.adds_parts() ? b.Scratch(AttentionGradSums::PartSums(plan), DType::kF32, false)
                          : summed})
    call.buffers.push_back(buffer);
  if (!plan.has_bytes)
    call.buffers.push_back(
        plan.bias_sums > 0 ? b.Scratch(AttentionGradSums::kBiasSums, DType::kF32, false) : summed);
}

// Scores, dk and dv, and what a group has of dq: in wide ones a panel, and half of one.
void AddProducts(const Plan& plan, DType type, Call& call) {
  const bool is_wide = plan.is_wide();
  call.wgmma = {.columns = is_wide ? plan.queries_tile / 2 : plan.queries_tile,
                .type = type,
                .right_type = type};
  call.second = Call::Wgmma{.columns = std::max(plan.row_columns, plan.width_columns),
                            .type = type,
                            .right_type = type,
                            .right_is_outer = true,
                            .left_in_registers = !is_wide};
  call.third = Call::Wgmma{.columns = is_wide                   ? kPanel
                                      : plan.queries_tile == 64 ? plan.depth / 2
                                                                : plan.depth,
                           .type = type,
                           .right_type = type,
                           .left_is_outer = true,
                           .right_is_outer = true};
  if (is_wide && plan.depth / kPanel % 2 != 0) {
    call.fourth = call.third;
    call.fourth->columns = kPanel / 2;
  }
}

void AddConfig(Gradients of, DType type, Call& call) {
  const Plan& plan = of.plan;
  const bool is_shallow = plan.depth == 64, has_beside = plan.beside != graph::kAbsent;
  call.config.insert(call.config.end(),
                     {
                         {attention::kKeys, plan.keys_tile},
                         {attention::kQueries, plan.queries_tile},
                         {attention::kDepth, plan.depth},
                         {attention::kRows, plan.row_columns},
                         {attention::kWidth, plan.width_columns},
                         {attention::kReads, plan.reads ? 1 : 0},
                         {attention::kRotates, is_shallow && !of.is_ordered ? 1 : 0},
                         {attention::kKeysFirst, is_shallow ? 1 : 0},
                         {attention::kOrdered, of.is_ordered ? 1 : 0},
                         {attention::kParts, plan.adds_parts() ? 1 : 0},
                         {attention::kF32, 0},
                         {attention::kPackBf16, type == DType::kBF16 ? 1 : 0},
                         {attention::kImagesFirst, GoesByImages(of) ? 1 : 0},
                         {attention::kBeside, has_beside ? 1 : 0},
                         {attention::kBesideHeads, HasBesideOfEach(of, 3) ? 1 : 0},
                         {attention::kBesideImages, HasBesideOfEach(of, 4) ? 1 : 0},
                         {attention::kBiasQuads, 1},
                     });
  if (has_beside)
    call.config.push_back(
        {attention::kBesideBf16, of.g()[plan.beside].dtype == DType::kBF16 ? 1 : 0});
}

// Functions that say where runs begin, and move rows of those that no map can have.
void AddLoads(const Plan& plan, KernelBuilder& b, const std::string& memory, Call& call) {
  for (const auto& [name, of] :
       {std::pair{"query", &plan.q}, {"grad", &plan.dy}, {"key", &plan.k}, {"value", &plan.v}}) {
    const HeadIndex heads = OwnHeads(b, of->rows.id);
    AddRowsLoad(b, call, name, memory, of->rows, heads);
    AddRun(b, call, name, of->run, of->rows, heads, of->map.box[1]);
  }
}
void AddStores(const Plan& plan, KernelBuilder& b, Call& call) {
  for (const auto& [name, of] : {std::pair{"store_keys", &plan.dk}, {"store_values", &plan.dv}}) {
    const TensorId id = of->rows.id;
    AddRowsStore(b, call, name, id, ScatterOf(b.graph(), plan.grad, id));
    AddRun(b, call, name, of->run, of->rows, OwnHeads(b, id), of->map.box[1]);
  }
  int64_t apart = 0, bit = 1;
  for (const GradSm90::Rows* of : {&plan.q, &plan.dy, &plan.k, &plan.v, &plan.dk, &plan.dv}) {
    apart |= of->run.has_pieces() ? bit : 0;
    bit *= 2;
  }
  call.config.push_back({attention::kApart, apart});
}

void AddFunctions(const Plan& plan, KernelBuilder& b, const std::string& memory, Call& call) {
  const AttentionGrad& a = plan.grad;
  if (plan.has_runs) AddLoads(plan, b, memory, call);
  AttentionGradFunctions(b, a).Add(call, {}, plan.beside);
  if (plan.has_runs) AddStores(plan, b, call);
  if (!plan.has_bytes) return;
  AddRowsStore(b, call, "store_keys", a.dk, ScatterOf(b.graph(), a, a.dk));
  AddRowsStore(b, call, "store_values", a.dv, ScatterOf(b.graph(), a, a.dv));
  AttentionGradFunctions(b, a).AddFinishes(call);
}

void AddSkeleton(Gradients of, Lowered& lowered) {
  const Plan& plan = of.plan;
  KernelBuilder b = SkeletonBuilder(of);
  const DType type = plan.has_bytes ? DType::kF16 : of.g()[plan.grad.q].dtype;
  Call call{.skeleton = plan.has_bytes  ? "attention_grad_bytes_sm90"
                        : plan.has_runs ? "attention_grad_runs_sm90"
                                        : "attention_grad_sm90"};
  tile::Block before;
  AddMaps(plan, b, call);
  const std::string memory = TakeMemory(plan, b, type, call, before);
  if (!plan.has_bytes)
    call.maps.push_back(plan.beside != graph::kAbsent
                            ? b.Map("beside_map", plan.beside, plan.beside_map)
                            : call.maps[0]);  // which nobody reads
  AddBuffers(plan, b, call);
  AddProducts(plan, type, call);
  AddConfig(of, type, call);
  AddAttentionGradShape(b, plan, call);
  if (GoesByImages(of)) AddShapeMember(b, call, attention::images, plan.outer);
  AddFunctions(plan, b, memory, call);
  const int(&registers)[2] = kRegisters[plan.queries_tile > kPanel];
  call.config.push_back({attention::kProducerRegisters, registers[0]});
  call.config.push_back({attention::kConsumerRegisters, registers[1]});
  const int64_t blocks =
      std::min<int64_t>(plan.part_heads() * plan.key_tiles(), of.target.multiprocessors);
  b.Finish(CallOfBlocks(b, blocks, std::move(call), std::move(before)), {blocks, 1, 1}, 384,
           lowered, 1);
}

// Operands of 8 bits as f16, in the order of maps.
void AddWide(Gradients of, Lowered& lowered) {
  for (const GradSm90::Rows* rows : {&of.plan.q, &of.plan.k, &of.plan.v, &of.plan.dy}) {
    const auto scratch = static_cast<int>(lowered.scratch_bytes.size());
    lowered.scratch_bytes.push_back(WidenedBytes(of.g(), rows->rows));
    AddWidened(of.group, of.target, "attention_grad_sm90", rows->rows, scratch, lowered);
  }
}

void LowerGradients(Gradients of, Lowered& lowered) {
  const AttentionGradSums sums(of.group, of.target, of.plan, "attention_grad_sm90", of.is_ordered,
                               of.is_ordered ? Zeroes::kAll : Zeroes::kFirstSection);
  sums.AddScratch(lowered);
  sums.AddZeroes(lowered);
  if (of.plan.bias_sums > 0 && !StoresWholeBias(of)) sums.AddBiasZeroes(lowered);
  if (of.plan.has_bytes) {
    sums.AddLargestStarts(lowered);
    AddWide(of, lowered);
  }
  AddSkeleton(of, lowered);
  sums.AddConversion(lowered);
  if (of.plan.bias_sums > 0) sums.AddBiasFragments(lowered);
  sums.AddPartConversions(lowered);
  AddRowSums(of.group, of.plan.grad, of.target, lowered);
}

// ---- the engines' rows

constexpr double kOrderedSpeed = 0.9, kSmallTileSpeed = 0.95;
constexpr double kWideSpeed = 0.65;  // each product of dq is added for half as many keys

// Other knobs that have registers enough.
std::vector<std::vector<int>> GradSm90::Others(const Plan& plan) {
  if (!TakesLargeBlocks(plan)) return {{64}};
  return {{64}, {128}};
}

template <bool is_ordered>
struct Sums : GradSm90 {
  static constexpr const char* kName =
      is_ordered ? "attention_grad_sm90" : "attention_grad_sm90_atomic";
  static constexpr decltype(Engine::any_order) kAnyOrder = is_ordered ? nullptr : KeepsSums;

  static double Seconds(const Plan& plan, const Target& target, bool) {
    const Machine machine = MachineOf(target);
    const double speed = FlopsPerSecond(machine) * (is_ordered ? kOrderedSpeed : 1) *
                         (plan.depth == kPanel && plan.queries_tile < 128 ? kSmallTileSpeed : 1) *
                         (plan.is_wide() ? kWideSpeed : 1);
    return kAttentionGradKernels * machine.StartSeconds() +
           AttentionGradSeconds(plan, speed, machine.memory * kShareOfMemory);
  }
  static void Lower(const Group& group, const Target& target, Plan plan, Lowered& lowered) {
    plan.keeps_parts = is_ordered;
    TakeSumsPlace(plan, group.graph);
    TakeSection(plan, kSectionBytes[is_ordered][plan.is_wide() ? 2 : plan.depth > kPanel], target);
    LowerGradients({.group = group, .target = target, .plan = plan, .is_ordered = is_ordered},
                   lowered);
  }
};

}  // namespace

const Engine kAttentionGradSm90Engine = AttentionEngine<Sums<true>>::Row();
const Engine kAttentionGradSm90AtomicEngine = AttentionEngine<Sums<false>>::Row();

}  // namespace kiln::compiler
