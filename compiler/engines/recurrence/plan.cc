#include "compiler/engines/recurrence/plan.h"

#include <algorithm>
#include <cmath>

#include "compiler/engines/engine.h"
#include "compiler/machine/machine.h"

namespace kiln::compiler {

using graph::RnnCell;

namespace {

constexpr int kRegisters = 255;  // of a thread
constexpr int kColumnTile = 8, kRowTile = 16;
constexpr int kMostResident = 32;  // chunks, whose products are unrolled

// Room that products leave to one of them: registers that others take through it, shared memory,
// and how much of that its matrix may have.
struct Room {
  int taken = 0;
  int64_t shared_limit = 0, matrix_limit = 0;
};

// Registers of a thread that elements of all products keep through each: places, states, values.
int ElementRegisters(const RecurrencePlan& p) {
  const auto elements = [&](const RecurrenceProduct& of) {
    return static_cast<int>(CeilDiv(int64_t{of.units} * p.columns, p.threads()));
  };
  const bool is_lstm = p.shape.attrs.cell == RnnCell::kLstm;
  const auto kept = static_cast<int>(p.shape.blocks.kept);
  const int values =
      p.shape.is_grad ? 1 + kept + (is_lstm ? 2 : 1) : 2 * static_cast<int>(p.shape.blocks.gates);
  constexpr int kOfProjection = 6;
  return elements(p.of_units()) * (3 + (is_lstm ? 2 : 1) + values) +
         (p.shape.is_projected ? elements(p.products[1]) * kOfProjection : 0) +
         (p.shape.stages > 1 ? elements(p.of_units()) : 0);
}

// A stage of a stack asks for what is below, and multiplies it, while its own states are on their
// way, which hides little of it, and of a gradient nothing: that sends all gates up and reads more
// from memory. Seen on an H200 (docs/log): steps of 2.3 us forward and 2.7 to 3.4 of
// gradients, for which 2.0 to 2.4 were predicted.
double BelowCycles(const RecurrencePlan& plan, double work) {
  constexpr double kAskCycles = 1020, kHiddenCycles = 255, kMemoryCycles = 680;
  return kAskCycles / static_cast<double>(plan.ask_every()) + work - kHiddenCycles +
         (plan.shape.is_grad ? kMemoryCycles : 0);
}

// A step waits for the exchange, and then multiplies, adds up and makes cells one after the other.
// Seen on an H100 (docs/log): a counter that blocks arrive at and thread 0 polls takes 0.86
// us for 16 blocks and 0.98 for 128, reading what the others have written 0.3 us and its bytes.
// With numbers a step is one way there and back, until many blocks ask for few bytes again and
// again. Few loads on their way take longer, by about the time of some dozens of instructions each
// time that all of them are waited for. A matrix that is streamed comes with the states, and from
// memory what the L2 cache does not keep.
// What a thread carries of several elements of a gradient, for each gate, has no room in registers.
// `all`: bytes that are streamed in a step.
double ProductSeconds(const RecurrencePlan& plan, const RecurrenceProduct& p, int64_t all,
                      const Target& target) {
  constexpr double kArrivalCycles = 2040, kNumberedCycles = 1530, kCyclesOfBlocks = 0.119,
                   kCyclesOfPart = 1.7, kShareOfFma = 0.625, kCellCycles = 300,
                   kCyclesOfElement = 60, kWaitCycles = 100, kOfCache = 0.7, kOfMemory = 0.7,
                   kCyclesOfSecond = 71, kCyclesOfFourth = 481;  // elements and those behind
  const Machine machine = MachineOf(target);
  const int tiles = p.columns / kColumnTile, passes = tiles / p.pass;
  const double sums = static_cast<double>(p.rows()) * p.columns,
               products = sums * static_cast<double>(p.pitch()),
               columns = plan.numbered && !p.is_below
                             ? static_cast<double>(std::min<int64_t>(p.columns, plan.shape.batch))
                             : p.columns,
               states = (plan.numbered && !p.is_below ? 2 : 1) * p.row_warps * columns *
                        static_cast<double>(p.pitch() * p.element_bytes);
  const double streamed = static_cast<double>(p.streamed() * p.chunk_bytes());
  const double matrix = static_cast<double>(p.in_shared * p.chunk_bytes()) * passes + 2 * streamed;
  const double resident = static_cast<double>(passes) * (p.held + p.in_shared);
  const int64_t elements = CeilDiv(int64_t{p.units} * p.columns, plan.threads());
  const double carried = kCyclesOfSecond * static_cast<double>(std::max<int64_t>(0, elements - 1)) +
                         kCyclesOfFourth * static_cast<double>(std::max<int64_t>(0, elements - 3));
  // A read of shared memory is 16 bytes of states for all lanes, and four products of each of their
  // rows.
  const double rate = plan.fma      ? kShareOfFma * machine.fma
                      : plan.rounds ? machine.mma.tf32
                                    : machine.mma.f16;
  const double multiplying = products / rate;
  const double cycles =
      multiplying + (8.0 * p.depth_warps() * sums + matrix) / machine.shared_bytes +
      kWaitCycles * resident / p.ahead + (p.is_below ? 0 : kCellCycles) +
      kCyclesOfElement * static_cast<double>(elements) +
      (plan.shape.is_grad ? carried * static_cast<double>(plan.shape.blocks.gates) : 0);
  const bool is_cached = static_cast<double>(all) < kOfCache * static_cast<double>(target.l2_bytes);
  const double from_memory = static_cast<double>(plan.blocks()) * streamed;
  const double reading = std::max((states + streamed) / machine.l2_share(),
                                  is_cached ? 0 : from_memory / (kOfMemory * machine.memory));
  if (p.is_below) return reading + machine.Seconds(BelowCycles(plan, cycles));
  const auto blocks = static_cast<double>(plan.blocks());
  const double waiting = plan.numbered
                             ? kNumberedCycles + kCyclesOfBlocks * blocks * blocks
                             : kArrivalCycles + kCyclesOfPart * static_cast<double>(plan.parts);
  return reading + machine.Seconds(waiting + cycles);
}
// Clusters of so many blocks that run at a time: some GPC has fewer multiprocessors than others.
int64_t ResidentClusters(const Target& target, int64_t blocks) {
  const int64_t gpcs = MachineOf(target).gpcs;
  return std::max<int64_t>(1, gpcs * (target.multiprocessors / gpcs / blocks) - 1);
}
// A product of a cluster's states, which lie in shared memory. A step is one way to the others,
// what is sent on it, and cells; of products and sums half is done while states still come. Seen on
// an H100 (docs/log): LSTM of 128 to 512 units 0.96 to 1.12 us a step with one sequence,
// 1.22 to 1.81 with 16, GRU 0.76 to 0.93 and 0.92 to 1.62. A gradient waits for what the forward
// pass has kept, too.
double ClusteredSeconds(const RecurrencePlan& plan, const RecurrenceProduct& p,
                        const Target& target) {
  constexpr double kWayCycles = 646, kMemoryCycles = 850, kSentBytesPerCycle = 6, kOnTime = 0.5,
                   kChainCycles = 35, kCyclesOfGate = 250;
  const Machine machine = MachineOf(target);
  const double sums = static_cast<double>(p.rows()) * p.columns;
  const int passes = p.columns / kColumnTile / p.pass;
  const double multiplying = std::max(
      sums * static_cast<double>(p.pitch()) / (plan.rounds ? machine.mma.tf32 : machine.mma.f16),
      2.0 * kChainCycles * p.chunks * passes);
  const double states = static_cast<double>(p.columns * p.pitch() * p.element_bytes);
  const double sent =
      states * static_cast<double>(std::min<int64_t>(p.columns, plan.shape.batch)) / p.columns;
  const double through_shared = p.row_warps * states + 8.0 * p.depth_warps() * sums +
                                static_cast<double>(p.in_shared * p.chunk_bytes()) * passes;
  const int64_t elements = CeilDiv(int64_t{p.units} * p.columns, plan.threads());
  const double cycles = std::max(sent / kSentBytesPerCycle,
                                 kOnTime * (multiplying + through_shared / machine.shared_bytes)) +
                        kCyclesOfGate * static_cast<double>(plan.shape.blocks.gates * elements);
  return machine.Seconds(kWayCycles + (plan.shape.is_grad ? kMemoryCycles : 0) + cycles);
}
double StepSeconds(const RecurrencePlan& plan, const Target& target) {
  double seconds = 0;
  for (const RecurrenceProduct& p : plan.products)
    seconds += plan.clustered && !p.is_below
                   ? ClusteredSeconds(plan, p, target)
                   : ProductSeconds(plan, p, plan.streamed_bytes(), target);
  return seconds;
}

// Bytes of states that are read from shared memory.
int64_t StateBytes(const RecurrencePlan& plan, const RecurrenceProduct& p) {
  if (p.is_below) return 0;
  if (plan.clustered) return 2 * p.columns * (p.pitch() + p.chunk()) * p.element_bytes + 16;
  return plan.fma ? p.columns * p.pitch() * 4 : 0;
}

// States with numbers are all asked for at once, so that few have room, and all of the matrix is in
// registers. Two units are stored together, and lanes read whole pieces of the depth.
bool PlaceNumbered(const RecurrencePlan& plan, RecurrenceProduct& p, const Room& room) {
  constexpr int kAddresses = 48, kMostPieces = 8;
  const int tiles = p.columns / kColumnTile, vector = 16 / p.element_bytes;
  if (plan.fma || p.pass != 1 || tiles * p.chunks > kMostPieces || p.units % 2 != 0 ||
      p.outputs % 2 != 0 || p.depth % vector != 0)
    return false;
  p.held = p.chunks;
  p.in_shared = 0;
  p.stages = 1;
  const int taken = kAddresses + ElementRegisters(plan) + p.row_tiles * 4 + tiles * p.chunks * 8 +
                    p.held_registers() + room.taken;
  return taken <= kRegisters &&
         p.sums() * 4 * (plan.shape.is_projected ? 1 : 2) <= room.shared_limit;
}

// Places a block's matrix for a number of column tiles that are multiplied together and of loads
// that are ahead: in registers what they have room for, then in shared memory. The rest is
// streamed, once a step, so that all columns are multiplied together. False if that cannot be.
bool Place(const RecurrencePlan& plan, RecurrenceProduct& p, const Room& room) {
  constexpr int kAddresses = 44, kMostSums = 64, kMostStreamedSums = 128, kMostStages = 8;
  // Values of elements may wait in the L1 cache while a product that is long anyway is made.
  constexpr int kMostSpilled = 40;
  constexpr int64_t kRingBytes = 96 * 1024;
  const int tiles = p.columns / kColumnTile, sums = p.row_tiles * p.pass * 4;
  const int on_their_way =
      plan.fma ? 16 + 2 * p.row_tiles : std::max(p.ahead * p.pass * 4, p.fetched_registers());
  const int taken = kAddresses + ElementRegisters(plan) + sums + on_their_way + room.taken;
  const auto resident = [&] { return p.in_shared * p.chunk_bytes(); };
  const int64_t works = plan.clustered && !p.is_below ? 2 : 1;
  const auto shared = [&] { return works * p.work_bytes() + resident() + StateBytes(plan, p); };
  p.held =
      std::clamp((kRegisters - taken) / (8 * p.row_tiles), 0, std::min(p.chunks, kMostResident));
  p.stages = 1;
  p.in_shared = p.chunks - p.held;
  if (p.chunks <= kMostResident && shared() <= room.shared_limit && resident() <= room.matrix_limit)
    return sums <= kMostSums;
  if (plan.clustered || plan.fma || plan.shape.stages > 1 || p.pass < tiles ||
      sums > kMostStreamedSums || taken > kRegisters + kMostSpilled)
    return false;
  p.in_shared = 0;
  p.stages =
      static_cast<int>(std::clamp<int64_t>(kRingBytes / p.ring_chunk_bytes(), 2, kMostStages));
  const int64_t left = std::min(room.shared_limit - shared(), room.matrix_limit);
  if (left < 0) return false;
  p.in_shared = static_cast<int>(
      std::min<int64_t>({left / p.chunk_bytes(), p.chunks - p.held - 1, kMostResident - p.held}));
  p.in_shared = std::max(p.in_shared, 0);
  p.stages = std::min(p.stages, p.streamed());
  return p.streamed() > 0;
}

// Divides warps between rows and depth, registers and shared memory between the matrix, sums and
// what is on its way. False if the block is too large.
bool PlaceMatrix(const RecurrencePlan& plan, RecurrenceProduct& p, const Target& target,
                 const Room& room) {
  // A lane of FMA units has a row of 32.
  const int row_tile = plan.fma ? 2 * kRowTile : kRowTile;
  const int row_tiles =
      static_cast<int>(CeilDiv(int64_t{p.units} * p.gates, row_tile)) * (plan.fma ? 2 : 1);
  const int64_t chunks = std::max<int64_t>(1, CeilDiv(p.depth, p.chunk()));
  const int tiles = p.columns / kColumnTile;
  RecurrenceProduct best;
  double least = kNoSeconds;
  for (const int row_warps : {1, 2, 4}) {
    if (row_warps > (plan.fma ? 1 : row_tiles) ||
        (row_warps == 4 && (!plan.clustered || p.is_below)))
      continue;
    RecurrenceProduct q = p;
    q.row_warps = row_warps;
    q.row_tiles = static_cast<int>(CeilDiv(row_tiles, row_warps));
    q.chunks = static_cast<int>(CeilDiv(chunks, q.depth_warps()));
    for (q.pass = 1; q.pass <= (plan.fma ? 1 : tiles); q.pass *= 2) {
      for (const int loading : {24, 32, 48}) {
        q.ahead = std::clamp(loading / (4 * q.pass), 1, tiles / q.pass * q.chunks);
        const bool is_numbered = plan.numbered && !q.is_below;
        if (!(is_numbered ? PlaceNumbered(plan, q, room) : Place(plan, q, room))) continue;
        // Others of the plan are placed, or count nothing yet.
        const int64_t all = plan.streamed_bytes() + plan.blocks() * q.streamed() * q.chunk_bytes();
        const bool is_clustered = plan.clustered && !q.is_below;
        const double seconds =
            is_clustered ? ClusteredSeconds(plan, q, target) : ProductSeconds(plan, q, all, target);
        if (seconds > least) continue;
        least = seconds;
        best = q;
      }
    }
  }
  if (least < kNoSeconds) p = best;
  return least < kNoSeconds;
}

// The matrices of all products. That of a projection is placed first, in a share of what there is.
bool PlaceMatrices(RecurrencePlan& p, const Target& target) {
  const int64_t limit = target.shared_limit();
  if (p.products.size() == 1) return PlaceMatrix(p, p.products[0], target, {0, limit, limit});
  RecurrencePlan best;
  double least = kNoSeconds;
  // Registers that matrices have beside what a product needs.
  constexpr int kOfMatrices = 112;
  for (const double share : {0.0, 0.2, 0.5, 0.8}) {
    RecurrencePlan q = p;
    RecurrenceProduct &units = q.products[0], &projection = q.products[1];
    if (!PlaceMatrix(q, projection, target,
                     {static_cast<int>((1 - share) * kOfMatrices), limit,
                      static_cast<int64_t>(static_cast<double>(limit) * share)}))
      continue;
    // Both work in one place, but for sums with numbers, and those of a stack.
    const int64_t work = projection.work_bytes() + StateBytes(q, projection),
                  kept = projection.in_shared * projection.chunk_bytes();
    if (!PlaceMatrix(
            q, units, target,
            {projection.held_registers() + projection.fetched_registers(),
             limit - kept - (q.numbered || p.shape.stages > 1 ? work : 0), limit - kept - work}) ||
        q.shared_bytes() > limit)
      continue;
    const double seconds = StepSeconds(q, target);
    if (seconds >= least) continue;
    least = seconds;
    best = q;
  }
  if (least < kNoSeconds) p = best;
  return least < kNoSeconds;
}

// Blocks of the largest cluster that runs on every board of so many multiprocessors: some GPC has
// its share of them at least. More than 8 have to be allowed, which minimal launches do not do.
int64_t MostOfCluster(const Target& target) {
  constexpr int64_t kEverywhere = 8;
  const Machine machine = MachineOf(target);
  const int64_t share = target.minimal_launch ? 0 : CeilDiv(target.multiprocessors, machine.gpcs);
  return std::min<int64_t>(machine.cluster, std::max(kEverywhere, share));
}

// True if a group of sequences may be a cluster, whose units are sent by pieces of 16 bytes.
bool MayCluster(const RecurrencePlan& p, const Target& target) {
  const RecurrenceProduct& units = p.of_units();
  const int vector = 16 / p.element_bytes();
  // Stages wait for one another, so that all of them have to be resident.
  if (p.shape.stages > 1 && p.groups * p.shape.stages > ResidentClusters(target, p.parts))
    return false;
  return !p.fma && !p.shape.is_projected && p.parts > 1 && p.parts <= MostOfCluster(target) &&
         units.units % vector == 0 && p.shape.hidden % vector == 0;
}

// As the exchange is wished for, or the fastest one.
bool PlaceLoop(RecurrencePlan& p, const Target& target, int exchange) {
  RecurrencePlan best;
  double least = kNoSeconds;
  for (const int way : {kCounted, kNumbered, kClustered}) {
    if (exchange != 0 && exchange != way) continue;
    if (way == kClustered && !MayCluster(p, target)) continue;
    // Gradients of a stack were five times as slow so, which is not understood: on request alone.
    if (exchange == 0 && way == kClustered && p.shape.stages > 1 && p.shape.is_grad) continue;
    RecurrencePlan q = p;
    q.numbered = way == kNumbered;
    q.clustered = way == kClustered;
    if (q.clustered) q.first_groups = q.groups;
    if (!PlaceMatrices(q, target)) continue;
    const double seconds = RecurrenceSeconds(q, target);
    if (seconds > least) continue;
    least = seconds;
    best = q;
  }
  if (least < kNoSeconds) p = best;
  return least < kNoSeconds;
}

Status CheckShape(const RecurrenceShape& shape) {
  if (shape.accumulator != DType::kF32)
    return Status::Error(Code::kUnsupportedDataType, "it computes in f32, the recurrence in {}",
                         Info(shape.accumulator).text);
  return {};
}

// The products of a step, not yet placed.
void AddProducts(RecurrencePlan& p, int units) {
  const RecurrenceShape& shape = p.shape;
  const int64_t gradients = shape.blocks.gates * shape.hidden;
  const RecurrenceProduct common{
      .element_bytes = p.element_bytes(), .columns = p.columns, .warps = p.warps};
  RecurrenceProduct of_units = common;
  of_units.outputs = shape.hidden;
  of_units.units = units;
  of_units.gates = shape.is_grad ? 1 : static_cast<int>(shape.blocks.gates);
  of_units.depth = !shape.is_grad || shape.is_projected ? shape.projected : gradients;
  p.products = {of_units};
  if (shape.stages > 1) {
    p.products.push_back(of_units);
    p.products[1].is_below = true;
    return;
  }
  if (!shape.is_projected) return;
  RecurrenceProduct projection = common;
  projection.outputs = shape.projected;
  projection.units = static_cast<int>(CeilDiv(CeilDiv(shape.projected, p.parts), 2) * 2);
  projection.depth = shape.is_grad ? gradients : shape.hidden;
  p.products.push_back(projection);
}

}  // namespace

Result<RecurrencePlan> RecurrencePlanOf(const RecurrenceShape& shape, const Target& target,
                                        const RecurrenceSplit& split, RecurrenceUnits units) {
  RETURN_IF_ERROR(CheckShape(shape));
  const bool fma = units == RecurrenceUnits::kFma;
  RecurrencePlan p{.shape = shape, .fma = fma, .rounds = shape.type == DType::kF32 && !fma};
  p.columns = split.columns;
  p.parts = std::max<int64_t>(1, CeilDiv(shape.hidden, split.units));
  p.groups = std::max<int64_t>(1, CeilDiv(shape.batch, p.columns));
  AddProducts(p, split.units);
  int64_t deepest = 0;
  for (const RecurrenceProduct& product : p.products) deepest = std::max(deepest, product.depth);
  p.warps = deepest <= 4 * p.of_units().chunk() ? 4 : 8;
  for (RecurrenceProduct& product : p.products) product.warps = p.warps;
  const int64_t resident = std::max(target.multiprocessors, 1);
  if (p.parts * shape.directions > resident)
    return Status::Error(Code::kUnsupportedShape,
                         "{} units, {} a block, in {} {} are {} blocks that wait for one "
                         "another, and {} run at a time",
                         shape.hidden, split.units, shape.directions,
                         shape.stages > 1 ? "layers" : "directions", p.parts * shape.directions,
                         resident);
  p.first_groups = std::min(p.groups, resident / (p.parts * shape.directions));
  if (!PlaceLoop(p, target, split.exchange))
    return Status::Error(
        Code::kSharedMemoryInsufficient,
        "{} units and {} sequences a block, of {} products each, are more than the "
        "registers and {} bytes of shared memory of {} hold",
        split.units, p.columns, deepest, target.shared_limit(), target.arch);
  return p;
}

std::vector<RecurrenceSplit> RecurrenceSplits(const RecurrenceShape& shape, const Target& target,
                                              int exchange, RecurrenceUnits of) {
  struct Ranked {
    RecurrenceSplit split;
    double seconds;
  };
  std::vector<Ranked> ranked;
  for (const int units : kRecurrenceUnits) {
    for (const int columns : kRecurrenceColumns) {
      if (units == 0 || columns == 0) continue;
      // Twice what there is does nothing for anybody.
      if ((units > 2 && units / 2 >= shape.hidden) || (columns > 8 && columns / 2 >= shape.batch))
        continue;
      const auto plan = RecurrencePlanOf(shape, target, {units, columns, exchange}, of);
      if (plan.ok())
        ranked.push_back({{units, columns, exchange}, RecurrenceSeconds(*plan, target)});
    }
  }
  std::ranges::stable_sort(ranked, {}, &Ranked::seconds);
  std::vector<RecurrenceSplit> splits;
  for (const Ranked& r : ranked) splits.push_back(r.split);
  return splits;
}

Result<RecurrencePlan> BestRecurrencePlan(const RecurrenceShape& shape, const Target& target,
                                          const RecurrenceSplit& wished, RecurrenceUnits units) {
  if (wished.units > 0 && wished.columns > 0) return RecurrencePlanOf(shape, target, wished, units);
  for (const RecurrenceSplit& liked : RecurrenceSplits(shape, target, wished.exchange, units))
    if ((wished.units == 0 || liked.units == wished.units) &&
        (wished.columns == 0 || liked.columns == wished.columns))
      return RecurrencePlanOf(shape, target, liked, units);
  // The sentence of the largest blocks.
  return RecurrencePlanOf(shape, target,
                          {wished.units == 0 ? 64 : wished.units,
                           wished.columns == 0 ? 8 : wished.columns, wished.exchange},
                          units);
}

// By which the last stage of a stack ends after the first one: each begins when the one below has
// made the steps that it asks for and two more.
double StageSeconds(const RecurrencePlan& p, const Target& target) {
  const int64_t behind = std::min(p.ask_every() + 2, p.shape.steps);
  return static_cast<double>(behind * (p.shape.stages - 1)) * StepSeconds(p, target);
}

// The first load of a gradient's matrix, which is transposed on its way. A forward pass copies
// rows, and was not seen to wait for them.
double LoadCycles(const RecurrencePlan& p) {
  constexpr double kBytesOfBlock = 21.176;  // a cycle
  const RecurrenceProduct& units = p.of_units();
  return p.shape.is_grad ? static_cast<double>(units.chunks * units.chunk_bytes()) / kBytesOfBlock
                         : 0;
}

double RecurrenceSeconds(const RecurrencePlan& p, const Target& target) {
  constexpr double kStartCycles = 5100;
  const Machine machine = MachineOf(target);
  const int64_t at_a_time =
      p.clustered ? ResidentClusters(target, p.parts) / p.shape.directions : p.first_groups;
  const double rounds = static_cast<double>(CeilDiv(p.groups, std::max<int64_t>(at_a_time, 1)));
  const int launches = p.clustered ? 1 : 2;  // counters begin as zeroes
  return launches * machine.StartSeconds() + machine.Seconds(kStartCycles + LoadCycles(p)) +
         StepSeconds(p, target) * rounds * static_cast<double>(p.shape.steps) +
         StageSeconds(p, target);
}

}  // namespace kiln::compiler
