// cudnnSpatialTfGridGenerator… and cudnnSpatialTfSampler…. Reference 3.2.97, 3.2.98, 4.1.20 and
// 4.1.21; the formulas are Jaderberg's et al., Spatial Transformer Networks, 2015.
//
// Coordinates are -1 at the centre of the first element along an axis and 1 at that of the last.
//
//   grid[n,h,w] = theta[n] * (u(w), v(h), 1),  u(w) = 2 * w / (W - 1) - 1
//   y[n,c,h,w]  = sum over q of x[n,c,q] * K(n,h,w,q),
//                 K = max(0, 1 - |column - qx|) * max(0, 1 - |row - qy|),
//                 column = (grid + 1) * (W of x - 1) / 2
//
// The sampler reads the four elements of x at most that have a K that is not 0 for a place, and its
// gradient adds to these, in any order: NVIDIA's too is not reproducible (developer guide, "Odds
// and Ends"). Where memory cannot be added to (16 bits, rows with gaps) each element of dx asks all
// places, which may lie anywhere.
#include <algorithm>
#include <optional>

#include "api/legacy/descriptors/modes.h"
#include "api/legacy/functions.h"
#include "api/legacy/plans/call.h"
#include "ir/graph/ops.h"

namespace kiln::api::legacy {
namespace {

using graph::GraphOp;
using graph::PointwiseMode;
using graph::TensorId;

constexpr int32_t kRank = 4;

// ---- checks

Status CheckTransformer(const SpatialTransformerDesc& desc) {
  if (desc.rank != kRank)
    return Status::Error(Code::kNotSupported, "a transformer of {} dims; {} are possible",
                         desc.rank, kRank);
  for (int32_t d = 0; d < kRank; ++d)
    if (desc.dims[static_cast<size_t>(d)] <= 0)
      return Status::Error(Code::kBadParam, "extent {} of the transformer is {}", d,
                           desc.dims[static_cast<size_t>(d)]);
  return {};
}

// Checks the tensor that is sampled, and the samples.
Status CheckSampled(const SpatialTransformerDesc& desc, const TensorDesc& x, const TensorDesc& y) {
  RETURN_IF_ERROR(CheckTransformer(desc));
  RETURN_IF_ERROR(CheckSet(x, "xDesc"));
  RETURN_IF_ERROR(CheckSet(y, "yDesc"));
  RETURN_IF_ERROR(CheckSameType(x, y));
  if (x.rank > kRank || y.rank > kRank)
    return Status::Error(Code::kNotSupported, "{} and {}; {} dims are possible", Text(x), Text(y),
                         kRank);
  if (!std::equal(desc.dims.begin(), desc.dims.begin() + kRank, y.dims.begin()) || y.rank != kRank)
    return Status::Error(Code::kBadParam, "{} for a transformer of [{},{},{},{}]", Text(y),
                         desc.dims[0], desc.dims[1], desc.dims[2], desc.dims[3]);
  if (x.rank != kRank || x.dims[0] != y.dims[0] || x.dims[1] != y.dims[1])
    return Status::Error(Code::kBadParam, "{} and {} differ elsewhere than in space", Text(x),
                         Text(y));
  if (y.type != desc.type)
    return Status::Error(Code::kBadParam, "{} for a transformer of data type {}", Text(y),
                         desc.type);
  return CheckFloat(x);
}

// ---- parts of packed tensors

TensorDesc Part(int type, std::array<int32_t, kRank> dims, std::array<int32_t, kRank> strides) {
  TensorDesc part = {.type = type, .rank = kRank};
  std::ranges::copy(dims, part.dims.begin());
  std::ranges::copy(strides, part.strides.begin());
  return part;
}
// theta[N,2,3] as [N,1,1,2]: one of its three columns.
TensorDesc ColumnOf(const SpatialTransformerDesc& d) {
  return Part(d.type, {d.dims[0], 1, 1, 2}, {6, 6, 6, 3});
}
// One of its six elements.
TensorDesc ElementOf(const SpatialTransformerDesc& d) {
  return Part(d.type, {d.dims[0], 1, 1, 1}, {6, 6, 6, 6});
}
// grid[N,H,W,2].
TensorDesc GridOf(const SpatialTransformerDesc& d) {
  const int32_t h = d.dims[2], w = d.dims[3];
  return Part(d.type, {d.dims[0], h, w, 2}, {h * w * 2, w * 2, 2, 1});
}
// One coordinate of it, as [N,1,H,W].
TensorDesc CoordinateOf(const SpatialTransformerDesc& d) {
  const int32_t h = d.dims[2], w = d.dims[3];
  return Part(d.type, {d.dims[0], 1, h, w}, {h * w * 2, h * w * 2, w * 2, 2});
}

// True if rows follow one another, so that [N,C,H,W] can be seen as [N,C,1,H*W].
bool RowsFollow(const TensorDesc& t) {
  return t.dims[2] == 1 || t.dims[3] == 1 || t.strides[2] == t.dims[3] * t.strides[3];
}
// It seen so, where it can be; else as it is.
TensorDesc InOneRow(const TensorDesc& t) {
  if (!RowsFollow(t)) return t;
  TensorDesc row = t;
  row.dims[3] = t.dims[2] * t.dims[3];
  row.dims[2] = 1;
  if (t.dims[3] == 1) row.strides[3] = t.strides[2];
  return row;
}
// True if dx can be added to where it lies.
bool TakesSums(const TensorDesc& dx) {
  return RowsFollow(dx) && (dx.type == CUDNN_DATA_FLOAT || dx.type == CUDNN_DATA_DOUBLE);
}

template <class T>
T* Element(T* memory, int64_t i, int type) {
  using Byte = std::conditional_t<std::is_const_v<T>, const std::byte, std::byte>;
  return static_cast<Byte*>(memory) + i * ElementBytes(type);
}

// ---- grids

class Sampler {
 public:
  Sampler(CallGraph& g, int type, int64_t rank = kRank)
      : g_(g), compute_(type == CUDNN_DATA_DOUBLE ? DType::kF64 : DType::kF32), rank_(rank) {}

