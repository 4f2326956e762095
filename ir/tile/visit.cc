// Walks and rewrites: one place knows which expressions a statement holds.
#include "ir/tile/visit.h"

#include <utility>

namespace kiln::tile {
namespace {

template <class... F>
struct Overload : F... {
  using F::operator()...;
};
template <class... F>
Overload(F...) -> Overload<F...>;

Expr Rebuild(const Expr& e, std::vector<Expr> args) {
  switch (e->kind) {
    case ExprKind::kInt:
    case ExprKind::kFloat:
    case ExprKind::kVar:
      return e;
    case ExprKind::kLoad:
      return Load(e->name, e->type, std::move(args[0]));
    case ExprKind::kOp:
      return Op(e->op, std::move(args));
    case ExprKind::kCast:
      return Cast(e->type, std::move(args[0]));
    case ExprKind::kShuffle:
      return ShuffleXor(std::move(args[0]), static_cast<int>(e->int_value));
  }
  return e;
}

}  // namespace

void Walk(const Expr& e, const std::function<void(const Expr&)>& visit) {
  visit(e);
  for (const Expr& arg : e->args) Walk(arg, visit);
}

void Walk(const Block& block, const std::function<void(const Stmt&)>& visit) {
  for (const Stmt& s : block) {
    visit(s);
    if (const auto* loop = std::get_if<For>(&s.node)) Walk(loop->body, visit);
    if (const auto* branch = std::get_if<If>(&s.node)) {
      Walk(branch->then_body, visit);
      Walk(branch->else_body, visit);
    }
    if (const auto* call = std::get_if<Call>(&s.node))
      for (const Call::Function& f : call->functions) Walk(f.body, visit);
  }
}

void ForEachExpr(const Stmt& s, const std::function<void(const Expr&)>& visit) {
  std::visit(
      Overload{
          [&](const Let& n) { visit(n.value); },
          [&](const Store& n) { visit(n.index), visit(n.value); },
          [&](const Copy& n) { visit(n.dst_index), visit(n.src_index); },
          [&](const CopyAsync& n) { visit(n.dst_index), visit(n.src_index), visit(n.valid); },
          [&](const LoadMatrix& n) { visit(n.dst_index), visit(n.src_index); },
          [&](const Mma& n) { visit(n.acc_index), visit(n.a_index), visit(n.b_index); },
          [&](const AtomicAdd& n) { visit(n.index), visit(n.value); },
          [&](const For& n) { visit(n.extent); },
          [&](const If& n) { visit(n.condition); },
          [&](const Call& n) {
            for (const Call::Member& member : n.shape) visit(member.value);
          },
          [](const Alloc&) {},
          [](const Largest&) {},
          [](const CommitAsync&) {},
          [](const WaitAsync&) {},
          [](const Barrier&) {},
          [](const Comment&) {},
      },
      s.node);
}

void ForEachBuffer(const Stmt& s,
                   const std::function<void(const std::string& buffer, Access access)>& visit) {
  std::visit(
      Overload{
          [&](const Store& n) { visit(n.buffer, Access::kWrite); },
          [&](const Copy& n) { visit(n.dst, Access::kWrite), visit(n.src, Access::kRead); },
          [&](const CopyAsync& n) { visit(n.dst, Access::kWrite), visit(n.src, Access::kRead); },
          [&](const LoadMatrix& n) { visit(n.dst, Access::kWrite), visit(n.src, Access::kRead); },
          [&](const Mma& n) {
            visit(n.a, Access::kRead), visit(n.b, Access::kRead);
            visit(n.acc, Access::kRead), visit(n.acc, Access::kWrite);
          },
          [&](const Largest& n) {
            for (const std::string& source : n.sources) visit(source, Access::kRead);
            visit(n.values, Access::kWrite);
            if (!n.numbers.empty()) visit(n.numbers, Access::kWrite);
          },
          [&](const AtomicAdd& n) { visit(n.buffer, Access::kWrite); },
          [&](const Call& n) {
            for (const std::string& name : n.buffers) visit(name, Access::kWrite);
          },
          [](const auto&) {},
      },
      s.node);
}

void WalkExprs(const Block& block, const std::function<void(const Expr&)>& visit) {
  Walk(block, [&](const Stmt& s) { ForEachExpr(s, [&](const Expr& e) { Walk(e, visit); }); });
}

Expr Rewrite(const Expr& e, const Rewriter& rewrite) {
  std::vector<Expr> args;
  bool changed = false;
  for (const Expr& arg : e->args) {
    args.push_back(Rewrite(arg, rewrite));
    changed = changed || args.back() != arg;
  }
  return rewrite(changed ? Rebuild(e, std::move(args)) : e);
}

Block Rewrite(const Block& block, const Rewriter& rewrite) {
  const auto expr = [&](const Expr& e) { return Rewrite(e, rewrite); };
  const auto body = [&](const Block& b) { return Rewrite(b, rewrite); };
  Block out;
  for (const Stmt& s : block) {
    out.push_back(std::visit(
        Overload{
            [&](const Let& n) { return Stmt{Let{n.name, expr(n.value)}}; },
            [&](const Store& n) { return Stmt{Store{n.buffer, expr(n.index), expr(n.value)}}; },
            [&](const Copy& n) {
              return Stmt{Copy{n.dst, expr(n.dst_index), n.src, expr(n.src_index), n.lanes}};
            },
            [&](const CopyAsync& n) {
              return Stmt{CopyAsync{n.dst, expr(n.dst_index), n.src, expr(n.src_index), n.lanes,
                                    expr(n.valid)}};
            },
            [&](const LoadMatrix& n) {
              return Stmt{LoadMatrix{n.dst, expr(n.dst_index), n.src, expr(n.src_index), n.matrices,
                                     n.transposed}};
            },
            [&](const AtomicAdd& n) {
              return Stmt{AtomicAdd{n.buffer, expr(n.index), expr(n.value)}};
            },
            [&](const Mma& n) {
              return Stmt{
                  Mma{n.acc, expr(n.acc_index), n.a, expr(n.a_index), n.b, expr(n.b_index)}};
            },
            [&](const For& n) {
              return Stmt{For{n.var, n.type, expr(n.extent), n.bind, body(n.body)}};
            },
            [&](const If& n) {
              return Stmt{If{expr(n.condition), body(n.then_body), body(n.else_body)}};
            },
            [&](const Call& n) {
              Call call = n;
              for (Call::Member& member : call.shape) member.value = expr(member.value);
              for (Call::Function& f : call.functions) f.body = body(f.body);
              return Stmt{std::move(call)};
            },
            [](const auto& n) { return Stmt{n}; },
        },
        s.node));
  }
  return out;
}

namespace {

Rewriter Replace(const Bindings& bindings) {
  return [&bindings](const Expr& e) {
    if (e->kind != ExprKind::kVar) return e;
    const auto at = bindings.find(e->name);
    return at == bindings.end() ? e : at->second;
  };
}

}  // namespace

Expr Substitute(const Expr& e, const Bindings& bindings) { return Rewrite(e, Replace(bindings)); }
Block Substitute(const Block& block, const Bindings& bindings) {
  return Rewrite(block, Replace(bindings));
}

bool Mentions(const Expr& e, std::string_view variable) {
  bool found = false;
  Walk(e,
       [&](const Expr& x) { found = found || (x->kind == ExprKind::kVar && x->name == variable); });
  return found;
}

}  // namespace kiln::tile
