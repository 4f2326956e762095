// A PTX function as the machine runs it. Registers are slots of a warp's register file: 32 lanes of
// 4 bytes side by side, of 8 or 16 for 64 and 128 bits; a predicate is one word, a bit a lane.
// Immediate numbers and special registers have slots too, so that an operand is always a slot.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/emulated_gpu/ptx_text.h"

namespace kiln::emulated {

constexpr int kLanes = 32;
using Mask = uint32_t;  // a bit a lane
struct Warp;
struct Instr;
using Handler = void (*)(Warp& warp, const Instr& instr, Mask lanes);

enum class Type : uint8_t {
  kNone,
  kPred,
  kB8,
  kB16,
  kB32,
  kB64,
  kB128,
  kU8,
  kU16,
  kU32,
  kU64,
  kS8,
  kS16,
  kS32,
  kS64,
  kF16,
  kF16x2,
  kBF16,
  kBF16x2,
  kTF32,
  kF32,
  kF64,
  kE4M3x2,
  kE5M2x2,
  kU16x2,
  kS16x2,
};
Type ParseType(std::string_view text);  // kNone where it is no type
int BitsOf(Type type);
bool IsSigned(Type type);
bool IsFloat(Type type);

enum class Space : uint8_t { kGeneric, kGlobal, kShared, kSharedCluster, kLocal, kParam };

// Action of the machine after the handler, or in its place.
enum class Control : uint8_t {
  kNone,
  kBranch,         // to `target`
  kBranchIndexed,  // to lists[first_list + index]
  kExit,
  kCollective,    // needs the lanes of register `members`, or all that live where there is none
  kWait,          // the handler may leave lanes waiting: see Warp::Wait
  kWaitTogether,  // the same once all lanes that live have come
  kSpin,          // may be asked again and again, until another warp has done something
};

struct Instr {
  Handler run = nullptr;
  uint32_t d = 0, a = 0, b = 0, c = 0;  // slots
  uint32_t e = 0;                       // a second result, or a fourth source
  int64_t offset = 0;                   // added to the address in `a`
  uint32_t guard = 0, members = 0;
  int first_list = 0, list_size = 0;  // slots of a vector in Function::lists
  int second_list = 0, second_size = 0;
  int target = 0;
  int64_t number = 0;  // an immediate operand, where it decides what is done
  Control control = Control::kNone;
  Space space = Space::kGeneric;
  Type type = Type::kNone, from = Type::kNone;
  uint8_t compare = 0, combine = 0, rounding = 0;
  uint8_t flags = 0;  // see below
  bool has_guard = false, guard_negated = false;
  bool has_members = false;
  bool negated_a = false, negated_b = false, negated_c = false;  // predicates among the sources
  bool d_is_wide = false, a_is_wide = false;                     // 64 bits of register
  bool touches_sums = false;  // registers that a wgmma may have under way
  int line = 0;
};
enum InstrFlag : uint8_t {
  kFlush = 1,     // .ftz
  kSaturate = 2,  // .sat, .satfinite
  kKeepNan = 4,   // .NaN
  kRelu = 8,
  kHasSecond = 16,  // `e` is a result that is wanted
  kTransposed = 32,
  kMulticast = 64,
};

// A register whose number a warp learns when it begins: "%tid.x", or "@shared" for a place in the
// block's shared memory.
struct SpecialRegister {
  std::string name;
  uint32_t slot = 0;
  int bits = 32;
  uint64_t number = 0;
};

struct Function {
  std::string name;
  const PtxFunction* text = nullptr;
  std::vector<Instr> instrs;
  std::vector<uint32_t> lists;
  std::vector<uint8_t> registers;  // as a warp begins: immediate numbers, else poison
  std::vector<SpecialRegister> specials;
  struct Param {
    int64_t offset, bytes;
  };
  std::vector<Param> params;
  int64_t param_bytes = 0;
  int64_t local_bytes = 0;
  int64_t shared_bytes = 0;       // static
  int64_t dynamic_shared_at = 0;  // where the dynamic part begins
  int cluster[3] = {0, 0, 0};
};

struct Module {
  PtxModule text;
  std::vector<std::string> lines;
  std::map<std::string, std::shared_ptr<uint8_t>> globals;
  std::map<std::string, Function> functions;
  std::map<std::string, std::string> undecoded;  // sentence by function
};

// Text of the instruction, for messages.
std::string TextOf(const Module& module, const Instr& instr);

// Decodes all functions. A sentence where the text is not understood at all; what one function has
// that is unknown is kept in `undecoded` for its launch.
std::unique_ptr<Module> LoadModule(std::string_view ptx, std::string& error);

}  // namespace kiln::emulated
