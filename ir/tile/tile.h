// Tile IR: the work of one kernel as loops bound to blocks, threads and vectors, loads, stores,
// scalar expressions, barriers and shared memory. Nothing is left to decide here: the emitters
// (CUDA, LLVM) only print.
//
//   kernel pw_3f2a(x: ptr<f16> const align 16, y: ptr<f16> align 16, n: i32) threads 256 {
//     for bx in 0..div(add(n, 2047), 2048) block_x {
//       for tx in 0..256 thread_x {
//         let i = add(mul(bx, 2048), mul(tx, 8)) : i32
//         if lt(i, n) {
//           alloc v : f16[8] reg
//           copy v[0] <- x[i] lanes 8
//           for j in 0..8 unroll {
//             store v[j] = cast<f16>(max(cast<f32>(load v[j]), 0x0p+0f))
//           }
//           copy y[i] <- v[0] lanes 8
//         }
//       }
//     }
//   }
//
// Identity is by name: every variable, buffer and parameter of a kernel has its own name, given in
// order of creation, so that equal structures print equal text (the text is the key of the kernel
// cache).
//
// Types of expressions: f32, f64, i32, i64 and bool compute; the other dtypes are storage that may
// only be loaded, stored, copied and cast. A cast rounds as RoundTo (ir/dtype.h): to nearest even,
// saturating for integers and fp8. Integer Div and Mod are on non-negative operands. `select`,
// `and` and `or` evaluate only the operands they need, as ?:, && and || do, so that
// `select(lt(i, n), load x[i], 0x0p+0f)` is in bounds.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "ir/base/any_of.h"
#include "ir/dtype.h"
#include "ir/scalar.h"

