// wgmma, sm_90a: products of a warpgroup whose operands lie in shared memory. PTX ISA 9.7.15.
//
// Each warp computes its own 16 rows of the 64. A product is done when its group is waited for, or
// when another instruction touches a register of one (compilers move accumulators about); operands
// in shared memory are read then. It is summed in f64 with the accumulator and cut off to f32 once.
//
// A descriptor: start address >> 4 (bits 0 to 13), leading byte offset >> 4 (16 to 29), stride byte
// offset >> 4 (32 to 45), base offset (49 to 51), swizzle (62, 63: 0 none, 1: 128, 2: 64, 3: 32
// bytes). Element (r, k), r a row of A or a column of B, lies at
//
//   k contiguous:  start + r / 8 * stride + r % 8 * width + k                      width: swizzle's
//   r contiguous:  start + r / R * leading + k / 8 * stride + k % 8 * width + r % R   R: elements
//   of it no swizzle, k contiguous: start + r / 8 * stride + k / 16 bytes * leading + r % 8 * 16 +
//   k % 16
//
// and the swizzle is over bits of the address.
#include <fmt/format.h>

#include <algorithm>

#include "tests/support/emulated_gpu/decoder.h"
#include "tests/support/emulated_gpu/machine.h"
#include "tests/support/emulated_gpu/matrix_element.h"
#include "tests/support/emulated_gpu/numbers.h"
#include "tests/support/emulated_gpu/tensor_map.h"

namespace kiln::emulated {
namespace {

// ---- operands

class Operand {
 public:
  Operand(Warp& w, const Instr& i, uint64_t descriptor, Type type, bool is_outer)
      : warp_(w), instr_(i), type_(type), bytes_(MatrixBits(type) / 8), is_outer_(is_outer) {
    start_ = static_cast<uint32_t>(descriptor & 0x3fff) << 4 | static_cast<uint32_t>(w.block->rank)
                                                                   << kRankShift;
    leading_ = static_cast<uint32_t>(descriptor >> 16 & 0x3fff) << 4;
    stride_ = static_cast<uint32_t>(descriptor >> 32 & 0x3fff) << 4;
    const auto swizzle = static_cast<int>(descriptor >> 62);
    kind_ = swizzle == 0 ? 0 : 4 - swizzle;  // as Swizzled has it
    width_ = swizzle == 0 ? 16 : 16u << kind_;
    if ((descriptor >> 49 & 7) != 0)
      Raise(w, i, 0, kIllegalInstruction, "a base offset is not understood");
    if (swizzle == 0 && is_outer)
      Raise(w, i, 0, kIllegalInstruction,
            "an operand without swizzle whose k is not contiguous is not understood");
    if (is_outer && bytes_ != 2)
      Raise(w, i, 0, kIllegalInstruction, "only operands of 16 bits may be transposed");
  }

  double At(int r, int k) const {
    const auto row = static_cast<uint32_t>(r), depth = static_cast<uint32_t>(k);
    uint32_t at = start_;
    if (is_outer_) {
      const uint32_t across = width_ / bytes_;
      at += row / across * leading_ + depth / 8 * stride_ + depth % 8 * width_ +
            row % across * bytes_;
    } else if (kind_ == 0) {
      const uint32_t byte = depth * bytes_;
      at += row / 8 * stride_ + byte / 16 * leading_ + row % 8 * 16 + byte % 16;
    } else {
      at += row / 8 * stride_ + row % 8 * width_ + depth * bytes_;
    }
    const uint8_t* const from = LocateShared(warp_, instr_, 0, Swizzled(at, kind_), bytes_, 1);
    uint32_t word = 0;
    std::memcpy(&word, from, bytes_);
    return MatrixElement(type_, word, 0);
  }

