// The rules of the tile IR. Emitters and the interpreter assume them, so every kernel passes here
// first; a failure is a bug of the engine that made the kernel, or a mistake in a text that someone
// wrote by hand. This file knows how statements nest; the rules of what they hold are
// verify_rules.h.
#include <algorithm>

#include "ir/tile/names.h"
#include "ir/tile/tools.h"
#include "ir/tile/verify_rules.h"

namespace kiln::tile {
namespace {

constexpr int64_t kMaxSharedBytes = 227 * 1024;  // what a block of sm_90 and sm_100 can have

class Verifier {
 public:
  explicit Verifier(const Kernel& kernel)
      : kernel_(kernel), expressions_(scope_, kernel.threads), memory_(scope_, expressions_) {}

  Status Run() {
    if (!IsIdentifier(kernel_.name) || IsReservedName(kernel_.name))
      return BrokenRule("'{}' cannot be a kernel's name", kernel_.name);
    if (kernel_.threads < 1 || kernel_.threads > 1024)
      return BrokenRule("{} threads in a block: 1 to 1024 are possible", kernel_.threads);
    if (kernel_.cluster < 1 || kernel_.cluster > 16)
      return BrokenRule("a cluster of {} blocks: 1 to 16 are possible", kernel_.cluster);
    if (kernel_.min_blocks < 0) return BrokenRule("min_blocks is {}", kernel_.min_blocks);
    for (const std::string& line : kernel_.comment)
      RETURN_IF_ERROR(Check(Comment{line}).Within("the kernel's comment"));
    for (const Param& p : kernel_.params)
      RETURN_IF_ERROR(CheckParam(p).Within(fmt::format("parameter {}", p.name)));
    return CheckBody(kernel_.body, /*only_block_loops_outside=*/true);
  }

 private:
  Status CheckParam(const Param& p) {
    if (p.is_map) return scope_.DefineMap(p.name);
    if (p.is_pointer) {
      if (p.alignment < 1 || p.alignment > 256 || (p.alignment & (p.alignment - 1)) != 0)
        return BrokenRule("alignment {} is not a power of two up to 256", p.alignment);
      return scope_.DefineBuffer(
          p.name, {p.type, p.is_const, false, -1, std::max(p.alignment, SizeOf(p.type))});
    }
    if (!IsComputeType(p.type))
      return BrokenRule("a scalar cannot be {}: it is a storage type", Info(p.type).text);
    return scope_.DefineVariable(p.name, {p.type, false, true});
  }

  // ---- statements ----
  // The failure with its statement; the statement is printed only then, which is most of the time
  // otherwise.
  static Status At(const Stmt& s, Status status) {
    if (status.ok()) return status;
    return std::move(status).Within(HeadLine(s));
  }

  Status CheckBody(const Block& block, bool only_block_loops_outside) {
    const size_t mark = scope_.Mark();
    for (const Stmt& s : block) {
      const auto* loop = std::get_if<For>(&s.node);
      const bool block_loop = loop != nullptr && IsBlockBind(loop->bind);
      if (block_loop) RETURN_IF_ERROR(At(s, CheckOutermost(block, only_block_loops_outside)));
      RETURN_IF_ERROR(At(s, std::visit([this](const auto& node) { return Check(node); }, s.node)));
      RETURN_IF_ERROR(CheckBodies(s, block_loop && only_block_loops_outside));
    }
    scope_.Leave(mark);
    return {};
  }

