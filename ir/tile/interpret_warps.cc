// Statements that a warp runs as one: matrices from shared memory, and products of tensor cores.
#include <cmath>

#include "ir/tile/interpret_values.h"

namespace kiln::tile {
namespace {

// Calls run(first lane) for each warp; only whole ones are legal.
template <class F>
void ForEachWarp(Faults& faults, Lanes lanes, F&& run) {
  for (size_t i = 0; i < lanes.size() && faults.status.ok(); i += 32) {
    const int first = lanes[i];
    if (first % 32 != 0 || i + 32 > lanes.size() || lanes[i + 31] != first + 31)
      return faults.Fail(first, "a warp is not active as a whole");
    run(first);
  }
}

void LoadWarp(BlockMemory& memory, Step& s, const LoadMatrix& load, int first) {
  const int size = SizeOf(s.src->type), per_word = 4 / size;
  for (int lane = 0; lane < 32; ++lane) {
    const int thread = first + lane, g = lane / 4, t = lane % 4;
    const int64_t to = s.first->out[thread].i;
    if (!memory.InBounds(*s.dst, to, load.matrices * per_word, thread)) return;
    for (int matrix = 0; matrix < load.matrices; ++matrix) {
      for (int e = 0; e < per_word; ++e) {
        const int along = t * per_word + e;
        const int row = load.transposed ? along : g, column = load.transposed ? g : along;
        const int64_t from = s.second->out[first + matrix * 8 + row].i;
        if (!memory.InBounds(*s.src, from, 16 / size, first + matrix * 8 + row)) return;
        memory.Write(*s.dst, to + matrix * per_word + e, thread,
                     memory.Read(*s.src, from + column, thread));
      }
    }
  }
}

double RoundToTf32(double v) {
  if (!std::isfinite(v) || v == 0) return v;
  const double unit = std::ldexp(1.0, std::max(std::ilogb(v), -126) - 10);
  return std::round(v / unit) * unit;
}

// A warp's operands as matrices: lane 4g + t has the shares that Mma says (ir/tile/tile.h).
struct WarpOperands {
  double a[16][32], b[32][8];
};

// False where one lies out of bounds.
bool ReadOperands(BlockMemory& memory, Step& s, int first, WarpOperands& operands) {
  const DType type = s.src->type;
  const int per_word = 4 / SizeOf(type);
  const auto value = [&](Memory& m, int64_t at, int thread) {
    const Cell cell = memory.Read(m, at, thread);
    if (!IsFloat(type)) return static_cast<double>(cell.i);
    return type == DType::kF32 ? RoundToTf32(cell.f) : cell.f;
  };
  for (int lane = 0; lane < 32; ++lane) {
    const int thread = first + lane, g = lane / 4, t = lane % 4;
    const int64_t ai = s.second->out[thread].i, bi = s.third->out[thread].i;
    if (!memory.InBounds(*s.src, ai, 4 * per_word, thread) ||
        !memory.InBounds(*s.src2, bi, 2 * per_word, thread))
      return false;
    for (int word = 0; word < 4; ++word)
      for (int e = 0; e < per_word; ++e)
        operands.a[g + word % 2 * 8][(t + word / 2 * 4) * per_word + e] =
            value(*s.src, ai + word * per_word + e, thread);
    for (int word = 0; word < 2; ++word)
      for (int e = 0; e < per_word; ++e)
        operands.b[(t + word * 4) * per_word + e][g] =
            value(*s.src2, bi + word * per_word + e, thread);
  }
  return true;
}

void MultiplyWarp(BlockMemory& memory, Step& s, int first) {
  const bool is_float = IsFloat(s.src->type);
  const int depth = 8 * (4 / SizeOf(s.src->type));
  WarpOperands operands;
  if (!ReadOperands(memory, s, first, operands)) return;
  for (int lane = 0; lane < 32; ++lane) {
    const int thread = first + lane, g = lane / 4, t = lane % 4;
    const int64_t ci = s.first->out[thread].i;
    if (!memory.InBounds(*s.dst, ci, 4, thread)) return;
    for (int e = 0; e < 4; ++e) {
      const int m = g + (e & 2) * 4, n = 2 * t + (e & 1);
      const Cell before = memory.Read(*s.dst, ci + e, thread);
      double sum = is_float ? before.f : static_cast<double>(before.i);
      for (int k = 0; k < depth; ++k) sum += operands.a[m][k] * operands.b[k][n];
      Cell after;
      if (is_float)
        after.f = static_cast<float>(sum);
      else
        after.i = static_cast<int32_t>(static_cast<int64_t>(sum));
      memory.Write(*s.dst, ci + e, thread, after);
    }
  }
}

}  // namespace

void LoadMatrices(Faults& faults, BlockMemory& memory, Step& s, const LoadMatrix& load,
                  Lanes lanes) {
  ForEachWarp(faults, lanes, [&](int first) { LoadWarp(memory, s, load, first); });
}

void MultiplyMatrices(Faults& faults, BlockMemory& memory, Step& s, Lanes lanes) {
  ForEachWarp(faults, lanes, [&](int first) { MultiplyWarp(memory, s, first); });
}

}  // namespace kiln::tile
