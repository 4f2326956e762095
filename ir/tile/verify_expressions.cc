// Rules of expressions: names, types, indices that are constants, and what diverges.
#include <algorithm>

#include "ir/tile/names.h"
#include "ir/tile/verify_rules.h"

namespace kiln::tile {
namespace {

Status OutOfRange(const std::string& name, int64_t element, int64_t size) {
  if (size < 0) return BrokenRule("element {} of {}", element, name);
  return BrokenRule("element {} of {}, which has {}", element, name, size);
}

}  // namespace

Status ExpressionRules::Check(const Expr& e) const {
  if (e == nullptr) return BrokenRule("an expression is missing");
  for (const Expr& arg : e->args) RETURN_IF_ERROR(Check(arg));
  switch (e->kind) {
    case ExprKind::kInt:
    case ExprKind::kFloat:
      return {};
    case ExprKind::kVar:
      return CheckVar(e);
    case ExprKind::kLoad:
      return CheckLoad(e);
    case ExprKind::kOp:
      return CheckOp(e);
    case ExprKind::kCast:
      return {};
    case ExprKind::kShuffle:
      return CheckShuffle(e);
  }
  return {};
}

Status ExpressionRules::CheckVar(const Expr& e) const {
  const Variable* variable = scope_.FindVariable(e->name);
  if (variable == nullptr) return BrokenRule("{} is not defined here", e->name);
  if (variable->type != e->type)
    return BrokenRule("{} is {}, used as {}", e->name, Info(variable->type).text,
                      Info(e->type).text);
  return {};
}

Status ExpressionRules::CheckLoad(const Expr& e) const {
  RETURN_IF_ERROR(CheckElement(e->name, e->args[0], 1));
  const DType type = scope_.BufferOf(e->name).type;
  if (type != e->type)
    return BrokenRule("{} holds {}, loaded as {}", e->name, Info(type).text, Info(e->type).text);
  return {};
}

Status ExpressionRules::CheckOp(const Expr& e) const {
  const size_t first = e->op == ScalarOp::kSelect ? 1 : 0;
  if (first == 1 && e->args[0]->type != DType::kBool)
    return BrokenRule("select's condition is {}, not bool: {}", Info(e->args[0]->type).text,
                      Print(e));
  const DType type = e->args[first]->type;
  if (!Takes(e->op, type))
    return BrokenRule("{} does not take {}: {}", Info(e->op).text, Info(type).text, Print(e));
  for (size_t i = first + 1; i < e->args.size(); ++i)
    if (e->args[i]->type != type)
      return BrokenRule("{} of {} and {}: {}", Info(e->op).text, Info(type).text,
                        Info(e->args[i]->type).text, Print(e));
  return {};
}

Status ExpressionRules::CheckShuffle(const Expr& e) const {
  if (!IsComputeType(e->type) || e->type == DType::kBool)
    return BrokenRule("shuffle_xor does not take {}", Info(e->type).text);
  if (e->int_value < 1 || e->int_value > 31)
    return BrokenRule("shuffle_xor with lane mask {}: 1 to 31 are possible", e->int_value);
  if (threads_ % 32 != 0)
    return BrokenRule("shuffle_xor in a block of {} threads, which are no whole warps", threads_);
  return {};
}

Status ExpressionRules::CheckElement(const std::string& name, const Expr& index, int lanes) const {
  const Buffer* buffer = scope_.FindBuffer(name);
  if (buffer == nullptr) return BrokenRule("buffer {} is not defined here", name);
  RETURN_IF_ERROR(Check(index));
  if (!IsIndexType(index->type))
    return BrokenRule("index {} of {} is {}, not i32 or i64", Print(index), name,
                      Info(index->type).text);
  if (index->kind != ExprKind::kInt) return {};
  const int64_t i = index->int_value, size = buffer->size;
  if (i < 0 || (size >= 0 && i + lanes > size))
    return OutOfRange(name, i < 0 ? i : i + lanes - 1, size);
  if (i % lanes != 0)
    return BrokenRule("element {} of {} is not aligned for {} lanes", i, name, lanes);
  return {};
}

bool ExpressionRules::IsDivergent(const Expr& e) const {
  if (threads_ == 1) return false;
  if (e->kind == ExprKind::kShuffle) return true;
  if (e->kind == ExprKind::kVar) return scope_.VariableOf(e->name).divergent;
  if (e->kind == ExprKind::kLoad && scope_.BufferOf(e->name).per_thread) return true;
  return std::ranges::any_of(e->args, [this](const Expr& arg) { return IsDivergent(arg); });
}

bool ExpressionRules::HasOnlyParameters(const Expr& e) const {
  if (e->kind == ExprKind::kLoad || e->kind == ExprKind::kShuffle) return false;
  if (e->kind == ExprKind::kVar) return scope_.VariableOf(e->name).parameter;
  return std::ranges::all_of(e->args, [this](const Expr& arg) { return HasOnlyParameters(arg); });
}

}  // namespace kiln::tile
