// The parts of the tile IR's verifier: what names mean (Scope), which types go together, and the
// rules of expressions and of statements that touch memory. verify.cc, which knows how statements
// nest, is the only caller.
#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "ir/base/result.h"
#include "ir/tile/tile.h"

namespace kiln::tile {

template <class... A>
Status BrokenRule(fmt::format_string<A...> format, A&&... args) {
  return Status::Error(Code::kInternal, format, std::forward<A>(args)...);
}

// ---- types (verify_types.cc)

// True if the operation takes operands of this type; for select, those that it chooses from.
bool Takes(ScalarOp op, DType type);
// The type that tensor cores sum products of this type in; nothing where they have none.
std::optional<DType> AccumulatorOfMma(DType operand);
constexpr bool IsIndexType(DType t) { return t == DType::kI32 || t == DType::kI64; }

// ---- names (verify_types.cc)

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

  bool is_shared() const { return !per_thread && size >= 0; }
  bool is_global() const { return size < 0; }
};

// The names that are defined where the verifier stands.
class Scope {
 public:
  Status DefineVariable(const std::string& name, Variable v);
  Status DefineBuffer(const std::string& name, Buffer b);
  Status DefineMap(const std::string& name);
  // Ends the visibility of names defined since Mark returned `mark`; a name is never used again.
  size_t Mark() const { return open_.size(); }
  void Leave(size_t mark);

  const Variable* FindVariable(const std::string& name) const;
  const Buffer* FindBuffer(const std::string& name) const;
  // Both functions need names that have been looked up before.
  const Variable& VariableOf(const std::string& name) const { return vars_.at(name); }
  const Buffer& BufferOf(const std::string& name) const { return buffers_.at(name); }
  bool HasMap(const std::string& name) const { return maps_.contains(name); }

 private:
  Status Define(const std::string& name);

  std::unordered_map<std::string, Variable> vars_;
  std::unordered_map<std::string, Buffer> buffers_;
  std::unordered_set<std::string> used_, maps_;
  std::vector<std::string> open_;
};

// ---- expressions (verify_expressions.cc)

class ExpressionRules {
 public:
  ExpressionRules(const Scope& scope, int threads) : scope_(scope), threads_(threads) {}

  Status Check(const Expr& e) const;
  // Checks `index` and the `lanes` elements from there, as far as the index is a constant.
  Status CheckElement(const std::string& buffer, const Expr& index, int lanes) const;
  // True if threads of a block may have different values. The answer is conservative: a value is
  // uniform unless it depends on the thread's number, on a register or on a shuffle.
  bool IsDivergent(const Expr& e) const;
  bool HasOnlyParameters(const Expr& e) const;

 private:
  Status CheckVar(const Expr& e) const;
  Status CheckLoad(const Expr& e) const;
  Status CheckOp(const Expr& e) const;
  Status CheckShuffle(const Expr& e) const;

  const Scope& scope_;
  const int threads_;
};

// ---- statements that touch memory (verify_memory.cc)

class MemoryRules {
 public:
  MemoryRules(const Scope& scope, const ExpressionRules& expressions)
      : scope_(scope), expressions_(expressions) {}

  Status Check(const Store& s) const;
  Status Check(const Copy& s) const;
  Status Check(const CopyAsync& s) const;
  Status Check(const WaitAsync& s) const;
  Status Check(const LoadMatrix& s) const;
  Status Check(const Mma& s) const;
  Status Check(const Largest& s) const;
  Status Check(const AtomicAdd& s) const;

 private:
  Status CheckWritable(const std::string& buffer) const;
  Status RequireDefined(const std::string& buffer) const;

  const Scope& scope_;
  const ExpressionRules& expressions_;
};

}  // namespace kiln::tile
