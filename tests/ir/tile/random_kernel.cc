// The generator keeps what is in scope and draws statements and typed expressions from it.
// Expressions are made as nodes, not by the folding builders, so that texts hold what no engine
// would write.
#include "tests/ir/tile/random_kernel.h"

#include <fmt/format.h>

#include <iterator>
#include <limits>
#include <random>

namespace kiln::tile {
namespace {

constexpr DType kAll[] = {DType::kF32,  DType::kF64,  DType::kF16, DType::kBF16,
                          DType::kE4M3, DType::kE5M2, DType::kI8,  DType::kU8,
                          DType::kI32,  DType::kI64,  DType::kBool};
constexpr DType kCompute[] = {DType::kF32, DType::kF64, DType::kI32, DType::kI64, DType::kBool};
constexpr ScalarOp kOnNumbers[] = {
    ScalarOp::kAdd, ScalarOp::kSub,  ScalarOp::kMul,    ScalarOp::kDiv,   ScalarOp::kMod,
    ScalarOp::kMin, ScalarOp::kMax,  ScalarOp::kMinNan, ScalarOp::kNeg,   ScalarOp::kMaxNan,
    ScalarOp::kAbs, ScalarOp::kCeil, ScalarOp::kFma,    ScalarOp::kFloor, ScalarOp::kSelect};
constexpr ScalarOp kOnFloats[] = {
    ScalarOp::kPow, ScalarOp::kAtan2, ScalarOp::kSqrt,  ScalarOp::kRsqrt, ScalarOp::kRecip,
    ScalarOp::kExp, ScalarOp::kLog,   ScalarOp::kLog1p, ScalarOp::kExpm1, ScalarOp::kSin,
    ScalarOp::kCos, ScalarOp::kTan,   ScalarOp::kTanh,  ScalarOp::kErf};
constexpr ScalarOp kComparisons[] = {ScalarOp::kEq, ScalarOp::kNe, ScalarOp::kGt,
                                     ScalarOp::kGe, ScalarOp::kLt, ScalarOp::kLe};
constexpr int kThreads = 64;

struct Named {
  std::string name;
  DType type;
};
struct Buffer {
  std::string name;
  DType type;
  int64_t size;  // -1 for a pointer
  bool writable;
};

class Generator {
 public:
  explicit Generator(uint32_t seed) : random_(seed) {}

  Kernel Run() {
    Kernel k{.name = Fresh("kernel"), .threads = kThreads, .min_blocks = Below(3)};
    for (int i = Below(3); i > 0; --i)
      k.comment.push_back(Below(4) == 0 ? "" : fmt::format("line {}: a  b ", i));
    for (const DType t : kAll) {
      const std::string name = Fresh("p");
      const bool is_const = Below(3) == 0;
      k.params.push_back(
          {.name = name, .type = t, .is_pointer = true, .is_const = is_const, .alignment = 16});
      buffers_.push_back({name, t, -1, !is_const});
    }
    for (const DType t : kCompute) {
      k.params.push_back({.name = Fresh("a"), .type = t});
      vars_.push_back({k.params.back().name, t});
    }
    const Expr blocks = Var(vars_[2].name, DType::kI32);
    For inner{.var = Fresh("bx"), .extent = blocks, .bind = Bind::kBlockX};
    vars_.push_back({inner.var, DType::kI32});
    inner.body = Body(0, /*convergent=*/true, /*in_threads=*/false);
    For outer{.var = Fresh("by"),
              .extent = Int(2),
              .bind = Below(2) == 0 ? Bind::kBlockY : Bind::kBlockZ};
    outer.body.push_back({std::move(inner)});
    k.body.push_back({std::move(outer)});
    return k;
  }

 private:
  int Below(int n) { return std::uniform_int_distribution<int>(0, n - 1)(random_); }
  template <class T, size_t N>
  T Pick(const T (&from)[N]) {
    return from[Below(N)];
  }
  std::string Fresh(const char* stem) { return fmt::format("{}_{}", stem, next_++); }
  static Expr Make(ExprNode node) { return std::make_shared<const ExprNode>(std::move(node)); }