  DType compute() const { return compute_; }
  TensorId Apply(PointwiseMode mode, std::vector<TensorId> inputs) const {
    return g_.Pointwise(mode, std::move(inputs), compute_);
  }
  TensorId Number(double value) const { return g_.Constant(value, rank_, compute_); }
  TensorId Add(TensorId a, TensorId b) const { return Apply(PointwiseMode::kAdd, {a, b}); }
  TensorId Sub(TensorId a, TensorId b) const { return Apply(PointwiseMode::kSub, {a, b}); }
  TensorId Mul(TensorId a, TensorId b) const { return Apply(PointwiseMode::kMul, {a, b}); }

  // 0, 1, … along an axis.
  TensorId Places(int64_t axis, int64_t extent, DType type) const {
    Dims dims(static_cast<size_t>(rank_), 1);
    dims[static_cast<size_t>(axis)] = extent;
    return g_.builder().Apply(GraphOp::kIota, {}, graph::IotaAttrs{.axis = axis},
                              {.dtype = type, .compute = DType::kI64, .dims = dims});
  }
  // -1 … 1; an element alone is the first, as in NVIDIA's library.
  TensorId Normalised(int64_t axis, int64_t extent) const {
    if (extent == 1) return Number(-1);
    const TensorId place = Cast(Places(axis, extent, DType::kI32));
    return Sub(Mul(place, Number(2 / static_cast<double>(extent - 1))), Number(1));
  }
  // A normalised coordinate in elements.
  TensorId InElements(TensorId coordinate, int64_t extent) const {
    return Mul(Add(coordinate, Number(1)), Number(static_cast<double>(extent - 1) / 2));
  }
  TensorId Cast(TensorId x) const { return Apply(PointwiseMode::kIdentity, {x}); }

