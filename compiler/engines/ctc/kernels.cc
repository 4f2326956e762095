#include "compiler/engines/ctc/kernels.h"

#include <algorithm>
#include <limits>

namespace kiln::compiler {
namespace {

using graph::TensorId;
using tile::Bind;
using tile::Block;
using tile::Expr;

constexpr int kWarp = 32;
// Enough reads for a warp to have on their way.
constexpr int64_t kMostAtATime = 8;
// As IndexType's (kernel_builder.cc): room for the overhang of a last block.
constexpr int64_t kNarrowLimit = (int64_t{1} << 31) - (int64_t{1} << 24);

TensorId At(const std::vector<TensorId>& ids, size_t i) {
  return i < ids.size() ? ids[i] : graph::kAbsent;
}

}  // namespace

CtcProblem::CtcProblem(const Group& of, const Target& device) : group(of), target(device) {
  const graph::Node& node = group.graph.nodes.back();
  attrs = node.As<graph::CtcLossAttrs>();
  probs = node.inputs[0];
  labels = node.inputs[1];
  label_lengths = node.inputs[2];
  input_lengths = node.inputs[3];
  before = At(node.inputs, 4);
  costs = node.outputs[0];
  gradients = At(node.outputs, 1);
  const Dims& dims = group.graph[probs].dims;
  frames = dims[0];
  samples = dims[1];
  symbols = dims[2];
  label = std::min(attrs.max_label, NumElements(group.graph[labels].dims));
  states = 2 * label + 1;
  type = node.compute;
  const bool wide = 2 * frames * samples * states > kNarrowLimit || samples * label > kNarrowLimit;
  index = wide ? DType::kI64 : IndexType(group.graph);
}

CtcKernel::CtcKernel(const CtcProblem& p, const std::string& name)
    : p_(p), b_(p.group, p.target, "ctc, " + name, p.index) {
  for (const char* reserved : {"bx", "by", "tx"}) b_.Name(reserved);
}

Expr CtcKernel::NegInf() const {
  return tile::Float(-std::numeric_limits<double>::infinity(), p_.type);
}

Expr CtcKernel::Label() {
  if (!label_) label_ = b_.Arg("label", p_.label);
  return label_;
}

Expr CtcKernel::States() {
  if (!states_) states_ = b_.Arg("states", p_.states);
  return states_;
}

Expr CtcKernel::Integer(Block& out, TensorId tensor, const Expr& at) {
  ValueScope values(b_, out);
  return tile::Cast(DType::kI32, values.Value(tensor, {at}));
}

Expr CtcKernel::LabelAt(Block& out, const Expr& start, const Expr& i) {
  return b_.Let(out, "symbol", Integer(out, p_.labels, b_.Let(out, "place", start + i)));
}

Expr CtcKernel::LabelIf(Block& out, const Expr& exists, const Expr& start, const Expr& i) {
  const Cell symbol = NewCell(out, "label", tile::Int(0));
  Block inside;
  inside.push_back(symbol.Set(LabelAt(inside, start, i)));
  out.push_back({tile::If{exists, std::move(inside), {}}});
  return b_.Let(out, "symbol", symbol.Get());
}

Expr CtcKernel::Prob(Block& out, const Expr& t, const Expr& n, const Expr& k) {
  ValueScope values(b_, out);
  return values.Value(p_.probs, BroadcastIndex(b_, p_.group.graph[p_.probs], {t, n, k}));
}

Expr CtcKernel::Read(CtcScratch buffer, const Expr& at) {
  const bool whole = buffer == kCtcStates || buffer == kCtcLinks;
  const DType type = buffer == kCtcStarts ? p_.index : whole ? DType::kI32 : p_.type;
  std::string& name = scratch_[buffer];
  if (name.empty()) name = b_.Scratch(buffer, type, false);
  return tile::Load(name, type, at);
}

void CtcKernel::Write(Block& out, CtcScratch buffer, const Expr& at, Expr value) {
  Read(buffer, at);
  out.push_back({tile::Store{scratch_[buffer], at, std::move(value)}});
}

std::string CtcKernel::Registers(Block& out, const char* name, DType type, int64_t size) {
  std::string unique = b_.Name(name);
  out.push_back({tile::Alloc{unique, type, tile::Space::kReg, size}});
  return unique;
}

CtcKernel::Cell CtcKernel::NewCell(Block& out, const char* name, Expr value) {
  Cell cell = {Registers(out, name, value->type, 1), value->type};
  out.push_back(cell.Set(std::move(value)));
  return cell;
}

void CtcKernel::Loop(Block& out, const char* name, const Expr& extent, const Emit& emit,
                     Bind bind) {
  const std::string var = b_.Name(name);
  Block inside;
  emit(inside, tile::Var(var, p_.index));
  out.push_back({tile::For{var, p_.index, extent, bind, std::move(inside)}});
}

void CtcKernel::Strided(Block& out, const char* name, const Expr& count, const Expr& lane,
                        int64_t width, const Emit& emit) {
  if (width == 1) return Loop(out, name, count, emit);
  const Expr turns = tile::Op(ScalarOp::kMax, {count - lane + Idx(width - 1), Idx(0)}) / Idx(width);
  Loop(out, name, turns, [&](Block& inside, const Expr& turn) {
    emit(inside, b_.Let(inside, "at", turn * Idx(width) + lane));
  });
}

void CtcKernel::Batches(Block& out, const char* name, const Expr& count, const Expr& lane,
                        int64_t width, int64_t at_a_time,
                        const std::function<Expr(Block&, const Expr&)>& load,
                        const std::function<void(Block&, const std::vector<Item>&)>& use) {
  const Expr turns = (count + Idx(width * at_a_time - 1)) / Idx(width * at_a_time);
  Loop(out, name, turns, [&](Block& inside, const Expr& turn) {
    std::vector<Item> items;
    for (int64_t i = 0; i < at_a_time; ++i) {
      const Expr at = b_.Let(inside, "at", (turn * Idx(at_a_time) + Idx(i)) * Idx(width) + lane);
      items.push_back({.at = at, .inside = b_.Let(inside, "is_inside", tile::Lt(at, count))});
    }
    for (Item& item : items)
      item.value = load(inside, tile::Op(ScalarOp::kMin, {item.at, count - Idx(1)}));
    use(inside, items);
  });
}

int64_t CtcKernel::SymbolsAtATime(int64_t width) const {
  int64_t symbols = 1;
  while (symbols < kMostAtATime && symbols * width < p_.symbols) symbols *= 2;
  return p_.on_gpu() ? symbols : 1;
}

void CtcKernel::CombineLanes(Block& out, const Cell& cell, ScalarOp op) {
  for (int mask = p_.lanes() / 2; mask > 0; mask /= 2)
    out.push_back(cell.Set(tile::Op(op, {cell.Get(), tile::ShuffleXor(cell.Get(), mask)})));
}

Expr CtcKernel::LogSum(Block& out, const Expr& a, const Expr& b, const Expr& c) {
  const auto larger = [](const Expr& x, const Expr& y) {
    return tile::Op(ScalarOp::kMaxNan, {x, y});
  };
  const auto share = [](const Expr& x, const Expr& most) {
    return tile::Op(ScalarOp::kExp, {x - most});
  };
  const Expr most = b_.Let(out, "most", larger(larger(a, b), c));
  const Expr sum = share(a, most) + share(b, most) + share(c, most);
  const Expr is_finite = tile::Lt(tile::Op(ScalarOp::kAbs, {most}),
                                  tile::Float(std::numeric_limits<double>::infinity(), p_.type));
  return b_.Let(out, "log_sum",
                tile::Select(is_finite, most + tile::Op(ScalarOp::kLog, {sum}), most));
}

Expr CtcKernel::LogY(const Expr& x, const Expr& largest, const Expr& log_sum) const {
  const Expr value = tile::Cast(p_.type, x);
  return p_.attrs.softmax ? value - largest - log_sum : tile::Op(ScalarOp::kLog, {value});
}

void CtcKernel::Finish(std::array<int64_t, 3> grid, int threads, Lowered& lowered) {
  Block threads_level = std::move(body_), rows_level, blocks_level;
  if (p_.on_gpu()) {
    Block inside = std::move(threads_level);
    threads_level.clear();
    threads_level.push_back(
        {tile::For{"tx", p_.index, Idx(threads), Bind::kThreadX, std::move(inside)}});
  }
  if (grid[1] > 1) {
    rows_level.push_back({tile::For{"by", p_.index, b_.Arg("rows", grid[1]), Bind::kBlockY,
                                    std::move(threads_level)}});
  } else {
    rows_level.push_back({tile::Let{"by", Idx(0)}});
    std::ranges::move(threads_level, std::back_inserter(rows_level));
  }
  blocks_level.push_back(
      {tile::For{"bx", p_.index, b_.Arg("blocks", grid[0]), Bind::kBlockX, std::move(rows_level)}});
  b_.Finish(std::move(blocks_level), grid, threads, lowered);
}

void LowerCtcFrames(CtcKernel& kernel, int warps,
                    const std::function<void(Block&, const CtcFrame&)>& emit, Lowered& lowered) {
  const CtcProblem& p = kernel.p();
  KernelBuilder& b = kernel.b();
  Block& body = kernel.body();
  if (!p.on_gpu()) {
    kernel.Loop(body, "n", kernel.Samples(), [&](Block& out, const Expr& n) {
      emit(out, {.t = kernel.bx(),
                 .n = n,
                 .lane = b.Idx(0),
                 .lanes = 1,
                 .exists = tile::Bool(true),
                 .first_warp = tile::Bool(true)});
    });
    return kernel.Finish({p.frames, 1, 1}, 1, lowered);
  }
  CHECK(warps <= kCtcBlockWarps && kCtcBlockWarps % warps == 0, "{} warps a frame", warps);
  const int64_t rows = p.frames * p.samples, lanes = int64_t{kWarp} * warps,
                rows_of_block = kCtcBlockWarps / warps;
  const Expr count = b.Arg("frames", rows);
  const Expr row =
      b.Let(body, "row", kernel.bx() * b.Idx(rows_of_block) + kernel.tx() / b.Idx(lanes));
  const Expr safe = b.Let(body, "safe_row", tile::Op(ScalarOp::kMin, {row, count - b.Idx(1)}));
  const KernelBuilder::DivMod at = b.Divide(body, safe, kernel.Samples(), p.samples, "n");
  const Expr lane = b.Let(body, "lane", kernel.tx() % b.Idx(lanes));
  emit(body, {.t = at.quotient,
              .n = at.remainder,
              .lane = lane,
              .lanes = lanes,
              .exists = tile::Lt(row, count),
              .first_warp = tile::Lt(lane, b.Idx(kWarp))});
  kernel.Finish({CeilDiv(rows, rows_of_block), 1, 1}, kCtcBlockWarps * kWarp, lowered);
}

}  // namespace kiln::compiler