  // ---- expressions ----
  Expr Leaf(DType t) {
    if (Below(2) == 0) {
      std::vector<Named> fit;
      for (const Named& v : vars_)
        if (v.type == t) fit.push_back(v);
      if (!fit.empty()) return Var(fit[Below(static_cast<int>(fit.size()))].name, t);
    }
    if (t == DType::kBool) return Bool(Below(2) == 0);
    if (!IsFloat(t)) return Int(Integer(t), t);
    static constexpr double kFloats[] = {0.0,
                                         -0.0,
                                         1.0,
                                         0.1,
                                         -3.5e-20,
                                         1e30,
                                         std::numeric_limits<double>::infinity(),
                                         -std::numeric_limits<double>::infinity(),
                                         0x1p-140,
                                         std::numeric_limits<double>::quiet_NaN()};
    return Float(Pick(kFloats), t);
  }

  int64_t Integer(DType t) {
    static constexpr int64_t kIntegers[] = {0,
                                            1,
                                            -1,
                                            7,
                                            2048,
                                            std::numeric_limits<int32_t>::max(),
                                            std::numeric_limits<int32_t>::min()};
    static constexpr int64_t kLong[] = {std::numeric_limits<int64_t>::max(),
                                        std::numeric_limits<int64_t>::min(), 9};
    return t == DType::kI64 && Below(3) == 0 ? Pick(kLong) : Pick(kIntegers);
  }

  Expr Operation(ScalarOp op, DType operand, DType result, int depth) {
    std::vector<Expr> args;
    for (int i = 0; i < Info(op).arity; ++i)
      args.push_back(
          Expression(op == ScalarOp::kSelect && i == 0 ? DType::kBool : operand, depth - 1));
    return Make({.kind = ExprKind::kOp, .type = result, .op = op, .args = std::move(args)});
  }

  Expr LoadOf(DType t) {
    std::vector<Buffer> fit;
    for (const Buffer& b : buffers_)
      if (b.type == t) fit.push_back(b);
    const Buffer& b = fit[Below(static_cast<int>(fit.size()))];
    return Make({.kind = ExprKind::kLoad, .type = t, .name = b.name, .args = {Index(b, 1)}});
  }

  Expr Index(const Buffer& b, int lanes) {
    if (b.size >= 0) return Int(Below(static_cast<int>(b.size) / lanes) * lanes);
    Expr index = Expression(Below(2) == 0 ? DType::kI32 : DType::kI64, 1);
    const bool constant = index->kind == ExprKind::kInt;
    return constant ? Int(Below(8) * lanes, index->type) : index;
  }

  Expr Expression(DType t, int depth) {
    if (depth <= 0) return Leaf(t);
    const int what = Below(10);
    if (what == 0) return LoadOf(t);
    if (what <= 2) return Make({.kind = ExprKind::kCast, .type = t, .args = {AnyValue(depth - 1)}});
    if (what == 3 && t != DType::kBool)
      return Make({.kind = ExprKind::kShuffle,
                   .type = t,
                   .int_value = 1 << Below(5),
                   .args = {Expression(t, depth - 1)}});
    if (what == 4) return Leaf(t);
    if (t == DType::kBool) return Condition(depth);
    if (t == DType::kI32 && Below(8) == 0) return Operation(ScalarOp::kFastDiv, t, t, depth);
    return Operation(IsFloat(t) && Below(2) == 0 ? Pick(kOnFloats) : Pick(kOnNumbers), t, t, depth);
  }

  Expr Condition(int depth) {
    static constexpr ScalarOp kLogic[] = {ScalarOp::kAnd, ScalarOp::kOr, ScalarOp::kNot,
                                          ScalarOp::kEq, ScalarOp::kSelect};
    if (Below(2) == 0) return Operation(Pick(kLogic), DType::kBool, DType::kBool, depth);
    if (Below(8) == 0) return Operation(ScalarOp::kBit, DType::kI32, DType::kBool, depth);
    return Operation(Pick(kComparisons), kCompute[Below(4)], DType::kBool, depth);
  }

  // A value of any type: storage types come from memory or a cast.
  Expr AnyValue(int depth) {
    const DType t = Pick(kAll);
    for (const DType c : kCompute)
      if (c == t) return Expression(t, depth);
    return StorageValue(t, depth);
  }

  Expr StorageValue(DType t, int depth) {
    if (Below(2) == 0) return LoadOf(t);
    return Make({.kind = ExprKind::kCast, .type = t, .args = {Expression(Pick(kCompute), depth)}});
  }

