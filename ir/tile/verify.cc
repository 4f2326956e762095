// The rules of the tile IR. Emitters and the interpreter assume them, so every kernel passes here
// first; a failure is a bug of the engine that made the kernel, or a mistake in a text that someone
// wrote by hand. Divergence is tracked conservatively: a value is uniform unless it depends on the
// thread's number, on a register or on a shuffle.
#include <unordered_map>
#include <unordered_set>

#include "ir/tile/names.h"
#include "ir/tile/tools.h"

namespace kiln::tile {
namespace {

constexpr int64_t kMaxSharedBytes = 227 * 1024;  // what a block of sm_90 and sm_100 can have

// Operand types an operation takes.
enum class Domain : uint8_t { kNumber, kFloat, kI64, kI32, kNumberOrBool, kBool, kSelect };

struct DomainRow {
  ScalarOp op;
  Domain domain;
};

constexpr DomainRow kDomains[] = {
    {ScalarOp::kAdd, Domain::kNumber},      {ScalarOp::kSub, Domain::kNumber},
    {ScalarOp::kMul, Domain::kNumber},      {ScalarOp::kDiv, Domain::kNumber},
    {ScalarOp::kMod, Domain::kNumber},      {ScalarOp::kPow, Domain::kFloat},
    {ScalarOp::kMin, Domain::kNumber},      {ScalarOp::kMax, Domain::kNumber},
    {ScalarOp::kMinNan, Domain::kNumber},   {ScalarOp::kMaxNan, Domain::kNumber},
    {ScalarOp::kAtan2, Domain::kFloat},     {ScalarOp::kNeg, Domain::kNumber},
    {ScalarOp::kAbs, Domain::kNumber},      {ScalarOp::kCeil, Domain::kNumber},
    {ScalarOp::kFloor, Domain::kNumber},    {ScalarOp::kSqrt, Domain::kFloat},
    {ScalarOp::kRsqrt, Domain::kFloat},     {ScalarOp::kRecip, Domain::kFloat},
    {ScalarOp::kExp, Domain::kFloat},       {ScalarOp::kLog, Domain::kFloat},
    {ScalarOp::kLog1p, Domain::kFloat},     {ScalarOp::kExpm1, Domain::kFloat},
    {ScalarOp::kSin, Domain::kFloat},       {ScalarOp::kCos, Domain::kFloat},
    {ScalarOp::kTan, Domain::kFloat},       {ScalarOp::kTanh, Domain::kFloat},
    {ScalarOp::kErf, Domain::kFloat},       {ScalarOp::kFma, Domain::kNumber},
    {ScalarOp::kEq, Domain::kNumberOrBool}, {ScalarOp::kNe, Domain::kNumberOrBool},
    {ScalarOp::kGt, Domain::kNumber},       {ScalarOp::kGe, Domain::kNumber},
    {ScalarOp::kLt, Domain::kNumber},       {ScalarOp::kLe, Domain::kNumber},
    {ScalarOp::kAnd, Domain::kBool},        {ScalarOp::kOr, Domain::kBool},
    {ScalarOp::kNot, Domain::kBool},        {ScalarOp::kSelect, Domain::kSelect},
    {ScalarOp::kPhilox, Domain::kI64},      {ScalarOp::kBit, Domain::kI32},
    {ScalarOp::kFastDiv, Domain::kI32},
};

constexpr bool RowsInEnumOrder() {
  for (size_t i = 0; i < std::size(kDomains); ++i)
    if (kDomains[i].op != ScalarOp(i)) return false;
  return std::size(kDomains) == static_cast<size_t>(ScalarOp::kFastDiv) + 1;
}
static_assert(RowsInEnumOrder(), "kDomains must list the scalar ops in enum order");

bool InDomain(Domain domain, DType t) {
  const bool number = IsComputeType(t) && t != DType::kBool;
  switch (domain) {
    case Domain::kNumber:
      return number;
    case Domain::kFloat:
      return number && IsFloat(t);
    case Domain::kI32:
      return t == DType::kI32;
    case Domain::kI64:
      return t == DType::kI64;
    case Domain::kNumberOrBool:
      return number || t == DType::kBool;
    case Domain::kBool:
      return t == DType::kBool;
    case Domain::kSelect:
      return number || t == DType::kBool;
  }
  return false;
}

// What tensor cores multiply, and in what they sum.
struct Product {
  DType operand, accumulator;
};
constexpr Product kProducts[] = {{DType::kF16, DType::kF32},  {DType::kBF16, DType::kF32},
                                 {DType::kF32, DType::kF32},  {DType::kE4M3, DType::kF32},
                                 {DType::kE5M2, DType::kF32}, {DType::kI8, DType::kI32},
                                 {DType::kU8, DType::kI32}};

bool IsIndexType(DType t) { return t == DType::kI32 || t == DType::kI64; }

template <class... A>
Status Fail(fmt::format_string<A...> format, A&&... args) {
  return Status::Error(Code::kInternal, format, std::forward<A>(args)...);
}

struct Variable {
  DType type;
  bool divergent;
  bool parameter;
};

struct Buffer {
  DType type;
  bool is_const;
  bool per_thread;    // registers
  int64_t size;       // elements; -1 for a pointer
  int64_t alignment;  // bytes
};

class Verifier {
 public:
  explicit Verifier(const Kernel& kernel) : kernel_(kernel) {}