  // The two elements around a coordinate along one axis: their numbers, whether there are such
  // elements, and their weights.
  struct Pair {
    TensorId place[2], inside[2], weight[2];
  };
  // Numbers are whole numbers of this type, wide enough for all of an image.
  static DType PlaceType(const TensorDesc& image) {
    return int64_t{image.dims[2]} * image.dims[3] <= INT32_MAX ? DType::kI32 : DType::kI64;
  }
  Pair Around(TensorId coordinate, int64_t extent, DType type) const {
    const TensorId below = Apply(PointwiseMode::kFloor, {coordinate}),
                   above = Add(below, Number(1));
    // Near the image, so that a number can be told from what lies far off, or is none.
    const TensorId near = Apply(
        PointwiseMode::kMin,
        {Apply(PointwiseMode::kMax, {below, Number(-2)}), Number(static_cast<double>(extent))});
    const TensorId first = g_.Pointwise(PointwiseMode::kIdentity, {near}, type),
                   second = g_.Pointwise(PointwiseMode::kAdd, {first, Whole(1, type)}, type);
    return {.place = {first, second},
            .inside = {Within(first, extent, type), Within(second, extent, type)},
            .weight = {Sub(above, coordinate), Sub(coordinate, below)}};
  }
  TensorId Whole(int64_t value, DType type) const {
    return g_.Constant(static_cast<double>(value), rank_, type);
  }
  TensorId Within(TensorId place, int64_t extent, DType type) const {
    return Logic(PointwiseMode::kLogicalAnd,
                 {Compare(PointwiseMode::kCmpGe, place, Whole(0, type), type),
                  Compare(PointwiseMode::kCmpLt, place, Whole(extent, type), type)});
  }
  // One of the four elements around a place: its number in an image of rows that follow one
  // another, -1 beyond it.
  TensorId Corner(const Pair& rows, size_t r, const Pair& columns, size_t c, int64_t width,
                  DType type) const {
    const TensorId inside = Logic(PointwiseMode::kLogicalAnd, {rows.inside[r], columns.inside[c]});
    const TensorId row =
        g_.Pointwise(PointwiseMode::kMul, {rows.place[r], Whole(width, type)}, type);
    const TensorId linear = g_.Pointwise(PointwiseMode::kAdd, {row, columns.place[c]}, type);
    return g_.Pointwise(PointwiseMode::kBinarySelect, {linear, Whole(-1, type), inside}, type);
  }
  // x[N,C,1,H*W] at such numbers; 0 beyond it.
  TensorId At(TensorId x, TensorId index) const {
    const DType dtype = g_.builder().graph()[x].dtype;
    return g_.builder().Apply(GraphOp::kGather, {x, index}, graph::GatherAttrs{.axis = kRank - 1},
                              {.dtype = dtype, .compute = kiln::MovingType(dtype)});
  }
  // max(0, 1 - |a - b|); 0 of what is no number.
  TensorId Tent(TensorId a, TensorId b) const {
    const TensorId apart = Apply(PointwiseMode::kAbs, {Sub(a, b)});
    return Apply(PointwiseMode::kMax, {Sub(Number(1), apart), Number(0)});
  }
  TensorId Compare(PointwiseMode mode, TensorId a, TensorId b, DType type) const {
    return g_.builder().Apply(GraphOp::kPointwise, {a, b}, graph::PointwiseAttrs{.mode = mode},
                              {.dtype = DType::kBool, .compute = type});
  }
  TensorId Logic(PointwiseMode mode, std::vector<TensorId> inputs) const {
    return g_.builder().Apply(GraphOp::kPointwise, std::move(inputs),
                              graph::PointwiseAttrs{.mode = mode},
                              {.dtype = DType::kBool, .compute = DType::kBool});
  }
  // The elements of x in row-major order, where they do not lie so.
  TensorId InOneRow(TensorId x, const Dims& dims) const {
    if (g_.DimsOf(x) == dims) return x;
    const graph::Tensor& tensor = g_.builder().graph()[x];
    const DType dtype = tensor.dtype, moving = kiln::MovingType(dtype);
    if (tensor.strides != PackedStrides(tensor.dims))
      x = g_.builder().Apply(
          GraphOp::kPointwise, {x}, graph::PointwiseAttrs{.mode = PointwiseMode::kIdentity},
          {.dtype = dtype, .compute = moving, .strides = PackedStrides(tensor.dims)});
    return g_.builder().Apply(
        GraphOp::kReshape, {x}, graph::ReshapeAttrs{},
        {.dtype = dtype, .compute = moving, .dims = dims, .strides = PackedStrides(dims)});
  }
  TensorId Sum(TensorId x, const Dims& dims) const {
    return g_.builder().Reduction(graph::ReductionMode::kAdd, x, dims,
                                  {.dtype = compute_, .compute = compute_});
  }

