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
// Of a place at most four elements of x have a K that is not 0: the sampler reads these. Of its
// gradient each element of x asks all places, which may lie anywhere.
#include <algorithm>

#include "api/legacy/call.h"
#include "api/legacy/functions.h"
#include "api/legacy/modes.h"
#include "ir/graph/ops.h"

namespace kiln::api::legacy {
namespace {

using graph::GraphOp;
using graph::PointwiseMode;
using graph::TensorId;

constexpr int32_t kRank = 4;

// ---- checks
// --------------------------------------------------------------------------------------

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

// What is sampled, and the samples.
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
// ---------------------------------------------------------------------

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

// [N,C,H,W] as [N,C,1,H*W], where rows follow one another; else as it is.
TensorDesc InOneRow(const TensorDesc& t) {
  const bool follow = t.dims[2] == 1 || t.dims[3] == 1 || t.strides[2] == t.dims[3] * t.strides[3];
  if (!follow) return t;
  TensorDesc row = t;
  row.dims[3] = t.dims[2] * t.dims[3];
  row.dims[2] = 1;
  if (t.dims[3] == 1) row.strides[3] = t.strides[2];
  return row;
}

template <class T>
T* Element(T* memory, int64_t i, int type) {
  using Byte = std::conditional_t<std::is_const_v<T>, const std::byte, std::byte>;
  return static_cast<Byte*>(memory) + i * ElementBytes(type);
}

// ---- grids
// ---------------------------------------------------------------------------------------

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
  // Of a normalised coordinate, in elements.
  TensorId InElements(TensorId coordinate, int64_t extent) const {
    return Mul(Add(coordinate, Number(1)), Number(static_cast<double>(extent - 1) / 2));
  }
  TensorId Cast(TensorId x) const { return Apply(PointwiseMode::kIdentity, {x}); }