namespace kiln::tile {

enum class ExprKind : uint8_t {
  kInt,    // i32, i64 or bool constant: `int_value`
  kFloat,  // f32 or f64 constant: `float_value`
  kVar,    // loop variable, let, or scalar parameter: `name`
  kLoad,   // element args[0] of buffer `name`
  kOp,     // op(args…)
  kCast,   // args[0] as `type`
  // The value of args[0] in the lane whose number is this lane's xor int_value; all 32 lanes
  // active.
  kShuffle,
};

struct ExprNode;
using Expr = std::shared_ptr<const ExprNode>;

struct ExprNode {
  ExprKind kind = ExprKind::kInt;
  DType type = DType::kI32;
  ScalarOp op = ScalarOp::kAdd;
  std::string name = {};
  int64_t int_value = 0;
  double float_value = 0;
  std::vector<Expr> args = {};
};

// ---- builders; they fold constants, casts to a wider type and back, x+0, x*1, x*0, x/1, x%1 and
// select(const, …)
Expr Int(int64_t value, DType type = DType::kI32);
Expr Float(double value, DType type = DType::kF32);
Expr Bool(bool value);
Expr Var(std::string name, DType type);
Expr Load(std::string buffer, DType type, Expr index);
Expr Op(ScalarOp op, std::vector<Expr> args);
Expr Cast(DType type, Expr value);  // the value itself where the type is already right
Expr ShuffleXor(Expr value, int lane_mask);

Expr operator+(Expr a, Expr b);
Expr operator-(Expr a, Expr b);
Expr operator*(Expr a, Expr b);
Expr operator/(Expr a, Expr b);
Expr operator%(Expr a, Expr b);
Expr Lt(Expr a, Expr b);
Expr Ge(Expr a, Expr b);
Expr And(Expr a, Expr b);
Expr Select(Expr condition, Expr if_true, Expr if_false);

bool IsConst(const Expr& e, int64_t value);
bool Equal(const Expr& a, const Expr& b);

enum class Space : uint8_t { kReg, kShared };

enum class Bind : uint8_t {
  kSerial,
  kUnroll,  // constant extent, fully unrolled
  kVector,  // CPU: iterations are independent and should become SIMD lanes; GPU: as kUnroll
  kBlockX,  // outermost only; extent may name parameters, and fixes the launch grid
  kBlockY,
  kBlockZ,
  kThreadX,  // constant extent; at most one level deep at any point
};

struct Stmt;
using Block = std::vector<Stmt>;

struct Let {  // name = value, visible to the end of the enclosing block
  std::string name;
  Expr value;
};
struct Alloc {  // `size` elements; kReg is per thread and starts undefined; kShared is per block
  std::string name;
  DType type;
  Space space;
  int64_t size;
};
struct Store {  // buffer[index] = value; the value's type is the buffer's
  std::string buffer;
  Expr index;
  Expr value;
};
// Copies dst[dst_index .. +lanes) = src[src_index .. +lanes) by one wide access; equal dtypes;
// lanes * size is 2, 4, 8 or 16 bytes, and global or shared addresses are aligned to it.
struct Copy {
  std::string dst;
  Expr dst_index;
  std::string src;
  Expr src_index;
  int lanes;
};
struct For {
  std::string var;
  DType type = DType::kI32;  // of the variable
  Expr extent = {};          // iterates 0 .. extent-1
  Bind bind = Bind::kSerial;
  Block body;  // no initialiser: Stmt is incomplete here
};
struct If {
  Expr condition;
  Block then_body, else_body;
};
// One tensor-core product of a warp: acc += A[16xK] x B[Kx8], where K elements are 32 bytes and
// every lane holds its share in registers. Fragments as PTX ISA "mma.m16n8k8/k16/k32" have them;
// with g = lane / 4, t = lane % 4, and words of 4 bytes, E elements each, that lie along k:
//   a    4 words: (g, tE..), (g+8, tE..), (g, tE + 4E..), (g+8, tE + 4E..)
//   b    2 words: (tE.., g), (tE + 4E.., g)
//   acc  4 elements: (g, 2t), (g, 2t+1), (g+8, 2t), (g+8, 2t+1)
// f32 operands are rounded to TF32 (10 bits of mantissa), to nearest, ties away from zero.
struct Mma {
  std::string acc;  // f32 registers, or i32 for integer operands; 4 from acc_index on
  Expr acc_index;
  std::string a;  // f16, bf16, f32, e4m3, e5m2, i8 or u8 registers; 16 bytes from a_index on
  Expr a_index;
  std::string b;  // of a's type; 8 bytes from b_index on
  Expr b_index;
};
// Reads 8x8 matrices of 16-byte rows from shared memory as fragments, PTX ISA "ldmatrix": lane
// 8i + r names row r of matrix i by its src_index, and word i of dst becomes elements (g, tE..) of
// matrix i, or (tE.., g) where it is transposed, which only types of 16 bits can be.
struct LoadMatrix {
  std::string dst;  // registers; 4 * matrices bytes from dst_index on
  Expr dst_index;
  std::string src;  // shared, of the same type
  Expr src_index;
  int matrices;  // 1, 2 or 4
  bool transposed;
};
// Starts a copy of 4, 8 or 16 bytes from global to shared memory, or the writing of zeros where
// `valid` is false; then src is not read. It is part of the thread's next CommitAsync. Until the
// thread has waited for that group, nobody may touch the destination; after it, the thread alone,
// and others behind a barrier.
struct CopyAsync {
  std::string dst;
  Expr dst_index;
  std::string src;
  Expr src_index;
  int lanes;
  Expr valid;
};
struct CommitAsync {};  // closes the group of the copies that this thread has started
struct WaitAsync {      // until at most `groups` of this thread's groups are under way
  int groups;
};
// The largest of several sources, for each of `lanes` elements: values = the largest of all
// sources, numbers = that of the first source equal to it, or 0. A NaN is dropped, and where there
// is nothing else the largest is -infinity; or, with keeps_nan, it is larger than all numbers.
struct Largest {
  std::string values;                // registers, f16 or bf16; elements from 0 on, here and below
  std::string numbers;               // i8 registers, or empty where nobody asks
  std::vector<std::string> sources;  // registers of the type of values
  std::vector<int> taps;             // the number of each source
  int lanes;                         // even
  bool keeps_nan = false;
};
struct AtomicAdd {  // buffer[index] += value, global memory; order among threads is open
  std::string buffer;
  Expr index;
  Expr value;  // f32, f64 or i32, the buffer's type
};
// A skeleton of the device library that runs the whole block: it loads by tensor maps, multiplies
// on warpgroups, and hands what it has made to the functions that the kernel gives it.
//
//   call contract_sm90(left_map, right_map) wgmma 256 f16 k f16 outer shared 214528 {
//     config kTileLeft 128
//     shape left_tiles = left_tiles
//     function store(values: f32[8], batch: i32, split: i32, left: i32, right: i32) { … }
//   }
struct Call {
  struct Constant {  // a compile-time member of the skeleton's configuration
    std::string name;
    int64_t value;
  };
  struct Member {  // a number that the skeleton gets when it runs
    std::string name;
    Expr value;
  };
  struct FunctionParam {
    std::string name;
    DType type;
    int64_t size;            // registers that are passed by reference; 0: a scalar
    bool is_output = false;  // registers that the function fills; others are only read
  };
  struct Function {  // called by every thread on its own: no barrier, no shared memory
    std::string name;
    std::vector<FunctionParam> params;
    Block body;
  };
  // A wgmma shape that the kernel uses: 64 x columns.
  struct Wgmma {
    int columns = 0;
    DType type = DType::kF16, right_type = DType::kF16;  // of equal size
    bool left_is_outer = false, right_is_outer = false;  // MN-major in shared memory, else K-major
    bool left_in_registers = false;
  };

