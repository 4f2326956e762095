// Tile kernels as the interpreter runs them: names resolved to slots, and room for every value.
// The interpreter (interpret*.cc) is the only reader.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "ir/tile/tools.h"

namespace kiln::tile {

union Cell {
  double f;
  int64_t i;
};

struct Memory {
  std::string name;
  DType type = DType::kF32;
  Space space = Space::kReg;
  // The caller's buffer of a pointer parameter; for an allocation it is null, and the other members
  // describe it.
  std::vector<double>* global = nullptr;
  int64_t size = 0;
  std::vector<Cell> cells;  // registers: [element][thread]
  std::vector<uint8_t> defined;

  // Shared memory's record of who touched an element, and how many barriers there had been. It is a
  // race if two threads touch it, one of them writes, and no barrier of both is between.
  struct Touch {
    int write_epoch = -1, writer = 0, read_epoch = -1, reader = 0;
  };
  std::vector<Touch> touches;
  std::vector<uint8_t> in_flight;  // asynchronous copies that have not been waited for
};

struct ExprCode {
  const ExprNode* node = nullptr;
  std::vector<Cell> own;
  Cell* out = nullptr;  // one value a thread: `own`, or a variable's
  ExprCode* args[3] = {};
  Memory* memory = nullptr;
};

struct Step {
  const Stmt* source = nullptr;
  // The statement's expressions and buffers, in order.
  ExprCode *first = nullptr, *second = nullptr, *third = nullptr;
  Memory *dst = nullptr, *src = nullptr, *src2 = nullptr;
  std::vector<Memory*> sources;
  std::vector<Cell> var;  // of a loop
  std::vector<Step> body, else_body;
};

// A kernel with names resolved and room for its values.
class Resolver {
 public:
  // `args` must fit the kernel's parameters.
  Resolver(const Kernel& kernel, std::span<const Argument> args);

  std::vector<Step> body;

 private:
  Memory& NewMemory(const std::string& name, DType type);
  std::vector<Step> Resolve(const Block& block);
  ExprCode* Resolve(const Expr& e);
  void Fill(Step& step, const Let& s);
  void Fill(Step& step, const Alloc& s);
  void Fill(Step& step, const Store& s);
  void Fill(Step& step, const Copy& s);
  void Fill(Step& step, const CopyAsync& s);
  void Fill(Step&, const CommitAsync&);
  void Fill(Step&, const WaitAsync&);
  void Fill(Step& step, const LoadMatrix& s);
  void Fill(Step& step, const Largest& s);
  void Fill(Step& step, const AtomicAdd& s);
  void Fill(Step& step, const Mma& s);
  void Fill(Step&, const Call&);
  void Fill(Step& step, const For& s);
  void Fill(Step& step, const If& s);
  void Fill(Step&, const Barrier&);
  void Fill(Step&, const Comment&);

  size_t threads_;
  std::deque<ExprCode> codes_;  // deques: addresses stay
  std::deque<Memory> memories_;
  std::deque<std::vector<Cell>> params_;
  std::map<std::string, Cell*, std::less<>> vars_;
  std::map<std::string, Memory*, std::less<>> by_name_;
};

}  // namespace kiln::tile
