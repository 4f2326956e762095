// Decoder for the tables of instructions: operands to slots, parts of the opcode to flags. A row of
// a table stands for all instructions whose opcode begins with its word.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/emulated_gpu/program.h"

namespace kiln::emulated {

// Thrown; the sentence of what is unknown.
struct Unknown {
  std::string text;
};

class Decoder {
 public:
  Decoder(const Module& module, Function& function);

  void Begin(const PtxStatement& statement);

  // ---- the opcode: "ld.global.nc.v2.f32" has parts ld, global, nc, v2, f32
  const std::vector<std::string_view>& parts() const { return parts_; }
  bool Has(std::string_view part) const;
  Type LastType() const;  // kNone where there is none
  std::vector<Type> Types() const;
  int VectorSize() const;  // of .v2, .v4, .v8; else 1
  Space SpaceOf() const;
  bool Flag(std::string_view part, Instr& i, uint8_t flag) const;

  // ---- operands
  size_t count() const { return statement_->operands.size(); }
  const std::string& text(size_t operand) const;
  uint32_t Source(size_t operand, int bits) { return SourceOf(text(operand), bits); }
  uint32_t Target(size_t operand, int bits) { return TargetOf(text(operand), bits); }
  uint32_t SourceOf(const std::string& text, int bits);
  uint32_t TargetOf(const std::string& text, int bits);
  uint32_t Predicate(const std::string& text, bool& negated);
  // "p|q" to both; the second is empty where there is none.
  std::pair<std::string, std::string> Halves(size_t operand) const;
  void Address(const std::string& text, Instr& i);  // "[%rd1+16]" to a, a_is_wide, offset
  int64_t Number(size_t operand) const;             // an immediate one
  bool IsNumber(size_t operand) const;
  // "{%f1, %f2}", or a register alone, to slots in Function::lists.
  void List(const std::string& text, int bits, bool is_target, int& first, int& size);
  int RegisterBits(const std::string& text) const;  // 0: no register
  static std::vector<std::string> Split(std::string_view text);

  Function& function() { return function_; }
  [[noreturn]] void Fail(const std::string& text) const;

 private:
  uint32_t NewSlot(int bits);
  uint32_t Constant(uint64_t value, int bits);
  uint32_t Special(const std::string& name, int bits, uint64_t number);
  void Variables();

  const Module& module_;
  Function& function_;
  const PtxStatement* statement_ = nullptr;
  std::vector<std::string_view> parts_;
  struct Register {
    uint32_t slot;
    int bits;
  };
  struct Symbol {
    Space space;
    uint64_t address;
  };
  std::map<std::string, Register> registers_;
  std::map<std::string, Symbol> symbols_;
  std::map<std::pair<uint64_t, int>, uint32_t> constants_;
};

// st.async, for the table of stores. Defined in async_ops.cc.
void DecodeAsyncStore(Decoder& d, Instr& i);

struct OpRow {
  std::string_view word;
  void (*decode)(Decoder& decoder, Instr& instr);
};
std::span<const OpRow> ScalarOps();   // add, min, abs …
std::span<const OpRow> ProductOps();  // mul, mad, fma …
std::span<const OpRow> BitOps();      // shl, bfe, prmt …
std::span<const OpRow> CompareOps();  // setp, selp …
std::span<const OpRow> ConvertOps();  // cvt, cvta, mov
std::span<const OpRow> MemoryOps();   // ld, st, atom, red
std::span<const OpRow> WarpOps();     // shfl, vote, mma, ldmatrix …
std::span<const OpRow> ControlOps();  // bra, bar, fence …
std::span<const OpRow> AsyncOps();    // cp.async, mbarrier, bulk copies
std::span<const OpRow> WgmmaOps();

}  // namespace kiln::emulated
