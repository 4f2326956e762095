#include "compiler/engines/attention/wgmma.h"

#include <algorithm>

#include "compiler/kernel/attention_members.h"
#include "compiler/machine/machine.h"

namespace kiln::compiler {

void WgmmaTile::Take(int groups_knob, int keys_knob, int turns_knob) {
  if (groups_knob > 0) groups = groups_knob;
  if (keys_knob > 0) keys = keys_knob;
  if (turns_knob < 2) ping_pong = turns_knob == 1;
  ping_pong &= groups > 1;  // one group has nobody to take turns with
}

Status CheckRegisters(const WgmmaTile& tile, int used, int width, const RegisterSplit& registers) {
  if (used <= registers.most) return {};
  return Status::Error(Code::kUnsupportedShape,
                       "{} groups with blocks of {} keys have too few registers for rows of {}",
                       tile.groups, tile.keys, width);
}

void AddWgmmaConfig(const AttentionProblem& problem, const WgmmaTile& tile,
                    const RegisterSplit& registers, const WgmmaLayout& layout, tile::Call& call) {
  call.config = {{attention::kGroups, tile.groups},
                 {attention::kKeys, tile.keys},
                 {attention::kDepth, layout.depth},
                 {attention::kWidth, layout.width},
                 {attention::kStages, layout.stages},
                 {attention::kBytes, layout.bytes},
                 {attention::kPingPong, tile.ping_pong ? 1 : 0},
                 {attention::kReads, problem.reads_by_place ? 1 : 0},
                 {attention::kBeside, layout.has_beside ? 1 : 0},
                 {attention::kBesideStages, layout.beside_stages},
                 {attention::kBesideHeads, layout.beside_heads ? 1 : 0},
                 {attention::kBesideImages, layout.beside_images ? 1 : 0},
                 {attention::kProducerRegisters, registers.producer},
                 {attention::kConsumerRegisters, registers.consumer},
                 {attention::kF32, 0},
                 {attention::kPackBf16, layout.packed == DType::kBF16 ? 1 : 0}};
}

namespace {

constexpr double kOtherTiles = 0.9;
// A tile's first scores, last product and store, of which nothing runs beside another's.
constexpr double kTileCycles = 2720;
// A block of keys for a group that is alone: its products and exponentials wait for each other.
constexpr double kLoneBlockCycles = 2210;

}  // namespace

double WgmmaSeconds(const AttentionProblem& problem, const WgmmaTile& tile, double columns,
                    double row_bytes, const WgmmaRates& rates, const Target& target,
                    bool is_default) {
  const Machine machine = MachineOf(target);
  const int64_t rows = 64 * tile.groups;
  const int64_t tiles = problem.heads() * CeilDiv(problem.queries, rows);
  const double waves = static_cast<double>(CeilDiv(tiles, int64_t{machine.multiprocessors}));
  const double keys = static_cast<double>(AlignUp(problem.keys, tile.keys));
  const double area = static_cast<double>(rows * tile.keys) / (128.0 * 128.0);
  const double speed = is_default ? 1 : kOtherTiles * std::clamp(area, 0.4, 1.0);
  const double products =
      static_cast<double>(rows) * keys * columns / (machine.wgmma.f16 * rates.share * speed);
  const double reading = keys * row_bytes / machine.l2_bytes;
  const double lone = tile.groups > 1 ? 0 : kLoneBlockCycles * keys / tile.keys;
  const double blocks = std::max({products, reading, lone});  // half of which masks hide
  const double cycles = waves * (kTileCycles + blocks * (problem.hides_blocks ? 0.5 : 1));
  return machine.launch_seconds + machine.Seconds(rates.start_cycles + cycles);
}

}  // namespace kiln::compiler
