#include "compiler/engines/recurrence_plan.h"

#include <algorithm>
#include <cmath>

#include "compiler/engines/contract_mma.h"

namespace kiln::compiler {

using graph::RnnCell;

namespace {

constexpr int kRegisters = 255;  // of a thread
constexpr int kColumnTile = 8, kRowTile = 16, kMostRowTiles = 8, kMostChunks = 24;

// Registers of a thread that its elements keep through a product: places, states, values.
int ElementRegisters(const RecurrencePlan& p) {
  const bool is_lstm = p.shape.attrs.cell == RnnCell::kLstm;
  const auto kept = static_cast<int>(p.shape.blocks.kept);
  const int values = p.shape.is_grad ? 1 + kept + (is_lstm ? 2 : 1)
                                     : static_cast<int>(p.shape.blocks.gates) + (is_lstm ? 0 : 1);
  const int elements = static_cast<int>(CeilDiv(int64_t{p.units} * p.columns, p.threads()));
  return elements * (3 + (is_lstm ? 2 : 1) + values);
}

// Divides registers between the matrix, sums and what is on its way; the rest of the matrix goes to
// shared memory, from which it is read in each pass. Few loads on their way take longer, by about
// the time of some dozens of instructions each time that all of them are waited for.
void PlaceMatrix(RecurrencePlan& p) {
  constexpr int kAddresses = 44, kMostSums = 64;
  constexpr double kSharedBytesPerCycle = 128, kWaitCycles = 100;
  const int tiles = p.columns / kColumnTile;
  double least = kNoSeconds;
  for (int pass = 1; pass <= tiles && p.row_tiles * pass * 4 <= kMostSums; pass *= 2) {
    for (const int loading : {24, 32, 48}) {
      const int loads = tiles / pass * p.chunks;
      const int ahead = std::clamp(loading / (4 * pass), 1, loads);
      const int taken = kAddresses + ElementRegisters(p) + (p.row_tiles + ahead) * pass * 4;
      const int held = std::clamp((kRegisters - taken) / (8 * p.row_tiles), 0, p.chunks);
      const double cycles = (p.chunks - held) * p.row_tiles * p.warps * 1024.0 * (tiles / pass) /
                                kSharedBytesPerCycle +
                            kWaitCycles * loads / ahead;
      if (cycles > least) continue;
      least = cycles;
      p.pass = pass, p.ahead = ahead, p.held = held;
    }
  }
}

Status CheckShape(const RecurrenceShape& shape) {
  if (shape.is_projected)
    return Status::Error(Code::kUnsupportedGraphPattern,
                         "states are projected from {} to {}: units exchange what they have made "
                         "once a step here",
                         shape.hidden, shape.projected);
  if (shape.accumulator != DType::kF32)
    return Status::Error(Code::kUnsupportedDataType, "it computes in f32, the recurrence in {}",
                         Info(shape.accumulator).text);
  return {};
}

}  // namespace

Result<RecurrencePlan> RecurrencePlanOf(const RecurrenceShape& shape, const Target& target,
                                        const RecurrenceSplit& split) {
  RETURN_IF_ERROR(CheckShape(shape));
  RecurrencePlan p{.shape = shape, .rounds = shape.type == DType::kF32};
  p.units = split.units;
  p.columns = split.columns;
  p.gates = shape.is_grad ? 1 : static_cast<int>(shape.blocks.gates);
  p.depth = shape.is_grad ? shape.blocks.gates * shape.hidden : shape.projected;
  p.row_tiles = static_cast<int>(CeilDiv(int64_t{p.units} * p.gates, kRowTile));
  const int64_t chunks = std::max<int64_t>(1, CeilDiv(p.depth, p.chunk()));
  p.warps = chunks <= 4 ? 4 : 8;
  p.chunks = static_cast<int>(CeilDiv(chunks, p.warps));
  p.parts = std::max<int64_t>(1, CeilDiv(shape.hidden, p.units));
  p.groups = std::max<int64_t>(1, CeilDiv(shape.batch, p.columns));
  const int64_t resident = std::max(target.multiprocessors, 1);
  if (p.parts * shape.directions > resident)
    return Status::Error(Code::kUnsupportedShape,
                         "{} units, {} a block, in {} directions are {} blocks that wait for one "
                         "another, and {} run at a time",
                         shape.hidden, p.units, shape.directions, p.parts * shape.directions,
                         resident);
  p.first_groups = std::min(p.groups, resident / (p.parts * shape.directions));
  if (p.row_tiles > kMostRowTiles || p.chunks > kMostChunks)
    return Status::Error(Code::kUnsupportedShape,
                         "{} units a block of {} products each are more than a block holds",
                         p.units, p.depth);
  PlaceMatrix(p);
  if (p.shared_bytes() > target.shared_limit())
    return Status::Error(Code::kSharedMemoryInsufficient,
                         "{} units and {} sequences a block take {} bytes of shared memory, {} has "
                         "{}",
                         p.units, p.columns, p.shared_bytes(), target.arch, target.shared_limit());
  return p;
}

std::vector<RecurrenceSplit> RecurrenceSplits(const RecurrenceShape& shape, const Target& target) {
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
      const auto plan = RecurrencePlanOf(shape, target, {units, columns});
      if (plan.ok()) ranked.push_back({{units, columns}, RecurrenceSeconds(*plan, target)});
    }
  }
  std::ranges::stable_sort(ranked, {}, &Ranked::seconds);
  std::vector<RecurrenceSplit> splits;
  for (const Ranked& r : ranked) splits.push_back(r.split);
  return splits;
}

// A step waits for the exchange, and then multiplies, adds up and makes cells one after the other.
// Seen on an H100 (docs/perf-log.md): a counter that blocks arrive at and thread 0 polls takes 0.86
// us for 16 blocks and 0.98 for 128, reading what the others have written 0.3 us and its bytes.
double RecurrenceSeconds(const RecurrencePlan& p, const Target& target) {
  constexpr double kClock = 1.7e9, kLaunchSeconds = 8e-6, kArrivalSeconds = 1.2e-6,
                   kSecondsOfPart = 1e-9, kExchangedBytesPerSecond = 0.8e11,
                   kSharedBytesPerCycle = 128, kCellCycles = 300, kCyclesOfElement = 60;
  const double sums = 16.0 * p.row_tiles * p.columns,
               products = sums * static_cast<double>(p.pitch()),
               read = static_cast<double>(p.columns * p.pitch() * p.element_bytes());
  const double matrix =
      static_cast<double>(p.shared_bytes() - 4 * p.sums()) * (p.columns / kColumnTile / p.pass);
  const int64_t elements = CeilDiv(int64_t{p.units} * p.columns, p.threads());
  const double cycles = products / (MmaMultiplyAddsPerCycle(target) * (p.rounds ? 0.5 : 1.0)) +
                        (8.0 * p.warps * sums + matrix) / kSharedBytesPerCycle + kCellCycles +
                        kCyclesOfElement * static_cast<double>(elements);
  const double step = kArrivalSeconds + kSecondsOfPart * static_cast<double>(p.parts) +
                      read / kExchangedBytesPerSecond + cycles / kClock;
  const double rounds = static_cast<double>(CeilDiv(p.groups, p.first_groups));
  return kLaunchSeconds + step * rounds * static_cast<double>(p.shape.steps);
}

}  // namespace kiln::compiler
