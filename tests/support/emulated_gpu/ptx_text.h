// PTX text as statements: what the decoder reads. Names are resolved here, since inline assembly
// opens scopes that use the same names again: registers and labels get numbers.
//
//   .visible .entry scale(.param .u64 x) { … @%p1 bra $L__BB0_2; … }
//   → PtxFunction{name, params, registers, statements{guard, opcode, operands}}
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kiln::emulated {

struct PtxVariable {
  std::string name;
  int64_t bytes = 0;
  int64_t align = 1;
  std::vector<uint8_t> initial;  // empty: zeros
};

// One instruction: "@!%p1 ld.global.v2.f32 {%f1, %f2}, [%rd1+8];"
struct PtxStatement {
  std::string opcode;
  std::vector<std::string> operands;  // registers of inner scopes and labels by their unique names
  std::string guard;                  // register's name; empty: none
  bool guard_negated = false;
  int line = 0;  // of the module's text
};

struct PtxFunction {
  std::string name;
  bool is_entry = false;
  std::vector<PtxVariable> params, results;
  std::map<std::string, int> registers;    // bits by unique name; 1 is a predicate
  std::vector<PtxVariable> shared, local;  // declared in it
  std::vector<PtxVariable> call_params;    // .param variables of its body
  std::vector<PtxStatement> statements;
  std::map<std::string, int> labels;  // index of a statement by unique name
  std::map<std::string, std::vector<std::string>> branch_targets;
  int cluster[3] = {0, 0, 0};  // .reqnctapercluster; 0: none
  int max_threads = 0;
};

struct PtxModule {
  std::string text;
  std::vector<PtxFunction> functions;
  std::vector<PtxVariable> globals, shared;  // shared: bytes 0 is the dynamic part
  std::string target;
};

// The module, or the sentence that says which line is not understood.
std::optional<std::string> ParsePtx(std::string_view text, PtxModule& module);

}  // namespace kiln::emulated
