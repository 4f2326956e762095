// attention_decode: attention of few queries over many keys.
//
// Takes: from sm_80 on, up to 256 rows of heads and queries that share a head of k and v, which lie
// in memory as rows of whole 16 bytes, behind page tables of any page size or not.
//
// How: the heads that share keys are rows of one tile, so that each key is read once. Keys are
// split as a model of bandwidth, bytes in flight and multiprocessors says, and a second kernel adds
// the splits up. Each warp has keys and a ring of copies of its own, and reads page tables a step
// ahead. decode_plan.cc says which groups it takes and what they cost, decode_kernel.cc writes the
// kernels.
//
// Wins: for decoding: 0.96 to 1.01 of a copy's rate at batch 64 with 32768 keys (H100).
//
// Declines: more rows that share a head of keys; rows of k or v that are computed, or that are no
// whole aligned 16 bytes.
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