 private:
  Warp& warp_;
  const Instr& instr_;
  Type type_;
  uint32_t bytes_;
  bool is_outer_;
  uint32_t start_, leading_, stride_, width_;
  int kind_;
};

constexpr int kRows = 16, kMostDepth = 32, kMostColumns = 256;

// ---- the product. Lists: accumulators, then A's registers. `a`: A's descriptor, `b`: B's, `c`:
// the flag that says whether the accumulators are added; compare: bit 0 A transposed, bit 1 B.

struct Product {
  uint64_t left, right;
  bool adds;
};

template <class Sum>
void Compute(Warp& w, const Instr& i, const Product& product) {
  const auto columns = static_cast<int>(i.number), depth = 256 / MatrixBits(i.type);
  const uint32_t* const sums = w.function->lists.data() + i.first_list;
  static thread_local double rows[kRows][kMostDepth], right[kMostDepth][kMostColumns];
  static thread_local double total[kRows][kMostColumns];
  if (i.second_size != 0) {
    const uint32_t* const words = w.function->lists.data() + i.second_list;
    const int of_word = 32 / MatrixBits(i.type);
    for (int lane = 0; lane < kLanes; ++lane)
      for (int v = 0; v < 4; ++v)
        MatrixElements(i.type, Get<uint32_t>(w, words[v], lane),
                       &rows[lane / 4 + 8 * (v % 2)][of_word * (lane % 4 + 4 * (v / 2))], 1);
  } else {
    const Operand left(w, i, product.left, i.type, (i.compare & 1) != 0);
    for (int r = 0; r < kRows; ++r)
      for (int k = 0; k < depth; ++k) rows[r][k] = left.At(w.number % 4 * kRows + r, k);
  }
  const Operand b(w, i, product.right, i.from, (i.compare & 2) != 0);
  for (int n = 0; n < columns; ++n)
    for (int k = 0; k < depth; ++k) right[k][n] = b.At(n, k);
  // Element e of a lane.
  const auto row_of = [](int lane, int e) { return lane / 4 + 8 * (e >> 1 & 1); };
  const auto column_of = [](int lane, int e) { return 8 * (e >> 2) + 2 * (lane % 4) + (e & 1); };
  for (int lane = 0; lane < kLanes; ++lane)
    for (int e = 0; e < columns / 2; ++e)
      total[row_of(lane, e)][column_of(lane, e)] =
          product.adds ? double(Get<Sum>(w, sums[e], lane)) : 0;
  for (int r = 0; r < kRows; ++r)
    for (int k = 0; k < depth; ++k)
      for (int n = 0; n < columns; ++n) total[r][n] += rows[r][k] * right[k][n];
  for (int lane = 0; lane < kLanes; ++lane)
    for (int e = 0; e < columns / 2; ++e) {
      const double sum = total[row_of(lane, e)][column_of(lane, e)];
      if constexpr (std::is_same_v<Sum, float>)
        Put(w, sums[e], lane, CutOff(sum));
      else
        Put(w, sums[e], lane, static_cast<uint32_t>(static_cast<int64_t>(sum)));
    }
}

template <class Sum>
void RunProduct(Warp& w, const Instr& i, Mask) {
  Product product{};
  if (i.second_size == 0) product.left = Get<uint64_t>(w, i.a, 0);
  product.right = Get<uint64_t>(w, i.b, 0);
  product.adds = (GetPred(w, i.c, i.negated_c) & 1) != 0;
  Warp* const warp = &w;
  const Instr* const instr = &i;
  w.products.open.push_back({[warp, instr, product] { Compute<Sum>(*warp, *instr, product); }});
}
void RunCommit(Warp& w, const Instr&, Mask) { w.products.Commit(); }
void RunWait(Warp& w, const Instr& i, Mask) {
  w.products.Wait(static_cast<size_t>(i.number), [](PendingWork& work) { work.apply(); });
}
void RunNothing(Warp&, const Instr&, Mask) {}

// "1", "-1" of scales: none negates.
void CheckScale(const Decoder& d, size_t operand) {
  if (d.Number(operand) != 1) d.Fail("is not known with negated operands");
}

void DecodeProduct(Decoder& d, Instr& i) {
  i.control = Control::kCollective;
  if (d.Has("fence")) {
    i.run = &RunNothing;
    return;
  }
  if (d.Has("commit_group")) {
    i.run = &RunCommit;
    return;
  }
  if (d.Has("wait_group")) {
    i.number = d.Number(0);
    i.run = &RunWait;
    return;
  }
  const auto types = MatrixTypes(d);
  if (!d.Has("mma_async") || types.size() != 3 ||
      (types[0] != Type::kF32 && types[0] != Type::kS32))
    d.Fail("is not known");
  i.type = types[1];
  i.from = types[2];
  d.List(d.text(0), 32, true, i.first_list, i.list_size);
  i.number = 2 * i.list_size;
  if (d.text(1).starts_with("{")) {
    d.List(d.text(1), 32, false, i.second_list, i.second_size);
  } else {
    i.a = d.Source(1, 64);
  }
  i.b = d.Source(2, 64);
  i.c = d.Predicate(d.text(3), i.negated_c);
  size_t next = 4;
  if (types[0] == Type::kF32) {
    CheckScale(d, next++);
    CheckScale(d, next++);
  }
  if (i.second_size == 0 && next + 1 < d.count() && d.Number(next++) != 0) i.compare |= 1;
  if (next < d.count() && d.Number(next) != 0) i.compare |= 2;
  i.run = types[0] == Type::kF32 ? &RunProduct<float> : &RunProduct<int32_t>;
}

constexpr OpRow kOps[] = {{"wgmma", &DecodeProduct}};

}  // namespace

void FinishProducts(Warp& w, size_t left) {
  w.products.Commit();
  w.products.Wait(left, [](PendingWork& work) { work.apply(); });
}

std::span<const OpRow> WgmmaOps() { return kOps; }

}  // namespace kiln::emulated