  Status CheckBodies(const Stmt& s, bool only_block_loops_outside) {
    if (const auto* loop = std::get_if<For>(&s.node)) {
      const size_t mark = scope_.Mark();
      const bool partial = loop->bind == Bind::kThreadX && !IsConst(loop->extent, kernel_.threads);
      const bool divergent =
          (partial && kernel_.threads > 1) || expressions_.IsDivergent(loop->extent);
      const bool thread_loop = loop->bind == Bind::kThreadX;
      const bool var_divergent =
          kernel_.threads > 1 && (thread_loop || expressions_.IsDivergent(loop->extent));
      RETURN_IF_ERROR(At(s, scope_.DefineVariable(loop->var, {loop->type, var_divergent, false})));
      divergent_ += divergent;
      thread_loops_ += thread_loop;
      block_binds_[static_cast<size_t>(loop->bind)] = true;
      RETURN_IF_ERROR(CheckBody(loop->body, only_block_loops_outside));
      thread_loops_ -= thread_loop;
      divergent_ -= divergent;
      scope_.Leave(mark);
    }
    if (const auto* branch = std::get_if<If>(&s.node)) {
      const bool divergent = expressions_.IsDivergent(branch->condition);
      divergent_ += divergent;
      RETURN_IF_ERROR(CheckBody(branch->then_body, false));
      RETURN_IF_ERROR(CheckBody(branch->else_body, false));
      divergent_ -= divergent;
    }
    if (const auto* call = std::get_if<Call>(&s.node)) {
      for (const Call::Function& f : call->functions)
        RETURN_IF_ERROR(CheckFunction(f).Within(f.name));
    }
    return {};
  }

  // Each thread runs it on its own places.
  Status CheckFunction(const Call::Function& f) {
    const size_t mark = scope_.Mark();
    for (const Call::FunctionParam& p : f.params) {
      RETURN_IF_ERROR(p.size > 0
                          ? scope_.DefineBuffer(p.name, {p.type, !p.is_output, true, p.size, 16})
                          : scope_.DefineVariable(p.name, {p.type, true, false}));
    }
    ++divergent_;
    RETURN_IF_ERROR(CheckBody(f.body, false));
    --divergent_;
    scope_.Leave(mark);
    return {};
  }

  static Status CheckOutermost(const Block& siblings, bool only_block_loops_outside) {
    if (!only_block_loops_outside) return BrokenRule("a block loop must be outermost");
    int others = -1;
    for (const Stmt& s : siblings)
      others += !std::holds_alternative<Let>(s.node) && !std::holds_alternative<Comment>(s.node);
    if (others > 0) return BrokenRule("a block loop shares its level with other statements");
    return {};
  }

  Status Check(const Let& s) {
    RETURN_IF_ERROR(expressions_.Check(s.value));
    return scope_.DefineVariable(s.name, {s.value->type, expressions_.IsDivergent(s.value), false});
  }

  Status Check(const Alloc& s) {
    if (s.size < 1) return BrokenRule("a buffer needs at least one element");
    if (s.space == Space::kShared) {
      shared_bytes_ = (shared_bytes_ + 15) / 16 * 16 + s.size * SizeOf(s.type);
      if (shared_bytes_ > kMaxSharedBytes)
        return BrokenRule("{} bytes of shared memory: a block has at most {}", shared_bytes_,
                          kMaxSharedBytes);
    }
    return scope_.DefineBuffer(s.name, {s.type, false, s.space == Space::kReg, s.size, 16});
  }

  // Statements that neither nest nor define a name.
  template <class S>
  Status Check(const S& s) const {
    return memory_.Check(s);
  }
  Status Check(const CommitAsync&) const { return {}; }

  Status Check(const For& s) {
    RETURN_IF_ERROR(expressions_.Check(s.extent));
    if (!IsIndexType(s.type))
      return BrokenRule("loop variable is {}, not i32 or i64", Info(s.type).text);
    if (s.extent->type != s.type)
      return BrokenRule("extent is {}, the variable {}", Info(s.extent->type).text,
                        Info(s.type).text);
    const bool constant = s.extent->kind == ExprKind::kInt;
    if (s.bind == Bind::kUnroll && !constant)
      return BrokenRule("an unrolled loop needs a constant extent");
    if (IsBlockBind(s.bind)) {
      if (!expressions_.HasOnlyParameters(s.extent))
        return BrokenRule("the extent of a block loop may name parameters only");
      if (block_binds_[static_cast<size_t>(s.bind)])
        return BrokenRule("a second loop is bound to {}", BindText(s.bind));
    }
    if (s.bind != Bind::kThreadX) return {};
    if (!constant || s.extent->int_value < 1 || s.extent->int_value > kernel_.threads)
      return BrokenRule("the extent of a thread loop is a constant from 1 to {}", kernel_.threads);
    if (thread_loops_ > 0) return BrokenRule("thread loops cannot be nested");
    return {};
  }

