// cudnnLRNCrossChannel… and cudnnDivisiveNormalization…. Reference 3.2.33, 3.2.65, 4.1.6
// and 4.1.14.
//
// Both divide by a power of a mean of squares over a window, that of channels or that of places,
// which has N elements along an axis, (N - 1) / 2 of them in front of the centre; what is beyond
// the tensor counts, and is 0:
//
//   s[i] = k + alpha * mean(x[j]^2, j around i)                       y = x * s^-beta
//   dx[j] = dy[j] * s[j]^-beta - 2 * alpha * beta * x[j] * mean(t around j),
//           t[i] = dy[i] * x[i] * s[i]^(-beta - 1), the window here the other way round
//
// Where the client gives means, squares are those of x[j] - means[i]. The reference leaves open
// whose mean is taken off; that it is the centre's was seen of NVIDIA's 9.19.
//
//   dx[j]     = dy[j] * s[j]^-beta - 2 * alpha * beta * (x[j] * mean(t) - mean(t * means))
//   dmeans[i] = 2 * alpha * beta * t[i] * (mean(x) - means[i] * the part of the window inside)
#include <algorithm>

#include "api/legacy/descriptors/modes.h"
#include "api/legacy/functions.h"
#include "api/legacy/plans/call.h"
#include "ir/graph/ops.h"

namespace kiln::api::legacy {
namespace {

using graph::GraphOp;
using graph::kAbsent;
using graph::PointwiseMode;
using graph::TensorId;

// Setting a descriptor checks what is there; one that was never set has the defaults.
class Neighbourhood {
 public:
  // Windows of N along the last `axes` dims of tensors of that rank, of extent 1 along the others
  // that are spatial.
  Neighbourhood(CallGraph& g, const LrnDesc& lrn, const TensorDesc& x,
                const std::vector<char>& is_along)
      : g_(g),
        lrn_(lrn),
        compute_(ComputeType(x)),
        rank_(x.rank),
        dims_(x.dims.begin(), x.dims.begin() + x.rank),
        is_along_(is_along) {}

  TensorId Apply(PointwiseMode mode, std::vector<TensorId> inputs) const {
    return g_.Pointwise(mode, std::move(inputs), compute_);
  }
  TensorId Mul(TensorId a, TensorId b) const { return Apply(PointwiseMode::kMul, {a, b}); }
  TensorId Number(double value) const { return g_.Constant(value, rank_, compute_); }

