#include "compiler/engines/conv_direct/ring_stages.h"

#include <utility>

namespace kiln::compiler {

using tile::Block;
using tile::Expr;

RingStages::RingStages(const RingContext& context, const RingWalk& walk, const RingThread& thread,
                       Block& body)
    : x_(context), walk_(walk), split_(thread.split), first_channel_(thread.first_channel) {
  const RingPlan& p = x_.p;
  in_.tensor = p.in;
  in_.name = SharedArray(x_.b, body, "in_ring", x_.type(), p.depth * p.in_elements());
  in_.chunks = ChunksOf(body, p.staged_columns);
  if (!p.wgrad) return;
  dy_.tensor = p.out;
  dy_.name = SharedArray(x_.b, body, "dy_ring", x_.type(), p.depth * p.out_elements());
  dy_.chunks = ChunksOf(body, p.columns);
}

std::vector<RingStages::Chunk> RingStages::ChunksOf(Block& out, int64_t columns) const {
  KernelBuilder& b = x_.b;
  const RingPlan& p = x_.p;
  const int64_t along = p.slab / p.chunk, count = p.images * columns * along;
  std::vector<Chunk> chunks;
  for (int64_t first = 0; first < count; first += p.threads()) {
    Chunk c;
    const Expr number = b.Let(out, "number", Var(b, "tx") + b.Idx(first));
    if (first + p.threads() > count)
      c.exists = b.Let(out, "exists", tile::Lt(number, b.Idx(count)));
    const Expr pixel = b.Let(out, "pixel", number / b.Idx(along));
    const Expr local = b.Let(out, "local", number % b.Idx(along) * b.Idx(p.chunk));
    c.image = b.Let(out, "image", pixel / b.Idx(columns));
    c.col = b.Let(out, "col", pixel % b.Idx(columns));
    c.channel = b.Let(out, "channel", first_channel_ + local);
    c.to = b.Let(out, "to", pixel * b.Idx(p.pitch) + local);
    chunks.push_back(std::move(c));
  }
  return chunks;
}

void RingStages::Start(Block& body, const Expr& turn, int64_t stage) const {
  KernelBuilder& b = x_.b;
  const RingPlan& p = x_.p;
  const Expr number = b.Let(body, "ahead", turn + b.Idx(stage / x_.stages()));
  const RingTurn at = walk_.TurnAt(body, number, split_);
  const int64_t first = stage % x_.stages() * p.group;
  const Expr slot = SlotAt(body, turn, stage);
  const Expr to = b.Let(body, "to_slot", slot * b.Idx(p.in_elements()));
  const Expr first_col = at.first * b.Idx(p.col.stride) - b.Idx(p.col.pad);
  const std::vector<Source> sources = SourcesOf(body, in_, at, first_col);
  for (int64_t k = 0; k < p.group; ++k) {
    const int64_t u = first + k;
    if (HitsOf(p, u).empty()) continue;
    const Expr row = b.Let(body, "row", at.in_row + b.Idx(u));
    const Expr is_read = tile::And(x_.Inside(row, b.Extent(p.in, 2)), walk_.IsWalked(at, u));
    const Expr has_row = b.Let(body, "has_row", tile::And(at.exists, is_read));
    StartRow(body, in_, sources, row, has_row,
             to + b.Idx(k * p.images * p.staged_columns * p.pitch));
  }
  if (p.wgrad) StartDy(body, at, first, slot);
  body.push_back({tile::CommitAsync{}});
}

void RingStages::StartDy(Block& body, const RingTurn& at, int64_t first, const Expr& slot) const {
  KernelBuilder& b = x_.b;
  const RingPlan& p = x_.p;
  const Expr to = b.Let(body, "dy_slot", slot * b.Idx(p.out_elements()));
  const std::vector<Source> sources = SourcesOf(body, dy_, at, at.first);
  int64_t k = 0;
  for (int64_t u = first; u < first + p.group; ++u) {
    if (u % p.row.stride != 0) continue;
    const Expr i = at.first_row + b.Idx(u / p.row.stride);
    const Expr row = b.Let(body, "dy_row", at.out_row + i);
    const Expr has_row = b.Let(body, "has_row", tile::And(at.exists, walk_.HasOutput(at, i)));
    StartRow(body, dy_, sources, row, has_row, to + b.Idx(k * p.images * p.columns * p.pitch));
    ++k;
  }
}

std::vector<RingStages::Source> RingStages::SourcesOf(Block& body, const Ring& ring,
                                                      const RingTurn& at,
                                                      const Expr& first_col) const {
  KernelBuilder& b = x_.b;
  std::vector<Source> sources;
  for (const Chunk& c : ring.chunks) {
    const Expr image = at.image + c.image, col = b.Let(body, "col", first_col + c.col);
    const Expr has_channel = tile::Lt(c.channel, b.Extent(ring.tensor, 1));
    Expr valid = tile::And(x_.Inside(col, b.Extent(ring.tensor, 3)), has_channel);
    if (x_.p.images > 1) valid = tile::And(valid, tile::Lt(image, b.Extent(ring.tensor, 0)));
    if (c.exists) valid = tile::And(c.exists, valid);
    const Expr from = b.Offset(ring.tensor, {image, c.channel, b.Idx(0), col});
    sources.push_back({b.Let(body, "from", from), b.Let(body, "valid", valid)});
  }
  return sources;
}

void RingStages::StartRow(Block& body, const Ring& ring, const std::vector<Source>& sources,
                          const Expr& row, const Expr& has_row, const Expr& to) const {
  KernelBuilder& b = x_.b;
  const Expr down = b.Let(body, "down", row * b.Stride(ring.tensor, 2));
  for (size_t k = 0; k < ring.chunks.size(); ++k) {
    const Expr valid = tile::And(has_row, sources[k].valid);
    Block copy;
    copy.push_back({tile::CopyAsync{ring.name, to + ring.chunks[k].to, b.Pointer(ring.tensor),
                                    sources[k].from + down, static_cast<int>(x_.p.chunk), valid}});
    if (ring.chunks[k].exists) {
      When(body, ring.chunks[k].exists, std::move(copy));
    } else {
      body.push_back(std::move(copy[0]));
    }
  }
}

Expr RingStages::SlotAt(Block& body, const Expr& turn, int64_t stage) const {
  KernelBuilder& b = x_.b;
  return b.Let(body, "slot", (turn * b.Idx(x_.stages()) + b.Idx(stage)) % b.Idx(x_.p.depth));
}

}  // namespace kiln::compiler
