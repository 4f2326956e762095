#include "compiler/engines/recurrence/sm90_plan.h"

#include <algorithm>

#include "compiler/engines/engine.h"
#include "compiler/machine/machine.h"

namespace kiln::compiler {

using graph::RnnCell;

namespace {

constexpr int kMostRows = 160;  // of the matrix: accumulators of a thread are half as many
constexpr int kConsumers = 256;

// Registers of a thread for an element from step to step: its length, states and what the next step
// reads.
int ElementRegisters(const RecurrenceRingPlan& p) {
  const bool is_lstm = p.shape.attrs.cell == RnnCell::kLstm;
  const auto gates = static_cast<int>(p.shape.blocks.gates),
             kept = static_cast<int>(p.shape.blocks.kept);
  const int values = p.shape.is_grad ? 1 + kept + (is_lstm ? 2 : 1) : gates;
  return 1 + (is_lstm ? 2 : 1) + values;
}

// Blocks that are resident together in clusters. The multiprocessors of a GPC are whole pairs;
// what a GPC cannot fill with clusters of more stays idle.
int64_t ResidentBlocks(const Target& target, int cluster) {
  constexpr int kPair = 2;
  const int64_t all = std::max(target.multiprocessors, 1);
  if (cluster == 1) return all;
  const int64_t lost = cluster > kPair ? int64_t{MachineOf(target).gpcs} * (cluster - kPair) : 0;
  return std::max<int64_t>(0, (all - lost) / cluster * cluster);
}

// The ring has what is on its way in some microseconds; the matrix has the rest.
bool PlaceMatrix(RecurrenceRingPlan& p, const Target& target) {
  constexpr int64_t kRingBytes = 96 * 1024;
  constexpr int kMostStages = 8;
  const int64_t limit = target.shared_limit();
  const auto place = [&](int resident) {
    p.resident = resident;
    p.stages = static_cast<int>(std::clamp<int64_t>(kRingBytes / p.slot_bytes(), 2, kMostStages));
    // Groups that take chunks in turns see every second one: a slot has to be one group's, which
    // saw its phase before.
    if (p.columns == 64) p.stages += p.stages % 2;
    p.stages = std::min(p.stages, std::max(p.chunks, 2));
    return p.shared_bytes() <= limit;
  };
  for (int resident = p.chunks; resident >= 0; --resident)
    if (place(resident)) return true;
  return false;
}

}  // namespace

int64_t RecurrenceRingPlan::ring_bytes() const {
  return CeilDiv(std::max(stages * slot_bytes(), sum_bytes()), 1024) * 1024;
}

int64_t RecurrenceRingPlan::elements() const {
  return CeilDiv(int64_t{units} * (columns / split), kConsumers);
}

Result<RecurrenceRingPlan> RecurrenceRingPlanOf(const RecurrenceShape& shape, const Target& target,
                                                const RecurrenceRingSplit& split) {
  constexpr int kRegisters = 176;  // for elements and sums
  if (shape.accumulator != DType::kF32)
    return Status::Error(Code::kUnsupportedDataType, "it computes in f32, the recurrence in {}",
                         Info(shape.accumulator).text);
  if (shape.is_projected)
    return Status::Error(Code::kUnsupportedGraphPattern, "states are projected");
  RecurrenceRingPlan p{.shape = shape, .element_bytes = static_cast<int>(SizeOf(shape.type))};
  p.units = split.units;
  p.columns = split.columns;
  p.split = split.split;
  p.gates = shape.is_grad ? 1 : static_cast<int>(shape.blocks.gates);
  p.depth = shape.is_grad ? shape.blocks.gates * shape.hidden : shape.hidden;
  p.parts = std::max<int64_t>(1, CeilDiv(shape.hidden, p.units));
  p.groups = std::max<int64_t>(1, CeilDiv(shape.batch, p.columns));
  if (p.rows() > kMostRows)
    return Status::Error(Code::kUnsupportedShape,
                         "{} units of {} gates are {} rows of the matrix; a block takes {}",
                         p.units, p.gates, p.rows(), kMostRows);
  const int64_t resident = ResidentBlocks(target, p.split),
                blocks = p.parts * shape.directions * p.split;
  if (blocks > resident)
    return Status::Error(Code::kUnsupportedShape,
                         "{} units, {} a cluster of {}, in {} directions are {} blocks that wait "
                         "for one another, and {} run at a time",
                         shape.hidden, p.units, p.split, shape.directions, blocks, resident);
  p.first_groups = std::min(p.groups, resident / blocks);
  p.chunks = static_cast<int>(std::max<int64_t>(1, CeilDiv(CeilDiv(p.depth, p.chunk()), p.split)));
  p.keeps_values = p.elements() * ElementRegisters(p) + p.rows() / 2 <= kRegisters;
  if (!PlaceMatrix(p, target))
    return Status::Error(Code::kSharedMemoryInsufficient,
                         "{} sequences and {} rows of the matrix are more than the {} bytes of "
                         "shared memory of {} hold",
                         p.columns, p.rows(), target.shared_limit(), target.arch);
  return p;
}

// Rates of a step, forward and of gradients, whose cells read and carry more.
struct RingRates {
  double arrival_cycles, cluster_cycles;
  double share_of_wgmma;
  double cycles_of_sum;
  double cycles_of_element;  // for each gate whose sums it has
  double cycles_of_late_element;
  double cycles_of_chunk;  // until its products begin
};
// The forward row is fitted to 35 splits of LSTMs of 64 to 512 sequences and 1024 and 2048 units, 6
// to 45 us a step on an H100; that of gradients to 56 splits of LSTMs, GRUs and tanh of 32 to 256
// sequences and 512 to 2048 units, with what the first load and spilled registers take
// (docs/log).
constexpr RingRates kForwardRates = {2550, 1139, 0.7324, 0.31, 95, 95, 0};
constexpr RingRates kGradientRates = {850, 2550, 0.7324, 0.54, 138, 138, 51};

// A step waits for the exchange, and then multiplies, adds up and makes cells one after the other.
// Products hide behind copies, or copies behind products. Bulk copies of all blocks have 44 GB a
// second each. How fast the matrix comes before the first step is an estimate. What a
// thread carries of a gradient's elements and sums, beyond some registers, goes to local memory and
// back: LSTM B 256 H 2048, 43 us a step by pairs (H200) and 71 by fours (H100).
double RecurrenceRingSeconds(const RecurrenceRingPlan& p, const Target& target) {
  constexpr double kCyclesOfBlock = 1.7, kShareOfCopies = 0.55, kOfCache = 0.7, kOfMemory = 0.7,
                   kStartCycles = 10200, kCyclesOfSpilled = 1224;
  // Bytes a cycle of what a block holds of the matrix, as it lies or turned around on its way.
  constexpr double kHeldBytes = 14.706, kTurnedBytes = 4.2353;
  constexpr int kMostUnspilled = 100;
  const RingRates& rates = p.shape.is_grad ? kGradientRates : kForwardRates;
  const Machine machine = MachineOf(target);
  const double sums = static_cast<double>(p.rows()) * p.columns;
  const double products = sums * p.chunks * p.chunk();
  const double streamed = static_cast<double>(p.streamed() * p.matrix_bytes()),
               states = static_cast<double>(p.chunks * p.state_bytes()) *
                        std::min(1.0, static_cast<double>(CeilDiv(p.shape.batch, 8) * 8) /
                                          static_cast<double>(p.columns));
  const bool is_cached =
      static_cast<double>(p.streamed_bytes()) < kOfCache * static_cast<double>(target.l2_bytes);
  const double reading = std::max(
      (states + streamed) / (kShareOfCopies * machine.l2_share()),
      is_cached ? 0 : static_cast<double>(p.streamed_bytes()) / (kOfMemory * machine.memory));
  const auto elements = static_cast<double>(p.elements());
  const double cycles =
      rates.cycles_of_sum * sums * (p.tiles() == 1 ? 2 : 1) + rates.cycles_of_chunk * p.chunks +
      elements * p.gates *
          (p.keeps_values ? rates.cycles_of_element : rates.cycles_of_late_element);
  const double multiplying = products / (rates.share_of_wgmma * machine.wgmma.Of(p.element_bytes));
  const double waiting = rates.arrival_cycles +
                         kCyclesOfBlock * static_cast<double>(p.parts * p.split) +
                         (p.split > 1 ? rates.cluster_cycles : 0);
  const double step =
      std::max(reading, machine.Seconds(multiplying)) + machine.Seconds(cycles + waiting);
  const int carried = p.shape.attrs.cell == RnnCell::kLstm ? 3 : 2;
  const double spilled =
      p.shape.is_grad ? std::max(0.0, elements * carried + p.rows() / 2.0 - kMostUnspilled) : 0;
  const double held = static_cast<double>(p.resident * p.matrix_bytes()) +
                      streamed / static_cast<double>(p.first_groups);
  const double rounds = static_cast<double>(CeilDiv(p.groups, p.first_groups));
  const double start = kStartCycles + held / (p.shape.is_grad ? kTurnedBytes : kHeldBytes);
  return machine.StartSeconds() + machine.Seconds(start) +
         (step + machine.Seconds(spilled * kCyclesOfSpilled)) * rounds *
             static_cast<double>(p.shape.steps);
}

std::vector<RecurrenceRingSplit> RecurrenceRingSplits(const RecurrenceShape& shape,
                                                      const Target& target) {
  struct Ranked {
    RecurrenceRingSplit split;
    double seconds;
  };
  std::vector<Ranked> ranked;
  for (const int units : kRingUnits) {
    for (const int columns : kRingColumns) {
      for (const int split : kRingSplits) {
        if (units == 0 || columns == 0 || split == 0) continue;
        // Twice what there is does nothing for anybody.
        if ((units > 8 && units / 2 >= shape.hidden) ||
            (columns > 64 && columns / 2 >= shape.batch))
          continue;
        const auto plan = RecurrenceRingPlanOf(shape, target, {units, columns, split});
        if (plan.ok())
          ranked.push_back({{units, columns, split}, RecurrenceRingSeconds(*plan, target)});
      }
    }
  }
  std::ranges::stable_sort(ranked, {}, &Ranked::seconds);
  std::vector<RecurrenceRingSplit> splits;
  for (const Ranked& r : ranked) splits.push_back(r.split);
  return splits;
}

}  // namespace kiln::compiler
