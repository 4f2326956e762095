// Plans of the ring design (conv_direct/ring.h) and what they cost.
#include <algorithm>
#include <cmath>
#include <set>

#include "compiler/engines/contraction/tiles.h"
#include "compiler/engines/conv_direct/ring.h"
#include "compiler/kernel/accumulation.h"
#include "compiler/machine/machine.h"

namespace kiln::compiler {
namespace {

constexpr int64_t kMostThreads = 256, kFewThreads = 128;
constexpr int64_t kMostProducts = 3200, kMostRegisters = 200;

void FitGeometry(RingPlan& p, const ConvShape& shape) {
  p.wgrad = shape.is_wgrad();
  p.in = shape.is_dgrad() ? shape.y : shape.x;
  p.out = shape.is_dgrad() ? shape.x : shape.y;
  p.flip = shape.flip != shape.is_dgrad();
  const auto axis = [&](int64_t i) {
    RingAxis a{shape.taps[i], shape.stride[i], shape.dilation[i], shape.pad[i]};
    if (shape.is_dgrad()) a.pad = a.reach() - a.pad;
    return a;
  };
  p.row = axis(0);
  p.col = axis(1);
  p.live = p.row.reach() / p.row.stride + 1;
  p.period = p.live * p.row.stride;
}

// The most threads of a warp that read from one bank at once, strips being `pitch` bytes a column
// apart.
int64_t Conflicts(const RingPlan& p, int64_t pitch, int64_t size) {
  constexpr int64_t kBanks = 32, kWord = 4;
  const int64_t words = std::max<int64_t>(p.lanes * size / kWord, 1), threads = kBanks / words;
  int64_t most = 0;
  for (int64_t first = 0; first < 32; first += threads) {
    std::vector<std::set<int64_t>> banks(kBanks);
    for (int64_t t = first; t < first + threads; ++t) {
      const int64_t strip = t / p.vectors, vector = t % p.vectors;
      const int64_t at = strip * p.strip * p.col.stride * pitch + vector * p.lanes * size;
      for (int64_t w = 0; w < words; ++w) banks[(at / kWord + w) % kBanks].insert(at / kWord + w);
    }
    for (const auto& bank : banks) most = std::max(most, static_cast<int64_t>(bank.size()));
  }
  return most;
}

void FitChannels(RingPlan& p, int64_t channels, int64_t size, const RingKnobs& knobs) {
  p.chunk = 16 / size;
  p.lanes = std::min<int64_t>(knobs.lanes, p.chunk);
  p.slabs = CeilDiv(channels, int64_t{knobs.slab});
  p.slab = AlignUp(CeilDiv(channels, p.slabs), p.chunk);
  p.slabs = CeilDiv(channels, p.slab);
  p.vectors = p.slab / p.lanes;
}

void FitPlaces(RingPlan& p, const Dims& out, const RingKnobs& knobs, int64_t size) {
  p.strip = std::min<int64_t>(knobs.strip, out[3]);
  const int64_t strips = CeilDiv(out[3], p.strip);
  p.column_blocks = CeilDiv(strips, std::max<int64_t>(kMostThreads / p.vectors, 1));
  p.strips = CeilDiv(strips, p.column_blocks);
  p.column_blocks = CeilDiv(strips, p.strips);
  p.columns = p.strips * p.strip;
  // Wgrad's last strip begins where it ends with the image.
  if (p.wgrad) p.columns = std::min(p.columns, out[3]);
  p.staged_columns = (p.columns - 1) * p.col.stride + p.col.reach() + 1;
  p.images = std::clamp<int64_t>(kFewThreads / (p.vectors * p.strips), 1, out[0]);
  p.rows = CeilDiv(out[2], std::min<int64_t>(knobs.pieces, out[2]));
  p.row_groups = CeilDiv(out[2], p.rows);
  p.image_groups = CeilDiv(out[0], p.images);
  p.pitch = p.slab;
  if (Conflicts(p, (p.slab + p.chunk) * size, size) < Conflicts(p, p.slab * size, size))
    p.pitch += p.chunk;
}

int64_t Registers(const RingPlan& p) {
  return (p.live * p.strip + p.taps() + p.window()) * p.lanes + 20;
}

// The stages: as many rows in flight as shared memory has room for beside other blocks.
void FitRing(RingPlan& p, const Target& target, int64_t size) {
  constexpr int64_t kMostInFlight = 40 * 1024, kWantedThreads = 768, kMostDepth = 4;
  const int64_t most = target.shared_bytes_per_block;
  const int64_t wanted = std::clamp<int64_t>(kWantedThreads / p.threads(), 1, 6);
  const int64_t sums = p.wgrad ? p.walkers() * p.col.taps * p.slab * 4 : 0;
  int64_t best = 0;
  for (const int64_t budget : {most / wanted - 1024, most}) {
    for (int64_t group = p.period; group >= 1; --group) {
      if (p.period % group != 0) continue;
      RingPlan q = p;
      q.group = group;
      for (q.depth = 2; q.depth <= kMostDepth; ++q.depth) {
        const int64_t stage = (q.in_elements() + q.out_elements()) * size;
        q.shared_bytes = q.depth * stage + sums;
        const int64_t in_flight = std::min((q.depth - 1) * stage, kMostInFlight);
        if (q.shared_bytes > budget || in_flight <= best) continue;
        best = in_flight;
        p = q;
        p.fits = true;
      }
    }
    if (p.fits) break;
  }
  // Registers are given to warps of four schedulers.
  const int64_t registers = AlignUp(Registers(p), 8) * AlignUp(p.threads(), 128);
  p.resident = std::clamp<int64_t>(65536 / registers, 1, 16);
  p.resident = std::min({p.resident, 2048 / p.threads(),
                         std::max<int64_t>(most / std::max<int64_t>(p.shared_bytes + 1024, 1), 1)});
}

}  // namespace

std::vector<RingHit> HitsOf(const RingPlan& p, int64_t u) {
  std::vector<RingHit> hits;
  for (int64_t tap = 0; tap < p.row.taps; ++tap) {
    const int64_t at = u - tap * p.row.dilation + p.live * p.row.stride;
    if (at % p.row.stride != 0) continue;
    const int64_t row = at / p.row.stride - p.live;
    hits.push_back({.tap = tap, .slot = (row + p.live) % p.live, .row = row});
  }
  return hits;
}

RingPlan RingPlanOf(const Group& group, const Target& target, const ConvShape& shape,
                    const RingKnobs& knobs) {
  RingPlan p;
  FitGeometry(p, shape);
  const graph::Tensor& in = group.graph[p.in];
  const Dims& out = group.graph[p.out].dims;
  FitChannels(p, in.dims[1], SizeOf(in.dtype), knobs);
  FitPlaces(p, out, knobs, SizeOf(in.dtype));
  FitRing(p, target, SizeOf(in.dtype));
  const int64_t blocks = p.resident * std::max(target.multiprocessors, 1);
  const int64_t least = p.wgrad ? CeilDiv(p.units() * p.rows * p.strip, kMostTerms) : 1;
  p.splits = std::clamp<int64_t>(std::max(blocks / p.slabs, least), 1, p.units());
  p.splits = CeilDiv(p.units(), p.steps());
  return p;
}

bool TakesRing(const Group& group, const Target& target, const ConvShape& shape) {
  const graph::Graph& g = group.graph;
  if (target.sm_version < 80 || shape.spatial != 2) return false;
  if (shape.channels != 1 || shape.filters != 1) return false;
  if (shape.is_dgrad() && NumElements(shape.stride) != 1) return false;
  if (ArithmeticType(ContractionOf(group).compute) != DType::kF32) return false;
  if (NumElements(g[shape.x].dims) == 0 || NumElements(g[shape.y].dims) == 0) return false;
  const graph::TensorId in = shape.is_dgrad() ? shape.y : shape.x;
  const DType type = g[in].dtype;
  if (type != DType::kF16 && type != DType::kBF16 && type != DType::kF32) return false;
  const int64_t chunk = 16 / SizeOf(type);
  if (!ComesByPieces(group, in, chunk)) return false;
  if (shape.is_wgrad() && (g[shape.y].dtype != type || !ComesByPieces(group, shape.y, chunk)))
    return false;
  const RingPlan p =
      RingPlanOf(group, target, shape, {.strip = 2, .lanes = 2, .slab = 32, .pieces = 4});
  return p.fits && p.period * p.taps() * p.strip <= kMostProducts && Registers(p) <= kMostRegisters;
}

namespace {

// Rows that several blocks read come from the L2 cache, so that more arrives than a copy moves.
constexpr double kShareOfMemory = 1.05;

// The instructions of a thread on a period, and how often it waits for a stage.
struct RingBody {
  double instructions, stages;
};
// Reads and conversions, products, results, copies; rows of padding are skipped.
RingBody BodyOf(const RingPlan& p, int64_t rows, const Machine& machine) {
  const auto period = static_cast<double>(p.period), live = static_cast<double>(p.live);
  const auto lanes = static_cast<double>(p.lanes), strip = static_cast<double>(p.strip);
  const double reads = period * static_cast<double>(p.window()) * (lanes + 1);
  const double products = live * static_cast<double>(p.taps()) * strip * lanes * machine.FmaSlots();
  const double results = live * strip * (p.wgrad ? 1 + lanes : 4 + lanes);
  const double stages = period / static_cast<double>(p.group);
  const double chunks = static_cast<double>(p.images * p.staged_columns * p.slab / p.chunk) /
                        static_cast<double>(p.threads());
  const double copies = period * std::ceil(chunks) * (p.wgrad ? 14 : 9);
  const double inside =
      static_cast<double>(std::min(p.walk(), rows)) / (static_cast<double>(p.bodies()) * period);
  return {.instructions = 1.08 * ((reads + products) * inside + results + copies + stages * 40),
          .stages = stages};
}

double BlocksOf(const RingPlan& p) { return static_cast<double>(p.splits * p.slabs); }

// Seconds for which instructions keep the multiprocessors busy, each with its share of blocks.
double BusySeconds(const RingPlan& p, const RingBody& body, double blocks_each,
                   const Machine& machine) {
  constexpr double kIssue = 0.75;
  const double warps = std::ceil(static_cast<double>(p.threads()) / 32);
  const auto bodies = static_cast<double>(p.steps() * p.bodies());
  const double issued = blocks_each * warps * bodies * body.instructions / 4 / kIssue;
  // A block alone waits at its barriers.
  const double latency = bodies * (body.instructions + body.stages * 150) /
                         std::min(1.0, 4 / warps) *
                         std::ceil(blocks_each / static_cast<double>(p.resident));
  return machine.Seconds(std::max(issued, latency));
}

// Seconds for which memory moves the operands, as fast as the rows in flight let it.
double MovedSeconds(const Group& group, const RingPlan& p, double blocks_each, double sms,
                    const Machine& machine) {
  constexpr double kLatencyCycles = 1870, kMostBytes = 48 * 1024;
  const int64_t size = SizeOf(group.graph[p.in].dtype);
  const double stage = static_cast<double>((p.in_elements() + p.out_elements()) * size);
  const double in_flight = std::min(stage * static_cast<double>(p.depth - 1) *
                                        std::min(blocks_each, static_cast<double>(p.resident)),
                                    kMostBytes);
  const double rate = std::min(ComparedMemory(machine) * kShareOfMemory,
                               in_flight * sms / machine.Seconds(kLatencyCycles));
  // Units of work that the last round has not.
  const double idle = static_cast<double>(p.steps() * p.splits) / static_cast<double>(p.units()) *
                      std::max(1.0, blocks_each * sms / BlocksOf(p) * 0.8);
  const double halo =
      static_cast<double>(p.walk() * p.row_groups) /
      static_cast<double>((p.rows * p.row_groups - 1) * p.row.stride + p.row.reach() + 1);
  return static_cast<double>(FloorBytes(group)) / rate * idle * (0.8 + 0.2 * halo);
}

// Seconds of the kernel that adds up a gradient's slices.
double SumSeconds(const RingPlan& p, const Machine& machine) {
  constexpr double kSumCycles = 3400;
  if (!p.wgrad) return 0;
  const double slices = static_cast<double>(p.splits * p.taps() * p.slabs * p.slab) * 8;
  return machine.StartSeconds() + machine.Seconds(kSumCycles) +
         slices / (ComparedMemory(machine) * kShareOfMemory);
}

}  // namespace

double RingCost(const Group& group, const Target& target, const RingPlan& p) {
  constexpr double kPrologueCycles = 1700;
  const Machine machine = MachineOf(target);
  if (!p.fits) return kNoSeconds;
  if (p.period * p.taps() * p.strip > kMostProducts || Registers(p) > 240) return kNoSeconds;
  const double sms = std::max(target.multiprocessors, 1);
  const double blocks_each = std::ceil(BlocksOf(p) / sms);
  const RingBody body = BodyOf(p, group.graph[p.in].dims[2], machine);
  const double busy = BusySeconds(p, body, blocks_each, machine);
  const double moved = MovedSeconds(group, p, blocks_each, sms, machine);
  // The products alone, of all threads at a time.
  const auto made = static_cast<double>(NumElements(group.graph[p.out].dims));
  const double at_best =
      machine.Seconds(made * static_cast<double>(p.taps()) * machine.FmaSlots() / machine.issue) /
      machine.multiprocessors;
  const double own_memory =
      OwnMemorySeconds(machine, static_cast<double>(FloorBytes(group)) / kShareOfMemory, at_best);
  return machine.StartSeconds() + machine.Seconds(kPrologueCycles) + SumSeconds(p, machine) +
         own_memory + std::max(busy, moved) + 0.15 * std::min(busy, moved);
}

}  // namespace kiln::compiler
