#include "compiler/engines/attention/decode_plan.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "compiler/engines/attention/functions.h"
#include "compiler/engines/engine.h"
#include "compiler/machine/machine.h"
#include "ir/graph/ops.h"
#include "ir/tile/visit.h"

namespace kiln::compiler {

using graph::Graph;
using graph::TensorId;

namespace {

constexpr int kPanel = 32;            // elements: columns of operands are whole ones
constexpr int kMostDepth = 256;       // accumulators end there
constexpr int64_t kMostRows = 256;    // with more, products are what takes time
constexpr int kVector = 8;            // columns of a thread of the second kernel
constexpr int kAlignment = 128;       // bytes, of what the skeleton lays out
constexpr int64_t kStepBytes = 8192;  // of k and v that a warp copies at a time
constexpr int64_t kMostSplits = 256;
constexpr int64_t kReservedBytes = 1024;  // of shared memory, that the driver takes for each block
constexpr int kPitchPadding = 8;          // attention_decode.cuh

// The tensor in memory that rows of an operand are parts of, found in the expression of a row's
// place.
Result<RowMemory> RowMemoryOf(const Group& group, const Attention& a, const OperandRows& rows) {
  const Graph& g = group.graph;
  if (NeighboursOf(g, rows.id, rows.depth) != Neighbours::kAligned)
    return Status::Error(Code::kUnsupportedLayout,
                         "rows of {} do not lie in memory as whole aligned 16 bytes",
                         g[rows.id].name);
  const Target none;
  KernelBuilder b(group, none, "");
  tile::Block out;
  Index at = SharedHeads(b, a, rows.id)(out, tile::Var(b.Name("head"), b.index_type()));
  at[static_cast<size_t>(rows.places)] = tile::Var(b.Name("row"), b.index_type());
  at[static_cast<size_t>(rows.depth)] = b.Idx(0);
  const auto place = ValueScope(b, out).PlaceOf(rows.id, at);
  if (!place)
    return Status::Error(Code::kUnsupportedLayout,
                         "rows of {} are computed; they are copied as they lie in memory",
                         g[rows.id].name);
  bool loads = false;
  tile::WalkExprs(out, [&](const tile::Expr& e) { loads |= e->kind == tile::ExprKind::kLoad; });
  return RowMemory{place->tensor, loads};
}

int64_t StepBytes(const DecodePlan& p) { return int64_t{2} * p.tile.keys * (p.depth + p.width); }

// Registers of a thread that results and scores take.
int Accumulators(const DecodePlan& p) { return p.tile.row_tiles * (p.width + p.tile.keys) / 2; }

DecodeTile DefaultTile(DecodePlan p, const Target& target) {
  const int64_t keys = kStepBytes / (int64_t{2} * (p.depth + p.width));
  p.tile = {.row_tiles = p.rows() > 16 ? 2 : 1,
            .keys = static_cast<int>(
                std::clamp<int64_t>(static_cast<int64_t>(std::bit_floor(uint64_t(keys))), 16, 64)),
            .stages = 3,
            .warps = 4};
  if (Accumulators(p) > 160) p.tile.row_tiles = 1;
  const auto fits = [&] { return 2 * DecodeSharedElements(p) <= target.shared_limit(); };
  while (p.tile.stages > 2 && !fits()) --p.tile.stages;
  while (p.tile.warps > 1 && !fits()) p.tile.warps /= 2;
  return p.tile;
}

// ---- what it costs

constexpr double kPrologueCycles = 1700;
constexpr double kStartCycles = 3400;  // of a block: lengths, page tables and rows in turn
constexpr double kShare = 0.28;        // of products, which warps do in turn with the rest
constexpr double kCacheSpeed = 2;      // of L2, beside memory
constexpr double kShareOfBandwidth = 0.85;
// From a copy's start until its place is copied to again, under load: of rows whose neighbours lie
// beside them, and of those that page tables name.
constexpr double kCopyCycles = 4080, kGatherCycles = 7310;
// A warp's own work on a step of kStepBytes, which other warps of the multiprocessor hide.
constexpr double kCopyStepCycles = 1530, kGatherStepCycles = 2295;
constexpr double kRoundCycles = 1700;  // of the second kernel's reads

int64_t BlocksOfMultiprocessor(const DecodePlan& p, const Target& target) {
  const int64_t bytes = 2 * DecodeSharedElements(p) + kReservedBytes;
  const int64_t by_registers =
      target.registers_per_multiprocessor / (int64_t{32} * p.tile.warps * 255);
  return std::max<int64_t>(
      std::min((target.shared_bytes_per_block + kReservedBytes) / bytes, by_registers), 1);
}

// The splits of the plan; all keys are thought to be seen.
double SecondsOf(const DecodePlan& p, const Target& target) {
  const Machine machine = MachineOf(target);
  const double sms = machine.multiprocessors;
  const int64_t resident = BlocksOfMultiprocessor(p, target);
  const auto blocks = static_cast<double>(p.blocks());
  const double in_flight = std::min(blocks, sms * static_cast<double>(resident)) *
                           static_cast<double>((p.tile.stages - 1) * p.tile.warps * StepBytes(p));
  const double rate =
      std::min(machine.memory * kShareOfBandwidth,
               in_flight / machine.Seconds(p.key.is_gathered ? kGatherCycles : kCopyCycles));
  const double of_busiest = std::ceil(blocks / sms);
  const double slots = sms * static_cast<double>(resident);
  const double keys =
      static_cast<double>(AlignUp(CeilDiv(p.problem.keys, p.splits), p.tile.keys * p.tile.warps));
  const double bytes = keys * static_cast<double>(p.problem.depth + p.problem.width) * 2;
  // Tiles of one unit read the same keys at the same time: all but the first find them in L2.
  const auto tiles = static_cast<double>(p.row_tiles());
  const double of_memory = std::max(1 / tiles, 1 / kCacheSpeed);
  const double reading = of_busiest * bytes * of_memory * sms / rate;
  const double warps = p.tile.warps * std::min(of_busiest, static_cast<double>(resident));
  const double working = of_busiest * keys * static_cast<double>(StepBytes(p)) /
                         static_cast<double>(p.tile.keys * kStepBytes) / warps *
                         machine.Seconds(p.key.is_gathered ? kGatherStepCycles : kCopyStepCycles);
  const double products = of_busiest * p.tile.rows() * keys * (p.depth + p.width) /
                          (machine.mma.f16 * kShare * machine.clock);
  // No std::hypot: glibc 2.35 has a new one, and nothing else here asks for a glibc as new.
  const double overlapped = std::sqrt(reading * reading + working * working);
  double seconds = machine.StartSeconds() +
                   machine.Seconds(kPrologueCycles + kStartCycles * std::ceil(blocks / slots)) +
                   std::max(overlapped, products);
  if (p.splits > 1) {
    const auto values = static_cast<double>(p.problem.heads() * p.problem.queries * p.splits *
                                            (p.problem.width + 2));
    const int64_t at_once =
        int64_t{DecodePlan::kCombineInFlight} * p.combine_threads() / p.combine_lanes();
    const auto rounds = static_cast<double>(CeilDiv(p.splits, at_once));
    seconds += StreamSeconds(machine, 2 * 4 * values, kCacheSpeed) +
               machine.Seconds(kRoundCycles * rounds);
  }
  return seconds;
}

// The number of splits that takes the least time; of equal ones the smallest.
int64_t SplitsOf(DecodePlan p, const Target& target) {
  const int64_t most =
      std::clamp<int64_t>(p.problem.keys / (2 * p.tile.keys * p.tile.warps), 1, kMostSplits);
  int64_t best = 1;
  double least = kNoSeconds;
  for (p.splits = 1; p.splits <= most; ++p.splits) {
    const double seconds = SecondsOf(p, target);
    if (seconds < least) least = seconds, best = p.splits;
  }
  return best;
}

}  // namespace

int DecodePlan::combine_lanes() const {
  return static_cast<int>(std::bit_ceil(static_cast<uint64_t>(CeilDiv(problem.width, kVector))));
}

int DecodePlan::combine_threads() const {
  const int64_t wanted = CeilDiv(splits, kCombineInFlight) * combine_lanes();
  return static_cast<int>(
      std::clamp<int64_t>(static_cast<int64_t>(std::bit_ceil(uint64_t(wanted))), 128, 512));
}

int64_t DecodeSharedElements(const DecodePlan& p) {
  const int64_t rows = p.tile.rows();
  const int64_t rings = rows * p.depth + p.tile.warps * p.tile.stages * StepBytes(p) / 2;
  const int64_t results = 2 * p.tile.warps * rows * (2 + p.width + kPitchPadding);
  return std::max(rings, results) + kAlignment / 2;
}

double DecodeSeconds(const DecodePlan& p, const Target& target) { return SecondsOf(p, target); }

Result<DecodePlan> DecodePlanOf(const Group& group) {
  DecodePlan p;
  ASSIGN_OR_RETURN(p.problem, AttentionProblemOf(group, kMostDepth));
  const Graph& g = group.graph;
  const Attention& a = p.problem.attention;
  p.depth = static_cast<int>(AlignUp(p.problem.depth, kPanel));
  p.width = static_cast<int>(AlignUp(p.problem.width, kPanel));
  p.sharing = std::gcd(HeadsSharing(g, a, a.k, 3), HeadsSharing(g, a, a.v, 3));
  if (p.rows() > kMostRows)
    return Status::Error(
        Code::kUnsupportedShape,
        "{} heads of {} queries share a head of keys; at most {} rows are supported", p.sharing,
        p.problem.queries, kMostRows);
  const int64_t rank = g[a.score].rank();
  ASSIGN_OR_RETURN(p.key, RowMemoryOf(group, a, {a.k, rank - 1, rank - 2}));
  ASSIGN_OR_RETURN(p.value, RowMemoryOf(group, a, {a.v, rank - 2, rank - 1}));
  p.index = IndexTypeInMemory(g);
  return p;
}

Status TakeDecodeTile(DecodePlan& p, const Target& target, const DecodeKnobs& knobs) {
  p.tile = DefaultTile(p, target);
  if (knobs.rows > 0) p.tile.row_tiles = knobs.rows / 16;
  if (knobs.keys > 0) p.tile.keys = knobs.keys;
  if (knobs.stages > 0) p.tile.stages = knobs.stages;
  if (knobs.warps > 0) p.tile.warps = knobs.warps;
  if (Accumulators(p) > 160)
    return Status::Error(Code::kUnsupportedShape,
                         "{} rows and steps of {} keys have too few registers for rows of {}",
                         p.tile.rows(), p.tile.keys, p.width);
  p.splits = knobs.splits > 0 ? knobs.splits : SplitsOf(p, target);
  return {};
}

}  // namespace kiln::compiler