  Status Check(const If& s) {
    RETURN_IF_ERROR(expressions_.Check(s.condition));
    if (s.condition->type != DType::kBool)
      return BrokenRule("condition is {}, not bool", Info(s.condition->type).text);
    return {};
  }

  Status Check(const Call& s) {
    for (const std::string& map : s.maps)
      if (!scope_.HasMap(map)) return BrokenRule("{} is no tensor map", map);
    for (const std::string& name : s.buffers) {
      const Buffer* buffer = scope_.FindBuffer(name);
      if (buffer == nullptr) return BrokenRule("buffer {} is not defined here", name);
      if (buffer->is_const) return BrokenRule("{} is const", name);
    }
    if (divergent_ > 0) return BrokenRule("not every thread of the block reaches the skeleton");
    if (s.wgmma.columns > 0) RETURN_IF_ERROR(CheckWgmma(s.wgmma));
    if (s.second) RETURN_IF_ERROR(CheckWgmma(*s.second));
    if (s.third) RETURN_IF_ERROR(CheckWgmma(*s.third));
    if (s.fourth) RETURN_IF_ERROR(CheckWgmma(*s.fourth));
    for (const std::optional<Call::Wgmma>* w : {&s.third, &s.fourth})
      if (*w && (*w)->left_in_registers) return BrokenRule("only the second wgmma has registers");
    if (s.wgmma.left_in_registers)
      return BrokenRule("nothing is in registers before the first wgmma");
    shared_bytes_ += s.shared_bytes;
    if (shared_bytes_ > kMaxSharedBytes)
      return BrokenRule("{} bytes of shared memory: a block has at most {}", shared_bytes_,
                        kMaxSharedBytes);
    for (const Call::Member& member : s.shape)
      RETURN_IF_ERROR(expressions_.Check(member.value).Within(member.name));
    return {};
  }

  static Status CheckWgmma(const Call::Wgmma& w) {
    if (w.columns < 8 || w.columns > 256 || w.columns % 8 != 0)
      return BrokenRule("wgmma of {} columns: 8, 16 … 256 are possible", w.columns);
    // 32-bit operands are turned on the way to wgmma.
    if ((w.left_is_outer || w.right_is_outer) && SizeOf(w.type) == 1)
      return BrokenRule("wgmma takes {} only with k as the contiguous axis", Info(w.type).text);
    return {};
  }

  Status Check(const Barrier& s) {
    if (divergent_ > 0) return BrokenRule("not every thread of the block reaches it");
    if (s.team == 0) return {};
    if (team_ != 0 && team_ != s.team)
      return BrokenRule("the kernel has teams of {} threads", team_);
    team_ = s.team;
    if (s.team < 0 || s.team % 32 != 0 || kernel_.threads % s.team != 0)
      return BrokenRule("{} threads are no whole warps, or do not divide a block of {}", s.team,
                        kernel_.threads);
    const int teams = kernel_.threads / s.team;
    if (teams > Barrier::kMostTeams)
      return BrokenRule("{} teams in a block: at most {} have a barrier", teams,
                        Barrier::kMostTeams);
    return {};
  }

  Status Check(const Comment& s) const {
    // A backslash at the end would continue the comment on the next line of the emitted C++.
    const bool breaks = s.text.find('\n') != s.text.npos || s.text.ends_with('\\');
    return breaks ? BrokenRule("a comment is one line and does not end in a backslash") : Status();
  }

  const Kernel& kernel_;
  Scope scope_;
  const ExpressionRules expressions_;
  const MemoryRules memory_;
  int64_t shared_bytes_ = 0;
  int divergent_ = 0;  // enclosing statements that not every thread executes alike
  int thread_loops_ = 0;
  int team_ = 0;  // of barriers of teams
  bool block_binds_[std::size(kBindText)] = {};
};

}  // namespace

Status Verify(const Kernel& kernel) { return Verifier(kernel).Run(); }

}  // namespace kiln::tile