 private:
  CallGraph& g_;
  const DType compute_;
  const int64_t rank_;
};

// Row and column of each place.
struct Coordinates {
  TensorId row, column;
};
Result<Coordinates> CoordinatesOf(CallGraph& g, const Sampler& s, const Operand& row,
                                  const Operand& column, const TensorDesc& x) {
  ASSIGN_OR_RETURN(const TensorId v, g.Read(row));
  ASSIGN_OR_RETURN(const TensorId u, g.Read(column));
  return Coordinates{s.InElements(v, x.dims[2]), s.InElements(u, x.dims[3])};
}

// The four elements around each place, by row and column: their numbers, and what their weights are
// products of.
struct Corners {
  Sampler::Pair rows, columns;
  TensorId index[2][2];
};
Corners CornersOf(const Sampler& s, const Coordinates& at, const TensorDesc& image) {
  const DType type = Sampler::PlaceType(image);
  Corners corners = {.rows = s.Around(at.row, image.dims[2], type),
                     .columns = s.Around(at.column, image.dims[3], type)};
  for (size_t r = 0; r < 2; ++r)
    for (size_t c = 0; c < 2; ++c)
      corners.index[r][c] = s.Corner(corners.rows, r, corners.columns, c, image.dims[3], type);
  return corners;
}

// Samples are what x holds there.
struct Samples {
  TensorId value[2][2];
};
Samples SamplesAt(const Sampler& s, TensorId x, const Corners& corners, const TensorDesc& desc) {
  const TensorId flat =
      s.InOneRow(x, {desc.dims[0], desc.dims[1], 1, int64_t{desc.dims[2]} * desc.dims[3]});
  Samples samples;
  for (size_t r = 0; r < 2; ++r)
    for (size_t c = 0; c < 2; ++c) samples.value[r][c] = s.At(flat, corners.index[r][c]);
  return samples;
}

}  // namespace

Status SpatialTfGridGeneratorForward(void* handle, void* object, const void* theta, void* grid) {
  ASSIGN_OR_RETURN(Handle * h, HandleFrom(handle));
  ASSIGN_OR_RETURN(const SpatialTransformerDesc* desc, Get<SpatialTransformerDesc>(object));
  RETURN_IF_ERROR(NotNull(theta, "theta"));
  RETURN_IF_ERROR(NotNull(grid, "grid"));
  RETURN_IF_ERROR(CheckTransformer(*desc));
  const TensorDesc column = ColumnOf(*desc), of_grid = GridOf(*desc);
  Call call(*h, "cudnnSpatialTfGridGeneratorForward");
  std::array<Operand, 3> columns;
  for (size_t m = 0; m < columns.size(); ++m)
    columns[m] = call.Memory(column, Element(theta, static_cast<int64_t>(m), desc->type));
  const Operand output = call.Memory(of_grid, grid);
  return call.Run({}, [&](CallGraph& g) -> Status {
    const Sampler s(g, desc->type);
    std::array<TensorId, 3> values{};
    for (size_t m = 0; m < values.size(); ++m) {
      ASSIGN_OR_RETURN(values[m], g.Read(columns[m]));
    }
    const TensorId x = s.Mul(values[0], s.Normalised(2, desc->dims[3])),
                   y = s.Mul(values[1], s.Normalised(1, desc->dims[2]));
    return g.WriteBroadcast(s.Add(s.Add(x, y), values[2]), output, {});
  });
}

Status SpatialTfGridGeneratorBackward(void* handle, void* object, const void* dgrid, void* dtheta) {
  ASSIGN_OR_RETURN(Handle * h, HandleFrom(handle));
  ASSIGN_OR_RETURN(const SpatialTransformerDesc* desc, Get<SpatialTransformerDesc>(object));
  RETURN_IF_ERROR(NotNull(dgrid, "dgrid"));
  RETURN_IF_ERROR(NotNull(dtheta, "dtheta"));
  RETURN_IF_ERROR(CheckTransformer(*desc));
  const TensorDesc coordinate = CoordinateOf(*desc), element = ElementOf(*desc);
  constexpr size_t kCoordinates = 2, kColumns = 3;
  Call call(*h, "cudnnSpatialTfGridGeneratorBackward");
  // Coordinates one by one, so that sums are along rows of memory.
  std::array<Operand, kCoordinates> gradients;
  std::array<Operand, kCoordinates * kColumns> sums;
  for (size_t k = 0; k < gradients.size(); ++k)
    gradients[k] = call.Memory(coordinate, Element(dgrid, static_cast<int64_t>(k), desc->type));
  for (size_t i = 0; i < sums.size(); ++i)
    sums[i] = call.Memory(element, Element(dtheta, static_cast<int64_t>(i), desc->type));
  return call.Run({}, [&](CallGraph& g) -> Status {
    const Sampler s(g, desc->type);
    const TensorId factors[] = {s.Normalised(3, desc->dims[3]), s.Normalised(2, desc->dims[2])};
    for (size_t i = 0; i < sums.size(); ++i) {
      ASSIGN_OR_RETURN(const TensorId grad, g.Read(gradients[i / kColumns]));
      const size_t m = i % kColumns;
      const TensorId term = m < std::size(factors) ? s.Mul(grad, factors[m]) : s.Cast(grad);
      RETURN_IF_ERROR(g.Write(s.Sum(term, {desc->dims[0], 1, 1, 1}), sums[i]));
    }
    return {};
  });
}

Status SpatialTfSamplerForward(void* handle, void* object, const void* alpha, void* x_desc,
                               const void* x, const void* grid, const void* beta, void* y_desc,
                               void* y) {
  ASSIGN_OR_RETURN(Handle * h, HandleFrom(handle));
  ASSIGN_OR_RETURN(const SpatialTransformerDesc* desc, Get<SpatialTransformerDesc>(object));
  ASSIGN_OR_RETURN(const TensorDesc* xd, Get<TensorDesc>(x_desc));
  ASSIGN_OR_RETURN(const TensorDesc* yd, Get<TensorDesc>(y_desc));
  for (const void* pointer : {x, grid, static_cast<const void*>(y)})
    RETURN_IF_ERROR(NotNull(pointer, "one of x, grid and y"));
  RETURN_IF_ERROR(CheckSampled(*desc, *xd, *yd));
  const TensorDesc coordinate = CoordinateOf(*desc), from = InOneRow(*xd);
  Call call(*h, "cudnnSpatialTfSamplerForward");
  call.Add(*xd);
  const Operand input = call.Memory(from, x), output = call.Memory(*yd, y);
  const Operand column = call.Memory(coordinate, grid),
                row = call.Memory(coordinate, Element(grid, 1, desc->type));
  ASSIGN_OR_RETURN(const Blend blend, call.Scaling(alpha, beta, output));
  return call.Run({}, [&](CallGraph& g) -> Status {
    const Sampler s(g, desc->type);
    ASSIGN_OR_RETURN(const Coordinates at, CoordinatesOf(g, s, row, column, *xd));
    const Corners corners = CornersOf(s, at, *xd);
    ASSIGN_OR_RETURN(const TensorId value, g.Read(input));
    const Samples samples = SamplesAt(s, value, corners, *xd);
    const auto along = [&](size_t r) {
      return s.Add(s.Mul(samples.value[r][0], corners.columns.weight[0]),
                   s.Mul(samples.value[r][1], corners.columns.weight[1]));
    };
    return g.Write(
        s.Add(s.Mul(along(0), corners.rows.weight[0]), s.Mul(along(1), corners.rows.weight[1])),
        output, blend);
  });
}

namespace {

// [N,C,H,W] with its places as dims 2 and 3 of six, or as dims 4 and 5.
TensorDesc PlacesOf(const TensorDesc& t, bool of_y) {
  TensorDesc seen = {.type = t.type, .rank = kRank + 2};
  const size_t first = of_y ? 2 : 4;
  std::fill_n(seen.dims.begin(), seen.rank, 1);
  std::fill_n(seen.strides.begin(), seen.rank, 1);
  for (size_t d = 0; d < kRank; ++d) {
    const size_t to = d < 2 ? d : d - 2 + first;
    seen.dims[to] = t.dims[d];
    seen.strides[to] = t.strides[d];
  }
  return seen;
}

// dx[n,c,q] = the sum of dy[n,c,p] * K(n,p,q) over the places p of y, which are dims 2 and 3; those
// of x are 4 and 5.
TensorId GradientOfSampled(const Sampler& s, const Coordinates& at, TensorId dy,
                           const TensorDesc& xd) {
  const int64_t height = xd.dims[2], width = xd.dims[3];
  const TensorId kernel = s.Mul(s.Tent(at.row, s.Cast(s.Places(4, height, DType::kI32))),
                                s.Tent(at.column, s.Cast(s.Places(5, width, DType::kI32))));
  return s.Sum(s.Mul(dy, kernel), {xd.dims[0], xd.dims[1], 1, 1, height, width});
}

// The sum by additions to memory: each dy[n,c,p] * K(n,p,q) is added to dx[n,c,q], with all q in
// one row.
TensorId SumsOfSampled(CallGraph& g, const Sampler& s, const Corners& corners, TensorId dy,
                       TensorId before, const TensorDesc& xd) {
  std::vector<TensorId> inputs = {before};
  for (size_t r = 0; r < 2; ++r) {
    for (size_t c = 0; c < 2; ++c) {
      const TensorId kernel = s.Mul(corners.rows.weight[r], corners.columns.weight[c]);
      inputs.insert(inputs.end(), {s.Mul(dy, kernel), corners.index[r][c]});
    }
  }
  const Dims dims = {xd.dims[0], xd.dims[1], 1, int64_t{xd.dims[2]} * xd.dims[3]};
  return g.builder().Apply(GraphOp::kScatterAdd, std::move(inputs),
                           graph::ScatterAddAttrs{.axis = kRank - 1},
                           {.dtype = s.compute(), .compute = s.compute(), .dims = dims});
}

// SamplerGradient holds what a call of the sampler's gradient is about.
struct SamplerGradient {
  Handle& handle;
  const SpatialTransformerDesc& desc;
  const TensorDesc &x, &dx, &dy;
  const void *x_data, *dy_data, *grid;

