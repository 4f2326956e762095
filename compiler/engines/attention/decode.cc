// The attention_decode engine: its knobs and its row. attention/decode_plan.cc says which groups it
// takes and what they cost, attention/decode_kernel.cc writes the kernels.
#include "compiler/engines/attention/decode_plan.h"
#include "compiler/engines/attention/engines.h"
#include "compiler/engines/attention/family.h"
#include "compiler/machine/machine.h"

namespace kiln::compiler {
namespace {

constexpr int kRowsDomain[] = {0, 16, 32};
constexpr int kKeysDomain[] = {0, 16, 32, 64};
constexpr int kStagesDomain[] = {0, 2, 3, 4};
constexpr int kWarpsDomain[] = {0, 1, 2, 4, 8};
constexpr int kSplitsDomain[] = {0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128};
constexpr KnobRow kKnobRows[] = {
    {.name = "tile_rows", .cudnn_type = kKnobTileRows, .domain = kRowsDomain},
    {.name = "tile_keys", .cudnn_type = kKnobTileN, .domain = kKeysDomain},
    {.name = "stages", .cudnn_type = kKnobStages, .domain = kStagesDomain},
    {.name = "warps", .cudnn_type = kKnobBlockSize, .domain = kWarpsDomain},
    {.name = "splits", .cudnn_type = kKnobSplitKSlices, .domain = kSplitsDomain},
};

struct Decode {
  static constexpr const char* kName = "attention_decode";
  static constexpr int kVersion = 1;
  static constexpr auto kArithmetic = AttentionArithmetic::k16;
  static constexpr std::span<const KnobRow> kKnobs = kKnobRows;
  static constexpr auto kRunsOn = RunsOnMma;
  static constexpr decltype(Engine::any_order) kAnyOrder = nullptr;

  using Plan = DecodePlan;
  static Result<Plan> PlanOf(const Group& group) { return DecodePlanOf(group); }
  static Status TakeTile(Plan& p, const Target& target, std::span<const int> knobs) {
    return TakeDecodeTile(p, target,
                          {.rows = knobs[0],
                           .keys = knobs[1],
                           .stages = knobs[2],
                           .warps = knobs[3],
                           .splits = knobs[4]});
  }
  static int64_t SharedBytes(const Plan& p) { return 2 * DecodeSharedElements(p); }
  static double Seconds(const Plan& p, const Target& target, bool) {
    return DecodeSeconds(p, target);
  }
  static std::vector<std::vector<int>> Others(const Plan&) {
    std::vector<std::vector<int>> all;
    for (const int splits : kSplitsDomain)
      for (const int stages : {0, 2, 4})
        if (splits != 0 || stages != 0) all.push_back({0, 0, stages, 0, splits});
    return all;
  }
  static void Lower(const Group& group, const Target& target, Plan plan, Lowered& lowered) {
    LowerDecode(group, target, std::move(plan), lowered);
  }
};

}  // namespace

const Engine kAttentionDecodeEngine = AttentionEngine<Decode>::Row();

}  // namespace kiln::compiler
