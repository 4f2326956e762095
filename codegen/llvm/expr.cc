// Expressions: constants, variables, loads, casts, and one table row for each scalar op with its
// form on floats and its form on integers. The meaning is that of ir/scalar.cc.
#include <llvm/IR/Intrinsics.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include "codegen/llvm/emitter.h"
#include "codegen/llvm/math.h"
#include "ir/base/check.h"

namespace kiln::llvm_codegen {
namespace {

using llvm::Intrinsic::ID;
using Args = std::span<llvm::Value* const>;

// True where evaluating `e` may touch memory, so that it must not be evaluated in vain.
bool Loads(const tile::Expr& e) {
  return e->kind == tile::ExprKind::kLoad || std::ranges::any_of(e->args, Loads);
}

bool IsConstInt(llvm::Value* v) {
  const auto* c = llvm::dyn_cast<llvm::ConstantInt>(v);
  return c && !c->isZero() && !c->isMinusOne();
}

// The builder that a row emits with, and whether integers may be taken not to wrap.
struct Context {
  llvm::IRBuilder<>& b;
  bool no_wrap;
};

llvm::Value* Unary(Context& c, ID id, Args v) { return c.b.CreateUnaryIntrinsic(id, v[0]); }

llvm::Value* Binary(Context& c, ID id, Args v) { return c.b.CreateBinaryIntrinsic(id, v[0], v[1]); }

llvm::Value* One(Args v) { return llvm::ConstantFP::get(v[0]->getType(), 1.0); }

llvm::Value* Int(Args v, int64_t value) {
  return llvm::ConstantInt::get(v[0]->getType(), value, true);
}

llvm::Value* Sqrt(Context& c, Args v) { return Unary(c, llvm::Intrinsic::sqrt, v); }

llvm::Value* Add(Context& c, Args v) { return c.b.CreateAdd(v[0], v[1], "", false, c.no_wrap); }

llvm::Value* Mul(Context& c, Args v) { return c.b.CreateMul(v[0], v[1], "", false, c.no_wrap); }

llvm::Value* MultiplyAdd(Context& c, Args v) {
  llvm::Value* const sum[] = {Mul(c, v), v[2]};
  return Add(c, sum);
}

llvm::Value* FusedMultiplyAdd(Context& c, Args v) {
  return c.b.CreateIntrinsic(llvm::Intrinsic::fma, {v[0]->getType()}, {v[0], v[1], v[2]});
}

llvm::Value* Same(Context&, Args v) { return v[0]; }

// Division by 0 is 0, and by -1 a negation (the hardware traps on the most negative number).

llvm::Value* Divide(Context& c, Args v, bool remainder) {
  const auto divide = [&](llvm::Value* by) {
    return remainder ? c.b.CreateSRem(v[0], by) : c.b.CreateSDiv(v[0], by);
  };
  if (IsConstInt(v[1])) return divide(v[1]);
  llvm::Value* zero = c.b.CreateICmpEQ(v[1], Int(v, 0));
  llvm::Value* minus_one = c.b.CreateICmpEQ(v[1], Int(v, -1));
  llvm::Value* quotient = divide(c.b.CreateSelect(c.b.CreateOr(zero, minus_one), Int(v, 1), v[1]));
  if (remainder) return c.b.CreateSelect(zero, Int(v, 0), quotient);
  quotient = c.b.CreateSelect(minus_one, c.b.CreateNeg(v[0]), quotient);
  return c.b.CreateSelect(zero, Int(v, 0), quotient);
}

llvm::Value* Bit(Context& c, Args v) {
  llvm::Value* shifted = c.b.CreateLShr(v[0], c.b.CreateAnd(v[1], Int(v, 31)));
  return c.b.CreateICmpNE(c.b.CreateAnd(shifted, Int(v, 1)), Int(v, 0));
}

// n < 2^31 and mul < 2^32, so the product fits into 63 bits.

llvm::Value* FastDiv(Context& c, Args v) {
  llvm::Type* wide = c.b.getInt64Ty();
  const bool narrow = v[0]->getType() != wide;
  llvm::Value* n = narrow ? c.b.CreateZExt(v[0], wide) : v[0];
  llvm::Value* mul = narrow ? c.b.CreateZExt(v[1], wide) : c.b.CreateAnd(v[1], 0xffffffff);
  llvm::Value* shift = narrow ? c.b.CreateZExt(v[2], wide) : v[2];
  llvm::Value* quotient = c.b.CreateLShr(c.b.CreateMul(n, mul), shift);
  return c.b.CreateTrunc(quotient, v[0]->getType());
}

// PhiloxWord of ir/scalar.h, on 32-bit words held in 64 bits.
llvm::Value* Philox(Context& c, Args v) {
  constexpr uint64_t kLow = 0xffffffff;
  auto& b = c.b;
  const auto low = [&](llvm::Value* x) { return b.CreateAnd(x, kLow); };
  const auto high = [&](llvm::Value* x) { return b.CreateLShr(x, 32); };
  const auto mix = [&](llvm::Value* x, llvm::Value* y, llvm::Value* z) {
    return b.CreateXor(b.CreateXor(x, y), z);
  };
  llvm::Value* counter = b.CreateLShr(v[0], 2);
  llvm::Value* w[] = {low(counter), high(counter), low(v[2]), high(v[2])};
  llvm::Value *k0 = low(v[1]), *k1 = high(v[1]);
  for (int round = 0; round < kPhiloxRounds; ++round) {
    llvm::Value* p0 = b.CreateMul(w[0], b.getInt64(0xD2511F53));
    llvm::Value* p1 = b.CreateMul(w[2], b.getInt64(0xCD9E8D57));
    llvm::Value* next[] = {mix(high(p1), w[1], k0), low(p1), mix(high(p0), w[3], k1), low(p0)};
    std::ranges::copy(next, w);
    k0 = low(b.CreateAdd(k0, b.getInt64(0x9E3779B9)));
    k1 = low(b.CreateAdd(k1, b.getInt64(0xBB67AE85)));
  }
  llvm::Value* word = b.CreateAnd(v[0], 3);
  llvm::Value* result = w[3];
  for (int i = 2; i >= 0; --i)
    result =
        b.CreateSelect(b.CreateICmpEQ(word, b.getInt64(static_cast<uint64_t>(i))), w[i], result);
  return result;
}

// A form is null where the op does not exist on the type. Functions of libm (math.h) and truth
// operations have no row: EmitOp makes them itself.
struct Row {
  ScalarOp op;
  llvm::Value* (*on_float)(Context&, Args);
  llvm::Value* (*on_int)(Context&, Args);
};

using C = Context;
namespace I = llvm::Intrinsic;

constexpr Row kRows[] = {
    {ScalarOp::kAdd, [](C& c, Args v) { return c.b.CreateFAdd(v[0], v[1]); }, Add},
    {ScalarOp::kSub, [](C& c, Args v) { return c.b.CreateFSub(v[0], v[1]); },
     [](C& c, Args v) { return c.b.CreateSub(v[0], v[1], "", false, c.no_wrap); }},
    {ScalarOp::kMul, [](C& c, Args v) { return c.b.CreateFMul(v[0], v[1]); }, Mul},
    {ScalarOp::kDiv, [](C& c, Args v) { return c.b.CreateFDiv(v[0], v[1]); },
     [](C& c, Args v) { return Divide(c, v, /*remainder=*/false); }},
    {ScalarOp::kMod, nullptr, [](C& c, Args v) { return Divide(c, v, /*remainder=*/true); }},
    {ScalarOp::kMin, [](C& c, Args v) { return Binary(c, I::minnum, v); },
     [](C& c, Args v) { return Binary(c, I::smin, v); }},
    {ScalarOp::kMax, [](C& c, Args v) { return Binary(c, I::maxnum, v); },
     [](C& c, Args v) { return Binary(c, I::smax, v); }},
    {ScalarOp::kMinNan, [](C& c, Args v) { return Binary(c, I::minimum, v); },
     [](C& c, Args v) { return Binary(c, I::smin, v); }},
    {ScalarOp::kMaxNan, [](C& c, Args v) { return Binary(c, I::maximum, v); },
     [](C& c, Args v) { return Binary(c, I::smax, v); }},
    {ScalarOp::kNeg, [](C& c, Args v) { return c.b.CreateFNeg(v[0]); },
     [](C& c, Args v) { return c.b.CreateSub(Int(v, 0), v[0], "", false, c.no_wrap); }},
    {ScalarOp::kAbs, [](C& c, Args v) { return Unary(c, I::fabs, v); },
     [](C& c, Args v) { return c.b.CreateBinaryIntrinsic(I::abs, v[0], c.b.getFalse()); }},
    {ScalarOp::kCeil, [](C& c, Args v) { return Unary(c, I::ceil, v); }, Same},
    {ScalarOp::kFloor, [](C& c, Args v) { return Unary(c, I::floor, v); }, Same},
    {ScalarOp::kSqrt, Sqrt, nullptr},
    {ScalarOp::kRsqrt, [](C& c, Args v) { return c.b.CreateFDiv(One(v), Sqrt(c, v)); }, nullptr},
    {ScalarOp::kRecip, [](C& c, Args v) { return c.b.CreateFDiv(One(v), v[0]); }, nullptr},
    {ScalarOp::kFma, FusedMultiplyAdd, MultiplyAdd},
    {ScalarOp::kEq, [](C& c, Args v) { return c.b.CreateFCmpOEQ(v[0], v[1]); },
     [](C& c, Args v) { return c.b.CreateICmpEQ(v[0], v[1]); }},
    {ScalarOp::kNe, [](C& c, Args v) { return c.b.CreateFCmpUNE(v[0], v[1]); },
     [](C& c, Args v) { return c.b.CreateICmpNE(v[0], v[1]); }},
    {ScalarOp::kGt, [](C& c, Args v) { return c.b.CreateFCmpOGT(v[0], v[1]); },
     [](C& c, Args v) { return c.b.CreateICmpSGT(v[0], v[1]); }},
    {ScalarOp::kGe, [](C& c, Args v) { return c.b.CreateFCmpOGE(v[0], v[1]); },
     [](C& c, Args v) { return c.b.CreateICmpSGE(v[0], v[1]); }},
    {ScalarOp::kLt, [](C& c, Args v) { return c.b.CreateFCmpOLT(v[0], v[1]); },
     [](C& c, Args v) { return c.b.CreateICmpSLT(v[0], v[1]); }},
    {ScalarOp::kLe, [](C& c, Args v) { return c.b.CreateFCmpOLE(v[0], v[1]); },
     [](C& c, Args v) { return c.b.CreateICmpSLE(v[0], v[1]); }},
    {ScalarOp::kPhilox, nullptr, Philox},
    {ScalarOp::kBit, nullptr, Bit},
    {ScalarOp::kFastDiv, nullptr, FastDiv},
};

Row FindRow(ScalarOp op) {
  const auto* row = std::ranges::find(kRows, op, &Row::op);
  return row == std::end(kRows) ? Row{op, nullptr, nullptr} : *row;
}

}  // namespace

llvm::Value* Emitter::EmitExpr(const tile::Expr& e, Wrap wrap) {
  switch (e->kind) {
    case tile::ExprKind::kInt:
      return EmitConstant(e->type, static_cast<double>(e->int_value), e->int_value);
    case tile::ExprKind::kFloat:
      return EmitConstant(e->type, e->float_value, 0);
    case tile::ExprKind::kVar: {
      const auto value = values_.find(e->name);
      CHECK(value != values_.end(), "{}: {} is not defined", kernel_.name, e->name);
      return value->second;
    }
    case tile::ExprKind::kLoad: {
      const Buffer& buffer = FindBuffer(e->name);
      auto* load = b_.CreateAlignedLoad(MemoryType(buffer.type), ElementPointer(buffer, e->args[0]),
                                        llvm::Align(SizeOf(buffer.type)));
      return FromMemory(buffer.type, Annotate(load, buffer));
    }
    case tile::ExprKind::kOp:
      return EmitOp(e, wrap);
    case tile::ExprKind::kCast:
      return Convert(EmitExpr(e->args[0], wrap), e->args[0]->type, e->type);
    case tile::ExprKind::kShuffle:
      return Fail(ValueType(e->type),
                  "shuffle_xor: the CPU target runs the threads of a block one after "
                  "another; schedule the kernel without shuffles");
  }
  CHECK(false, "expression kind {}", int(e->kind));
}

llvm::Value* Emitter::EmitConstant(DType type, double f, int64_t i) {
  if (type == DType::kF32 || type == DType::kF64) return llvm::ConstantFP::get(ValueType(type), f);
  if (!IsFloat(type))
    return llvm::ConstantInt::get(ValueType(type), type == DType::kBool ? i != 0 : i, true);
  uint64_t code = 0;
  StoreValue(type, f, &code);
  return llvm::ConstantInt::get(ValueType(type), code);
}

llvm::Value* Emitter::EmitOp(const tile::Expr& e, Wrap wrap) {
  const bool select = e->op == ScalarOp::kSelect,
             logic = e->op == ScalarOp::kAnd || e->op == ScalarOp::kOr;
  if ((select || logic) && std::any_of(e->args.begin() + 1, e->args.end(), Loads))
    return EmitLazy(e, wrap);

  std::vector<llvm::Value*> args;
  for (const tile::Expr& arg : e->args) args.push_back(EmitExpr(arg, wrap));
  if (select) return b_.CreateSelect(Truth(args[0]), args[1], args[2]);
  if (e->op == ScalarOp::kAnd) return b_.CreateAnd(Truth(args[0]), Truth(args[1]));
  if (e->op == ScalarOp::kOr) return b_.CreateOr(Truth(args[0]), Truth(args[1]));
  if (e->op == ScalarOp::kNot) return b_.CreateNot(Truth(args[0]));

  const DType type = e->args[0]->type;
  const ScalarOpInfo& info = Info(e->op);
  if (type == DType::kBool) {  // arithmetic on 0 and 1
    for (llvm::Value*& arg : args) arg = b_.CreateZExt(arg, b_.getInt32Ty());
  }
  Context context{b_, wrap == Wrap::kNever};
  if (type == DType::kF32 || type == DType::kF64) {
    if (FindMathFunction(e->op)) return EmitMath(e->op, type, args);
    if (const auto form = FindRow(e->op).on_float) return form(context, args);
  } else if (type == DType::kI32 || type == DType::kI64 || type == DType::kBool) {
    if (const auto form = FindRow(e->op).on_int) {
      llvm::Value* value = form(context, args);
      return e->type == DType::kBool ? Truth(value) : value;
    }
  }
  return Fail(ValueType(e->type), "{}: there is no such operation on {}", info.text,
              Info(type).text);
}

// select, and, or whose later operands load: those run only where their value is wanted, since the
// index may be out of bounds elsewhere. LLVM turns the branches into masked loads where it
// vectorises.
llvm::Value* Emitter::EmitLazy(const tile::Expr& e, Wrap wrap) {
  const bool select = e->op == ScalarOp::kSelect;
  llvm::Value* first = Truth(EmitExpr(e->args[0], wrap));
  llvm::BasicBlock* origin = b_.GetInsertBlock();
  auto* on_true = llvm::BasicBlock::Create(context_, "lazy", function_);
  auto* on_false = select ? llvm::BasicBlock::Create(context_, "lazy", function_) : nullptr;
  auto* end = llvm::BasicBlock::Create(context_, "lazy_end", function_);

  const auto emit_arm = [&](llvm::BasicBlock* arm, const tile::Expr& value) {
    b_.SetInsertPoint(arm);
    llvm::Value* result = EmitExpr(value, wrap);
    if (!select) result = Truth(result);
    arm = b_.GetInsertBlock();
    b_.CreateBr(end);
    return std::pair(result, arm);
  };
  if (select) {
    b_.CreateCondBr(first, on_true, on_false);
  } else if (e->op == ScalarOp::kAnd) {
    b_.CreateCondBr(first, on_true, end);
  } else {
    b_.CreateCondBr(first, end, on_true);
  }
  const auto [true_value, true_end] = emit_arm(on_true, e->args[1]);
  std::pair<llvm::Value*, llvm::BasicBlock*> other = {first, origin};
  if (select) other = emit_arm(on_false, e->args[2]);
  b_.SetInsertPoint(end);
  llvm::PHINode* result = b_.CreatePHI(true_value->getType(), 2);
  result->addIncoming(true_value, true_end);
  result->addIncoming(other.first, other.second);
  return result;
}

llvm::Value* Emitter::EmitMath(ScalarOp op, DType type, Args args) {
  const MathFunction& math = *FindMathFunction(op);
  const std::string name = type == DType::kF32 ? math.f32 : math.f64;
  llvm::Type* value = args[0]->getType();
  const auto declare = [&](const std::string& symbol, llvm::Type* t) {
    auto* signature = llvm::FunctionType::get(t, std::vector<llvm::Type*>(args.size(), t), false);
    auto* f =
        llvm::cast<llvm::Function>(module_.getOrInsertFunction(symbol, signature).getCallee());
    f->setDoesNotThrow();
    f->setDoesNotAccessMemory();
    f->setWillReturn();
    f->setNoSync();
    f->setDoesNotFreeMemory();
    return f;
  };
  llvm::CallInst* call =
      b_.CreateCall(declare(name, value), llvm::ArrayRef(args.data(), args.size()));

  std::string variants;
  for (const VectorFunction& v : options_.vector_functions) {
    if (v.scalar != name) continue;
    declare(v.vector, llvm::FixedVectorType::get(value, v.lanes));
    variants += (variants.empty() ? "" : ",") + std::string("_ZGV_LLVM_N") +
                std::to_string(v.lanes) + std::string(args.size(), 'v') + "_" + name + "(" +
                v.vector + ")";
  }
  if (!variants.empty()) {
    call->addFnAttr(llvm::Attribute::get(context_, "vector-function-abi-variant", variants));
  }
  return call;
}

llvm::Value* Emitter::EmitIndex(const tile::Expr& e) {
  return b_.CreateSExt(EmitExpr(e, Wrap::kNever), b_.getInt64Ty());
}

llvm::Value* Emitter::Truth(llvm::Value* value) {
  if (value->getType()->isFloatingPointTy()) {
    return b_.CreateFCmpUNE(value, llvm::ConstantFP::get(value->getType(), 0.0));
  }
  if (value->getType()->isIntegerTy(1)) return value;
  return b_.CreateICmpNE(value, llvm::ConstantInt::get(value->getType(), 0));
}

const Emitter::Buffer& Emitter::FindBuffer(const std::string& name) {
  const auto buffer = buffers_.find(name);
  CHECK(buffer != buffers_.end(), "{}: buffer {} is not defined", kernel_.name, name);
  return buffer->second;
}

llvm::Value* Emitter::ElementPointer(const Buffer& buffer, const tile::Expr& index) {
  return b_.CreateInBoundsGEP(MemoryType(buffer.type), buffer.pointer, EmitIndex(index));
}

// Marks an access as independent of the other iterations of the loops around it that say so, except
// those inside which the buffer was made: iterations of these share one piece of memory here.
llvm::Instruction* Emitter::Annotate(llvm::Instruction* access, const Buffer& buffer) {
  const auto groups = std::span(independent_loops_).subspan(buffer.depth);
  if (groups.empty()) return access;
  std::vector<llvm::Metadata*> list(groups.begin(), groups.end());
  access->setMetadata(llvm::LLVMContext::MD_access_group,
                      list.size() == 1 ? groups[0] : llvm::MDNode::get(context_, list));
  return access;
}

}  // namespace kiln::llvm_codegen