  TensorDesc coordinate() const { return CoordinateOf(desc); }
  Operand Row(Call& call, const TensorDesc& of) const {
    return call.Memory(of, Element(grid, 1, desc.type));
  }
  Operand Column(Call& call, const TensorDesc& of) const { return call.Memory(of, grid); }
};

// A gradient with its factors.
struct Scaled {
  const void *alpha, *beta;
  void* memory;
};

Status SearchForSampled(const SamplerGradient& of, const Scaled& dx) {
  const TensorDesc from = PlacesOf(of.dy, true), to = PlacesOf(of.dx, false),
                   along = PlacesOf(of.coordinate(), true);
  Call call(of.handle, "cudnnSpatialTfSamplerBackward, dx");
  const Operand gradient = call.Memory(from, of.dy_data), output = call.Memory(to, dx.memory);
  const Operand column = of.Column(call, along), row = of.Row(call, along);
  ASSIGN_OR_RETURN(const Blend blend, call.Scaling(dx.alpha, dx.beta, output));
  return call.Run({}, [&](CallGraph& g) -> Status {
    const Sampler s(g, of.desc.type, kRank + 2);
    ASSIGN_OR_RETURN(const Coordinates at, CoordinatesOf(g, s, row, column, of.x));
    ASSIGN_OR_RETURN(const TensorId grad, g.Read(gradient));
    return g.Write(GradientOfSampled(s, at, grad, of.x), output, blend);
  });
}

// SumsOf makes dx by sums.
struct SumsOf {
  Operand output;
  Blend blend;

