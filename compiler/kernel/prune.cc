// See the header. A pass over the statements from the last to the first: names are unique and stand
// before their readers, so a let whose name has not been seen by then has none. Registers may be
// read in a later turn of a loop, textually before they are written, so their readers are gathered
// first.
#include "compiler/kernel/prune.h"

#include <algorithm>
#include <string>
#include <unordered_set>

#include "ir/tile/visit.h"

namespace kiln::compiler {
namespace {

using tile::Block;
using tile::Expr;
using tile::Stmt;

using Names = std::unordered_set<std::string>;

void AddReads(const Expr& e, Names& names) {
  if (e->kind == tile::ExprKind::kVar || e->kind == tile::ExprKind::kLoad) names.insert(e->name);
  for (const Expr& arg : e->args) AddReads(arg, names);
}

class Pruner {
 public:
  // True if something was taken off.
  bool Run(Block& body) {
    Gather(body);
    Prune(body);
    return changed_;
  }

 private:
  // Registers, and the buffers that something loads or copies from.
  void Gather(const Block& body) {
    tile::WalkExprs(body, [&](const Expr& e) {
      if (e->kind == tile::ExprKind::kLoad) loaded_.insert(e->name);
    });
    tile::Walk(body, [&](const Stmt& s) {
      tile::ForEachBuffer(s, [&](const std::string& buffer, tile::Access access) {
        if (access == tile::Access::kRead) loaded_.insert(buffer);
      });
      const auto* alloc = std::get_if<tile::Alloc>(&s.node);
      if (alloc != nullptr && alloc->space == tile::Space::kReg) registers_.insert(alloc->name);
    });
  }

  bool IsDeadRegister(const std::string& buffer) const {
    return registers_.contains(buffer) && !loaded_.contains(buffer);
  }

  bool Keep(Stmt& s) {
    if (auto* let = std::get_if<tile::Let>(&s.node)) {
      if (!used_.contains(let->name)) return false;
      AddReads(let->value, used_);
    } else if (auto* alloc = std::get_if<tile::Alloc>(&s.node)) {
      return !IsDeadRegister(alloc->name);
    } else if (auto* loop = std::get_if<tile::For>(&s.node)) {
      const bool was_empty = loop->body.empty();
      Prune(loop->body);
      const bool serial = loop->bind <= tile::Bind::kVector;
      if (serial && loop->body.empty() && !was_empty) return false;
      AddReads(loop->extent, used_);
    } else if (auto* branch = std::get_if<tile::If>(&s.node)) {
      // A place that is known to lie outside: its index may be none that a kernel can have.
      if (tile::IsConst(branch->condition, 0) && branch->else_body.empty()) return false;
      Prune(branch->then_body);
      Prune(branch->else_body);
      AddReads(branch->condition, used_);
    } else if (auto* call = std::get_if<tile::Call>(&s.node)) {
      for (tile::Call::Function& f : call->functions) Prune(f.body);
      for (const tile::Call::Member& member : call->shape) AddReads(member.value, used_);
    } else {
      bool dead = false;
      tile::ForEachBuffer(s, [&](const std::string& buffer, tile::Access access) {
        dead = dead || (access == tile::Access::kWrite && IsDeadRegister(buffer));
      });
      if (dead) return false;
      tile::ForEachExpr(s, [&](const Expr& e) { AddReads(e, used_); });
    }
    return true;
  }

  void Prune(Block& block) {
    std::vector<char> keep(block.size());
    for (size_t i = block.size(); i-- > 0;) keep[i] = Keep(block[i]);
    if (std::ranges::all_of(keep, [](char k) { return k != 0; })) return;
    changed_ = true;
    size_t to = 0;
    for (size_t i = 0; i < block.size(); ++i) {
      if (!keep[i]) continue;
      if (to != i) block[to] = std::move(block[i]);
      ++to;
    }
    block.resize(to);
  }

  Names registers_;  // arrays
  Names loaded_;     // what is read anywhere
  Names used_;       // what is read after the statement at hand
  bool changed_ = false;
};

}  // namespace

void Prune(Block& body) {
  while (Pruner().Run(body)) {
  }
}

}  // namespace kiln::compiler