  std::string skeleton;
  std::vector<std::string> maps;          // tensor-map parameters
  std::vector<std::string> buffers = {};  // pointers, or shared memory, that it writes by itself
  Wgmma wgmma = {};                       // of 0 columns where it needs none
  // Further shapes, for skeletons that multiply their own results again; the second alone may have
  // its left operand in registers.
  std::optional<Wgmma> second = {}, third = {}, fourth = {};
  int64_t shared_bytes = 0;  // dynamic shared memory that the skeleton lays out itself
  std::vector<Constant> config = {};
  std::vector<Member> shape = {};
  std::vector<Function> functions = {};
};
// A barrier that every thread of the block reaches, or of each team of neighbouring threads: what a
// team does before is ordered with what that team does after, and teams do not wait for one
// another.
struct Barrier {
  static constexpr int kMostTeams = 15;  // of a block; PTX ISA "bar" has one more for the block
  int team = 0;                          // threads, whole warps; 0: the block
};
struct Comment {
  std::string text;
};

struct AllStmts {
  using Variant =
      std::variant<Let, Alloc, Store, Copy, CopyAsync, CommitAsync, WaitAsync, LoadMatrix, Mma,
                   Largest, AtomicAdd, For, If, Call, Barrier, Comment>;
};
struct Stmt {
  AnyOf<AllStmts> node;
};

struct Param {
  std::string name = {};
  DType type = DType::kI32;
  bool is_pointer = false;
  bool is_const = false;  // pointer that is only read
  int alignment = 1;      // bytes that the pointer is known to be aligned to
  bool is_map = false;    // a tensor map, for a call
};

struct Kernel {
  std::string name;                       // extern "C" entry
  std::vector<std::string> comment = {};  // lines: graph, engine, knobs
  std::vector<Param> params = {};
  int threads = 1;           // of a block; 1 on the CPU
  int min_blocks = 0;        // __launch_bounds__' second argument, 0 for none
  int cluster = 1;           // neighbouring blocks that form a cluster
  bool cooperative = false;  // blocks wait for one another: they have to be resident together
  Block body = {};
};

// ---- text: print → parse → print is the identity ----
std::string Print(const Kernel& kernel);
std::string Print(const Expr& expr);

}  // namespace kiln::tile