  Status Run() {
    if (!IsIdentifier(kernel_.name) || IsReservedName(kernel_.name))
      return Fail("'{}' cannot be a kernel's name", kernel_.name);
    if (kernel_.threads < 1 || kernel_.threads > 1024)
      return Fail("{} threads in a block: 1 to 1024 are possible", kernel_.threads);
    if (kernel_.cluster < 1 || kernel_.cluster > 16)
      return Fail("a cluster of {} blocks: 1 to 16 are possible", kernel_.cluster);
    if (kernel_.min_blocks < 0) return Fail("min_blocks is {}", kernel_.min_blocks);
    for (const std::string& line : kernel_.comment)
      RETURN_IF_ERROR(Check(Comment{line}).Within("the kernel's comment"));
    for (const Param& p : kernel_.params)
      RETURN_IF_ERROR(CheckParam(p).Within(fmt::format("parameter {}", p.name)));
    return CheckBody(kernel_.body, /*only_block_loops_outside=*/true);
  }

 private:
  // ---- names ----
  Status Define(const std::string& name) {
    if (!IsIdentifier(name)) return Fail("'{}' is not a name", name);
    if (IsReservedName(name)) return Fail("{} is a reserved word", name);
    if (!used_.insert(name).second) return Fail("{} is defined twice", name);
    scope_.push_back(name);
    return {};
  }
  Status DefineVariable(const std::string& name, Variable v) {
    RETURN_IF_ERROR(Define(name));
    vars_.insert_or_assign(name, v);
    return {};
  }
  Status DefineBuffer(const std::string& name, Buffer b) {
    RETURN_IF_ERROR(Define(name));
    buffers_.insert_or_assign(name, b);
    return {};
  }
  void LeaveScope(size_t mark) {
    for (; scope_.size() > mark; scope_.pop_back()) {
      vars_.erase(scope_.back());
      buffers_.erase(scope_.back());
    }
  }

  Status CheckParam(const Param& p) {
    if (p.is_map) {
      RETURN_IF_ERROR(Define(p.name));
      maps_.insert(p.name);
      return {};
    }
    if (p.is_pointer) {
      if (p.alignment < 1 || p.alignment > 256 || (p.alignment & (p.alignment - 1)) != 0)
        return Fail("alignment {} is not a power of two up to 256", p.alignment);
      return DefineBuffer(p.name,
                          {p.type, p.is_const, false, -1, std::max(p.alignment, SizeOf(p.type))});
    }
    if (!IsComputeType(p.type))
      return Fail("a scalar cannot be {}: it is a storage type", Info(p.type).text);
    return DefineVariable(p.name, {p.type, false, true});
  }