  // The mean around each element; `back`: over those whose windows have the element.
  TensorId Mean(TensorId x, bool back) const { return Mean(x, back, compute_); }
  TensorId Mean(TensorId x, bool back, DType compute) const {
    graph::ResampleAttrs attrs{.mode = graph::ResampleMode::kAvgIncludePadding,
                               .padding = graph::PaddingMode::kZero};
    const int64_t behind = (lrn_.window - 1) / 2, ahead = lrn_.window - 1 - behind;
    for (const char along : is_along_) {
      attrs.window.push_back(along ? lrn_.window : 1);
      attrs.stride.push_back(1);
      attrs.pre_padding.push_back(!along ? 0 : back ? ahead : behind);
      attrs.post_padding.push_back(!along ? 0 : back ? behind : ahead);
      attrs.unit.push_back(1);
    }
    return g_.builder().Apply(GraphOp::kResampleFwd, {x}, attrs,
                              {.dtype = compute, .compute = compute});
  }
  // s above; without means these are kAbsent.
  TensorId Scale(TensorId x, TensorId means) const {
    const TensorId mean = means == kAbsent ? Mean(Mul(x, x), false) : MeanSquareFrom(x, means);
    return Apply(PointwiseMode::kAdd, {Mul(mean, Number(lrn_.alpha)), Number(lrn_.k)});
  }
  // The share of the window around each place that is inside: a product of numbers by axis.
  TensorId PartInside() const {
    const auto whole = [&](PointwiseMode mode, TensorId a, TensorId b) {
      return g_.Pointwise(mode, {a, b}, DType::kI64);
    };
    const auto number = [&](int64_t v) {
      return g_.Constant(static_cast<double>(v), rank_, DType::kI64);
    };
    const int64_t behind = (lrn_.window - 1) / 2, ahead = lrn_.window - 1 - behind;
    TensorId part = Number(1);
    for (size_t s = 0; s < is_along_.size(); ++s) {
      if (!is_along_[s]) continue;
      Dims dims(static_cast<size_t>(rank_), 1);
      const int64_t extent = dims[s + 2] = dims_[s + 2];
      const TensorId place = g_.builder().Apply(
          GraphOp::kIota, {}, graph::IotaAttrs{.axis = static_cast<int64_t>(s) + 2},
          {.dtype = DType::kI64, .compute = DType::kI64, .dims = dims});
      const TensorId last = whole(PointwiseMode::kMin,
                                  whole(PointwiseMode::kAdd, place, number(ahead)),
                                  number(extent - 1)),
                     first = whole(PointwiseMode::kMax,
                                   whole(PointwiseMode::kSub, place, number(behind)), number(0));
      const TensorId count =
          whole(PointwiseMode::kAdd, whole(PointwiseMode::kSub, last, first), number(1));
      part = Mul(part, Mul(count, Number(1 / static_cast<double>(lrn_.window))));
    }
    return part;
  }
  // s^-beta; roots are faster than powers.
  TensorId Power(TensorId s) const {
    if (lrn_.beta == 0.5) return Apply(PointwiseMode::kRsqrt, {s});
    if (lrn_.beta == 1) return Apply(PointwiseMode::kReciprocal, {s});
    if (lrn_.beta == 0.75) {
      const TensorId root = Apply(PointwiseMode::kRsqrt, {s});
      return Mul(root, Apply(PointwiseMode::kSqrt, {root}));
    }
    return Apply(PointwiseMode::kPow, {s, Number(-lrn_.beta)});
  }
  // t above.
  TensorId Term(TensorId dy, TensorId x, TensorId s, TensorId power) const {
    const TensorId product = Mul(dy, x);
    return Mul(product, Apply(PointwiseMode::kDiv, {power, s}));
  }
  // 2 * alpha * beta * x.
  TensorId Weigh(TensorId x) const { return Mul(x, Number(2 * lrn_.alpha * lrn_.beta)); }

 private:
  // mean((x[j] - m)^2) = mean(x^2) - 2 * m * mean(x) + m^2 * part: in f64, since what is left may
  // be little.
  TensorId MeanSquareFrom(TensorId x, TensorId m) const {
    const auto apply = [&](PointwiseMode mode, TensorId a, TensorId b) {
      return g_.Pointwise(mode, {a, b}, DType::kF64);
    };
    const TensorId squares = Mean(apply(PointwiseMode::kMul, x, x), false, DType::kF64),
                   values = Mean(x, false, DType::kF64);
    const TensorId twice = apply(PointwiseMode::kAdd, m, m);
    const TensorId cross = apply(PointwiseMode::kMul, twice, values);
    const TensorId own = apply(PointwiseMode::kMul, apply(PointwiseMode::kMul, m, m), PartInside());
    return apply(PointwiseMode::kAdd, apply(PointwiseMode::kSub, squares, cross), own);
  }

