// Test data. Ranges are such that sums and products of a few hundred elements stay inside half and
// fp8's range, and that a wrong tap or index changes a result by far more than its tolerance.
#include <array>
#include <cmath>
#include <limits>

#include "tests/support/evaluate.h"

namespace kiln::testing {
namespace {

// xorshift64*: the same data on every platform.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15 + 0x632be59bd9b4e019) {}
  uint64_t Bits() {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return state_ * 0x2545f4914f6cdd1d;
  }
  double Unit() { return static_cast<double>(Bits() >> 11) * 0x1p-53; }
  double Between(double low, double high) { return low + (high - low) * Unit(); }

 private:
  uint64_t state_;
};

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

double Uniform(Random& r) { return r.Between(-1, 1); }
double Positive(Random& r) { return r.Between(0.25, 2); }
double UnitInterval(Random& r) { return r.Unit(); }
double Small(Random& r) { return r.Between(-0.25, 0.25); }
double NearOne(Random& r) { return (r.Bits() & 1 ? 1 : -1) * r.Between(0.8, 1.25); }
double Integer(Random& r) { return std::floor(r.Between(-8, 9)); }
// Pages of a table, few of which do not exist; lengths of up to a few hundred, often 0 or 1.
double Page(Random& r) { return std::floor(r.Between(-1, 41)); }
double Length(Random& r) {
  return r.Bits() >> 40 & 3 ? std::floor(r.Between(0, 400))
                            : static_cast<double>(r.Bits() >> 40 & 1);
}
double Bits01(Random& r) { return r.Bits() >> 40 & 1; }
double Byte(Random& r) { return static_cast<double>(r.Bits() >> 40 & 255); }
double WithNan(Random& r) { return r.Bits() >> 40 & 15 ? Uniform(r) : kNan; }
double WithInf(Random& r) {
  return r.Bits() >> 40 & 15 ? Uniform(r) : r.Bits() >> 40 & 1 ? kInf : -kInf;
}
double Halves(Random& r) { return std::floor(r.Between(-20, 21)) / 2; }
double Wide(Random& r) { return (r.Bits() >> 40 & 1 ? 1 : -1) * std::exp2(r.Between(-20, 20)); }
double Many(Random& r) { return r.Between(20, 40); }
double Span4(Random& r) { return r.Between(-4, 4); }
double WithZeros(Random& r) { return r.Bits() >> 40 & 3 ? NearOne(r) : 0; }
double Special(Random& r) {
  constexpr std::array kValues = {kNan, kInf,    -kInf, 0.0,  -0.0, 1.0,
                                  -1.0, 65504.0, 1e-7,  -3.0, 448.0};
  const size_t pick = (r.Bits() >> 32) % (2 * kValues.size());
  return pick < kValues.size() ? kValues[pick] : Uniform(r);
}

double NoneSometimes(Random& r) { return r.Bits() >> 40 & 3 ? Uniform(r) : -kInf; }

// Numbers that models add to the scores of hidden keys: a large number, the lowest of f16, bf16 or
// f32, or -inf. Runs of neighbours have one: none, some and all keys of rows of up to a few dozen.
constexpr std::array kHiding = {-1e4, -1e9, -1e30, -65504.0, -0x1.fep127, -0x1.fffffep127, -kInf};
std::vector<double> MaskValues(Random& r, size_t count) {
  std::vector<double> values;
  while (values.size() < count) {
    const uint64_t length = 1 + (r.Bits() >> 40) % 40;
    const bool hides = (r.Bits() >> 40 & 1) != 0;
    const double hiding = kHiding[(r.Bits() >> 32) % kHiding.size()];
    for (uint64_t i = 0; i < length && values.size() < count; ++i)
      values.push_back(hides ? hiding : Uniform(r));
  }
  return values;
}

struct FillRow {
  std::string_view name;
  double (*draw)(Random&);
};
constexpr FillRow kFills[] = {
    {"uniform", Uniform},               // [-1, 1)
    {"pos", Positive},                  // [0.25, 2)
    {"unit", UnitInterval},             // [0, 1)
    {"small", Small},                   // [-0.25, 0.25)
    {"near_one", NearOne},              // ± [0.8, 1.25): products stay in range
    {"span4", Span4},                   // [-4, 4)
    {"many", Many},                     // [20, 40): sums of squares
    {"int", Integer},                   // -8 … 8
    {"page", Page},                     // -1 … 40
    {"length", Length},                 // 0 … 399
    {"byte", Byte},                     // 0 … 255
    {"halves", Halves},                 // multiples of 0.5: ties for rounding
    {"wide", Wide},                     // magnitudes 2^-20 … 2^20: saturation and underflow
    {"bool", Bits01},                   // 0 or 1
    {"with_zeros", WithZeros},          // a quarter zero
    {"nan", WithNan},                   // one NaN in 16
    {"inf", WithInf},                   // one infinity in 16
    {"special", Special},               // NaN, infinities, signed zeros, extremes
    {"none_sometimes", NoneSometimes},  // -inf one in 4: statistics of rows that see no key
    {"ones", [](Random&) { return 1.0; }},
    {"zeros", [](Random&) { return 0.0; }},
    {"all_nan", [](Random&) { return kNan; }},
};

const FillRow* Find(std::string_view name) {
  for (const FillRow& row : kFills) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

}  // namespace

// Fills that follow from the place of an element.
bool IsRising(std::string_view fill) { return fill == "rising" || fill == "rising_late"; }
bool IsPlaced(std::string_view fill) {
  return fill == "index" || fill == "reversed" || IsRising(fill);
}

bool IsFill(const std::string& fill) {
  return IsPlaced(fill) || fill == "mask" || fill == "row_mask" || Find(fill) != nullptr;
}

std::vector<double> FillValues(const std::string& fill, DType dtype, int64_t count, uint64_t seed) {
  Random random(seed);
  if (fill == "mask") return MaskValues(random, static_cast<size_t>(count));
  if (fill == "row_mask") {  // the same for every tensor: a bias of rows, and their statistics
    Random same(1);
    return MaskValues(same, static_cast<size_t>(count));
  }
  const FillRow* row = Find(fill);
  // Fractions would all become 0 in an integer tensor.
  if (fill == "uniform" && !oracle::IsFloating(dtype))
    row = Find(dtype == DType::kBool ? "bool" : "int");
  std::vector<double> values(static_cast<size_t>(count));
  double rising = fill == "rising_late" ? 5 : 0;  // by 0 to 4 a step
  for (size_t i = 0; i < values.size(); ++i) {
    const double place = static_cast<double>(fill == "reversed" ? values.size() - 1 - i : i);
    values[i] = row ? row->draw(random) : IsRising(fill) ? rising : place;
    rising += std::floor(random.Between(0, 5));
  }
  return values;
}

namespace {

// Complex numbers in memory are real ones with a dim of two parts.
oracle::Image PoisonedFor(const CaseTensor& tensor, uint64_t seed) {
  Dims dims = tensor.dims, strides = tensor.strides;
  if (oracle::IsComplex(tensor.dtype)) {
    for (int64_t& stride : strides) stride *= 2;
    dims.push_back(2);
    strides.push_back(1);
  }
  return oracle::Image::Poisoned(oracle::PartOf(tensor.dtype), std::move(dims), std::move(strides),
                                 seed);
}

}  // namespace

CaseData MakeData(const Case& c, uint64_t seed) {
  CaseData data;
  for (size_t i = 0; i < c.tensors.size(); ++i) {
    const CaseTensor& tensor = c.tensors[i];
    const uint64_t own_seed = seed * 1000003 + i;
    if (tensor.is_virtual || tensor.by_value) {
      data.images.push_back(
          {.dtype = tensor.dtype, .dims = tensor.dims, .strides = tensor.strides, .bytes = {}});
      continue;
    }
    auto image = PoisonedFor(tensor, own_seed);
    bool is_read = !c.Produces(static_cast<int>(i));
    for (const CaseOp& op : c.ops) {
      const bool writes_here = !op.outputs.empty() && op.outputs[0] == static_cast<int>(i);
      is_read |= writes_here && op.name.starts_with("conv_") && op.Number("beta", 0) != 0;
    }
    if (is_read)
      image.Store(FillValues(tensor.fill, tensor.dtype, oracle::Count(image.dims), own_seed));
    data.images.push_back(std::move(image));
  }
  return data;
}

}  // namespace kiln::testing
