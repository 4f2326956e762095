// The state of one emission, shared by the files of this folder: statements (emit.cc), expressions
// (expr.cc), storage types and casts (storage.cc). Private to codegen/llvm.
//
// The first failure is kept in `status_`; what is emitted after it is poison and thrown away, so
// that the emitting functions can return plain values.
#pragma once

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

#include <array>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "codegen/llvm/emit.h"
#include "ir/tile/tile.h"

namespace kiln::llvm_codegen {

// Assumptions on integer arithmetic. An index that overflows its type is out of bounds anyhow, and
// only when it cannot wrap can LLVM see that x[i], x[i+1] ... are adjacent.
enum class Wrap : uint8_t { kWraps, kNever };

class Emitter {
 public:
  Emitter(const tile::Kernel& kernel, llvm::Module& module, const EmitOptions& options);

  Status Run();

 private:
  struct Buffer {
    llvm::Value* pointer = nullptr;
    DType type = DType::kF32;
    size_t depth = 0;  // number of independent loops around its allocation
  };

  enum class Unroll : uint8_t { kFree, kFully, kNever };
  struct LoopHints {
    llvm::MDNode* access_group = nullptr;  // set: the iterations are independent in these accesses
    bool vectorize = false;                // demanded, whatever the cost model says
    Unroll unroll = Unroll::kFree;
  };

  // ---- emit.cc: statements ----
  void LoadArguments();
  void Allocate();
  void EmitBlockLoop();
  llvm::Value* BlockCoordinate(llvm::Value* block, int dimension);
  void EmitBody(const tile::Block& block);
  void EmitStmt(const tile::Let& s);
  void EmitStmt(const tile::Alloc& s);
  void EmitStmt(const tile::Store& s);
  void EmitStmt(const tile::Copy& s);
  void EmitStmt(const tile::For& s);
  void EmitStmt(const tile::If& s);
  void EmitStmt(const tile::CopyAsync&) { GpuOnly("copy_async"); }
  void EmitStmt(const tile::CommitAsync&) { GpuOnly("commit_async"); }
  void EmitStmt(const tile::WaitAsync&) { GpuOnly("wait_async"); }
  void EmitStmt(const tile::LoadMatrix&) { GpuOnly("load_matrix"); }
  void EmitStmt(const tile::Call& s);
  void EmitStmt(const tile::Mma&) { GpuOnly("mma"); }
  void EmitStmt(const tile::Largest&) { GpuOnly("largest"); }
  void EmitStmt(const tile::AtomicAdd& s);
  void GpuOnly(std::string_view statement);
  void EmitStmt(const tile::Barrier& s);
  void EmitStmt(const tile::Comment&) {}
  void EmitLoop(const tile::For& s);
  llvm::MDNode* LoopMetadata(const LoopHints& hints);

  // ---- expr.cc: expressions ----
  llvm::Value* EmitExpr(const tile::Expr& e, Wrap wrap = Wrap::kWraps);
  llvm::Value* EmitConstant(DType type, double f, int64_t i);
  llvm::Value* EmitOp(const tile::Expr& e, Wrap wrap);
  llvm::Value* EmitLazy(const tile::Expr& e, Wrap wrap);
  llvm::Value* EmitMath(ScalarOp op, DType type, std::span<llvm::Value* const> args);
  llvm::Value* EmitIndex(const tile::Expr& e);
  llvm::Value* Truth(llvm::Value* value);
  llvm::Value* ElementPointer(const Buffer& buffer, const tile::Expr& index);
  llvm::Instruction* Annotate(llvm::Instruction* access, const Buffer& buffer);
  const Buffer& FindBuffer(const std::string& name);

  // ---- storage.cc: types and casts ----
  llvm::Type* ValueType(
      DType type);  // of a value in registers; f16, bf16 and fp8 stay in their code's bits
  llvm::Type* MemoryType(DType type);  // of an element in memory; differs for bool only
  llvm::Value* FromMemory(DType type, llvm::Value* stored);
  llvm::Value* ToMemory(DType type, llvm::Value* value);
  llvm::Value* Convert(llvm::Value* value, DType from, DType to);
  llvm::Value* DecodeSmallFloat(DType type, llvm::Value* code);
  llvm::Value* EncodeSmallFloat(DType type, llvm::Value* f32);
  llvm::Value* EncodePowerOfTwo(llvm::Value* magnitude);
  llvm::Value* RoundToOdd(llvm::Value* f64);
  llvm::Value* ToInteger(llvm::Value* value, DType from, DType to);

  template <class... A>
  llvm::Value* Fail(llvm::Type* type, fmt::format_string<A...> format, A&&... args) {
    if (status_.ok()) {
      status_ =
          Status::Error(Code::kNotSupported, format, std::forward<A>(args)...).Within(kernel_.name);
    }
    return llvm::PoisonValue::get(type);
  }

  const tile::Kernel& kernel_;
  llvm::Module& module_;
  llvm::LLVMContext& context_;
  const EmitOptions& options_;
  llvm::IRBuilder<> b_;
  llvm::Function* function_ = nullptr;
  llvm::Argument* args_ = nullptr;
  llvm::Argument* grid_ = nullptr;

  std::map<std::string, llvm::Value*> values_;
  std::map<std::string, Buffer> buffers_;
  std::map<std::string, llvm::Value*> storage_;  // of every Alloc, made in the entry block
  std::set<std::string> index_names_;            // lets that reach an index
  std::array<llvm::Value*, 3> block_ = {};       // block coordinates, as i64
  std::array<bool, 3> uses_block_ = {};
  std::vector<llvm::MDNode*> independent_loops_;  // access groups, outermost first
  Status status_;
};

}  // namespace kiln::llvm_codegen
