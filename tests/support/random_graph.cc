// The generator of random graphs; see the header of its class.
#include "tests/support/random_graph.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <iterator>
#include <map>
#include <random>

#include "ir/base/check.h"
#include "tests/support/random_generator.h"

namespace kiln::graph {
namespace {

constexpr DType kNumbers[] = {DType::kF32, DType::kF16,  DType::kBF16, DType::kF64,  DType::kI8,
                              DType::kU8,  DType::kI32,  DType::kI64,  DType::kE4M3, DType::kE5M2,
                              DType::kU32, DType::kE2M1, DType::kI4,   DType::kU4};

}  // namespace

DType Generator::NumberType() {
  if (!options_.dtypes.empty())
    return options_.dtypes[static_cast<size_t>(Below(std::ssize(options_.dtypes)))];
  if (options_.aligned && Chance(80))
    return Pick({DType::kF16, DType::kBF16, DType::kF32, DType::kE4M3, DType::kI8});
  return Chance(50) ? DType::kF32 : kNumbers[Below(std::size(kNumbers))];
}

// The C API has bools of one bit.
DType Generator::BoolInMemory() { return options_.api || Chance(50) ? DType::kB1 : DType::kBool; }

DType Generator::ByteType() {
  DType type = NumberType();
  while (IsPacked(type)) type = NumberType();
  return type;
}

// Up to `most`; aligned ones are multiples of 8 that tensor cores take.
int64_t Generator::Extent(int64_t most) {
  if (most < 8 || !options_.aligned || Chance(25)) return 1 + Below(most);
  return most < 16 ? 8 : std::min(most / 8, Pick<int64_t>({1, 2, 2, 4, 8})) * 8;
}

Dims Generator::RandomDims(int64_t rank) {
  Dims dims;
  int64_t room = options_.max_elements;
  for (int64_t d = 0; d < rank; ++d) {
    const int64_t limit = std::min(options_.max_extent, room);
    const int64_t extent = options_.empty_tensors && Chance(5) ? 0 : Chance(20) ? 1 : Extent(limit);
    dims.push_back(extent);
    room = std::max<int64_t>(1, room / std::max<int64_t>(extent, 1));
  }
  return dims;
}

// NHWC and its like.
Dims Generator::ChannelsInnermost(const Dims& dims) {
  Dims strides(dims.size());
  int64_t stride = strides[1] = 1;
  stride *= std::max<int64_t>(1, dims[1]);
  for (size_t d = dims.size(); d-- > 0;) {
    if (d == 1) continue;
    strides[d] = stride;
    stride *= std::max<int64_t>(1, dims[d]);
  }
  return strides;
}

// Dense in a random order of the dims, now and then with gaps.
Dims Generator::RandomStrides(const Dims& dims) {
  if (dims.size() >= 3 && Chance(options_.aligned ? 60 : 15)) return ChannelsInnermost(dims);
  if (Chance(options_.aligned ? 80 : 40)) return PackedStrides(dims);
  Dims order(dims.size()), strides(dims.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
  for (size_t i = order.size(); i > 1; --i)
    std::swap(order[i - 1], order[static_cast<size_t>(Below(static_cast<int64_t>(i)))]);
  int64_t stride = 1;
  for (const int64_t d : order) {
    strides[static_cast<size_t>(d)] = stride;
    stride *= std::max<int64_t>(1, dims[static_cast<size_t>(d)]);
    if (Chance(15)) stride += 1 + Below(4);
  }
  return strides;
}

TensorId Generator::NewTensor(Dims dims, DType dtype) {
  const bool plain = !options_.layouts || !Chance(15);
  if (!plain && HasVectors(dims) && Chance(60)) return FromVectors(dims, dtype);
  const TensorId id =
      builder_.Input("x", dtype, dims, plain ? RandomStrides(dims) : SharedStrides(dims));
  if (Chance(30)) builder_.graph()[id].alignment = SizeOf(dtype);
  return id;
}

// A tensor of numbers: one that is there, with `dims` or at least a rank in range, or a new one.
TensorId Generator::Number(const Dims* dims, int64_t min_rank, int64_t max_rank) {
  std::vector<TensorId> fitting;
  const auto& tensors = builder_.graph().tensors;
  for (size_t t = 0; t < tensors.size(); ++t) {
    const Tensor& tensor = tensors[t];
    // A tensor that is written in place has readers before and after: together these may be a
    // cycle.
    if (tensor.name.starts_with("memory") || tensor.name.starts_with("after")) continue;
    const bool fits = dims != nullptr ? tensor.dims == *dims
                                      : tensor.rank() >= min_rank && tensor.rank() <= max_rank;
    if (fits && !IsBool(tensor.dtype) && !tensor.by_value)
      fitting.push_back(static_cast<TensorId>(t));
  }
  if (!fitting.empty() && Chance(70))
    return fitting[static_cast<size_t>(Below(std::ssize(fitting)))];
  return NewTensor(dims != nullptr ? *dims : RandomDims(min_rank + Below(max_rank - min_rank + 1)),
                   NumberType());
}

// An operand that broadcasts to `dims`: the same extents, some of them 1, fewer dims, or a scalar
// by value.
TensorId Generator::Broadcastable(const Dims& dims, bool boolean) {
  if (boolean) return Condition(dims);
  if (Chance(40)) return Number(&dims);
  const auto rank = static_cast<int64_t>(dims.size());
  if (Chance(20))
    return builder_.Constant("c", DType::kF32, static_cast<double>(1 + Below(8)) / 4,
                             options_.api ? rank : 1 + Below(rank));
  if (Chance(15)) return builder_.ByValue("s", DType::kF32, rank);
  Dims own = dims;
  for (int64_t& extent : own) extent = Chance(50) ? 1 : extent;
  if (Chance(20) && !options_.api) own.erase(own.begin(), own.begin() + Below(rank));
  return NewTensor(std::move(own), NumberType());
}

TensorId Generator::Condition(const Dims& dims) {
  const auto& tensors = builder_.graph().tensors;
  for (size_t t = 0; t < tensors.size(); ++t) {
    if (IsBool(tensors[t].dtype) && tensors[t].dims == dims && Chance(70))
      return static_cast<TensorId>(t);
  }
  return NewTensor(dims, BoolInMemory());
}

Dims Generator::ReducedDims(const Dims& dims) {
  Dims reduced = dims;
  for (int64_t& extent : reduced) extent = Chance(50) ? 1 : extent;
  return reduced;
}

DType Generator::Compute() {
  return Chance(80) ? DType::kF32 : Pick({DType::kF64, DType::kF64, DType::kF16, DType::kBF16});
}

ResultOptions Generator::AnyResult(Dims dims) {
  return {.dtype = NumberType(), .compute = Compute(), .dims = std::move(dims)};
}

TensorId Generator::AddNode(GraphOp op, std::vector<TensorId> inputs, std::vector<TensorId> outputs,
                            DType compute, Attrs attrs) {
  Node node;
  node.op = op;
  node.inputs = std::move(inputs);
  node.outputs = std::move(outputs);
  node.compute = compute;
  node.attrs = std::move(attrs);
  if (Chance(20)) node.name = "named \"node\"";
  const TensorId first = node.outputs[0];
  builder_.graph().AddNode(std::move(node));
  return first;
}

void Generator::AddPointwise() {
  PointwiseAttrs a;
  a.mode = *PointwiseModeFromCudnn(
      Info(PointwiseMode(Below(static_cast<int64_t>(PointwiseMode::kBinarySelect) + 1)))
          .cudnn_value);
  const bool logical = a.mode >= PointwiseMode::kLogicalAnd && a.mode <= PointwiseMode::kLogicalNot;
  const bool compares = a.mode >= PointwiseMode::kCmpEq && a.mode <= PointwiseMode::kCmpLe;
  TensorId x = Number();
  const Dims dims = At(x).dims;
  if (logical || Chance(5)) x = Condition(dims);
  std::vector<TensorId> inputs = {x};
  if (Info(a.mode).inputs >= 2) inputs.push_back(Broadcastable(dims, logical));
  if (Info(a.mode).inputs == 3) inputs.push_back(Condition(dims));
  if (a.mode == PointwiseMode::kGenIndex) a.axis = Below(std::ssize(dims));
  if (!logical && !compares && Chance(20)) a.alpha1 = Factor();
  if (!logical && !compares && inputs.size() > 1 && Chance(20)) a.alpha2 = Factor();
  if (Chance(30)) a.relu_lower = -0.5, a.relu_upper = 6, a.relu_slope = 0.125;
  if (Chance(20)) a.elu_alpha = 1.5, a.softplus_beta = 2, a.swish_beta = 0.75;
  a.propagate_nan = Chance(30);
  ResultOptions result = AnyResult();
  if (logical || compares) result.dtype = DType::kBool;
  if ((logical || compares) && Chance(40))
    result.compute = DType::kBool;
  else if (Chance(10))
    result.compute = Pick({DType::kI32, DType::kI64});
  builder_.Apply(GraphOp::kPointwise, inputs, a, result);
  // Not all modes and factors have an integer form.
  Node& node = builder_.graph().nodes.back();
  if (IsInteger(node.compute) && !VerifyPointwise(builder_.graph(), node).ok())
    node.compute = DType::kF32;
}

void Generator::AddReduction() {
  const TensorId x = Number();
  const ReductionAttrs attrs{.mode = ReductionMode(Below(9)), .deterministic = Chance(20)};
  Dims dims = ReducedDims(At(x).dims);
  const Dims whole = At(x).dims;
  // An extent that divides the operand's: groups of consecutive elements.
  const auto d = static_cast<size_t>(Below(std::ssize(dims)));
  if (dims[d] == 1 && whole[d] % 2 == 0 && whole[d] > 2 && Chance(30)) dims[d] = whole[d] / 2;
  builder_.Apply(GraphOp::kReduction, {x}, attrs, AnyResult(dims));
}

void Generator::AddGenStats() {
  const TensorId x = Number(nullptr, 2, 5);
  std::vector<TensorId> outputs;
  for (const char* name : {"sum", "sq_sum"}) {
    Tensor y;
    y.name = name;
    y.is_virtual = true;
    outputs.push_back(builder_.graph().AddTensor(std::move(y)));
  }
  AddNode(GraphOp::kGenStats, {x}, outputs, DType::kF32, GenStatsAttrs{});
  (void)InferGenStats(builder_.graph(), builder_.graph().nodes.back());
}

// Blocks of one or both of the last two dims; `dims` become those of the scales.
Dims Generator::BlocksOf(Dims& dims) {
  Dims blocks = {1 + Below(7)};
  if (dims.size() >= 2 && Chance(50) && !options_.api) blocks.push_back(1 + Below(7));
  for (size_t i = 1; i <= blocks.size(); ++i) {
    const int64_t block = blocks[blocks.size() - i];
    int64_t& extent = dims[dims.size() - i];
    extent = (extent + block - 1) / block;
  }
  return blocks;
}

void Generator::AddBlockScaleDequantize() {
  const TensorId x = Number();
  Dims dims = At(x).dims;
  BlockScaleAttrs attrs{.block_size = BlocksOf(dims)};
  const TensorId scale = Number(&dims);
  builder_.Apply(GraphOp::kBlockScaleDequantize, {x, scale}, std::move(attrs), AnyResult());
}

// Quantises inputs alone, by powers of two: an operand that is a little off could have another
// scale.
void Generator::AddBlockScaleQuantize() {
  const TensorId x =
      NewTensor(RandomDims(1 + Below(4)), Pick({DType::kF32, DType::kF16, DType::kBF16}));
  Dims dims = At(x).dims;
  BlockScaleAttrs attrs{.block_size = BlocksOf(dims)};
  Tensor y, scale;
  y.name = "quantized";
  y.dtype = Pick({DType::kE4M3, DType::kE5M2});
  scale.name = "block_scale";
  scale.dtype = DType::kE8M0;
  scale.dims = std::move(dims);
  y.is_virtual = scale.is_virtual = true;
  Graph& graph = builder_.graph();
  AddNode(GraphOp::kBlockScaleQuantize, {x},
          {graph.AddTensor(std::move(y)), graph.AddTensor(std::move(scale))}, DType::kF32,
          std::move(attrs));
  (void)InferBlockScaleQuantize(graph, graph.nodes.back());
}

void Generator::AddBnFinalize() {
  const Dims dims = {1, 1 + Below(8), 1, 1};
  const bool inference = Chance(30);
  std::vector<TensorId> inputs;
  for (int i = 0; i < 6; ++i) inputs.push_back(NewTensor(dims, DType::kF32));
  if (inference) inputs[0] = inputs[1] = kAbsent;
  inputs.push_back(builder_.Constant("epsilon", DType::kF32, 0.125, 4));
  inputs.push_back(builder_.ByValue("factor", DType::kF32, 4));
  inputs.push_back(builder_.Constant("count", DType::kI64, 16, 4));
  std::vector<TensorId> outputs;
  for (int i = 0; i < 6; ++i) {
    Tensor y;
    y.name = "bn";
    y.dims = dims;
    y.strides = PackedStrides(dims);
    y.is_virtual = true;
    const bool absent = (inference && i < 2) || (i != 5 && Chance(30));
    outputs.push_back(absent ? kAbsent : builder_.graph().AddTensor(std::move(y)));
  }
  AddNode(GraphOp::kBnFinalize, inputs, outputs, DType::kF32,
          BnFinalizeAttrs{.inference = inference});
}

// Extents of a norm's statistics. Layer norms take any.
Dims Generator::NormStats(const Dims& x, NormMode mode) {
  Dims stats(x.size(), 1);
  switch (mode) {
    case NormMode::kBatch:
      stats[1] = x[1];
      return stats;
    case NormMode::kInstance:
      stats[0] = x[0], stats[1] = x[1];
      return stats;
    case NormMode::kGroup: {
      stats[0] = x[0], stats[1] = 1 + Below(std::max<int64_t>(x[1], 1));
      while (x[1] % stats[1] != 0) --stats[1];
      return stats;
    }
    default:
      return ReducedDims(x);
  }
}

TensorId Generator::NewResult(const Dims& dims) {
  Tensor y;
  y.name = "norm";
  y.dtype = Pick({DType::kF32, DType::kF32, DType::kF16, DType::kBF16});
  y.dims = dims;
  y.strides = PackedStrides(dims);
  y.is_virtual = true;
  return builder_.graph().AddTensor(std::move(y));
}

void Generator::AddBnBwdWeights() {
  const TensorId x = Number(nullptr, 2, 5);
  const Dims dims = At(x).dims, stats = NormStats(dims, NormMode::kBatch);
  std::vector<TensorId> inputs = {x, Number(&dims)}, outputs;
  for (int i = 0; i < 3; ++i) inputs.push_back(NewTensor(stats, DType::kF32));
  for (int i = 0; i < 5; ++i) outputs.push_back(i != 4 && Chance(30) ? kAbsent : NewResult(stats));
  AddNode(GraphOp::kBnBwdWeights, inputs, outputs, DType::kF32, BnBwdWeightsAttrs{});
}

// The buffer of a group of one GPU, which holds nothing that counts. (cuDNN's writes to it.)
void Generator::AddPeers(std::vector<TensorId>& inputs) {
  if (options_.api || !Chance(25)) return;
  inputs.push_back(NewTensor({1 + Below(64), 1, 1, 1}, DType::kF32));
}

void Generator::AddNormForward() {
  const TensorId x = Number(nullptr, 2, 5);
  const Dims dims = At(x).dims;
  const NormForwardAttrs a{.mode = NormMode(Below(6)), .inference = Chance(40)};
  const Dims stats = NormStats(dims, a.mode);
  const auto some = [&](const Dims& extents, int percent) {
    return Chance(percent) ? NewTensor(extents, DType::kF32) : kAbsent;
  };
  const bool is_rms = a.mode == NormMode::kRms;
  const bool given = a.inference && (a.mode == NormMode::kGroup || Chance(50));
  const bool runs = !a.inference && a.mode == NormMode::kBatch && Chance(60);
  std::vector<TensorId> inputs = {x, some(stats, given && !is_rms ? 100 : 0),
                                  some(stats, given ? 100 : 0)};
  // The C interface has no bias without a scale, nor of other extents.
  const Dims scale = ReducedDims(dims), bias = options_.api ? scale : ReducedDims(dims);
  inputs.push_back(some(scale, options_.api ? 100 : 80));
  inputs.push_back(some(bias, 80));
  inputs.push_back(builder_.Constant("epsilon", DType::kF32, 0.125, 1));
  inputs.push_back(runs ? builder_.ByValue("factor", DType::kF32, 2) : kAbsent);
  for (int i = 0; i < 2; ++i) inputs.push_back(some(stats, runs ? 100 : 0));
  if (a.mode == NormMode::kBatch) AddPeers(inputs);
  std::vector<TensorId> outputs = {NewResult(dims)};
  if (!a.inference) {
    const bool whole = a.mode == NormMode::kGroup || options_.api;
    outputs.push_back(!is_rms && (whole || Chance(70)) ? NewResult(stats) : kAbsent);
    outputs.push_back(options_.api || Chance(70) ? NewResult(stats) : kAbsent);
    for (int i = 0; i < 2; ++i) outputs.push_back(runs ? NewResult(stats) : kAbsent);
  }
  AddNode(GraphOp::kNormForward, inputs, outputs, DType::kF32, a);
}

void Generator::AddNormBackward() {
  const TensorId x = Number(nullptr, 2, 5);
  const Dims dims = At(x).dims;
  const NormBackwardAttrs a{.mode = NormMode(Below(6))};
  const Dims stats = NormStats(dims, a.mode), weights = ReducedDims(dims);
  std::vector<TensorId> inputs = {x, Number(&dims)};
  inputs.push_back(a.mode == NormMode::kRms ? kAbsent : NewTensor(stats, DType::kF32));
  inputs.push_back(NewTensor(stats, DType::kF32));
  const int some = options_.api ? 100 : 75;  // the C interface wants both or none
  inputs.push_back(Chance(some) ? NewTensor(weights, DType::kF32) : kAbsent);
  inputs.push_back(kAbsent);  // epsilon
  if (a.mode == NormMode::kBatch) AddPeers(inputs);
  std::vector<TensorId> outputs = {NewResult(dims)};
  outputs.push_back(Chance(some) ? NewResult(weights) : kAbsent);
  outputs.push_back(Chance(70) ? NewResult(weights) : kAbsent);
  AddNode(GraphOp::kNormBackward, inputs, outputs, DType::kF32, a);
}

void Generator::AddConv(GraphOp op) {
  ConvAttrs a;
  const int64_t groups =
                    options_.aligned ? Pick<int64_t>({1, 1, 1, 8}) : Pick<int64_t>({1, 1, 2, 3}),
                most = options_.aligned ? 32 : 3;
  Dims x = {1 + Below(2), groups * Extent(most)};
  Dims w = {groups * Extent(most), x[1] / groups};
  Dims y = {x[0], w[0]};
  for (int64_t d = 1 + Below(3); d > 0; --d) {
    const int64_t filter = 1 + Below(3), dilation = 1 + Below(2), stride = 1 + Below(3),
                  pre = Below(2), post = Below(3);
    const int64_t reach = dilation * (filter - 1) + 1;
    const int64_t in = std::max<int64_t>(1, reach - pre - post) + Below(6);
    x.push_back(in);
    w.push_back(filter);
    y.push_back((in + pre + post - reach) / stride + 1);
    a.pre_padding.push_back(pre);
    a.post_padding.push_back(post);
    a.stride.push_back(stride);
    a.dilation.push_back(dilation);
  }
  a.flip = Chance(30);
  if (Chance(20)) a.alpha = Factor();
  if (NumElements(x) > 8192 || NumElements(w) > 8192) return;
  const Dims result = op == GraphOp::kConvDgrad ? x : op == GraphOp::kConvWgrad ? w : y;
  const Dims first = op == GraphOp::kConvDgrad ? y : x, second = op == GraphOp::kConvWgrad ? y : w;
  std::vector<TensorId> inputs = {Number(&first), Number(&second)};
  if (Chance(20) && !options_.api) {
    a.beta = 0.5;
    inputs.push_back(Number(&result));
  }
  builder_.Apply(op, inputs, a, AnyResult(result));
}

// With its index, which is the result.
TensorId Generator::MaxPool(TensorId image, const Dims& y, ResampleAttrs a) {
  a.alpha = 1, a.beta = 0;
  const TensorId pooled = VirtualOf("pool", y, DType::kF32),
                 index = VirtualOf("index", y, DType::kI8);
  AddNode(GraphOp::kResampleFwd, {image}, {pooled, index}, DType::kF32, a);
  return index;
}

// The place of a maximum follows from exact values alone, so what is searched is an input.
void Generator::AddResample(bool forward) {
  ResampleAttrs a{.mode = ResampleMode(Below(5)),
                  .padding = PaddingMode(Below(3)),
                  .propagate_nan = Chance(50)};
  const bool interpolates = a.mode == ResampleMode::kNearest || a.mode == ResampleMode::kBilinear;
  if (interpolates && a.padding == PaddingMode::kNegInf) a.padding = PaddingMode::kEdge;
  if (a.mode == ResampleMode::kAvgIncludePadding && a.padding == PaddingMode::kNegInf)
    a.padding = PaddingMode::kZero;
  Dims x = {1 + Below(2), Pick<int64_t>({1, 3, 8, 16})};
  for (int64_t d = 1 + Below(3); d > 0; --d) {
    const int64_t unit = interpolates ? 1 + Below(3) : 1, window = unit * (1 + Below(3)),
                  pre = Below(3), post = Below(3);
    a.unit.push_back(unit);
    a.window.push_back(window);
    a.stride.push_back(1 + Below(3));
    a.pre_padding.push_back(pre);
    a.post_padding.push_back(post);
    x.push_back(std::max<int64_t>(1, (window - pre - post + unit - 1) / unit) + Below(5));
  }
  const Dims y = ResampleOutputDims(a, x);
  if (Chance(20) && !options_.api) a.alpha = Factor();
  const bool is_max = a.mode == ResampleMode::kMax;
  const TensorId image = is_max ? NewTensor(x, Chance(50) ? DType::kF16 : DType::kF32) : Number(&x);
  // Means and weights stand between integers, to which two right sums may round apart.
  const auto result = [&](const Dims& dims) {
    ResultOptions options = AnyResult(dims);
    if (!is_max && !IsFloat(options.dtype)) options.dtype = DType::kF32;
    return options;
  };
  if (!forward) {
    std::vector<TensorId> inputs = {Number(&y)};
    if (is_max && options_.api)
      inputs.push_back(MaxPool(image, y, a));
    else if (is_max)
      inputs.insert(inputs.end(), {kAbsent, image});
    if (Chance(20) && !options_.api) {
      a.beta = 0.5;
      inputs.resize(4, kAbsent);
      inputs.push_back(Number(&x));
    }
    builder_.Apply(GraphOp::kResampleBwd, inputs, a, result(x));
    return;
  }
  if (!is_max || Chance(40)) {
    std::vector<TensorId> inputs = {image};
    if (Chance(20) && !options_.api) {
      a.beta = 0.5;
      inputs.push_back(Number(&y));
    }
    builder_.Apply(GraphOp::kResampleFwd, inputs, a, result(y));
    return;
  }
  MaxPool(image, y, a);
}

void Generator::AddExpandBandMatrix() {
  const TensorId x = Number(nullptr, 2, 4);
  Dims dims = At(x).dims;
  const int64_t rank = At(x).rank(), axis = rank - 1 - Below(2);
  int64_t& extent = dims[static_cast<size_t>(axis)];
  if (extent == 0) return AddContractBandMatrix();  // a band has one diagonal at least
  const int64_t lower = Below(extent), upper = extent - 1 - lower;
  extent = 1 + Below(9);
  builder_.Apply(GraphOp::kExpandBandMatrix, {x},
                 BandAttrs{.lower = lower, .upper = upper, .axis = axis, .pad_value = 2},
                 AnyResult(dims));
}

void Generator::AddContractBandMatrix() {
  const TensorId x = Number(nullptr, 2, 4);
  Dims dims = At(x).dims;
  const int64_t rank = At(x).rank(), axis = rank - 1 - Below(2), lower = Below(4), upper = Below(4);
  dims[static_cast<size_t>(axis)] = lower + upper + 1;
  builder_.Apply(GraphOp::kContractBandMatrix, {x},
                 BandAttrs{.lower = lower, .upper = upper, .axis = axis, .pad_value = -1},
                 AnyResult(dims));
}

void Generator::AddMoeGroupedMatmul() {
  const int64_t experts = 1 + Below(4), tokens = 1 + Below(9), depth = 1 + Below(9),
                columns = 1 + Below(9), rows = 1 + Below(12);
  const MoeMode mode = Pick({MoeMode::kNone, MoeMode::kGather, MoeMode::kScatter});
  const int64_t indices = mode == MoeMode::kGather ? rows : tokens;
  const auto integers = [&](Dims dims) {
    return NewTensor(std::move(dims), Pick({DType::kI32, DType::kI64}));
  };
  std::vector<TensorId> inputs = {NewTensor({1, tokens, depth}, NumberType()),
                                  NewTensor({experts, depth, columns}, NumberType()),
                                  integers({experts * (Chance(20) ? 2 : 1), 1, 1})};
  if (mode != MoeMode::kNone) inputs.push_back(integers({1, indices, 1}));
  if (mode == MoeMode::kScatter) inputs.push_back(integers({1, indices, 1}));
  builder_.Apply(GraphOp::kMoeGroupedMatmul, inputs,
                 MoeGroupedMatmulAttrs{.mode = mode, .top_k = 1 + Below(3)}, AnyResult());
}

void Generator::AddRng() {
  const RngAttrs a{.distribution = Pick({RngDistribution::kBernoulli, RngDistribution::kUniform,
                                         RngDistribution::kNormal}),
                   .seed = Below(1000),
                   .probability = static_cast<double>(Below(5)) / 4,
                   .minimum = -1,
                   .maximum = 3,
                   .mean = 0.5,
                   .deviation = 2};
  const Dims one = {1, 1};
  std::vector<TensorId> inputs;
  if (Chance(60)) inputs = {NewTensor(one, DType::kI32), NewTensor(one, DType::kI64)};
  builder_.Apply(GraphOp::kRng, inputs, a,
                 {.dtype = DType::kF32, .compute = DType::kF32, .dims = RandomDims(1 + Below(4))});
}

void Generator::AddMatmul() {
  const TensorId a = Number(nullptr, 2, 4);
  Dims b = At(a).dims;
  const size_t batch = b.size() - 2;
  for (size_t d = 0; d < batch; ++d) {
    if (b[d] % 2 == 0 && b[d] > 0 && Chance(20))
      b[d] /= 2;
    else if (Chance(30))
      b[d] = 1;
  }
  b[batch] = At(a).dims[batch + 1];
  b[batch + 1] = Extent(options_.max_extent);
  std::vector<TensorId> inputs = {a, Number(&b)};
  MatmulAttrs attrs;
  if (Chance(25)) {
    attrs.padding_value = Factor();
    Dims limit(b.size(), 1);
    for (size_t d = 0; d < batch; ++d) limit[d] = Chance(50) ? At(a).dims[d] : 1;
    for (int i = 0; i < 3; ++i)
      inputs.push_back(Chance(60) ? NewTensor(limit, DType::kI32) : kAbsent);
  }
  builder_.Apply(GraphOp::kMatmul, inputs, attrs, AnyResult());
}

void Generator::AddMap() {
  MapAttrs attrs;
  attrs.identity = Chance(20);
  do {
    attrs.op = ScalarOp(Below(static_cast<int64_t>(ScalarOp::kPhilox)));
  } while (attrs.op == ScalarOp::kFastDiv);
  if (attrs.identity) attrs.op = ScalarOp::kAdd;
  const ScalarOpInfo& info = kiln::Info(attrs.op);
  const TensorId x = Number();
  const Dims dims = At(x).dims;
  std::vector<TensorId> inputs = {attrs.op == ScalarOp::kSelect && !attrs.identity ? Condition(dims)
                                                                                   : x};
  for (int i = 1; i < (attrs.identity ? 1 : info.arity); ++i)
    inputs.push_back(Broadcastable(dims, false));
  ResultOptions result = AnyResult();
  if (!attrs.identity && info.result == ScalarResult::kBool) result.dtype = DType::kBool;
  builder_.Apply(GraphOp::kMap, inputs, attrs, result);
}

void Generator::AddIota() {
  const Dims dims = RandomDims(1 + Below(4));
  const int64_t axis = Below(std::ssize(dims));
  builder_.Apply(GraphOp::kIota, {}, IotaAttrs{.axis = axis}, {.dtype = DType::kI32, .dims = dims});
}

void Generator::AddReduce() {
  const TensorId x = Number();
  builder_.Apply(GraphOp::kReduce, {x}, ReduceAttrs{.combine = Combine(Below(4))},
                 AnyResult(ReducedDims(At(x).dims)));
}

// Merges two neighbouring dims, splits one, or permutes by strides alone.
void Generator::AddReshape() {
  const TensorId x = Number();
  Dims dims = At(x).dims, strides;
  const auto d = static_cast<size_t>(Below(std::ssize(dims)));
  if (Chance(30) && dims.size() >= 2) {
    strides = At(x).strides;
    std::ranges::reverse(dims);
    std::ranges::reverse(strides);
  } else if (Chance(50) && d + 1 < dims.size()) {
    dims[d] *= dims[d + 1];
    dims.erase(dims.begin() + static_cast<std::ptrdiff_t>(d) + 1);
  } else if (dims[d] % 2 == 0 && dims[d] > 0) {
    dims[d] /= 2;
    dims.insert(dims.begin() + static_cast<std::ptrdiff_t>(d), 2);
  }
  builder_.Apply(GraphOp::kReshape, {x}, ReshapeAttrs{},
                 {.dtype = At(x).dtype, .dims = dims, .strides = strides});
}

void Generator::AddTranspose() {
  const TensorId x = Number();
  TransposeAttrs attrs;
  for (int64_t d = 0; d < At(x).rank(); ++d)
    attrs.permutation.insert(attrs.permutation.begin() + Below(d + 1), d);
  builder_.Apply(GraphOp::kTranspose, {x}, attrs, {.dtype = At(x).dtype});
}

void Generator::AddSlice() {
  const TensorId x = Number();
  SliceAttrs attrs;
  Dims dims;
  for (const int64_t extent : At(x).dims) {
    const int64_t start = extent > 1 ? Below(extent) : 0, step = 1 + Below(2);
    attrs.start.push_back(start);
    attrs.step.push_back(step);
    const int64_t most = extent == 0 ? 0 : (extent - start - 1) / step + 1;
    dims.push_back(most > 1 ? 1 + Below(most) : most);
  }
  builder_.Apply(GraphOp::kSlice, {x}, attrs, {.dtype = At(x).dtype, .dims = dims});
}

void Generator::AddConcat() {
  const TensorId x = Number();
  const int64_t axis = Below(At(x).rank());
  std::vector<TensorId> inputs = {x};
  for (int64_t i = Below(3); i > 0; --i) {
    Dims dims = At(x).dims;
    dims[static_cast<size_t>(axis)] = 1 + Below(4);
    inputs.push_back(Number(&dims));
  }
  builder_.Apply(GraphOp::kConcat, inputs, ConcatAttrs{.axis = axis}, {.dtype = At(x).dtype});
}

// Tensors that nobody reads become outputs, and some that are read too; the others stay virtual.
void Generator::FinishTensors() {
  Graph& graph = builder_.graph();
  const auto consumers = Consumers(graph);
  const auto producers = Producers(graph);
  for (size_t t = 0; t < graph.tensors.size(); ++t) {
    if (producers[t] < 0 || (!consumers[t].empty() && !Chance(15))) continue;
    Tensor& tensor = graph.tensors[t];
    if (!tensor.is_virtual) continue;  // memory that is written in part
    // A reshape reads its operands' strides, so those of its neighbours stay.
    Dims strides = consumers[t].empty() ? RandomStrides(tensor.dims) : Dims{};
    const DType type = tensor.dtype == DType::kBool ? BoolInMemory() : tensor.dtype;
    if (IsPacked(type) && !strides.empty() && !PackedRunOf(tensor.dims, strides, PerByte(type)))
      strides.clear();
    builder_.Output(static_cast<TensorId>(t), "y", type, std::move(strides));
  }
}

// One row an op of the table; a new op without its function here does not compile.
using Add = void (Generator::*)();
constexpr Add kGenerators[] = {
#define GRAPH_OP(Name, ...) &Generator::Add##Name,
#include "ir/graph/graph_ops.def"
#undef GRAPH_OP
};

Graph Generator::Run() {
  for (int i = 0; i < options_.nodes; ++i) {
    const auto op = options_.ops.empty()
                        ? GraphOp(Below(std::size(kGenerators)))
                        : options_.ops[static_cast<size_t>(Below(std::ssize(options_.ops)))];
    (this->*kGenerators[static_cast<size_t>(op)])();
  }
  if (options_.layouts) StoreInVectors();
  FinishTensors();
  Result<Graph> graph = builder_.Finish();
  CHECK(graph.ok(), "{}\n{}", graph.status().message(), Print(builder_.graph()));
  return *std::move(graph);
}

RandomGraphOptions MixedOptions(uint64_t seed) {
  std::mt19937_64 random(seed ^ 0x6d69786564);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<uint64_t>(n)); };
  RandomGraphOptions options;
  options.nodes = 1 + below(1 + below(1 + below(1 + below(40))));
  options.aligned = below(4) == 0;
  options.max_extent = options.aligned || below(4) == 0 ? 64 : 9;
  options.max_elements = options.aligned ? 4096 : 1024;
  options.empty_tensors = below(8) == 0;
  options.layouts = true;
  if (below(4) == 0) options.dtypes = {DType::kF32, DType::kF16, DType::kBF16};
  return options;
}

std::vector<GraphOp> ApiOps() {
  std::vector<GraphOp> ops;
  for (size_t i = 0; i < std::size(kGenerators); ++i) {
    const auto op = GraphOp(i);
    const uint32_t traits = kiln::graph::Info(op).traits;
    const bool is_view = op == GraphOp::kReshape || op == GraphOp::kConcat;
    const bool is_ragged = op == GraphOp::kRaggedLoad || op == GraphOp::kRaggedStore;
    const bool is_network = op == GraphOp::kRnnForward || op == GraphOp::kRnnBackwardData ||
                            op == GraphOp::kRnnBackwardWeights;
    const bool has_words = !is_ragged && !is_network;
    if (is_view || ((traits & (kComposite | kContraction | kWindow)) != 0 && has_words))
      ops.push_back(op);
  }
  return ops;
}

RandomGraphOptions ApiOptions(uint64_t seed) {
  RandomGraphOptions options = MixedOptions(seed);
  options.ops = ApiOps();
  options.api = true;
  options.empty_tensors = options.layouts = false;
  return options;
}

Graph RandomGraph(uint64_t seed, const RandomGraphOptions& options) {
  return Generator(seed, options).Run();
}

}  // namespace kiln::graph
