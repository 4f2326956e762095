#include "codegen/cuda/kernel_survey.h"

#include <algorithm>
#include <cmath>

#include "codegen/cuda/expr_text.h"
#include "ir/tile/visit.h"

namespace kiln::cuda_codegen {
namespace {

using namespace tile;  // NOLINT: this file is about its nodes

int64_t RoundUp(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// The variable that `e` adds a constant to, or takes times a smaller one; or null.
const ExprNode* OffsetBy(const Expr& e) {
  const auto is = [&](size_t i, ExprKind kind) { return e->args[i]->kind == kind; };
  if (e->kind != ExprKind::kOp || !IsFloat(e->type)) return nullptr;
  if (e->op == ScalarOp::kFma && is(0, ExprKind::kVar) && is(1, ExprKind::kFloat) &&
      is(2, ExprKind::kFloat) &&
      std::fabs(e->args[2]->float_value) >= std::fabs(e->args[1]->float_value))
    return e->args[0].get();
  for (const size_t i : {0, 1})
    if (e->op == ScalarOp::kAdd && is(i, ExprKind::kVar) && is(1 - i, ExprKind::kFloat) &&
        std::fabs(e->args[1 - i]->float_value) >= 1)
      return e->args[i].get();
  return nullptr;
}

std::set<std::string> CoarseErfsOf(const Kernel& kernel) {
  const bool rounds = std::ranges::all_of(kernel.params, [](const Param& p) {
    return !p.is_map && (!p.is_pointer || p.is_const || SizeOf(p.type) <= 2);
  });
  if (!rounds) return {};
  std::map<std::string, int> other_reads;
  WalkExprs(kernel.body, [&](const Expr& e) {
    if (e->kind == ExprKind::kVar) ++other_reads[e->name];
    if (const ExprNode* variable = OffsetBy(e); variable != nullptr) --other_reads[variable->name];
  });
  std::set<std::string> coarse;
  Walk(kernel.body, [&](const Stmt& s) {
    const auto* let = std::get_if<Let>(&s.node);
    const bool is_erf = let != nullptr && let->value->kind == ExprKind::kOp &&
                        let->value->op == ScalarOp::kErf && let->value->type == DType::kF32;
    if (!is_erf) return;
    const auto reads = other_reads.find(let->name);
    if (reads != other_reads.end() && reads->second == 0) coarse.insert(let->name);
  });
  return coarse;
}

// All names of the kernel's text.
std::set<std::string> NamesOf(const Kernel& kernel) {
  std::set<std::string> names;
  for (const Param& p : kernel.params) names.insert(p.name);
  Walk(kernel.body, [&](const Stmt& s) {
    if (const auto* let = std::get_if<Let>(&s.node)) names.insert(let->name);
    if (const auto* loop = std::get_if<For>(&s.node)) names.insert(loop->var);
    if (const auto* alloc = std::get_if<Alloc>(&s.node)) names.insert(alloc->name);
  });
  return names;
}

}  // namespace

std::map<std::string, int64_t> ScalarsOf(const Kernel& kernel) {
  std::map<std::string, int64_t> scalars;
  Walk(kernel.body, [&](const Stmt& s) {
    if (const auto* alloc = std::get_if<Alloc>(&s.node))
      if (alloc->space == Space::kReg) scalars[alloc->name] = alloc->size;
    ForEachBuffer(s, [&](const std::string& name, Access) {
      const auto* store = std::get_if<Store>(&s.node);
      if (store == nullptr || store->index->kind != ExprKind::kInt) scalars.erase(name);
    });
  });
  WalkExprs(kernel.body, [&](const Expr& e) {
    if (e->kind == ExprKind::kLoad && e->args[0]->kind != ExprKind::kInt) scalars.erase(e->name);
  });
  if (std::ranges::all_of(scalars, [](const auto& scalar) { return scalar.second == 1; }))
    return scalars;
  const std::set<std::string> names = NamesOf(kernel);
  std::erase_if(scalars, [&](const auto& scalar) {
    for (int64_t i = 0; scalar.second > 1 && i < scalar.second; ++i)
      if (names.contains(ExprPrinter::ElementName(scalar.first, i))) return true;
    return false;
  });
  return scalars;
}

Survey SurveyOf(const Kernel& kernel) {
  Survey survey;
  survey.coarse_erfs = CoarseErfsOf(kernel);
  WalkExprs(kernel.body, [&](const Expr& e) {
    if (e->kind == ExprKind::kOp && e->op == ScalarOp::kExp && e->args[0]->kind == ExprKind::kVar)
      survey.exponents.insert(e->args[0]->name);
  });
  for (const Param& p : kernel.params) survey.types[p.name] = p.type;
  Walk(kernel.body, [&](const Stmt& s) {
    if (const auto* alloc = std::get_if<Alloc>(&s.node)) {
      survey.types[alloc->name] = alloc->type;
      if (alloc->space == Space::kShared) {
        survey.shared_offset[alloc->name] = survey.shared_bytes;
        survey.shared_bytes = RoundUp(survey.shared_bytes + alloc->size * SizeOf(alloc->type), 16);
      }
    }
    if (const auto* copy = std::get_if<Copy>(&s.node)) {
      for (const std::string& name : {copy->dst, copy->src}) {
        int& widest = survey.access_bytes[name];
        widest = std::max(widest, copy->lanes * SizeOf(survey.types.at(name)));
      }
    }
    if (const auto* call = std::get_if<Call>(&s.node)) {
      survey.call = call;
      for (const Call::Function& f : call->functions)
        for (const Call::FunctionParam& p : f.params) survey.types[p.name] = p.type;
    }
    // Fragments and pairs are read and written as 32-bit words, accumulators as they are.
    const bool fragments = std::holds_alternative<Mma>(s.node) ||
                           std::holds_alternative<LoadMatrix>(s.node) ||
                           std::holds_alternative<Largest>(s.node);
    ForEachBuffer(s, [&](const std::string& name, Access) {
      if (fragments) survey.access_bytes[name] = std::max(survey.access_bytes[name], 4);
    });
  });
  return survey;
}

}  // namespace kiln::cuda_codegen