  Expr ValueFor(DType t) {
    for (const DType c : kCompute)
      if (c == t) return Expression(t, 3);
    return StorageValue(t, 2);
  }

  // ---- statements ----
  tile::Block Body(int depth, bool convergent, bool in_threads) {
    const size_t vars = vars_.size(), buffers = buffers_.size();
    tile::Block block;
    for (int i = 1 + Below(5); i > 0; --i)
      block.push_back(Statement(depth, convergent, in_threads));
    vars_.resize(vars);
    buffers_.resize(buffers);
    return block;
  }

  Stmt Statement(int depth, bool convergent, bool in_threads) {
    switch (Below(depth < 3 ? 9 : 6)) {
      case 0: {
        Let s{Fresh("v"), Below(6) == 0 ? AnyValue(2) : Expression(Pick(kCompute), 3)};
        vars_.push_back({s.name, s.value->type});
        return {std::move(s)};
      }
      case 1: {
        Alloc s{Fresh("m"), Pick(kAll), Below(2) == 0 ? Space::kReg : Space::kShared,
                16 * (1 + Below(2))};
        if (s.space == Space::kReg && Below(3) == 0) s.size = 1;
        buffers_.push_back({s.name, s.type, s.size, true});
        return {std::move(s)};
      }
      case 2:
        return CopyStatement();
      case 3:
        return convergent ? Stmt{Barrier{}} : Stmt{Comment{"no barrier here"}};
      case 4:
        return {Comment{Below(2) == 0 ? "" : "a comment: { } \"x\""}};
      case 5: {
        const Buffer b = Writable();
        return {Store{b.name, Index(b, 1), ValueFor(b.type)}};
      }
      case 6: {
        If s{.condition = Expression(DType::kBool, 2)};
        s.then_body = Body(depth + 1, false, in_threads);
        if (Below(2) == 0) s.else_body = Body(depth + 1, false, in_threads);
        return {std::move(s)};
      }
      default:
        return Loop(depth, convergent, in_threads);
    }
  }

  Stmt Loop(int depth, bool convergent, bool in_threads) {
    For s{.var = Fresh("k"), .type = Below(3) == 0 ? DType::kI64 : DType::kI32};
    const int what = Below(in_threads ? 3 : 5);
    s.bind = what == 0   ? Bind::kSerial
             : what == 1 ? Bind::kUnroll
             : what == 2 ? Bind::kVector
                         : Bind::kThreadX;
    const bool threads = s.bind == Bind::kThreadX;
    const bool whole = threads && Below(2) == 0;
    s.extent = threads ? Int(whole ? kThreads : 32, s.type) : Int(1 + Below(4), s.type);
    if (s.bind == Bind::kSerial && Below(2) == 0) s.extent = Expression(s.type, 2);
    const bool uniform = s.extent->kind == ExprKind::kInt;
    vars_.push_back({s.var, s.type});
    s.body = Body(depth + 1, convergent && (threads ? whole : uniform), in_threads || threads);
    vars_.pop_back();
    return {std::move(s)};
  }

  Buffer Writable() {
    for (;;) {
      const Buffer b = buffers_[Below(static_cast<int>(buffers_.size()))];
      if (b.writable) return b;
      if (Below(100) == 0) break;
    }
    Buffer b = buffers_.back();
    for (const Buffer& x : buffers_)
      if (x.writable) b = x;
    return b;
  }

  Stmt CopyStatement() {
    const Buffer dst = Writable();
    const int most = 16 / SizeOf(dst.type), least = SizeOf(dst.type) == 1 ? 2 : 1;
    int lanes = least << Below(3);
    while (lanes > most) lanes /= 2;
    std::vector<Buffer> fit;
    for (const Buffer& b : buffers_)
      if (b.type == dst.type && (b.size < 0 || b.size >= lanes)) fit.push_back(b);
    if (dst.size >= 0 && dst.size < lanes) return {Comment{"too narrow"}};
    const Buffer src = fit[Below(static_cast<int>(fit.size()))];
    return {Copy{dst.name, Index(dst, lanes), src.name, Index(src, lanes), lanes}};
  }

  std::mt19937 random_;
  int next_ = 0;
  std::vector<Named> vars_;
  std::vector<Buffer> buffers_;
};

}  // namespace

Kernel RandomKernel(uint32_t seed) { return Generator(seed).Run(); }

}  // namespace kiln::tile
