// The kernels of attention_decode: the skeleton over splits of the keys, and where there are
// several the one that adds them up. Rows of k and v are copied as they lie in memory: one function
// says where a row begins, through page tables if need be, another starts the copies from there.
#include "compiler/engines/attention/decode_plan.h"
#include "compiler/engines/attention/functions.h"
#include "compiler/kernel/attention_members.h"
#include "compiler/kernel/skeleton_call.h"

namespace kiln::compiler {
namespace {

using graph::Graph;
using graph::TensorId;
using tile::Block;
using tile::Call;
using tile::Expr;

constexpr int kCombinePitch = 12;  // floats of a thread's part (attention_decode.cuh)
constexpr int kVector = 8;
enum Scratch : int { kStatistics, kPartial };

class DecodeKernels {
 public:
  DecodeKernels(const Group& group, const Target& target, DecodePlan plan)
      : group_(group),
        target_(target),
        g_(group.graph),
        plan_(std::move(plan)),
        a_(plan_.problem.attention) {}

  void Lower(Lowered& lowered) {
    if (plan_.splits > 1) {
      const int64_t rows = plan_.problem.heads() * plan_.problem.queries * plan_.splits;
      lowered.scratch_bytes = {rows * 2 * SizeOf(DType::kF32),
                               rows * plan_.problem.width * SizeOf(DType::kF32)};
    }
    AddSplits(lowered);
    if (plan_.splits > 1) AddCombination(lowered);
  }

 private:
  KernelBuilder Builder(std::string what) const {
    KernelBuilder b(group_, target_, "attention_decode: " + std::move(what), plan_.index);
    for (const char* reserved :
         {"bx", "shape", "query", "key_place", "value_place", "key", "value", "score", "inside",
          "factor", "limits", "weight", "random", "finish", "rows", "first", "store"})
      b.Name(reserved);
    return b;
  }
  void AddSplits(Lowered& lowered) {
    const DecodeTile& tile = plan_.tile;
    KernelBuilder b = Builder(fmt::format("{} rows, {} warps with steps of {} keys in {} stages{}",
                                          tile.rows(), tile.warps, tile.keys, tile.stages,
                                          plan_.splits > 1 ? ", keys in splits" : ""));
    const DType type = g_[a_.q].dtype;
    const int64_t rank = g_[a_.score].rank();
    const std::string memory = b.Name("memory");
    Call call{.skeleton = "attention_decode_split", .maps = {}, .buffers = {memory}};
    Block shared;
    shared.push_back(
        {tile::Alloc{memory, type, tile::Space::kShared, DecodeSharedElements(plan_)}});
    AddPartial(b, call, shared);
    const bool is_async =
        AddRowsLoad(b, call, "query", memory, {a_.q, rank - 2, rank - 1}, SharedHeads(b, a_, a_.q));
    AddPlace(b, call, "key_place", {a_.k, rank - 1, rank - 2});
    AddPlace(b, call, "value_place", {a_.v, rank - 2, rank - 1});
    AddCopy(b, call, "key", memory, plan_.key, plan_.problem.depth);
    AddCopy(b, call, "value", memory, plan_.value, plan_.problem.width);
    const bool is_held = plan_.depth <= 128 && tile.row_tiles == 1;
    call.config = {{attention::kRowTiles, tile.row_tiles},
                   {attention::kWarps, tile.warps},
                   {attention::kKeys, tile.keys},
                   {attention::kDepth, plan_.depth},
                   {attention::kWidth, plan_.width},
                   {attention::kStages, tile.stages},
                   {attention::kAsync, is_async ? 1 : 0},
                   {attention::kHeld, is_held ? 1 : 0},
                   {attention::kReads, 1},
                   {attention::kSplits, plan_.splits > 1 ? 1 : 0},
                   {attention::kWide, plan_.index == DType::kI64 ? 1 : 0},
                   {attention::kF32, 0},
                   {attention::kPackBf16, type == DType::kBF16 ? 1 : 0}};
    AddShape(b, call);
    AttentionFunctions(b, a_).Add(call, graph::kAbsent, false);
    AddRowsStore(b, call, "store", a_.result, ScatterOf(g_, a_, a_.result));
    const int64_t blocks = plan_.blocks();
    b.Finish(CallOfBlocks(b, blocks, std::move(call), std::move(shared)), {blocks, 1, 1},
             32 * tile.warps, lowered);
  }

