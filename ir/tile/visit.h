// Walking and rewriting tile kernels. Walks are in program order; a rewrite visits operands before
// the expression itself and shares what it leaves unchanged. Used by the verifier, the emitters and
// engines.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "ir/tile/tile.h"

namespace kiln::tile {

// Calls visit(e) for `e` and everything under it, outermost first.
void Walk(const Expr& e, const std::function<void(const Expr&)>& visit);

// Calls visit(statement) for each statement of the block, outer before inner.
void Walk(const Block& block, const std::function<void(const Stmt&)>& visit);

// Calls visit(e) for each whole expression of one statement (not of the statements inside it).
void ForEachExpr(const Stmt& s, const std::function<void(const Expr&)>& visit);

// Calls visit(name, access) for each buffer that the statement itself touches, loads in its
// expressions apart.
enum class Access : uint8_t { kRead, kWrite };
void ForEachBuffer(const Stmt& s,
                   const std::function<void(const std::string& buffer, Access access)>& visit);

// Calls visit(e) for each expression in the block, of every statement and depth.
void WalkExprs(const Block& block, const std::function<void(const Expr&)>& visit);

// `e` with each expression replaced by rewrite(expression), operands first. Operations whose
// operands have changed are rebuilt by the folding builders.
using Rewriter = std::function<Expr(const Expr&)>;
Expr Rewrite(const Expr& e, const Rewriter& rewrite);
Block Rewrite(const Block& block, const Rewriter& rewrite);

// Replaces variables by expressions.
using Bindings = std::map<std::string, Expr, std::less<>>;
Expr Substitute(const Expr& e, const Bindings& bindings);
Block Substitute(const Block& block, const Bindings& bindings);

// True if the variable occurs in the expression.
bool Mentions(const Expr& e, std::string_view variable);

}  // namespace kiln::tile
