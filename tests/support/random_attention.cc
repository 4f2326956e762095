// Random nodes of attention and of what it loads and stores in part.
#include "tests/support/random_generator.h"

namespace kiln::graph {

TensorId Generator::VirtualOf(const char* name, Dims dims, DType dtype) {
  Tensor y;
  y.name = name;
  y.dtype = dtype;
  y.strides = PackedStrides(dims);
  y.dims = std::move(dims);
  y.is_virtual = true;
  return builder_.graph().AddTensor(std::move(y));
}

void Generator::AddSdpa(GraphOp op) {
  const bool forward = op == GraphOp::kSdpaFwd;
  const DType type = Pick({DType::kF32, DType::kF16, DType::kBF16});
  const int64_t hk = 1 + Below(2), hv = Chance(80) ? hk : 1, h = hk * (1 + Below(2));
  const int64_t b = 1 + Below(2), sq = 1 + Below(5), skv = 1 + Below(6), depth = 1 + Below(4),
                width = 1 + Below(4);
  const bool paged = forward && Chance(25) && !options_.api;
  const int64_t block = paged ? 1 + Below(2) : skv, pages = 1 + Below(3),
                blocks = paged ? 1 + Below(4) : b;
  const auto tensor = [&](Dims dims) { return NewTensor(std::move(dims), type); };
  const TensorId q = tensor({b, h, sq, depth}), k = tensor({blocks, hk, block, depth}),
                 v = tensor({blocks, hv, block, width});
  const TensorId scale = Chance(70) ? builder_.Constant("scale", DType::kF32, 0.25, 4) : kAbsent;
  const auto lengths = [&] { return Chance(30) ? NewTensor({b, 1, 1, 1}, DType::kI32) : kAbsent; };
  const TensorId seq_q = lengths(), seq_kv = lengths();
  const auto table = [&] { return paged ? NewTensor({b, 1, pages, 1}, DType::kI32) : kAbsent; };
  const TensorId table_k = table(), table_v = table();
  const TensorId bias =
      Chance(25) ? NewTensor({1, h, sq, paged ? pages * block : skv}, DType::kF32) : kAbsent;
  const TensorId alibi = Chance(15) ? NewTensor({1, h, 1, 1}, DType::kF32) : kAbsent;
  SdpaAttrs attrs{.scale = options_.api ? 1.0 : Pick({1.0, 0.5}), .bottom_right = Chance(30)};
  if (Chance(40)) attrs.right = Below(3);
  if (Chance(30)) attrs.left = Below(4);
  const Dims out = {b, h, sq, width}, rows = {b, h, sq, 1};
  if (forward) {
    const TensorId sink = Chance(15) ? NewTensor({1, h, 1, 1}, DType::kF32) : kAbsent;
    const TensorId o = VirtualOf("o", out, type),
                   stats = Chance(50) ? VirtualOf("stats", rows, DType::kF32) : kAbsent;
    const TensorId block_mask = !options_.api && Chance(20)
                                    ? NewTensor({b, h, 1 + Below(2), 1 + Below(2)}, DType::kU8)
                                    : kAbsent;
    AddNode(op, {q, k, v, scale, seq_q, seq_kv, table_k, table_v, bias, alibi, sink, block_mask},
            {o, stats}, DType::kF32, attrs);
    return;
  }
  const TensorId dq = VirtualOf("dq", At(q).dims, type), dk = VirtualOf("dk", At(k).dims, type),
                 dv = VirtualOf("dv", At(v).dims, type),
                 dbias = bias != kAbsent && Chance(60)
                             ? VirtualOf("dbias", At(bias).dims, DType::kF32)
                             : kAbsent;
  AddNode(op,
          {q, k, v, tensor(out), tensor(out), NewTensor(rows, DType::kF32), scale, seq_q, seq_kv,
           bias, alibi},
          {dq, dk, dv, dbias}, DType::kF32, attrs);
}

void Generator::AddPagedCacheLoad() {
  const int64_t b = 1 + Below(2), h = 1 + Below(2), block = 1 + Below(4), pages = 1 + Below(3),
                depth = 1 + Below(5);
  const DType type = NumberType();
  const TensorId container = NewTensor({1 + Below(5), h, block, depth}, type);
  const TensorId table = NewTensor({b, 1, pages, 1}, DType::kI32),
                 lengths = NewTensor({b, 1, 1, 1}, DType::kI32);
  const int64_t places = 1 + Below(pages * block);
  const bool along_last = Chance(40) && places != depth;
  const Dims dims = along_last ? Dims{b, h, depth, places} : Dims{b, h, places, depth};
  AddNode(GraphOp::kPagedCacheLoad, {container, table, lengths}, {VirtualOf("pages", dims, type)},
          DType::kF32, PagedCacheLoadAttrs{});
}

// Memory before and after.
std::pair<TensorId, TensorId> Generator::InPlace(int64_t extent, int64_t rank, DType dtype) {
  Dims dims(static_cast<size_t>(rank), 1);
  dims[0] = extent;
  const TensorId before =
      builder_.Input("memory", dtype, dims, Dims(dims.size(), Chance(80) ? 1 : 2));
  Tensor after = At(before);
  after.name = "after";
  return {before, builder_.graph().AddTensor(std::move(after))};
}

void Generator::AddRagged(bool load) {
  const int64_t rank = 1 + Below(4);
  Dims dims = RandomDims(rank), one = dims;
  one[0] = 1;
  const Dims strides = RandomStrides(dims);
  const int64_t extent = std::max<int64_t>(1, SpanElements(one, strides) * dims[0]);
  if (extent > 4 * options_.max_elements) return;
  Dims offsets(dims.size(), 1);
  offsets[0] = dims[0] + 1;
  const DType index = Chance(70) ? DType::kI32 : DType::kI64,
              type = load ? NumberType() : ByteType();
  const TensorId places = builder_.Input("offsets", index, offsets, Dims(dims.size(), 1));
  Dims flat(dims.size(), 1);
  flat[0] = extent;
  if (load) {
    const TensorId memory = builder_.Input("memory", type, flat, Dims(dims.size(), 1));
    AddNode(GraphOp::kRaggedLoad, {memory, places}, {VirtualOf("batches", dims, type)}, DType::kF32,
            RaggedAttrs{.strides = strides});
    return;
  }
  const TensorId x = NewTensor(dims, type);
  const auto [before, after] = InPlace(extent, rank, type);
  AddNode(GraphOp::kRaggedStore, {x, places, before}, {after}, DType::kF32,
          RaggedAttrs{.strides = strides});
}

// Each element one further than its place along one dim; the others are 1.
void Generator::AddScatter() {
  const int64_t rank = 1 + Below(3), axis = Below(rank), extent = 1 + Below(9);
  Dims dims(static_cast<size_t>(rank), 1);
  dims[static_cast<size_t>(axis)] = extent;
  const DType type = ByteType();
  const TensorId x = NewTensor(dims, type);
  const TensorId index = builder_.Apply(GraphOp::kIota, {}, IotaAttrs{.axis = axis},
                                        {.dtype = DType::kI32, .dims = dims});
  const auto [before, after] = InPlace(1 + Below(12), rank, type);
  AddNode(GraphOp::kScatter, {x, index, before}, {after}, DType::kF32, ScatterAttrs{});
}

// Places inside and outside of y, and some of them twice.
void Generator::AddScatterAdd() {
  const int64_t rank = 1 + Below(4), axis = Below(rank);
  const DType type = Pick({DType::kF32, DType::kF64, DType::kI32});
  Dims x, y, before, index;
  for (int64_t d = 0; d < rank; ++d) {
    x.push_back(Chance(5) ? 0 : 1 + Below(5));
    y.push_back(d == axis ? 1 + Below(6) : Chance(50) ? x.back() : 1);
    before.push_back(Chance(60) ? y.back() : 1);
    index.push_back(Chance(60) ? x.back() : 1);
  }
  std::vector<TensorId> inputs = {NewTensor(before, type)};
  for (int64_t pair = Below(3); pair >= 0; --pair) {
    inputs.push_back(NewTensor(x, type));
    inputs.push_back(NewTensor(index, Chance(70) ? DType::kI32 : DType::kI64));
  }
  builder_.Apply(GraphOp::kScatterAdd, inputs, ScatterAddAttrs{.axis = axis},
                 {.dtype = type, .compute = type, .dims = y});
}

// Offsets, rows and their order are RandomInputs': segments of none, rows that are not there.
void Generator::AddSegmentReduce() {
  const TensorId some = Number(nullptr, 1, 4);
  const bool is_wide = IsFloat(At(some).dtype) && SizeOf(At(some).dtype) >= 2;
  const TensorId x =
      is_wide ? some : builder_.Pointwise(PointwiseMode::kIdentity, {some}, {.dtype = DType::kF32});
  Dims dims = At(x).dims;
  const int64_t rank = std::ssize(dims), rows = dims[0];
  const auto list = [&](int64_t count) {
    Dims own(Chance(50) ? static_cast<size_t>(rank) : 1, 1);
    own[0] = count;
    return builder_.Input("list", Chance(60) ? DType::kI32 : DType::kI64, own);
  };
  const SegmentMode mode =
      Pick({SegmentMode::kAdd, SegmentMode::kMean, SegmentMode::kMax, SegmentMode::kMin});
  dims[0] = Below(5);
  std::vector<TensorId> inputs = {x, list(dims[0] + 1)};
  if (rows == 0 || Chance(70)) inputs.push_back(list(Below(9)));
  const DType type = At(x).dtype == DType::kF64 ? DType::kF64 : DType::kF32;
  std::vector<TensorId> outputs = {VirtualOf("y", dims, Chance(70) ? type : At(x).dtype)};
  if ((mode == SegmentMode::kMax || mode == SegmentMode::kMin) && Chance(60))
    outputs.push_back(VirtualOf("positions", dims, Chance(50) ? DType::kI32 : DType::kI64));
  AddNode(GraphOp::kSegmentReduce, std::move(inputs), std::move(outputs), type,
          SegmentReduceAttrs{.mode = mode});
}

void Generator::AddSegmentIds() {
  const int64_t places = Below(9);
  const auto list = [&](int64_t count, DType type) {
    return builder_.Input("list", type, {count});
  };
  const DType type = Pick({DType::kI32, DType::kI64});
  std::vector<TensorId> inputs = {list(1 + Below(5), type)};
  std::vector<TensorId> outputs = {VirtualOf("ids", {places}, DType::kI32)};
  if (Chance(60)) {
    inputs.push_back(list(places, type));
    if (Chance(60)) {
      inputs.push_back(list(places, DType::kI32));
      outputs.push_back(VirtualOf("moved", {places}, DType::kI32));
    }
  }
  AddNode(GraphOp::kSegmentIds, std::move(inputs), std::move(outputs), DType::kI32,
          SegmentIdsAttrs{});
}

void Generator::AddGather() {
  const TensorId x = Number();
  const int64_t axis = Below(At(x).rank());
  Dims dims(At(x).dims.size(), 1);
  for (size_t d = 0; d < dims.size(); ++d)
    if (At(x).dims[d] > 0 && Chance(30)) dims[d] = At(x).dims[d];
  dims[static_cast<size_t>(axis)] = 1 + Below(4);
  builder_.Apply(GraphOp::kGather, {x, NewTensor(dims, Chance(80) ? DType::kI32 : DType::kI64)},
                 GatherAttrs{.axis = axis}, {.dtype = At(x).dtype});
}

}  // namespace kiln::graph
