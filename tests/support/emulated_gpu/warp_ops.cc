// Instructions that lanes of a warp do together. PTX ISA 9.7.9 (shfl), 9.7.13 (vote, match, redux,
// elect), 9.7.14 (mma.sync, ldmatrix, stmatrix, movmatrix). A product is summed in f64, with the
// accumulator, and cut off to f32 once: tensor cores do so, and are a little further off within a
// product.
#include <fmt/format.h>

#include <algorithm>

#include "tests/support/emulated_gpu/decoder.h"
#include "tests/support/emulated_gpu/machine.h"
#include "tests/support/emulated_gpu/matrix_element.h"
#include "tests/support/emulated_gpu/numbers.h"

namespace kiln::emulated {
namespace {

void Members(Decoder& d, Instr& i, size_t operand) {
  i.control = Control::kCollective;
  i.has_members = true;
  i.members = d.Source(operand, 32);
}

// ---- shfl

enum Shuffle : uint8_t { kUp, kDown, kButterfly, kIndex };
constexpr std::string_view kShuffles[] = {"up", "down", "bfly", "idx"};

void RunShuffle(Warp& w, const Instr& i, Mask lanes) {
  uint32_t from[kLanes], values[kLanes];
  Mask valid = 0;
  for (int lane = 0; lane < kLanes; ++lane) values[lane] = Get<uint32_t>(w, i.a, lane);
  ForLanes(lanes, [&](int lane) {
    const auto b = static_cast<int>(Get<uint32_t>(w, i.b, lane) & 31);
    const auto c = Get<uint32_t>(w, i.c, lane);
    const auto segment = static_cast<int>(c >> 8 & 31), clamp = static_cast<int>(c & 31);
    const int most = (lane & segment) | (clamp & ~segment), least = lane & segment;
    int j = lane;
    bool is = false;
    switch (i.combine) {
      case kUp:
        j = lane - b, is = j >= most;
        break;
      case kDown:
        j = lane + b, is = j <= most;
        break;
      case kButterfly:
        j = lane ^ b, is = j <= most;
        break;
      default:
        j = least | (b & ~segment), is = j <= most;
        break;
    }
    if (!is) j = lane;
    if ((lanes >> j & 1) == 0)
      Raise(w, i, lane, kIllegalInstruction,
            fmt::format("lane {} is asked, which takes no part", j));
    from[lane] = values[j];
    valid |= static_cast<Mask>(is) << lane;
  });
  ForLanes(lanes, [&](int lane) { Put(w, i.d, lane, from[lane]); });
  if ((i.flags & kHasSecond) != 0) PutPred(w, i.e, lanes, valid);
}
void DecodeShuffle(Decoder& d, Instr& i) {
  const auto kind =
      std::ranges::find_if(kShuffles, [&](std::string_view name) { return d.Has(name); });
  if (kind == std::end(kShuffles) || !d.Has("sync")) d.Fail("is not known");
  i.combine = static_cast<uint8_t>(kind - std::begin(kShuffles));
  const auto [first, second] = d.Halves(0);
  i.d = d.TargetOf(first, 32);
  if (!second.empty()) {
    i.e = d.TargetOf(second, 1);
    i.flags |= kHasSecond;
  }
  i.a = d.Source(1, 32);
  i.b = d.Source(2, 32);
  i.c = d.Source(3, 32);
  Members(d, i, 4);
  i.run = &RunShuffle;
}

// ---- vote, match, redux, elect

enum Vote : uint8_t { kAll, kAny, kUniform, kBallot };
void RunVote(Warp& w, const Instr& i, Mask lanes) {
  const Mask yes = GetPred(w, i.a, i.negated_a) & lanes;
  const bool holds = i.combine == kAll   ? yes == lanes
                     : i.combine == kAny ? yes != 0
                                         : yes == 0 || yes == lanes;
  if (i.combine == kBallot)
    ForLanes(lanes, [&](int lane) { Put(w, i.d, lane, yes); });
  else
    PutPred(w, i.d, lanes, holds ? ~Mask{0} : 0);
}
void DecodeVote(Decoder& d, Instr& i) {
  if (!d.Has("sync")) d.Fail("is not known without .sync");
  i.combine = d.Has("all") ? kAll : d.Has("any") ? kAny : d.Has("uni") ? kUniform : kBallot;
  i.d = d.Target(0, i.combine == kBallot ? 32 : 1);
  i.a = d.Predicate(d.text(1), i.negated_a);
  Members(d, i, 2);
  i.run = &RunVote;
}
template <class T>
void RunMatch(Warp& w, const Instr& i, Mask lanes) {
  Mask equal[kLanes] = {};
  ForLanes(lanes, [&](int lane) {
    ForLanes(lanes, [&](int other) {
      if (Get<T>(w, i.a, lane) == Get<T>(w, i.a, other)) equal[lane] |= Mask{1} << other;
    });
  });
  ForLanes(lanes, [&](int lane) {
    Put<uint32_t>(w, i.d, lane, i.combine == kAny || equal[lane] == lanes ? equal[lane] : 0);
  });
  if ((i.flags & kHasSecond) != 0)
    PutPred(w, i.e, lanes, equal[FirstLane(lanes)] == lanes ? ~Mask{0} : 0);
}
void DecodeMatch(Decoder& d, Instr& i) {
  const auto [first, second] = d.Halves(0);
  i.combine = d.Has("any") ? kAny : kAll;
  i.d = d.TargetOf(first, 32);
  if (!second.empty()) {
    i.e = d.TargetOf(second, 1);
    i.flags |= kHasSecond;
  }
  const int bits = BitsOf(d.LastType());
  i.a = d.Source(1, bits);
  Members(d, i, 2);
  i.run = bits == 64 ? &RunMatch<uint64_t> : &RunMatch<uint32_t>;
}
enum Reduction : uint8_t { kSum, kLeast, kMost, kConjunction, kDisjunction, kParity };
constexpr std::string_view kReductions[] = {"add", "min", "max", "and", "or", "xor"};
template <class T>
void RunReduction(Warp& w, const Instr& i, Mask lanes) {
  T r = Get<T>(w, i.a, FirstLane(lanes));
  ForLanes(lanes & (lanes - 1), [&](int lane) {
    const T v = Get<T>(w, i.a, lane);
    if constexpr (std::is_floating_point_v<T>) {
      r = i.combine == kLeast ? std::fmin(r, v) : std::fmax(r, v);
    } else {
      const auto u = static_cast<uint32_t>(r), x = static_cast<uint32_t>(v);
      switch (i.combine) {
        case kSum:
          r = static_cast<T>(u + x);
          break;
        case kLeast:
          r = std::min(r, v);
          break;
        case kMost:
          r = std::max(r, v);
          break;
        case kConjunction:
          r = static_cast<T>(u & x);
          break;
        case kDisjunction:
          r = static_cast<T>(u | x);
          break;
        default:
          r = static_cast<T>(u ^ x);
          break;
      }
    }
  });
  ForLanes(lanes, [&](int lane) { Put(w, i.d, lane, r); });
}
void DecodeReduction(Decoder& d, Instr& i) {
  const auto op =
      std::ranges::find_if(kReductions, [&](std::string_view name) { return d.Has(name); });
  if (op == std::end(kReductions)) d.Fail("is not known");
  i.combine = static_cast<uint8_t>(op - std::begin(kReductions));
  i.type = d.LastType();
  i.d = d.Target(0, 32);
  i.a = d.Source(1, 32);
  Members(d, i, 2);
  i.run = i.type == Type::kF32   ? &RunReduction<float>
          : i.type == Type::kS32 ? &RunReduction<int32_t>
                                 : &RunReduction<uint32_t>;
}
void RunElect(Warp& w, const Instr& i, Mask lanes) {
  const int first = FirstLane(lanes);
  ForLanes(lanes, [&](int lane) { Put(w, i.d, lane, static_cast<uint32_t>(first)); });
  PutPred(w, i.e, lanes, Mask{1} << first);
}
void DecodeElect(Decoder& d, Instr& i) {
  const auto [first, second] = d.Halves(0);
  i.d = d.TargetOf(first, 32);
  i.e = d.TargetOf(second, 1);
  Members(d, i, 1);
  i.run = &RunElect;
}
void RunActiveMask(Warp& w, const Instr& i, Mask lanes) {
  ForLanes(lanes, [&](int lane) { Put(w, i.d, lane, lanes); });
}
void DecodeActiveMask(Decoder& d, Instr& i) {
  i.d = d.Target(0, 32);
  i.run = &RunActiveMask;
}

// ---- ldmatrix, stmatrix: 8x8 matrices of 16 bits

template <bool loads>
void RunMatrices(Warp& w, const Instr& i, Mask) {
  const uint32_t* const slots = w.function->lists.data() + i.first_list;
  for (int m = 0; m < i.list_size; ++m) {
    uint8_t* rows[8];
    for (int r = 0; r < 8; ++r) {
      const int lane = 8 * m + r;
      rows[r] = Locate(w, i, lane, i.space, AddressOf(w, i, lane), 16, !loads, 16);
    }
    for (int lane = 0; lane < kLanes; ++lane) {
      uint32_t word = loads ? 0 : Get<uint32_t>(w, slots[m], lane);
      for (int k = 0; k < 2; ++k) {
        int row = lane / 4, column = 2 * (lane % 4) + k;
        if ((i.flags & kTransposed) != 0) std::swap(row, column);
        uint16_t v = static_cast<uint16_t>(word >> (16 * k));
        if (loads) {
          std::memcpy(&v, rows[row] + 2 * column, 2);
          word |= static_cast<uint32_t>(v) << (16 * k);
        } else {
          std::memcpy(rows[row] + 2 * column, &v, 2);
        }
      }
      if (loads) Put(w, slots[m], lane, word);
    }
  }
}
void DecodeMatrices(Decoder& d, Instr& i, bool loads) {
  if (!d.Has("m8n8") || !d.Has("b16")) d.Fail("is not known");
  i.space = d.SpaceOf();
  d.Flag("trans", i, kTransposed);
  i.control = Control::kCollective;
  d.Address(d.text(loads ? 1 : 0), i);
  d.List(d.text(loads ? 0 : 1), 32, loads, i.first_list, i.list_size);
  i.run = loads ? &RunMatrices<true> : &RunMatrices<false>;
}
void DecodeLoadMatrices(Decoder& d, Instr& i) { DecodeMatrices(d, i, true); }
void DecodeStoreMatrices(Decoder& d, Instr& i) { DecodeMatrices(d, i, false); }

// ---- movmatrix: an 8x8 matrix of 16 bits, of whose rows lanes have two elements each

void RunMoveMatrix(Warp& w, const Instr& i, Mask) {
  uint32_t words[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) words[lane] = Get<uint32_t>(w, i.a, lane);
  for (int lane = 0; lane < kLanes; ++lane) {
    uint32_t word = 0;
    for (int k = 0; k < 2; ++k) {
      const int row = 2 * (lane % 4) + k, column = lane / 4;
      word |= (words[4 * row + column / 2] >> (16 * (column % 2)) & 0xffff) << (16 * k);
    }
    Put(w, i.d, lane, word);
  }
}
void DecodeMoveMatrix(Decoder& d, Instr& i) {
  if (!d.Has("m8n8") || !d.Has("trans") || !d.Has("b16")) d.Fail("is not known");
  i.control = Control::kCollective;
  i.d = d.Target(0, 32);
  i.a = d.Source(1, 32);
  i.run = &RunMoveMatrix;
}

// ---- mma.sync.m16n8kK, whose operands are row.col. Lists: d, a, b, c; `number`: elements of a
// word.

// Elements of A and B as f64, from their fragments: with E elements a word, word v of lane 4g + t
// has elements E t .. of row (or column) g of block v.
template <bool is_float>
void RunMma(Warp& w, const Instr& i, Mask) {
  const uint32_t* const d = w.function->lists.data() + i.first_list;
  const uint32_t* const a = d + 4;
  const int left = static_cast<int>(i.number & 0xff), right = left / 2;
  const uint32_t* const b = a + left;
  const uint32_t* const c = b + right;
  const int of_word = 32 / MatrixBits(i.type), k = right * 4 * of_word;
  constexpr int kM = 16, kN = 8, kMostK = 32;
  double rows[kM][kMostK], columns[kMostK][kN], sums[kM][kN];
  for (int lane = 0; lane < kLanes; ++lane) {
    const int g = lane / 4, t = lane % 4;
    for (int v = 0; v < left; ++v)
      MatrixElements(i.type, Get<uint32_t>(w, a[v], lane),
                     &rows[g + 8 * (v % 2)][of_word * (t + 4 * (v / 2))], 1);
    for (int v = 0; v < right; ++v)
      MatrixElements(i.from, Get<uint32_t>(w, b[v], lane), &columns[of_word * (t + 4 * v)][g], kN);
    for (int v = 0; v < 4; ++v)
      sums[g + v / 2 * 8][2 * t + v % 2] =
          is_float ? double{Get<float>(w, c[v], lane)} : Get<int32_t>(w, c[v], lane);
  }
  for (int m = 0; m < kM; ++m)
    for (int n = 0; n < k; ++n)
      for (int column = 0; column < kN; ++column)
        sums[m][column] += rows[m][n] * columns[n][column];
  for (int lane = 0; lane < kLanes; ++lane)
    for (int v = 0; v < 4; ++v) {
      const double sum = sums[lane / 4 + v / 2 * 8][2 * (lane % 4) + v % 2];
      if constexpr (is_float)
        Put(w, d[v], lane, CutOff(sum));
      else
        Put(w, d[v], lane, static_cast<uint32_t>(static_cast<int64_t>(sum)));
    }
}
void DecodeMma(Decoder& d, Instr& i) {
  const auto types = MatrixTypes(d);
  if (types.size() != 4 || !d.Has("row") || !d.Has("col") ||
      (types[0] != Type::kF32 && types[0] != Type::kS32) || d.parts()[3].substr(0, 6) != "m16n8k")
    d.Fail("is not known");
  if (d.Has("satfinite")) d.Fail("is not known with .satfinite");
  i.type = types[1];
  i.from = types[2];
  i.control = Control::kCollective;
  int first = 0, size = 0;
  d.List(d.text(0), 32, true, i.first_list, size);
  d.List(d.text(1), 32, false, first, size);
  i.number = size;
  d.List(d.text(2), 32, false, first, size);
  if (size * 2 != i.number) d.Fail("has other operands than are known");
  d.List(d.text(3), 32, false, first, size);
  i.run = types[0] == Type::kF32 ? &RunMma<true> : &RunMma<false>;
}

constexpr OpRow kOps[] = {
    {"shfl", &DecodeShuffle},          {"vote", &DecodeVote},
    {"match", &DecodeMatch},           {"redux", &DecodeReduction},
    {"elect", &DecodeElect},           {"activemask", &DecodeActiveMask},
    {"ldmatrix", &DecodeLoadMatrices}, {"stmatrix", &DecodeStoreMatrices},
    {"movmatrix", &DecodeMoveMatrix},  {"mma", &DecodeMma},
};

}  // namespace

std::span<const OpRow> WarpOps() { return kOps; }

}  // namespace kiln::emulated
