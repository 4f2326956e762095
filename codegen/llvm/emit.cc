// Statements: the function's frame, loops, buffers and stores. See emit.h for the signature and
// emitter.h for the state.
#include "codegen/llvm/emit.h"

#include <llvm/IR/Verifier.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Transforms/Utils/ModuleUtils.h>

#include <functional>

#include "codegen/llvm/emitter.h"
#include "ir/base/check.h"

namespace kiln::llvm_codegen {
namespace {

// More than this comes from the scratch buffer of the thread: stacks of client threads may be
// small.
constexpr int64_t kStackBytes = 48 << 10;
constexpr int64_t kBufferAlignment = 64;

int BlockDimension(tile::Bind bind) {
  switch (bind) {
    case tile::Bind::kBlockX:
      return 0;
    case tile::Bind::kBlockY:
      return 1;
    case tile::Bind::kBlockZ:
      return 2;
    case tile::Bind::kSerial:
    case tile::Bind::kUnroll:
    case tile::Bind::kVector:
    case tile::Bind::kThreadX:
      return -1;
  }
  return -1;
}

using Visit = std::function<void(const tile::Stmt&)>;

// Every statement, in the order of the text.
void ForEachStmt(const tile::Block& block, const Visit& visit) {
  for (const tile::Stmt& s : block) {
    visit(s);
    if (const auto* loop = std::get_if<tile::For>(&s.node)) ForEachStmt(loop->body, visit);
    if (const auto* branch = std::get_if<tile::If>(&s.node)) {
      ForEachStmt(branch->then_body, visit);
      ForEachStmt(branch->else_body, visit);
    }
  }
}

void AddVars(const tile::Expr& e, std::set<std::string>& names) {
  if (e->kind == tile::ExprKind::kVar) names.insert(e->name);
  for (const tile::Expr& arg : e->args) AddVars(arg, names);
}

void AddIndicesOfLoads(const tile::Expr& e, std::set<std::string>& names) {
  if (e->kind == tile::ExprKind::kLoad) AddVars(e->args[0], names);
  for (const tile::Expr& arg : e->args) AddIndicesOfLoads(arg, names);
}

// The names of lets whose value takes part in an index, directly or through other lets.
std::set<std::string> IndexNames(const tile::Kernel& kernel) {
  std::set<std::string> names;
  std::vector<const tile::Let*> lets;
  ForEachStmt(kernel.body, [&](const tile::Stmt& s) {
    if (const auto* let = std::get_if<tile::Let>(&s.node)) {
      lets.push_back(let);
      AddIndicesOfLoads(let->value, names);
    } else if (const auto* store = std::get_if<tile::Store>(&s.node)) {
      AddVars(store->index, names);
      AddIndicesOfLoads(store->index, names);
      AddIndicesOfLoads(store->value, names);
    } else if (const auto* copy = std::get_if<tile::Copy>(&s.node)) {
      AddVars(copy->dst_index, names);
      AddVars(copy->src_index, names);
    }
  });
  // A let refers to earlier ones only, so one pass backwards reaches all of them.
  for (auto let = lets.rbegin(); let != lets.rend(); ++let) {
    if (names.contains((*let)->name)) AddVars((*let)->value, names);
  }
  return names;
}

}  // namespace

Emitter::Emitter(const tile::Kernel& kernel, llvm::Module& module, const EmitOptions& options)
    : kernel_(kernel),
      module_(module),
      context_(module.getContext()),
      options_(options),
      b_(context_) {
  llvm::FastMathFlags flags;
  flags.setAllowContract();
  b_.setFastMathFlags(flags);
}

Status Emitter::Run() {
  llvm::Type* pointer = b_.getPtrTy();
  llvm::Type* count = b_.getInt64Ty();
  auto* signature =
      llvm::FunctionType::get(b_.getVoidTy(), {pointer, pointer, count, count}, false);
  function_ =
      llvm::Function::Create(signature, llvm::Function::ExternalLinkage, kernel_.name, module_);
  function_->setDoesNotThrow();
  args_ = function_->getArg(0);
  grid_ = function_->getArg(1);
  for (unsigned i = 0; i < 2; ++i) {  // no buffer of a kernel is its argument list
    function_->addParamAttr(i, llvm::Attribute::NoAlias);
    function_->addParamAttr(i, llvm::Attribute::NonNull);
    function_->addParamAttr(i, llvm::Attribute::ReadOnly);
  }
  constexpr const char* kNames[] = {"args", "grid", "block_begin", "block_end"};
  for (unsigned i = 0; i < 4; ++i) function_->getArg(i)->setName(kNames[i]);

  index_names_ = IndexNames(kernel_);
  ForEachStmt(kernel_.body, [&](const tile::Stmt& s) {
    const auto* loop = std::get_if<tile::For>(&s.node);
    if (loop && BlockDimension(loop->bind) >= 0) uses_block_[BlockDimension(loop->bind)] = true;
  });
  b_.SetInsertPoint(llvm::BasicBlock::Create(context_, "entry", function_));
  LoadArguments();
  Allocate();
  EmitBlockLoop();
  return status_;
}

void Emitter::LoadArguments() {
  for (size_t i = 0; i < kernel_.params.size(); ++i) {
    const tile::Param& p = kernel_.params[i];
    llvm::Value* slot =
        b_.CreateLoad(b_.getPtrTy(), b_.CreateConstInBoundsGEP1_64(b_.getPtrTy(), args_, i));
    if (p.is_pointer) {
      llvm::Value* pointer = b_.CreateLoad(b_.getPtrTy(), slot, p.name);
      buffers_[p.name] = {.pointer = pointer, .type = p.type, .depth = 0};
    } else {
      values_[p.name] = FromMemory(p.type, b_.CreateLoad(MemoryType(p.type), slot, p.name));
    }
  }
}

// Buffers live in the entry block, where LLVM turns what it can into registers. kShared is per
// block, and a task runs its blocks one after another, so it needs no more than kReg does.
void Emitter::Allocate() {
  int64_t stack = 0, scratch = 0;
  std::vector<std::pair<std::string, int64_t>> offsets;
  ForEachStmt(kernel_.body, [&](const tile::Stmt& s) {
    const auto* alloc = std::get_if<tile::Alloc>(&s.node);
    if (!alloc) return;
    int64_t bytes = alloc->size * SizeOf(alloc->type);
    bytes = (bytes + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
    if (stack + bytes > kStackBytes) {
      offsets.emplace_back(alloc->name, scratch);
      scratch += bytes;
      return;
    }
    stack += bytes;
    auto* type = llvm::ArrayType::get(MemoryType(alloc->type), static_cast<uint64_t>(alloc->size));
    llvm::AllocaInst* slot = b_.CreateAlloca(type, nullptr, alloc->name);
    slot->setAlignment(llvm::Align(kBufferAlignment));
    storage_[alloc->name] = slot;
  });
  if (scratch == 0) return;
  auto* signature = llvm::FunctionType::get(b_.getPtrTy(), {b_.getInt64Ty()}, false);
  auto* provider = llvm::cast<llvm::Function>(
      module_.getOrInsertFunction(kScratchSymbol, signature).getCallee());
  provider->setDoesNotThrow();
  provider->setReturnDoesNotAlias();
  llvm::Value* base =
      b_.CreateCall(provider, {b_.getInt64(static_cast<uint64_t>(scratch))}, "scratch");
  for (const auto& [name, offset] : offsets) {
    storage_[name] =
        b_.CreateConstInBoundsGEP1_64(b_.getInt8Ty(), base, static_cast<uint64_t>(offset), name);
  }
}

// for (int64_t block = block_begin; block < block_end; ++block) { x, y, z of block; body }
void Emitter::EmitBlockLoop() {
  llvm::BasicBlock* entry = b_.GetInsertBlock();
  auto* head = llvm::BasicBlock::Create(context_, "block", function_);
  auto* body = llvm::BasicBlock::Create(context_, "block_body", function_);
  auto* exit = llvm::BasicBlock::Create(context_, "exit", function_);
  b_.CreateBr(head);
  b_.SetInsertPoint(head);
  llvm::PHINode* block = b_.CreatePHI(b_.getInt64Ty(), 2, "block");
  block->addIncoming(function_->getArg(2), entry);
  b_.CreateCondBr(b_.CreateICmpSLT(block, function_->getArg(3)), body, exit);

  b_.SetInsertPoint(body);
  for (int d = 0; d < 3; ++d) {
    if (uses_block_[d]) block_[d] = BlockCoordinate(block, d);
  }
  // Blocks may run in any order, so where their bodies are one element each they become SIMD lanes.
  llvm::MDNode* group = llvm::MDNode::getDistinct(context_, {});
  independent_loops_.push_back(group);
  EmitBody(kernel_.body);
  independent_loops_.pop_back();
  block->addIncoming(b_.CreateAdd(block, b_.getInt64(1), "", true, true), b_.GetInsertBlock());
  b_.CreateBr(head)->setMetadata(
      llvm::LLVMContext::MD_loop,
      LoopMetadata({.access_group = group, .vectorize = false, .unroll = Unroll::kNever}));
  b_.SetInsertPoint(exit);
  b_.CreateRetVoid();
}

// A dimension without a loop has extent 1, so only those with one are divided out.
llvm::Value* Emitter::BlockCoordinate(llvm::Value* block, int dimension) {
  const auto extent = [&](int d) {
    return b_.CreateLoad(b_.getInt64Ty(), b_.CreateConstInBoundsGEP1_64(b_.getInt64Ty(), grid_, d));
  };
  bool last = true;
  for (int d = 0; d < dimension; ++d) {
    if (uses_block_[d]) block = b_.CreateUDiv(block, extent(d));
  }
  for (int d = dimension + 1; d < 3; ++d) last = last && !uses_block_[d];
  return last ? block : b_.CreateURem(block, extent(dimension));
}

void Emitter::EmitBody(const tile::Block& block) {
  for (const tile::Stmt& s : block)
    std::visit([this](const auto& node) { EmitStmt(node); }, s.node);
}

void Emitter::EmitStmt(const tile::Let& s) {
  values_[s.name] = EmitExpr(s.value, index_names_.contains(s.name) ? Wrap::kNever : Wrap::kWraps);
}

void Emitter::EmitStmt(const tile::Alloc& s) {
  buffers_[s.name] = {
      .pointer = storage_.at(s.name), .type = s.type, .depth = independent_loops_.size()};
}

void Emitter::EmitStmt(const tile::Store& s) {
  const Buffer& buffer = FindBuffer(s.buffer);
  llvm::Value* value = ToMemory(buffer.type, EmitExpr(s.value));
  llvm::Value* pointer = ElementPointer(buffer, s.index);
  Annotate(b_.CreateAlignedStore(value, pointer, llvm::Align(SizeOf(buffer.type))), buffer);
}

// Blocks run on several threads.
void Emitter::EmitStmt(const tile::AtomicAdd& s) {
  const Buffer& buffer = FindBuffer(s.buffer);
  const auto operation =
      IsFloat(buffer.type) ? llvm::AtomicRMWInst::FAdd : llvm::AtomicRMWInst::Add;
  b_.CreateAtomicRMW(operation, ElementPointer(buffer, s.index), EmitExpr(s.value),
                     llvm::MaybeAlign(static_cast<uint64_t>(SizeOf(buffer.type))),
                     llvm::AtomicOrdering::Monotonic);
}

void Emitter::EmitStmt(const tile::Copy& s) {
  const Buffer& dst = FindBuffer(s.dst);
  const Buffer& src = FindBuffer(s.src);
  auto* type = llvm::FixedVectorType::get(MemoryType(src.type), static_cast<unsigned>(s.lanes));
  // The IR promises full alignment on a GPU; here unaligned access costs nothing, so none is
  // assumed.
  const llvm::Align align(SizeOf(src.type));
  llvm::Value* from = ElementPointer(src, s.src_index);
  llvm::Value* value = Annotate(b_.CreateAlignedLoad(type, from, align), src);
  Annotate(b_.CreateAlignedStore(value, ElementPointer(dst, s.dst_index), align), dst);
}

void Emitter::EmitStmt(const tile::For& s) {
  const int dimension = BlockDimension(s.bind);
  if (dimension < 0) return EmitLoop(s);
  llvm::Value* coordinate = block_[dimension];
  if (s.type == DType::kI32)
    coordinate = b_.CreateTrunc(coordinate, b_.getInt32Ty(), "", true, true);
  coordinate->setName(s.var);
  values_[s.var] = coordinate;
  EmitBody(s.body);
}

void Emitter::EmitLoop(const tile::For& s) {
  llvm::Type* type = ValueType(s.type);
  llvm::Value* extent = Convert(EmitExpr(s.extent), s.extent->type, s.type);
  llvm::BasicBlock* before = b_.GetInsertBlock();
  auto* head = llvm::BasicBlock::Create(context_, s.var, function_);
  auto* body = llvm::BasicBlock::Create(context_, s.var + "_body", function_);
  auto* end = llvm::BasicBlock::Create(context_, s.var + "_end", function_);
  b_.CreateBr(head);
  b_.SetInsertPoint(head);
  llvm::PHINode* var = b_.CreatePHI(type, 2, s.var);
  var->addIncoming(llvm::ConstantInt::get(type, 0), before);
  b_.CreateCondBr(b_.CreateICmpSLT(var, extent), body, end);

  // The threads of a block never wait for one another here, so their order means nothing either.
  const bool independent = s.bind == tile::Bind::kVector || s.bind == tile::Bind::kThreadX;
  llvm::MDNode* group = independent ? llvm::MDNode::getDistinct(context_, {}) : nullptr;
  if (group) independent_loops_.push_back(group);
  b_.SetInsertPoint(body);
  values_[s.var] = var;
  EmitBody(s.body);
  if (group) independent_loops_.pop_back();
  var->addIncoming(b_.CreateAdd(var, llvm::ConstantInt::get(type, 1), "", true, true),
                   b_.GetInsertBlock());
  llvm::BranchInst* latch = b_.CreateBr(head);
  const bool vector = s.bind == tile::Bind::kVector, unrolled = s.bind == tile::Bind::kUnroll;
  // Left to itself, LLVM unrolls short loops before it vectorises.
  const Unroll unroll = vector ? Unroll::kNever : unrolled ? Unroll::kFully : Unroll::kFree;
  if (llvm::MDNode* metadata =
          LoopMetadata({.access_group = group, .vectorize = vector, .unroll = unroll})) {
    latch->setMetadata(llvm::LLVMContext::MD_loop, metadata);
  }
  b_.SetInsertPoint(end);
}

// Null where there is nothing to say.
llvm::MDNode* Emitter::LoopMetadata(const LoopHints& hints) {
  std::vector<llvm::Metadata*> items = {nullptr};  // the first operand is the node itself
  const auto add = [&](const char* key, llvm::Metadata* value) {
    std::vector<llvm::Metadata*> pair = {llvm::MDString::get(context_, key)};
    if (value) pair.push_back(value);
    items.push_back(llvm::MDNode::get(context_, pair));
  };
  if (hints.access_group) add("llvm.loop.parallel_accesses", hints.access_group);
  if (hints.vectorize)
    add("llvm.loop.vectorize.enable", llvm::ConstantAsMetadata::get(b_.getTrue()));
  if (hints.unroll == Unroll::kFully) add("llvm.loop.unroll.full", nullptr);
  if (hints.unroll == Unroll::kNever) add("llvm.loop.unroll.disable", nullptr);
  if (items.size() == 1) return nullptr;
  llvm::MDNode* node = llvm::MDNode::getDistinct(context_, items);
  node->replaceOperandWith(0, node);
  return node;
}

void Emitter::EmitStmt(const tile::If& s) {
  auto* then_block = llvm::BasicBlock::Create(context_, "then", function_);
  auto* end = llvm::BasicBlock::Create(context_, "end_if", function_);
  auto* else_block =
      s.else_body.empty() ? end : llvm::BasicBlock::Create(context_, "else", function_);
  b_.CreateCondBr(Truth(EmitExpr(s.condition)), then_block, else_block);
  b_.SetInsertPoint(then_block);
  EmitBody(s.then_body);
  b_.CreateBr(end);
  if (else_block != end) {
    b_.SetInsertPoint(else_block);
    EmitBody(s.else_body);
    b_.CreateBr(end);
  }
  b_.SetInsertPoint(end);
}

void Emitter::GpuOnly(std::string_view statement) {
  Fail(b_.getInt32Ty(), "{}: the CPU target has nothing like it; schedule the kernel without",
       statement);
}

void Emitter::EmitStmt(const tile::Call& s) {
  Fail(b_.getInt32Ty(), "{}: the CPU target has no such skeleton", s.skeleton);
}

void Emitter::EmitStmt(const tile::Barrier&) {
  Fail(b_.getInt32Ty(),
       "barrier: the CPU target runs the threads of a block one after another; schedule the "
       "kernel without barriers");
}

Result<std::unique_ptr<llvm::Module>> Emit(const tile::Kernel& kernel, llvm::LLVMContext& context,
                                           const EmitOptions& options) {
  auto module = std::make_unique<llvm::Module>(kernel.name, context);
  RETURN_IF_ERROR(Emitter(kernel, *module, options).Run());

  // Vector forms are named by attributes only until the vectoriser calls them; keep their
  // declarations.
  std::vector<llvm::GlobalValue*> keep;
  for (llvm::Function& f : *module) {
    if (f.isDeclaration() && !f.isIntrinsic() && f.use_empty()) keep.push_back(&f);
  }
  if (!keep.empty()) llvm::appendToCompilerUsed(*module, keep);

  std::string problem;
  llvm::raw_string_ostream stream(problem);
  CHECK(!llvm::verifyModule(*module, &stream), "{}: {}", kernel.name, problem);
  return module;
}

}  // namespace kiln::llvm_codegen