  Status Write(CallGraph& g, const Sampler& s, const Corners& corners, TensorId dy,
               const TensorDesc& xd) const {
    if (blend.alpha.slot >= 0) dy = s.Mul(dy, g.Read(blend.alpha, kRank));
    TensorId before = s.Number(0);
    if (blend.beta.slot >= 0) {
      ASSIGN_OR_RETURN(const TensorId prior, g.Read(blend.prior));
      before = s.Mul(prior, g.Read(blend.beta, kRank));
    }
    return g.Write(SumsOfSampled(g, s, corners, dy, before, xd), output);
  }
};

// dgrid: the slope of K along each axis, summed over channels.
struct GradientOfGrid {
  Operand x, du, dv;
  Blend blend_u, blend_v;

  Status Write(CallGraph& g, const Sampler& s, const Corners& corners, TensorId dy,
               const TensorDesc& xd) const {
    ASSIGN_OR_RETURN(const TensorId value, g.Read(x));
    const Samples samples = SamplesAt(s, value, corners, xd);
    const auto& q = samples.value;
    const Dims of_y = g.DimsOf(dy);
    const Dims places = {of_y[0], 1, of_y[2], of_y[3]};
    const auto slope = [&](const Sampler::Pair& weights, TensorId low0, TensorId high0,
                           TensorId low1, TensorId high1, int64_t extent) {
      const TensorId one = s.Mul(s.Sub(high0, low0), weights.weight[0]),
                     other = s.Mul(s.Sub(high1, low1), weights.weight[1]);
      return s.Mul(s.Sum(s.Mul(dy, s.Add(one, other)), places),
                   s.Number(static_cast<double>(extent - 1) / 2));
    };
    RETURN_IF_ERROR(
        g.Write(slope(corners.rows, q[0][0], q[0][1], q[1][0], q[1][1], xd.dims[3]), du, blend_u));
    return g.Write(slope(corners.columns, q[0][0], q[1][0], q[0][1], q[1][1], xd.dims[2]), dv,
                   blend_v);
  }
};

// dgrid, and dx where it is made by sums, else null.
Status Gradients(const SamplerGradient& of, const Scaled* dx, const Scaled& dgrid) {
  const TensorDesc coordinate = of.coordinate(), x = InOneRow(of.x), sum = InOneRow(of.dx);
  Call call(of.handle, "cudnnSpatialTfSamplerBackward");
  call.Add(of.x);
  const Operand gradient = call.Memory(of.dy, of.dy_data);
  const Operand column = of.Column(call, coordinate), row = of.Row(call, coordinate);
  std::optional<SumsOf> sums;
  if (dx != nullptr) {
    const Operand output = call.Memory(sum, dx->memory);
    ASSIGN_OR_RETURN(const Blend blend, call.Scaling(dx->alpha, dx->beta, output));
    sums = {.output = output, .blend = blend};
  }
  GradientOfGrid grid = {.x = call.Memory(x, of.x_data),
                         .du = call.Memory(coordinate, dgrid.memory),
                         .dv = call.Memory(coordinate, Element(dgrid.memory, 1, of.desc.type))};
  ASSIGN_OR_RETURN(grid.blend_u, call.Scaling(dgrid.alpha, dgrid.beta, grid.du));
  ASSIGN_OR_RETURN(grid.blend_v, call.Scaling(dgrid.alpha, dgrid.beta, grid.dv));
  return call.Run({}, [&](CallGraph& g) -> Status {
    const Sampler s(g, of.desc.type);
    ASSIGN_OR_RETURN(const Coordinates at, CoordinatesOf(g, s, row, column, of.x));
    const Corners corners = CornersOf(s, at, of.x);
    ASSIGN_OR_RETURN(const TensorId dy, g.Read(gradient));
    if (sums) RETURN_IF_ERROR(sums->Write(g, s, corners, dy, of.x));
    return grid.Write(g, s, corners, dy, of.x);
  });
}

}  // namespace

Status SpatialTfSamplerBackward(void* handle, void* object, const void* alpha, void* x_desc,
                                const void* x, const void* beta, void* dx_desc, void* dx,
                                const void* alpha_grid, void* dy_desc, const void* dy,
                                const void* grid, const void* beta_grid, void* dgrid) {
  ASSIGN_OR_RETURN(Handle * h, HandleFrom(handle));
  ASSIGN_OR_RETURN(const SpatialTransformerDesc* desc, Get<SpatialTransformerDesc>(object));
  ASSIGN_OR_RETURN(const TensorDesc* xd, Get<TensorDesc>(x_desc));
  ASSIGN_OR_RETURN(const TensorDesc* dxd, Get<TensorDesc>(dx_desc));
  ASSIGN_OR_RETURN(const TensorDesc* dyd, Get<TensorDesc>(dy_desc));
  for (const void* pointer :
       {x, dy, grid, static_cast<const void*>(dx), static_cast<const void*>(dgrid)})
    RETURN_IF_ERROR(NotNull(pointer, "one of x, dx, dy, grid and dgrid"));
  RETURN_IF_ERROR(CheckSampled(*desc, *xd, *dyd));
  RETURN_IF_ERROR(CheckSameDims(*xd, *dxd));
  RETURN_IF_ERROR(CheckSameType(*xd, *dxd));
  const SamplerGradient of = {.handle = *h,
                              .desc = *desc,
                              .x = *xd,
                              .dx = *dxd,
                              .dy = *dyd,
                              .x_data = x,
                              .dy_data = dy,
                              .grid = grid};
  const Scaled of_x = {alpha, beta, dx}, of_grid = {alpha_grid, beta_grid, dgrid};
  if (TakesSums(*dxd)) return Gradients(of, &of_x, of_grid);
  RETURN_IF_ERROR(SearchForSampled(of, of_x));
  return Gradients(of, nullptr, of_grid);
}

}  // namespace kiln::api::legacy