  // Elements around a coordinate along one axis: numbers as whole floats, and weights.
  struct Pair {
    TensorId place[2], weight[2];
  };
  Pair Around(TensorId coordinate) const {
    const TensorId below = Apply(PointwiseMode::kFloor, {coordinate});
    const TensorId above = Add(below, Number(1));
    return {.place = {below, above}, .weight = {Sub(above, coordinate), Sub(coordinate, below)}};
  }
  // x[N,C,1,H*W] at a row and a column; 0 beyond it.
  TensorId At(TensorId x, TensorId row, TensorId column, int64_t height, int64_t width) const {
    const auto within = [&](TensorId place, int64_t extent) {
      return Logic(PointwiseMode::kLogicalAnd,
                   {Compare(PointwiseMode::kCmpGe, place, Number(0)),
                    Compare(PointwiseMode::kCmpLt, place, Number(static_cast<double>(extent)))});
    };
    const TensorId inside =
        Logic(PointwiseMode::kLogicalAnd, {within(row, height), within(column, width)});
    // Only where it is inside, so that the cast finds a number that there is.
    const auto kept = [&](TensorId place) {
      const TensorId near = Apply(PointwiseMode::kBinarySelect, {place, Number(0), inside});
      return g_.Pointwise(PointwiseMode::kIdentity, {near}, DType::kI64);
    };
    const auto whole = [&](PointwiseMode mode, TensorId a, TensorId b) {
      return g_.Pointwise(mode, {a, b}, DType::kI64);
    };
    const TensorId number = [&](int64_t value) {
      return g_.Constant(static_cast<double>(value), kRank, DType::kI64);
    }(width);
    const TensorId linear =
        whole(PointwiseMode::kAdd, whole(PointwiseMode::kMul, kept(row), number), kept(column));
    const TensorId none = g_.Constant(-1, kRank, DType::kI64);
    const TensorId index =
        g_.Pointwise(PointwiseMode::kBinarySelect, {linear, none, inside}, DType::kI64);
    const DType dtype = g_.builder().graph()[x].dtype;
    return g_.builder().Apply(GraphOp::kGather, {x, index}, graph::GatherAttrs{.axis = kRank - 1},
                              {.dtype = dtype, .compute = kiln::MovingType(dtype)});
  }
  // max(0, 1 - |a - b|); 0 of what is no number.
  TensorId Tent(TensorId a, TensorId b) const {
    const TensorId apart = Apply(PointwiseMode::kAbs, {Sub(a, b)});
    return Apply(PointwiseMode::kMax, {Sub(Number(1), apart), Number(0)});
  }
  TensorId Compare(PointwiseMode mode, TensorId a, TensorId b) const {
    return g_.builder().Apply(GraphOp::kPointwise, {a, b}, graph::PointwiseAttrs{.mode = mode},
                              {.dtype = DType::kBool, .compute = compute_});
  }
  TensorId Logic(PointwiseMode mode, std::vector<TensorId> inputs) const {
    return g_.builder().Apply(GraphOp::kPointwise, std::move(inputs),
                              graph::PointwiseAttrs{.mode = mode},
                              {.dtype = DType::kBool, .compute = DType::kBool});
  }
  // The same elements in row-major order, where they do not lie so.
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

// The four elements around each place, by row and column.
struct Corners {
  TensorId value[2][2];
};
Corners CornersOf(const Sampler& s, TensorId x, const Sampler::Pair& rows,
                  const Sampler::Pair& columns, const TensorDesc& desc) {
  const int64_t height = desc.dims[2], width = desc.dims[3];
  const TensorId flat = s.InOneRow(x, {desc.dims[0], desc.dims[1], 1, height * width});
  Corners corners;
  for (size_t r = 0; r < 2; ++r)
    for (size_t c = 0; c < 2; ++c)
      corners.value[r][c] = s.At(flat, rows.place[r], columns.place[c], height, width);
  return corners;
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
  const TensorDesc column = ColumnOf(*desc), of_grid = GridOf(*desc);
  Call call(*h, "cudnnSpatialTfGridGeneratorBackward");
  const Operand gradient = call.Memory(of_grid, dgrid);
  std::array<Operand, 3> columns;
  for (size_t m = 0; m < columns.size(); ++m)
    columns[m] = call.Memory(column, Element(dtheta, static_cast<int64_t>(m), desc->type));
  return call.Run({}, [&](CallGraph& g) -> Status {
    const Sampler s(g, desc->type);
    ASSIGN_OR_RETURN(const TensorId grad, g.Read(gradient));
    const Dims dims = {desc->dims[0], 1, 1, 2};
    const TensorId factors[] = {s.Normalised(2, desc->dims[3]), s.Normalised(1, desc->dims[2])};
    for (size_t m = 0; m < columns.size(); ++m) {
      const TensorId term = m < std::size(factors) ? s.Mul(grad, factors[m]) : s.Cast(grad);
      RETURN_IF_ERROR(g.Write(s.Sum(term, dims), columns[m]));
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
    const Sampler::Pair rows = s.Around(at.row), columns = s.Around(at.column);
    ASSIGN_OR_RETURN(const TensorId value, g.Read(input));
    const Corners corners = CornersOf(s, value, rows, columns, *xd);
    const auto along = [&](size_t r) {
      return s.Add(s.Mul(corners.value[r][0], columns.weight[0]),
                   s.Mul(corners.value[r][1], columns.weight[1]));
    };
    return g.Write(s.Add(s.Mul(along(0), rows.weight[0]), s.Mul(along(1), rows.weight[1])), output,
                   blend);
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
  const TensorDesc coordinate = CoordinateOf(*desc);
  // Two plans: dx is a sum over places, dgrid one over channels.
  const TensorDesc from = PlacesOf(*dyd, true), to = PlacesOf(*dxd, false),
                   along = PlacesOf(coordinate, true);
  Call of_x(*h, "cudnnSpatialTfSamplerBackward, dx");
  const Operand gradient = of_x.Memory(from, dy), output = of_x.Memory(to, dx);
  const Operand column = of_x.Memory(along, grid),
                row = of_x.Memory(along, Element(grid, 1, desc->type));
  ASSIGN_OR_RETURN(const Blend blend, of_x.Scaling(alpha, beta, output));
  RETURN_IF_ERROR(of_x.Run({}, [&](CallGraph& g) -> Status {
    const Sampler s(g, desc->type, kRank + 2);
    ASSIGN_OR_RETURN(const Coordinates at, CoordinatesOf(g, s, row, column, *xd));
    ASSIGN_OR_RETURN(const TensorId grad, g.Read(gradient));
    return g.Write(GradientOfSampled(s, at, grad, *xd), output, blend);
  }));
  const TensorDesc in_row = InOneRow(*xd);
  Call of_grid(*h, "cudnnSpatialTfSamplerBackward, dgrid");
  of_grid.Add(*xd);
  const Operand sampled = of_grid.Memory(in_row, x), grad_y = of_grid.Memory(*dyd, dy);
  const Operand u = of_grid.Memory(coordinate, grid),
                v = of_grid.Memory(coordinate, Element(grid, 1, desc->type));
  const Operand du = of_grid.Memory(coordinate, dgrid),
                dv = of_grid.Memory(coordinate, Element(dgrid, 1, desc->type));
  ASSIGN_OR_RETURN(const Blend blend_u, of_grid.Scaling(alpha_grid, beta_grid, du));
  ASSIGN_OR_RETURN(const Blend blend_v, of_grid.Scaling(alpha_grid, beta_grid, dv));
  return of_grid.Run({}, [&](CallGraph& g) -> Status {
    const Sampler s(g, desc->type);
    ASSIGN_OR_RETURN(const Coordinates at, CoordinatesOf(g, s, v, u, *xd));
    const Sampler::Pair rows = s.Around(at.row), columns = s.Around(at.column);
    ASSIGN_OR_RETURN(const TensorId value, g.Read(sampled));
    ASSIGN_OR_RETURN(const TensorId grad, g.Read(grad_y));
    const Corners c = CornersOf(s, value, rows, columns, *xd);
    const auto slope = [&](const Sampler::Pair& weights, TensorId low0, TensorId high0,
                           TensorId low1, TensorId high1, int64_t extent) {
      const TensorId one = s.Mul(s.Sub(high0, low0), weights.weight[0]),
                     other = s.Mul(s.Sub(high1, low1), weights.weight[1]);
      const TensorId term = s.Mul(grad, s.Add(one, other));
      return s.Mul(s.Sum(term, {dyd->dims[0], 1, dyd->dims[2], dyd->dims[3]}),
                   s.Number(static_cast<double>(extent - 1) / 2));
    };
    const auto& q = c.value;
    RETURN_IF_ERROR(
        g.Write(slope(rows, q[0][0], q[0][1], q[1][0], q[1][1], xd->dims[3]), du, blend_u));
    return g.Write(slope(columns, q[0][0], q[1][0], q[0][1], q[1][1], xd->dims[2]), dv, blend_v);
  });
}

}  // namespace kiln::api::legacy