  CallGraph& g_;
  const LrnDesc& lrn_;
  const DType compute_;
  const int64_t rank_;
  const Dims dims_;
  const std::vector<char> is_along_;  // of spatial dims
};

bool HasNegativeStrides(const TensorDesc& t) {
  return std::any_of(t.strides.begin(), t.strides.begin() + t.rank, [](int s) { return s < 0; });
}

// ---- across channels

// Channels as the last but one dim, so that windows may lie along them: [N,H,C,W]; [N,W,C] of three
// dims, [N,D,C,H,W] of five.
TensorDesc ChannelsInSpace(const TensorDesc& t) {
  if (t.rank < 3) return t;
  TensorDesc seen = t;
  std::swap(seen.dims[1], seen.dims[2]);
  std::swap(seen.strides[1], seen.strides[2]);
  return seen;
}
std::vector<char> AlongChannels(int32_t rank) {
  std::vector<char> along(static_cast<size_t>(rank) - 2, 0);
  along[0] = 1;
  return along;
}

// Tensors of five dims have rows, planes and volumes without gaps.
Status CheckPacked(const TensorDesc& t) {
  if (t.rank != 5) return {};
  int64_t stride = 1;
  for (size_t d = 4; d >= 2; stride *= t.dims[d--]) {
    if (t.strides[d] != stride)
      return Status::Error(Code::kBadParam, "{}: volumes must be packed", Text(t));
  }
  return {};
}

Status CheckLrn(const TensorDesc& x, std::initializer_list<const TensorDesc*> others) {
  RETURN_IF_ERROR(CheckSet(x, "xDesc"));
  if (x.rank < 3) return Status::Error(Code::kBadParam, "{} dims; 3 to 5 are possible", x.rank);
  if (x.rank > 5) return Status::Error(Code::kNotSupported, "{} dims; 3 to 5 are possible", x.rank);
  RETURN_IF_ERROR(CheckPacked(x));
  for (const TensorDesc* other : others) {
    RETURN_IF_ERROR(AsNotSupported(CheckSameDims(x, *other)));
    RETURN_IF_ERROR(AsNotSupported(CheckSameType(x, *other)));
    RETURN_IF_ERROR(CheckPacked(*other));
  }
  return CheckFloat(x);
}

Status CheckNotInPlace(const void* from, const void* to) {
  if (from != to) return {};
  return Status::Text(Code::kNotSupported,
                      "an element's neighbours are read while others are written: not in place");
}

}  // namespace

Status LRNCrossChannelForward(void* handle, void* lrn_desc, int mode, const void* alpha,
                              void* x_desc, const void* x, const void* beta, void* y_desc,
                              void* y) {
  ASSIGN_OR_RETURN(Handle * h, HandleFrom(handle));
  ASSIGN_OR_RETURN(const LrnDesc* lrn, Get<LrnDesc>(lrn_desc));
  ASSIGN_OR_RETURN(const TensorDesc* xd, Get<TensorDesc>(x_desc));
  ASSIGN_OR_RETURN(const TensorDesc* yd, Get<TensorDesc>(y_desc));
  RETURN_IF_ERROR(CheckEnum(mode, CUDNN_LRN_CROSS_CHANNEL_DIM1, "cudnnLRNMode_t"));
  RETURN_IF_ERROR(NotNull(x, "x"));
  RETURN_IF_ERROR(NotNull(y, "y"));
  RETURN_IF_ERROR(CheckNotInPlace(x, y));
  const TensorDesc from = ChannelsInSpace(*xd), to = ChannelsInSpace(*yd);
  Call call(*h, "cudnnLRNCrossChannelForward");
  call.Add(*lrn);
  const Operand input = call.Memory(from, x), output = call.Memory(to, y);
  ASSIGN_OR_RETURN(const Blend blend, call.Scaling(alpha, beta, output));
  return call.Run({}, [&](CallGraph& g) -> Status {
    RETURN_IF_ERROR(CheckLrn(*xd, {yd}));
    const Neighbourhood around(g, *lrn, from, AlongChannels(from.rank));
    ASSIGN_OR_RETURN(const TensorId value, g.Read(input));
    const TensorId power = around.Power(around.Scale(value, kAbsent));
    return g.Write(around.Mul(value, power), output, blend);
  });
}

Status LRNCrossChannelBackward(void* handle, void* lrn_desc, int mode, const void* alpha,
                               void* y_desc, const void*, void* dy_desc, const void* dy,
                               void* x_desc, const void* x, const void* beta, void* dx_desc,
                               void* dx) {
  ASSIGN_OR_RETURN(Handle * h, HandleFrom(handle));
  ASSIGN_OR_RETURN(const LrnDesc* lrn, Get<LrnDesc>(lrn_desc));
  ASSIGN_OR_RETURN(const TensorDesc* dyd, Get<TensorDesc>(dy_desc));
  ASSIGN_OR_RETURN(const TensorDesc* yd, GetOr(y_desc, dyd));
  ASSIGN_OR_RETURN(const TensorDesc* xd, Get<TensorDesc>(x_desc));
  ASSIGN_OR_RETURN(const TensorDesc* dxd, Get<TensorDesc>(dx_desc));
  RETURN_IF_ERROR(CheckEnum(mode, CUDNN_LRN_CROSS_CHANNEL_DIM1, "cudnnLRNMode_t"));
  for (const void* pointer : {x, dy, static_cast<const void*>(dx)})
    RETURN_IF_ERROR(NotNull(pointer, "one of x, dy and dx"));
  RETURN_IF_ERROR(CheckNotInPlace(dy, dx));
  RETURN_IF_ERROR(CheckNotInPlace(x, dx));
  const TensorDesc of_x = ChannelsInSpace(*xd), of_dy = ChannelsInSpace(*dyd),
                   of_dx = ChannelsInSpace(*dxd);
  Call call(*h, "cudnnLRNCrossChannelBackward");
  call.Add(*lrn);
  call.Add(*yd);  // nothing reads y: it follows from x
  const Operand input = call.Memory(of_x, x), gradient = call.Memory(of_dy, dy);
  const Operand output = call.Memory(of_dx, dx);
  ASSIGN_OR_RETURN(const Blend blend, call.Scaling(alpha, beta, output));
  return call.Run({}, [&](CallGraph& g) -> Status {
    RETURN_IF_ERROR(CheckLrn(*xd, {yd, dyd, dxd}));
    const Neighbourhood around(g, *lrn, of_x, AlongChannels(of_x.rank));
    ASSIGN_OR_RETURN(const TensorId value, g.Read(input));
    ASSIGN_OR_RETURN(const TensorId grad, g.Read(gradient));
    const TensorId scale = around.Scale(value, kAbsent), power = around.Power(scale);
    const TensorId term = around.Term(grad, value, scale, power);
    const TensorId pull = around.Mul(around.Weigh(value), around.Mean(term, true));
    const TensorId direct = around.Mul(grad, power);
    return g.Write(around.Apply(PointwiseMode::kSub, {direct, pull}), output, blend);
  });
}

// ---- over places

namespace {

Status CheckDivisive(const TensorDesc& x, const TensorDesc& y) {
  RETURN_IF_ERROR(CheckSet(x, "xDesc"));
  RETURN_IF_ERROR(CheckSameDims(x, y));
  if (x.rank != 4 && x.rank != 5)
    return Status::Error(Code::kBadParam, "{} dims; 4 and 5 are possible", x.rank);
  for (const TensorDesc* t : {&x, &y}) {
    if (HasNegativeStrides(*t))
      return Status::Error(Code::kBadParam, "{}: strides must not be negative", Text(*t));
  }
  RETURN_IF_ERROR(AsNotSupported(CheckSameStrides(x, y)));
  RETURN_IF_ERROR(AsNotSupported(CheckSameType(x, y)));
  return CheckFloat(x);
}

std::vector<char> AlongSpace(int32_t rank) {
  return std::vector<char>(static_cast<size_t>(rank) - 2, 1);
}

// kAbsent where there are none.
Result<TensorId> ReadMeans(CallGraph& g, const Operand& means) {
  if (means.slot < 0) return kAbsent;
  return g.Read(means);
}

// The terms of the gradient: t, s^-beta and dmeans.
struct Terms {
  const LrnDesc& lrn;
  const TensorDesc &x, &dx;
  struct {
    const void *x, *means, *dy;
    void *temp, *temp2, *dmeans;
  } memory;
  const void *alpha, *beta;
};

Status WriteTerms(Call& call, const Terms& t) {
  const auto& m = t.memory;
  call.Add(t.lrn);
  call.Add(m.means == nullptr);
  call.Add(m.dmeans == nullptr);
  const Operand input = call.Memory(t.x, m.x), gradient = call.Memory(t.x, m.dy);
  const Operand mean = m.means == nullptr ? Operand() : call.Memory(t.x, m.means);
  const Operand terms = call.Memory(t.x, m.temp), powers = call.Memory(t.x, m.temp2);
  const Operand of_means = call.Memory(t.dx, m.dmeans);
  Blend blend;
  if (m.dmeans != nullptr) {
    ASSIGN_OR_RETURN(blend, call.Scaling(t.alpha, t.beta, of_means));
  }
  return call.Run({}, [&](CallGraph& g) -> Status {
    RETURN_IF_ERROR(CheckDivisive(t.x, t.dx));
    const Neighbourhood around(g, t.lrn, t.x, AlongSpace(t.x.rank));
    ASSIGN_OR_RETURN(const TensorId value, g.Read(input));
    ASSIGN_OR_RETURN(const TensorId own, ReadMeans(g, mean));
    ASSIGN_OR_RETURN(const TensorId grad, g.Read(gradient));
    const TensorId sum = m.dmeans == nullptr ? kAbsent : around.Mean(value, false);
    const TensorId scale = around.Scale(value, own), power = around.Power(scale);
    const TensorId term = around.Term(grad, value, scale, power);
    RETURN_IF_ERROR(g.Write(power, powers));
    RETURN_IF_ERROR(g.Write(term, terms));
    if (m.dmeans == nullptr) return {};
    TensorId apart = sum;
    if (own != kAbsent)
      apart = around.Apply(PointwiseMode::kSub, {sum, around.Mul(own, around.PartInside())});
    return g.Write(around.Mul(around.Weigh(term), apart), of_means, blend);
  });
}

}  // namespace

Status DivisiveNormalizationForward(void* handle, void* lrn_desc, int mode, const void* alpha,
                                    void* x_desc, const void* x, const void* means, void* temp,
                                    void* temp2, const void* beta, void* y_desc, void* y) {
  ASSIGN_OR_RETURN(Handle * h, HandleFrom(handle));
  ASSIGN_OR_RETURN(const LrnDesc* lrn, Get<LrnDesc>(lrn_desc));
  ASSIGN_OR_RETURN(const TensorDesc* xd, Get<TensorDesc>(x_desc));
  ASSIGN_OR_RETURN(const TensorDesc* yd, Get<TensorDesc>(y_desc));
  RETURN_IF_ERROR(CheckEnum(mode, CUDNN_DIVNORM_PRECOMPUTED_MEANS, "cudnnDivNormMode_t"));
  for (const void* pointer : {x, static_cast<const void*>(temp), static_cast<const void*>(temp2),
                              static_cast<const void*>(y)})
    RETURN_IF_ERROR(NotNull(pointer, "one of x, temp, temp2 and y"));
  RETURN_IF_ERROR(CheckInPlace(x, *xd, y, *yd));
  const bool in_place = x == y || means == y;
  // All neighbours of a gradient in place are read before the first is written over: s^-beta goes
  // to temp first.
  const auto powers = [&](CallGraph& g, const Operand& input,
                          const Operand& mean) -> Result<TensorId> {
    RETURN_IF_ERROR(CheckDivisive(*xd, *yd));
    const Neighbourhood around(g, *lrn, *xd, AlongSpace(xd->rank));
    ASSIGN_OR_RETURN(const TensorId value, g.Read(input));
    ASSIGN_OR_RETURN(const TensorId own, ReadMeans(g, mean));
    return around.Power(around.Scale(value, own));
  };
  if (in_place) {
    Call call(*h, "cudnnDivisiveNormalizationForward, temp");
    call.Add(*lrn);
    call.Add(*yd);
    call.Add(means == nullptr);
    const Operand input = call.Memory(*xd, x), scratch = call.Memory(*xd, temp);
    const Operand mean = means == nullptr ? Operand() : call.Memory(*xd, means);
    RETURN_IF_ERROR(call.Run({}, [&](CallGraph& g) -> Status {
      ASSIGN_OR_RETURN(const TensorId power, powers(g, input, mean));
      return g.Write(power, scratch);
    }));
  }
  Call call(*h, "cudnnDivisiveNormalizationForward");
  call.Add(*lrn);
  call.Add(in_place);
  call.Add(means == nullptr);
  const Operand input = call.Memory(*xd, x), output = call.Memory(*yd, y);
  const void* const other = in_place ? temp : means;
  const Operand operand = other == nullptr ? Operand() : call.Memory(*xd, other);
  ASSIGN_OR_RETURN(const Blend blend, call.Scaling(alpha, beta, output));
  return call.Run({}, [&](CallGraph& g) -> Status {
    ASSIGN_OR_RETURN(const TensorId power, in_place ? g.Read(operand) : powers(g, input, operand));
    ASSIGN_OR_RETURN(const TensorId value, g.Read(input));
    return g.Write(g.Pointwise(PointwiseMode::kMul, {value, power}, ComputeType(*xd)), output,
                   blend);
  });
}

Status DivisiveNormalizationBackward(void* handle, void* lrn_desc, int mode, const void* alpha,
                                     void* x_desc, const void* x, const void* means, const void* dy,
                                     void* temp, void* temp2, const void* beta, void* dx_desc,
                                     void* dx, void* dmeans) {
  ASSIGN_OR_RETURN(Handle * h, HandleFrom(handle));
  ASSIGN_OR_RETURN(const LrnDesc* lrn, Get<LrnDesc>(lrn_desc));
  ASSIGN_OR_RETURN(const TensorDesc* xd, Get<TensorDesc>(x_desc));
  ASSIGN_OR_RETURN(const TensorDesc* dxd, Get<TensorDesc>(dx_desc));
  RETURN_IF_ERROR(CheckEnum(mode, CUDNN_DIVNORM_PRECOMPUTED_MEANS, "cudnnDivNormMode_t"));
  for (const void* pointer : {x, dy, static_cast<const void*>(temp),
                              static_cast<const void*>(temp2), static_cast<const void*>(dx)})
    RETURN_IF_ERROR(NotNull(pointer, "one of x, dy, temp, temp2 and dx"));
  // Two plans: what lies around an element is there before the first asks for it.
  Call around_each(*h, "cudnnDivisiveNormalizationBackward, temp");
  RETURN_IF_ERROR(WriteTerms(around_each, {.lrn = *lrn,
                                           .x = *xd,
                                           .dx = *dxd,
                                           .memory = {x, means, dy, temp, temp2, dmeans},
                                           .alpha = alpha,
                                           .beta = beta}));
  Call call(*h, "cudnnDivisiveNormalizationBackward");
  call.Add(*lrn);
  call.Add(means == nullptr);
  const Operand input = call.Memory(*xd, x), gradient = call.Memory(*xd, dy);
  const Operand mean = means == nullptr ? Operand() : call.Memory(*xd, means);
  const Operand terms = call.Memory(*xd, temp), powers = call.Memory(*xd, temp2);
  const Operand output = call.Memory(*dxd, dx);
  ASSIGN_OR_RETURN(const Blend blend, call.Scaling(alpha, beta, output));
  return call.Run({}, [&](CallGraph& g) -> Status {
    const Neighbourhood around(g, *lrn, *xd, AlongSpace(xd->rank));
    ASSIGN_OR_RETURN(const TensorId value, g.Read(input));
    ASSIGN_OR_RETURN(const TensorId own, ReadMeans(g, mean));
    ASSIGN_OR_RETURN(const TensorId grad, g.Read(gradient));
    ASSIGN_OR_RETURN(const TensorId term, g.Read(terms));
    ASSIGN_OR_RETURN(const TensorId power, g.Read(powers));
    TensorId pull = around.Mul(value, around.Mean(term, true));
    if (own != kAbsent) {
      const TensorId others = around.Mean(around.Mul(term, own), true);
      pull = around.Apply(PointwiseMode::kSub, {pull, others});
    }
    const TensorId direct = around.Mul(grad, power);
    return g.Write(around.Apply(PointwiseMode::kSub, {direct, around.Weigh(pull)}), output, blend);
  });
}

}  // namespace kiln::api::legacy