  // ---- expressions ----
  Status CheckExpr(const Expr& e) {
    if (e == nullptr) return Fail("an expression is missing");
    for (const Expr& arg : e->args) RETURN_IF_ERROR(CheckExpr(arg));
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

  Status CheckVar(const Expr& e) {
    const auto at = vars_.find(e->name);
    if (at == vars_.end()) return Fail("{} is not defined here", e->name);
    if (at->second.type != e->type)
      return Fail("{} is {}, used as {}", e->name, Info(at->second.type).text, Info(e->type).text);
    return {};
  }

  Status CheckLoad(const Expr& e) {
    RETURN_IF_ERROR(CheckElement(e->name, e->args[0], 1));
    const DType type = buffers_.at(e->name).type;
    if (type != e->type)
      return Fail("{} holds {}, loaded as {}", e->name, Info(type).text, Info(e->type).text);
    return {};
  }

  Status CheckOp(const Expr& e) {
    const size_t first = e->op == ScalarOp::kSelect ? 1 : 0;
    if (first == 1 && e->args[0]->type != DType::kBool)
      return Fail("select's condition is {}, not bool: {}", Info(e->args[0]->type).text, Print(e));
    const DType type = e->args[first]->type;
    if (!InDomain(kDomains[static_cast<size_t>(e->op)].domain, type))
      return Fail("{} does not take {}: {}", Info(e->op).text, Info(type).text, Print(e));
    for (size_t i = first + 1; i < e->args.size(); ++i)
      if (e->args[i]->type != type)
        return Fail("{} of {} and {}: {}", Info(e->op).text, Info(type).text,
                    Info(e->args[i]->type).text, Print(e));
    return {};
  }

  Status CheckShuffle(const Expr& e) {
    if (!IsComputeType(e->type) || e->type == DType::kBool)
      return Fail("shuffle_xor does not take {}", Info(e->type).text);
    if (e->int_value < 1 || e->int_value > 31)
      return Fail("shuffle_xor with lane mask {}: 1 to 31 are possible", e->int_value);
    if (kernel_.threads % 32 != 0)
      return Fail("shuffle_xor in a block of {} threads, which are no whole warps",
                  kernel_.threads);
    return {};
  }

  static Status OutOfRange(const std::string& name, int64_t element, int64_t size) {
    if (size < 0) return Fail("element {} of {}", element, name);
    return Fail("element {} of {}, which has {}", element, name, size);
  }

  // `index` and the `lanes` elements from there, as far as the index is a constant.
  Status CheckElement(const std::string& name, const Expr& index, int lanes) {
    const auto at = buffers_.find(name);
    if (at == buffers_.end()) return Fail("buffer {} is not defined here", name);
    RETURN_IF_ERROR(CheckExpr(index));
    if (!IsIndexType(index->type))
      return Fail("index {} of {} is {}, not i32 or i64", Print(index), name,
                  Info(index->type).text);
    if (index->kind != ExprKind::kInt) return {};
    const int64_t i = index->int_value, size = at->second.size;
    if (i < 0 || (size >= 0 && i + lanes > size))
      return OutOfRange(name, i < 0 ? i : i + lanes - 1, size);
    if (i % lanes != 0) return Fail("element {} of {} is not aligned for {} lanes", i, name, lanes);
    return {};
  }

  bool Divergent(const Expr& e) const {
    if (kernel_.threads == 1) return false;
    if (e->kind == ExprKind::kShuffle) return true;
    if (e->kind == ExprKind::kVar) return vars_.at(e->name).divergent;
    if (e->kind == ExprKind::kLoad && buffers_.at(e->name).per_thread) return true;
    return std::ranges::any_of(e->args, [this](const Expr& arg) { return Divergent(arg); });
  }

  bool OnlyParameters(const Expr& e) const {
    if (e->kind == ExprKind::kLoad || e->kind == ExprKind::kShuffle) return false;
    if (e->kind == ExprKind::kVar) return vars_.at(e->name).parameter;
    return std::ranges::all_of(e->args, [this](const Expr& arg) { return OnlyParameters(arg); });
  }

  // ---- statements ----
  // The failure with its statement; the statement is printed only then, which is most of the time
  // otherwise.
  static Status At(const Stmt& s, Status status) {
    if (status.ok()) return status;
    return std::move(status).Within(HeadLine(s));
  }

  Status CheckBody(const Block& block, bool only_block_loops_outside) {
    const size_t mark = scope_.size();
    for (const Stmt& s : block) {
      const auto* loop = std::get_if<For>(&s.node);
      const bool block_loop = loop != nullptr && IsBlockBind(loop->bind);
      if (block_loop) RETURN_IF_ERROR(At(s, CheckOutermost(block, only_block_loops_outside)));
      RETURN_IF_ERROR(At(s, std::visit([this](const auto& node) { return Check(node); }, s.node)));
      RETURN_IF_ERROR(CheckBodies(s, block_loop && only_block_loops_outside));
    }
    LeaveScope(mark);
    return {};
  }

  Status CheckBodies(const Stmt& s, bool only_block_loops_outside) {
    if (const auto* loop = std::get_if<For>(&s.node)) {
      const size_t mark = scope_.size();
      const bool partial = loop->bind == Bind::kThreadX && !IsConst(loop->extent, kernel_.threads);
      const bool divergent = (partial && kernel_.threads > 1) || Divergent(loop->extent);
      const bool thread_loop = loop->bind == Bind::kThreadX;
      const bool var_divergent = kernel_.threads > 1 && (thread_loop || Divergent(loop->extent));
      RETURN_IF_ERROR(At(s, DefineVariable(loop->var, {loop->type, var_divergent, false})));
      divergent_ += divergent;
      thread_loops_ += thread_loop;
      block_binds_[static_cast<size_t>(loop->bind)] = true;
      RETURN_IF_ERROR(CheckBody(loop->body, only_block_loops_outside));
      thread_loops_ -= thread_loop;
      divergent_ -= divergent;
      LeaveScope(mark);
    }
    if (const auto* branch = std::get_if<If>(&s.node)) {
      const bool divergent = Divergent(branch->condition);
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
    const size_t mark = scope_.size();
    for (const Call::FunctionParam& p : f.params) {
      RETURN_IF_ERROR(p.size > 0 ? DefineBuffer(p.name, {p.type, !p.is_output, true, p.size, 16})
                                 : DefineVariable(p.name, {p.type, true, false}));
    }
    ++divergent_;
    RETURN_IF_ERROR(CheckBody(f.body, false));
    --divergent_;
    LeaveScope(mark);
    return {};
  }

  static Status CheckOutermost(const Block& siblings, bool only_block_loops_outside) {
    if (!only_block_loops_outside) return Fail("a block loop must be outermost");
    int others = -1;
    for (const Stmt& s : siblings)
      others += !std::holds_alternative<Let>(s.node) && !std::holds_alternative<Comment>(s.node);
    if (others > 0) return Fail("a block loop shares its level with other statements");
    return {};
  }

  Status Check(const Let& s) {
    RETURN_IF_ERROR(CheckExpr(s.value));
    return DefineVariable(s.name, {s.value->type, Divergent(s.value), false});
  }

  Status Check(const Alloc& s) {
    if (s.size < 1) return Fail("a buffer needs at least one element");
    if (s.space == Space::kShared) {
      shared_bytes_ = (shared_bytes_ + 15) / 16 * 16 + s.size * SizeOf(s.type);
      if (shared_bytes_ > kMaxSharedBytes)
        return Fail("{} bytes of shared memory: a block has at most {}", shared_bytes_,
                    kMaxSharedBytes);
    }
    return DefineBuffer(s.name, {s.type, false, s.space == Space::kReg, s.size, 16});
  }

  Status CheckWritable(const std::string& name) const {
    return buffers_.at(name).is_const ? Fail("{} is const", name) : Status();
  }

  Status Check(const Store& s) {
    RETURN_IF_ERROR(CheckElement(s.buffer, s.index, 1));
    RETURN_IF_ERROR(CheckWritable(s.buffer));
    RETURN_IF_ERROR(CheckExpr(s.value));
    const DType type = buffers_.at(s.buffer).type;
    if (type != s.value->type)
      return Fail("{} holds {}, the value is {}", s.buffer, Info(type).text,
                  Info(s.value->type).text);
    return {};
  }

  Status Check(const Copy& s) {
    if (s.lanes < 1) return Fail("{} lanes", s.lanes);
    RETURN_IF_ERROR(CheckElement(s.dst, s.dst_index, s.lanes));
    RETURN_IF_ERROR(CheckElement(s.src, s.src_index, s.lanes));
    RETURN_IF_ERROR(CheckWritable(s.dst));
    const Buffer &dst = buffers_.at(s.dst), &src = buffers_.at(s.src);
    if (dst.type != src.type)
      return Fail("copy from {} to {}", Info(src.type).text, Info(dst.type).text);
    const int64_t bytes = int64_t{s.lanes} * SizeOf(dst.type);
    if (bytes != 2 && bytes != 4 && bytes != 8 && bytes != 16)
      return Fail("one access of {} bytes: 2, 4, 8 and 16 are possible", bytes);
    for (const auto& [name, buffer] : {std::pair(s.dst, dst), std::pair(s.src, src)})
      if (buffer.alignment < bytes)
        return Fail("{} is aligned to {} bytes, the access has {}", name, buffer.alignment, bytes);
    return {};
  }

  Status Check(const Mma& s) {
    for (const std::string& name : {s.acc, s.a, s.b})
      if (!buffers_.contains(name)) return Fail("buffer {} is not defined here", name);
    const DType acc = buffers_.at(s.acc).type, a = buffers_.at(s.a).type, b = buffers_.at(s.b).type;
    const auto* row = std::ranges::find(kProducts, a, &Product::operand);
    if (row == std::end(kProducts) || a != b || acc != row->accumulator)
      return Fail(
          "{} += {} * {}: f32 += the product of two f16, bf16, f32, e4m3 or e5m2, and i32 += of "
          "two "
          "i8 or u8 are possible",
          Info(acc).text, Info(a).text, Info(b).text);
    const struct {
      const std::string& name;
      const Expr& index;
      int lanes;
    } operands[] = {
        {s.acc, s.acc_index, 4}, {s.a, s.a_index, 16 / SizeOf(a)}, {s.b, s.b_index, 8 / SizeOf(a)}};
    for (const auto& operand : operands) {
      RETURN_IF_ERROR(CheckElement(operand.name, operand.index, operand.lanes));
      if (!buffers_.at(operand.name).per_thread)
        return Fail("{} is not in registers", operand.name);
    }
    return {};
  }

  Status Check(const LoadMatrix& s) {
    if (s.matrices != 1 && s.matrices != 2 && s.matrices != 4)
      return Fail("{} matrices: 1, 2 and 4 are possible", s.matrices);
    const auto src = buffers_.find(s.src);
    if (src == buffers_.end()) return Fail("buffer {} is not defined here", s.src);
    const int size = SizeOf(src->second.type);
    if (size > (s.transposed ? 2 : 4) || (s.transposed && size != 2))
      return Fail("{} matrices of {}", s.transposed ? "transposed" : "plain",
                  Info(src->second.type).text);
    RETURN_IF_ERROR(CheckElement(s.src, s.src_index, 16 / size));
    RETURN_IF_ERROR(CheckElement(s.dst, s.dst_index, s.matrices * 4 / size));
    const Buffer& dst = buffers_.at(s.dst);
    if (!dst.per_thread) return Fail("{} is not in registers", s.dst);
    if (!IsShared(src->second)) return Fail("{} is not in shared memory", s.src);
    if (dst.type != src->second.type)
      return Fail("matrices of {} into {}", Info(src->second.type).text, Info(dst.type).text);
    return {};
  }

  static bool IsShared(const Buffer& b) { return !b.per_thread && b.size >= 0; }

  Status Check(const Largest& s) {
    if (s.lanes < 2 || s.lanes % 2 != 0)
      return Fail("{} lanes: an even number is possible", s.lanes);
    if (s.sources.empty() || s.taps.size() != s.sources.size())
      return Fail("{} sources with {} numbers", s.sources.size(), s.taps.size());
    for (const int tap : s.taps)
      if (tap < 0 || tap > 127) return Fail("number {}: 0 to 127 are possible", tap);
    std::vector<std::string> all = s.sources;
    all.push_back(s.values);
    if (!s.numbers.empty()) all.push_back(s.numbers);
    for (const std::string& name : all) {
      RETURN_IF_ERROR(CheckElement(name, Int(0), s.lanes));
      const Buffer& b = buffers_.at(name);
      if (!b.per_thread) return Fail("{} is not in registers", name);
      const DType type = name == s.numbers ? DType::kI8 : buffers_.at(s.values).type;
      if (b.type != type)
        return Fail("{} holds {}, not {}", name, Info(b.type).text, Info(type).text);
    }
    const DType type = buffers_.at(s.values).type;
    if (type != DType::kF16 && type != DType::kBF16)
      return Fail("the largest of {}: f16 and bf16 are possible", Info(type).text);
    return {};
  }

  Status Check(const CopyAsync& s) {
    RETURN_IF_ERROR(Check(Copy{s.dst, s.dst_index, s.src, s.src_index, s.lanes}));
    const Buffer &dst = buffers_.at(s.dst), &src = buffers_.at(s.src);
    if (!IsShared(dst)) return Fail("{} is not in shared memory", s.dst);
    if (src.size >= 0) return Fail("{} is not in global memory", s.src);
    const int bytes = s.lanes * SizeOf(dst.type);
    if (bytes != 4 && bytes != 8 && bytes != 16)
      return Fail("one access of {} bytes: 4, 8 and 16 are possible", bytes);
    RETURN_IF_ERROR(CheckExpr(s.valid));
    if (s.valid->type != DType::kBool)
      return Fail("condition is {}, not bool", Info(s.valid->type).text);
    return {};
  }
  Status Check(const CommitAsync&) const { return {}; }
  Status Check(const WaitAsync& s) const {
    return s.groups < 0 || s.groups > 7 ? Fail("{} groups: 0 to 7 are possible", s.groups)
                                        : Status();
  }

  Status Check(const AtomicAdd& s) {
    RETURN_IF_ERROR(Check(Store{s.buffer, s.index, s.value}));
    const Buffer& b = buffers_.at(s.buffer);
    if (b.size >= 0) return Fail("{} is not in global memory", s.buffer);
    if (b.type != DType::kF32 && b.type != DType::kF64 && b.type != DType::kI32)
      return Fail("{} holds {}: f32, f64 and i32 are possible", s.buffer, Info(b.type).text);
    return {};
  }

  Status Check(const For& s) {
    RETURN_IF_ERROR(CheckExpr(s.extent));
    if (!IsIndexType(s.type)) return Fail("loop variable is {}, not i32 or i64", Info(s.type).text);
    if (s.extent->type != s.type)
      return Fail("extent is {}, the variable {}", Info(s.extent->type).text, Info(s.type).text);
    const bool constant = s.extent->kind == ExprKind::kInt;
    if (s.bind == Bind::kUnroll && !constant)
      return Fail("an unrolled loop needs a constant extent");
    if (IsBlockBind(s.bind)) {
      if (!OnlyParameters(s.extent))
        return Fail("the extent of a block loop may name parameters only");
      if (block_binds_[static_cast<size_t>(s.bind)])
        return Fail("a second loop is bound to {}", BindText(s.bind));
    }
    if (s.bind != Bind::kThreadX) return {};
    if (!constant || s.extent->int_value < 1 || s.extent->int_value > kernel_.threads)
      return Fail("the extent of a thread loop is a constant from 1 to {}", kernel_.threads);
    if (thread_loops_ > 0) return Fail("thread loops cannot be nested");
    return {};
  }

  Status Check(const If& s) {
    RETURN_IF_ERROR(CheckExpr(s.condition));
    if (s.condition->type != DType::kBool)
      return Fail("condition is {}, not bool", Info(s.condition->type).text);
    return {};
  }

  Status Check(const Call& s) {
    for (const std::string& map : s.maps)
      if (!maps_.contains(map)) return Fail("{} is no tensor map", map);
    for (const std::string& name : s.buffers) {
      const auto at = buffers_.find(name);
      if (at == buffers_.end()) return Fail("buffer {} is not defined here", name);
      if (at->second.is_const) return Fail("{} is const", name);
    }
    if (divergent_ > 0) return Fail("not every thread of the block reaches the skeleton");
    if (s.wgmma.columns > 0) RETURN_IF_ERROR(Check(s.wgmma));
    if (s.second) RETURN_IF_ERROR(Check(*s.second));
    if (s.third) RETURN_IF_ERROR(Check(*s.third));
    if (s.fourth) RETURN_IF_ERROR(Check(*s.fourth));
    for (const std::optional<Call::Wgmma>* w : {&s.third, &s.fourth})
      if (*w && (*w)->left_in_registers) return Fail("only the second wgmma has registers");
    if (s.wgmma.left_in_registers) return Fail("nothing is in registers before the first wgmma");
    shared_bytes_ += s.shared_bytes;
    if (shared_bytes_ > kMaxSharedBytes)
      return Fail("{} bytes of shared memory: a block has at most {}", shared_bytes_,
                  kMaxSharedBytes);
    for (const Call::Member& member : s.shape)
      RETURN_IF_ERROR(CheckExpr(member.value).Within(member.name));
    return {};
  }

  static Status Check(const Call::Wgmma& w) {
    if (w.columns < 8 || w.columns > 256 || w.columns % 8 != 0)
      return Fail("wgmma of {} columns: 8, 16 … 256 are possible", w.columns);
    // 32-bit operands are turned on the way to wgmma.
    if ((w.left_is_outer || w.right_is_outer) && SizeOf(w.type) == 1)
      return Fail("wgmma takes {} only with k as the contiguous axis", Info(w.type).text);
    return {};
  }

  Status Check(const Barrier& s) {
    if (divergent_ > 0) return Fail("not every thread of the block reaches it");
    if (s.team == 0) return {};
    if (team_ != 0 && team_ != s.team) return Fail("the kernel has teams of {} threads", team_);
    team_ = s.team;
    if (s.team < 0 || s.team % 32 != 0 || kernel_.threads % s.team != 0)
      return Fail("{} threads are no whole warps, or do not divide a block of {}", s.team,
                  kernel_.threads);
    const int teams = kernel_.threads / s.team;
    if (teams > Barrier::kMostTeams)
      return Fail("{} teams in a block: at most {} have a barrier", teams, Barrier::kMostTeams);
    return {};
  }

  Status Check(const Comment& s) const {
    // A backslash at the end would continue the comment on the next line of the emitted C++.
    const bool breaks = s.text.find('\n') != s.text.npos || s.text.ends_with('\\');
    return breaks ? Fail("a comment is one line and does not end in a backslash") : Status();
  }

  const Kernel& kernel_;
  std::unordered_map<std::string, Variable> vars_;
  std::unordered_map<std::string, Buffer> buffers_;
  std::unordered_set<std::string> used_, maps_;
  std::vector<std::string> scope_;
  int64_t shared_bytes_ = 0;
  int divergent_ = 0;  // enclosing statements that not every thread executes alike
  int thread_loops_ = 0;
  int team_ = 0;  // of barriers of teams
  bool block_binds_[std::size(kBindText)] = {};
};

}  // namespace

Status Verify(const Kernel& kernel) { return Verifier(kernel).Run(); }

}  // namespace kiln::tile