  // Adds the buffers where splits leave what they have; one split gets a word that nobody touches.
  void AddPartial(KernelBuilder& b, Call& call, Block& shared) const {
    if (plan_.splits > 1) {
      call.buffers.push_back(b.Scratch(kStatistics, DType::kF32, false));
      call.buffers.push_back(b.Scratch(kPartial, DType::kF32, false));
      return;
    }
    const std::string nothing = b.Name("nothing");
    shared.push_back({tile::Alloc{nothing, DType::kF32, tile::Space::kShared, 1}});
    call.buffers.insert(call.buffers.end(), {nothing, nothing});
  }

  void AddCombination(Lowered& lowered) {
    KernelBuilder b = Builder("adds up splits of the keys");
    const DType type = g_[a_.q].dtype;
    const int lanes = plan_.combine_lanes(), threads = plan_.combine_threads();
    const std::string memory = b.Name("memory");
    Call call{.skeleton = "attention_decode_combine",
              .maps = {},
              .buffers = {memory, b.Scratch(kStatistics, DType::kF32, false),
                          b.Scratch(kPartial, DType::kF32, false)}};
    call.config = {{attention::kLanes, lanes},
                   {attention::kWays, threads / lanes},
                   {attention::kInFlight, DecodePlan::kCombineInFlight},
                   {attention::kF32, 0},
                   {attention::kPackBf16, type == DType::kBF16 ? 1 : 0}};
    AddShape(b, call);
    AttentionFunctions(b, a_).AddResults(call);
    AddRowsStore(b, call, "store", a_.result, ScatterOf(g_, a_, a_.result));
    Block shared;
    shared.push_back(
        {tile::Alloc{memory, type, tile::Space::kShared, int64_t{threads} * kCombinePitch * 2}});
    const int64_t blocks = plan_.problem.heads() * plan_.problem.queries;
    b.Finish(CallOfBlocks(b, blocks, std::move(call), std::move(shared)), {blocks, 1, 1}, threads,
             lowered);
  }

  void AddShape(KernelBuilder& b, Call& call) const {
    const auto add = [&](const ShapeMember& member, int64_t value) {
      AddShapeMember(b, call, member, value);
    };
    add(attention::queries, plan_.problem.queries);
    add(attention::keys, plan_.problem.keys);
    add(attention::columns, plan_.problem.width);
    add(attention::sharing, plan_.sharing);
    add(attention::row_tiles, plan_.row_tiles());
    add(attention::splits, plan_.splits);
  }

  // function name(head, row, result out): where the row begins, or -1.
  void AddPlace(KernelBuilder& b, Call& call, const char* name, const OperandRows& rows) const {
    const DType t = b.index_type();
    Call::Function f{.name = name, .params = {}, .body = {}};
    const Expr head = AddScalar(b, f, "head", t), row = AddScalar(b, f, "row", t);
    const std::string result = AddArray(b, f, "result", t, 1, true);
    Index at = SharedHeads(b, a_, rows.id)(f.body, head);
    at[static_cast<size_t>(rows.places)] = row;
    at[static_cast<size_t>(rows.depth)] = b.Idx(0);
    const auto place = *ValueScope(b, f.body).PlaceOf(rows.id, at);
    const Expr offset =
        place.inside ? tile::Select(place.inside, place.offset, b.Idx(-1)) : place.offset;
    f.body.push_back({tile::Store{result, b.Idx(0), offset}});
    call.functions.push_back(std::move(f));
  }

  // function name(to, place, column)
  void AddCopy(KernelBuilder& b, Call& call, const char* name, const std::string& memory,
               const RowMemory& from, int64_t columns) const {
    const DType t = b.index_type();
    Call::Function f{.name = name, .params = {}, .body = {}};
    const Expr to = AddScalar(b, f, "to", t), place = AddScalar(b, f, "place", t),
               column = AddScalar(b, f, "column", t);
    const Expr inside =
        tile::And(tile::Ge(place, b.Idx(0)), tile::Lt(column, b.Arg("columns", columns)));
    f.body.push_back(
        {tile::CopyAsync{memory, to, b.Pointer(from.tensor), place + column, kVector, inside}});
    call.functions.push_back(std::move(f));
  }

  const Group& group_;
  const Target& target_;
  const Graph& g_;
  const DecodePlan plan_;
  const Attention& a_;
};

}  // namespace

void LowerDecode(const Group& group, const Target& target, DecodePlan plan, Lowered& lowered) {
  DecodeKernels(group, target, std::move(plan)).Lower(lowered);
}

}  // namespace kiln::compiler
