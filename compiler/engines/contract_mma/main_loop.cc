#include "compiler/engines/contract_mma/main_loop.h"

namespace kiln::compiler {

using tile::Bind;
using tile::Block;
using tile::Expr;

void MmaMainLoop::Emit(Block& body, const MmaBlock& block, Totals& totals) const {
  KernelBuilder& b = x_.b;
  Fill(body, block.first_k);
  Block loop;
  const Expr step = Var(b, "step"), stages = b.Idx(x_.plan.stages);
  const Expr slot = b.Let(loop, "slot", step % stages);
  const Expr next = b.Let(loop, "next", (step + b.Idx(1)) % stages);
  const Expr ahead = b.Let(loop, "ahead", step + b.Idx(x_.plan.stages - 1));
  const Expr fill = b.Let(loop, "fill", ahead % stages);
  const Expr fill_k = b.Let(loop, "fill_k", block.first_k + ahead * b.Idx(x_.plan.depth));
  for (const OperandPanel* panel : {&a_, &b_})
    if (panel->is_async()) panel->Start(loop, fill_k, fill);
  if (AnyAsync()) loop.push_back({tile::CommitAsync{}});
  Loop(b, loop, "kk", b.Idx(x_.k_steps() - 1), Bind::kUnroll, [&](Block& inner, const Expr& kk) {
    LoadFragments(inner, (kk + b.Idx(1)) % b.Idx(2), slot, kk + b.Idx(1));
    std::string staged_a, staged_b;
    if (!a_.is_async()) staged_a = a_.ReadPart(inner, kk, fill_k);
    if (!b_.is_async()) staged_b = b_.ReadPart(inner, kk, fill_k);
    Multiply(inner, kk % b.Idx(2));
    if (!a_.is_async()) a_.WritePart(inner, kk, fill, staged_a);
    if (!b_.is_async()) b_.WritePart(inner, kk, fill, staged_b);
  });
  Await(loop, x_.plan.stages - 2);
  LoadFragments(loop, b.Idx(0), next, b.Idx(0));
  Multiply(loop, b.Idx((x_.k_steps() - 1) % 2));
  totals.AfterStep(loop, step, acc_);
  body.push_back({tile::For{"step", b.index_type(), block.steps, Bind::kSerial, std::move(loop)}});
  if (AnyAsync()) body.push_back({tile::WaitAsync{0}});
  totals.Finish(body, acc_);
}

// Fills the first stages - 1 slots.
void MmaMainLoop::Fill(Block& body, const Expr& first_k) const {
  KernelBuilder& b = x_.b;
  Loop(b, body, "stage", b.Idx(x_.plan.stages - 1), Bind::kSerial,
       [&](Block& one, const Expr& stage) {
         const Expr k = b.Let(one, "fill_k", first_k + stage * b.Idx(x_.plan.depth));
         for (const OperandPanel* panel : {&a_, &b_}) {
           if (panel->is_async()) {
             panel->Start(one, k, stage);
           } else {
             panel->CopyElements(one, k, stage);
           }
         }
         if (AnyAsync()) one.push_back({tile::CommitAsync{}});
       });
  Await(body, x_.plan.stages - 2);
  LoadFragments(body, b.Idx(0), b.Idx(0), b.Idx(0));
}

void MmaMainLoop::Await(Block& out, int stages) const {
  if (AnyAsync()) out.push_back({tile::WaitAsync{stages}});
  out.push_back({tile::Barrier{}});
}

void MmaMainLoop::LoadFragments(Block& out, const Expr& half, const Expr& slot,
                                const Expr& kk) const {
  a_.LoadFragments(out, half, slot, kk);
  b_.LoadFragments(out, half, slot, kk);
}

void MmaMainLoop::Multiply(Block& out, const Expr& half) const {
  KernelBuilder& b = x_.b;
  const int chunk = x_.plan.chunk(), columns = x_.warp_tiles_n();
  Loop(b, out, "i", b.Idx(x_.warp_tiles_m()), Bind::kUnroll, [&](Block& rows, const Expr& i) {
    Loop(b, rows, "j", b.Idx(columns), Bind::kUnroll, [&](Block& one, const Expr& j) {
      one.push_back(
          {tile::Mma{acc_, (i * b.Idx(columns) + j) * b.Idx(4), a_.fragments(),
                     half * b.Idx(a_.fragment_elements()) + i * b.Idx(chunk), b_.fragments(),
                     half * b.Idx(b_.fragment_elements()) + j * b.Idx(chunk / 2)}});
    });
  });
}

}  // namespace kiln::compiler
