#include "ir/graph/complex.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <utility>

#include "ir/graph/ops.h"
#include "ir/graph/verify_util.h"

namespace kiln::graph {
namespace {

using M = PointwiseMode;

// The real tensors of a number; a real number has no second one.
struct Parts {
  TensorId re = kAbsent, im = kAbsent;
};

// ---- arithmetic on parts ------------------------------------------------------------------------

// Appends operations on real tensors: results are virtual, of what `compute` computes in.
class Real {
 public:
  Real(Graph& graph, DType compute, std::string name)
      : g_(graph), compute_(compute), name_(std::move(name)) {}

  TensorId Node(GraphOp op, std::vector<TensorId> inputs, Attrs attrs, Tensor y) {
    y.name = name_;
    y.uid = -1;
    y.is_virtual = true;
    const TensorId id = g_.AddTensor(std::move(y));
    g_.AddNode({.op = op,
                .inputs = std::move(inputs),
                .outputs = {id},
                .compute = compute_,
                .attrs = std::move(attrs)});
    return id;
  }

  TensorId Apply(M mode, const std::vector<TensorId>& inputs, PointwiseAttrs attrs = {}) {
    std::vector<const Tensor*> operands;
    for (const TensorId id : inputs) operands.push_back(&g_[id]);
    // Operands whose extents disagree get a sentence from the verifier.
    Dims dims = BroadcastDims(operands).value_or(operands[0]->dims);
    Dims strides = PackedStrides(dims);
    attrs.mode = mode;
    return Node(GraphOp::kPointwise, inputs, attrs,
                {.dtype = type(), .dims = std::move(dims), .strides = std::move(strides)});
  }
  TensorId Add(TensorId a, TensorId b) { return Apply(M::kAdd, {a, b}); }
  TensorId Sub(TensorId a, TensorId b) { return Apply(M::kSub, {a, b}); }
  TensorId Mul(TensorId a, TensorId b) { return Apply(M::kMul, {a, b}); }
  TensorId Div(TensorId a, TensorId b) { return Apply(M::kDiv, {a, b}); }

  TensorId Number(double value) {
    return g_.AddTensor({.name = name_ + "_c",
                         .dtype = type(),
                         .dims = {1},
                         .strides = {1},
                         .by_value = true,
                         .value = value});
  }
  // The imaginary part, 0 for every element of a real number.
  TensorId Imaginary(const Parts& x) {
    return x.im == kAbsent ? Apply(M::kLogicalAnd, {x.re, Number(0)}) : x.im;
  }

  // The larger magnitude of the two parts.
  TensorId Scale(const Parts& x) {
    const TensorId re = Apply(M::kAbs, {x.re}), im = Apply(M::kAbs, {x.im});
    return Apply(M::kMax, {re, im}, {.propagate_nan = true});
  }

  // |x| without overflow on the way.
  TensorId Magnitude(const Parts& x) {
    if (x.im == kAbsent) return Apply(M::kAbs, {x.re});
    const TensorId scale = Scale(x), re = Div(x.re, scale), im = Div(x.im, scale);
    const TensorId root = Apply(M::kSqrt, {Add(Mul(re, re), Mul(im, im))});
    const TensorId infinity = Number(std::numeric_limits<double>::infinity());
    const TensorId is_own = Apply(
        M::kLogicalOr, {Apply(M::kCmpEq, {scale, Number(0)}), Apply(M::kCmpEq, {scale, infinity})});
    return Apply(M::kBinarySelect, {scale, Mul(scale, root), is_own});
  }

  // a / b = a conj(b) / |b|^2, with b scaled.
  Parts Quotient(const Parts& a, const Parts& b) {
    const auto divided = [&](TensorId x, TensorId y) { return x == kAbsent ? x : Div(x, y); };
    if (b.im == kAbsent) return {divided(a.re, b.re), divided(a.im, b.re)};
    const TensorId scale = Scale(b), re = Div(b.re, scale), im = Div(b.im, scale);
    const TensorId square = Add(Mul(b.re, re), Mul(b.im, im));
    if (a.im == kAbsent)
      return {Div(Mul(a.re, re), square), Div(Apply(M::kNeg, {Mul(a.re, im)}), square)};
    return {Div(Add(Mul(a.re, re), Mul(a.im, im)), square),
            Div(Sub(Mul(a.im, re), Mul(a.re, im)), square)};
  }

  // Computes one real product of a term that is linear in both operands; `first` is true for one of
  // the terms of each part.
  using Term = std::function<TensorId(TensorId a, TensorId b, bool of_im, bool first)>;
  Parts Product(const Parts& a, const Parts& b, const Term& term) {
    Parts y{.re = term(a.re, b.re, false, true)};
    if (a.im != kAbsent) y.im = term(a.im, b.re, true, true);
    if (b.im == kAbsent) return y;
    const TensorId other = term(a.re, b.im, true, a.im == kAbsent);
    y.im = a.im == kAbsent ? other : Add(y.im, other);
    if (a.im != kAbsent) y.re = Sub(y.re, term(a.im, b.im, false, false));
    return y;
  }

  // Some places along one dim.
  TensorId Cut(TensorId x, size_t dim, int64_t from, int64_t count) {
    if (x == kAbsent) return x;
    Dims dims = g_[x].dims, start(dims.size(), 0);
    const Dims step(dims.size(), 1);
    start[dim] = from;
    dims[dim] = count;
    Dims strides = PackedStrides(dims);
    return Node(GraphOp::kSlice, {x}, SliceAttrs{.start = std::move(start), .step = step},
                {.dtype = type(), .dims = std::move(dims), .strides = std::move(strides)});
  }
  TensorId Join(TensorId a, TensorId b, size_t dim) {
    Dims dims = g_[a].dims;
    dims[dim] += g_[b].dims[dim];
    Dims strides = PackedStrides(dims);
    return Node(GraphOp::kConcat, {a, b}, ConcatAttrs{.axis = static_cast<int64_t>(dim)},
                {.dtype = type(), .dims = std::move(dims), .strides = std::move(strides)});
  }

  Parts Product(const Parts& a, const Parts& b) {
    return Product(a, b, [&](TensorId x, TensorId y, bool, bool) { return Mul(x, y); });
  }
  // The product of all numbers along one dim: its halves are multiplied until one number is left.
  Parts ProductAlong(Parts x, size_t dim) {
    x = {.re = Apply(M::kIdentity, {x.re}), .im = Apply(M::kIdentity, {x.im})};  // of type()
    for (int64_t count = g_[x.re].dims[dim]; count > 1; count = count / 2 + count % 2) {
      const int64_t half = count / 2;
      const auto cut = [&](int64_t from, int64_t n) {
        return Parts{.re = Cut(x.re, dim, from, n), .im = Cut(x.im, dim, from, n)};
      };
      Parts y = Product(cut(0, half), cut(half, half));
      if (count % 2 != 0) {
        const Parts last = cut(2 * half, 1);
        y = {.re = Join(y.re, last.re, dim), .im = Join(y.im, last.im, dim)};
      }
      x = y;
    }
    return x;
  }

  DType type() const { return compute_ == DType::kBool ? DType::kF32 : ArithmeticType(compute_); }

 private:
  Graph& g_;
  DType compute_;
  std::string name_;
};

// ---- nodes --------------------------------------------------------------------------------------

class Splitter {
 public:
  explicit Splitter(Graph& graph) : g_(graph) {}

  Status Run() {
    RETURN_IF_ERROR(CheckTensors());
    const std::vector<Node> nodes = std::exchange(g_.nodes, {});
    for (Node node : nodes) {
      const DType compute = std::exchange(node.compute, PartOf(node.compute));
      if (!IsOnComplex(node)) {
        g_.AddNode(std::move(node));
        continue;
      }
      const std::string where = fmt::format("%{}", g_[node.outputs[0]].name);
      if (IsInteger(compute)) {
        return Status::Error(Code::kUnsupportedDataType, "{}: complex numbers in {}", where,
                             Info(compute).text);
      }
      RETURN_IF_ERROR(Rewrite(node).Within(where));
    }
    return Normalize(g_);  // virtual tensors that were split are nobody's any more
  }

 private:
  const Tensor& Was(TensorId id) const { return was_[static_cast<size_t>(id)]; }
  bool IsComplexTensor(TensorId id) const { return id != kAbsent && IsComplex(Was(id).dtype); }
  bool IsOnComplex(const Node& node) const {
    const auto is_complex = [&](TensorId id) { return IsComplexTensor(id); };
    return std::ranges::any_of(node.inputs, is_complex) ||
           std::ranges::any_of(node.outputs, is_complex);
  }

  Status CheckTensors() {
    for (Tensor& t : g_.tensors) {
      if (t.is_constant()) t.dtype = PartOf(t.dtype);  // a real number
      was_.push_back(t);
      if (!IsComplex(t.dtype)) continue;
      if (t.rank() >= static_cast<int64_t>(kMaxRank)) {
        return Status::Error(Code::kUnsupportedShape, "%{} is {} of {} dims, must have {} at most",
                             t.name, Info(t.dtype).text, t.rank(), kMaxRank - 1);
      }
      if (t.by_value) {
        return Status::Error(Code::kNotSupported, "%{} is {} and passed by value: two numbers",
                             t.name, Info(t.dtype).text);
      }
    }
    return {};
  }

  // The memory of a complex tensor: a dim of two parts.
  void MakeMemory(TensorId id) {
    Tensor& t = g_[id];
    if (t.dtype == PartOf(Was(id).dtype)) return;
    t.dtype = PartOf(t.dtype);
    for (int64_t& stride : t.strides) stride *= 2;
    t.dims.push_back(2);
    t.strides.push_back(1);
  }

  // One part, with the extents and strides of the whole: reshapes look at them.
  Tensor PartLike(TensorId id, DType type) const {
    return {.dtype = type, .dims = Was(id).dims, .strides = Was(id).strides};
  }

  TensorId ReadPart(TensorId id, int64_t part) {
    Real real(g_, PartOf(Was(id).dtype), Was(id).name + (part == 0 ? "_re" : "_im"));
    Tensor one = PartLike(id, real.type());
    Dims start(one.dims.size(), 0);
    const Dims step(one.dims.size() + 1, 1);
    start.push_back(part);
    one.dims.push_back(1);
    one.strides.push_back(1);
    const TensorId slice =
        real.Node(GraphOp::kSlice, {id}, SliceAttrs{.start = std::move(start), .step = step}, one);
    return real.Node(GraphOp::kReshape, {slice}, ReshapeAttrs{}, PartLike(id, real.type()));
  }

  Parts Read(TensorId id) {
    if (id == kAbsent || !IsComplexTensor(id)) return {.re = id};
    const auto [at, is_new] = parts_.try_emplace(id);
    if (is_new) {
      MakeMemory(id);
      at->second = {.re = ReadPart(id, 0), .im = ReadPart(id, 1)};
    }
    return at->second;
  }

  // `value` is what a node computes for `id`: rounded to its type, and in memory where it is.
  void Write(const Node& node, TensorId id, Parts value) {
    const Tensor was = Was(id);
    if (!IsComplex(was.dtype)) {
      g_.AddNode({.op = GraphOp::kPointwise,
                  .inputs = {value.re},
                  .outputs = {id},
                  .compute = node.compute,
                  .attrs = PointwiseAttrs{.mode = M::kIdentity}});
      return;
    }
    const DType type = PartOf(was.dtype);
    Real real(g_, node.compute, was.name);
    value.im = real.Imaginary(value);
    const auto rounded = [&](TensorId part, const char* suffix) {
      Real writer(g_, node.compute, was.name + suffix);
      return writer.Node(GraphOp::kPointwise, {part}, PointwiseAttrs{.mode = M::kIdentity},
                         PartLike(id, type));
    };
    const Parts parts = {.re = rounded(value.re, "_re"), .im = rounded(value.im, "_im")};
    parts_[id] = parts;
    if (was.is_virtual) return;
    MakeMemory(id);
    Real mover(g_, type, was.name);
    Tensor one = PartLike(id, type);
    one.dims.push_back(1);
    one.strides.push_back(1);
    const TensorId re = mover.Node(GraphOp::kReshape, {parts.re}, ReshapeAttrs{}, one);
    const TensorId im = mover.Node(GraphOp::kReshape, {parts.im}, ReshapeAttrs{}, one);
    g_.AddNode({.op = GraphOp::kConcat,
                .inputs = {re, im},
                .outputs = {id},
                .compute = type,
                .attrs = ConcatAttrs{.axis = was.rank()}});
  }

  Status Rewrite(const Node& node) {
    if (node.outputs.size() != 1) return Refused(Info(node.op).mnemonic);
    const TensorId y = node.outputs[0];
    Real real(g_, node.compute, g_[y].name);
    std::vector<Parts> in;
    for (const TensorId id : node.inputs) in.push_back(Read(id));
    const bool is_real = std::ranges::all_of(in, [](const Parts& p) { return p.im == kAbsent; });
    if (is_real) {
      Write(node, y, {.re = Same(real, node, node.inputs)});
      return {};
    }
    if (node.op == GraphOp::kPointwise) return Pointwise(real, node, in);
    if (node.op == GraphOp::kReduction) return Reduce(real, node, in[0]);
    if (Has(node, kContraction)) {
      Write(node, y, real.Product(in[0], in[1], [&](TensorId a, TensorId b, bool im, bool first) {
        return Contract(real, node, {a, b}, im, first);
      }));
      return {};
    }
    if (!Has(node, kView) && node.op != GraphOp::kConcat) return Refused(Info(node.op).mnemonic);
    Write(node, y, Linear(real, node, in));
    return {};
  }

  static Status Refused(std::string_view what) {
    return Status::Error(Code::kUnsupportedDataType, "{} takes no complex numbers", what);
  }

  // The node on other operands, its result unrounded.
  TensorId Same(Real& real, const Node& node, std::vector<TensorId> inputs) {
    return real.Node(node.op, std::move(inputs), node.attrs,
                     PartLike(node.outputs[0], real.type()));
  }

  Parts Linear(Real& real, const Node& node, const std::vector<Parts>& in) {
    std::vector<TensorId> re, im;
    for (const Parts& p : in) {
      re.push_back(p.re);
      im.push_back(real.Imaginary(p));
    }
    return {.re = Same(real, node, std::move(re)), .im = Same(real, node, std::move(im))};
  }

  // One real contraction. What is added to all of them (a convolution's previous result, a padding
  // value) goes to the first term of a part.
  TensorId Contract(Real& real, const Node& node, std::vector<TensorId> operands, bool of_im,
                    bool first) {
    Node term = node;
    if (auto* conv = std::get_if<ConvAttrs>(&term.attrs)) {
      const Parts previous = node.inputs.size() > 2 ? Read(node.inputs[2]) : Parts{};
      const TensorId own = of_im ? previous.im : previous.re;
      if (first && own != kAbsent) operands.push_back(own);
      if (operands.size() < 3) conv->beta = 0;
    } else {
      operands.insert(operands.end(), node.inputs.begin() + 2, node.inputs.end());
      if (of_im || !first) std::get<MatmulAttrs>(term.attrs).padding_value = 0;
    }
    return Same(real, term, std::move(operands));
  }

  Status Reduce(Real& real, const Node& node, const Parts& x) {
    const ReductionMode mode = node.As<ReductionAttrs>().mode;
    switch (mode) {
      case ReductionMode::kAdd:
      case ReductionMode::kAvg:
        Write(node, node.outputs[0], Linear(real, node, {x}));
        return {};
      case ReductionMode::kAmax:
      case ReductionMode::kNorm1:
      case ReductionMode::kNorm2:
        Write(node, node.outputs[0], {.re = Same(real, node, {real.Magnitude(x)})});
        return {};
      case ReductionMode::kMul:
      case ReductionMode::kMulNoZeros:
        Write(node, node.outputs[0], ProductOf(real, node, x));
        return {};
      case ReductionMode::kMin:
      case ReductionMode::kMax:
        return Status::Error(Code::kUnsupportedDataType,
                             "{} of complex numbers, which have no order", Text(mode));
    }
    return Refused(Text(mode));
  }

  Parts ProductOf(Real& real, const Node& node, Parts x) {
    const Dims& in = Was(node.inputs[0]).dims;
    const Dims& out = Was(node.outputs[0]).dims;
    if (NumElements(in) == 0) {  // 1, as of real numbers
      Node sum = node;
      sum.attrs = ReductionAttrs{.mode = ReductionMode::kAdd};
      return {.re = Same(real, node, {x.re}), .im = Same(real, sum, {x.im})};
    }
    if (node.As<ReductionAttrs>().mode == ReductionMode::kMulNoZeros) {
      const TensorId zero = real.Number(0);
      const TensorId is_zero = real.Apply(M::kLogicalAnd, {real.Apply(M::kCmpEq, {x.re, zero}),
                                                           real.Apply(M::kCmpEq, {x.im, zero})});
      x.re = real.Apply(M::kBinarySelect, {real.Number(1), x.re, is_zero});
    }
    for (size_t d = 0; d < std::min(in.size(), out.size()); ++d)
      if (out[d] == 1) x = real.ProductAlong(x, d);
    return x;
  }

  Status Pointwise(Real& real, const Node& node, const std::vector<Parts>& in) {
    const PointwiseAttrs attrs = node.As<PointwiseAttrs>();
    const TensorId y = node.outputs[0];
    const auto scaled = [&](size_t i) {
      const double factor = i == 0 ? attrs.alpha1 : attrs.alpha2;
      if (factor == 1) return in[i];
      const auto times = [&](TensorId x) {
        return x == kAbsent ? x : real.Apply(M::kIdentity, {x}, {.alpha1 = factor});
      };
      return Parts{.re = times(in[i].re), .im = times(in[i].im)};
    };
    const auto either = [&](M each, M both) {
      const Parts a = scaled(0), b = scaled(1);
      const TensorId re = real.Apply(each, {a.re, b.re});
      const TensorId im = real.Apply(each, {real.Imaginary(a), real.Imaginary(b)});
      return Parts{.re = real.Apply(both, {re, im})};
    };
    switch (attrs.mode) {
      case M::kIdentity:
      case M::kNeg:
      case M::kAdd:
      case M::kSub:
        Write(node, y, Linear(real, node, in));
        return {};
      case M::kMul:
        Write(node, y, real.Product(scaled(0), scaled(1)));
        return {};
      case M::kAddSquare: {
        const Parts a = scaled(0), b = real.Product(scaled(1), scaled(1));
        Write(node, y,
              {.re = real.Add(a.re, b.re), .im = real.Add(real.Imaginary(a), real.Imaginary(b))});
        return {};
      }
      case M::kDiv:
        Write(node, y, real.Quotient(scaled(0), scaled(1)));
        return {};
      case M::kReciprocal:
        Write(node, y, real.Quotient({.re = real.Number(1)}, scaled(0)));
        return {};
      case M::kAbs:
        Write(node, y, {.re = real.Magnitude(scaled(0))});
        return {};
      case M::kExp: {
        const Parts x = scaled(0);
        const TensorId size = real.Apply(M::kExp, {x.re});
        Write(node, y,
              {.re = real.Mul(size, real.Apply(M::kCos, {x.im})),
               .im = real.Mul(size, real.Apply(M::kSin, {x.im}))});
        return {};
      }
      case M::kCmpEq:
        Write(node, y, either(M::kCmpEq, M::kLogicalAnd));
        return {};
      case M::kCmpNeq:
        Write(node, y, either(M::kCmpNeq, M::kLogicalOr));
        return {};
      case M::kGenIndex:
        Write(node, y, {.re = Same(real, node, {in[0].re})});
        return {};
      case M::kBinarySelect: {
        if (in[2].im != kAbsent) return Refused("a selection's condition");
        const Parts a = scaled(0), b = scaled(1);
        const auto select = [&](TensorId p, TensorId q) {
          return real.Apply(M::kBinarySelect, {p, q, in[2].re});
        };
        Write(node, y,
              {.re = select(a.re, b.re), .im = select(real.Imaginary(a), real.Imaginary(b))});
        return {};
      }
      default:
        return Refused(Info(attrs.mode).text);
    }
  }

  Graph& g_;
  std::vector<Tensor> was_;  // the tensors of the graph that was given
  std::map<TensorId, Parts> parts_;
};

}  // namespace

Status SplitComplex(Graph& graph) {
  const bool has_complex =
      std::ranges::any_of(graph.tensors, [](const Tensor& t) { return IsComplex(t.dtype); }) ||
      std::ranges::any_of(graph.nodes, [](const Node& n) { return IsComplex(n.compute); });
  if (!has_complex) return {};
  for (const Node& node : graph.nodes) {
    const bool lacks_operand =
        (Has(node, kContraction) && node.inputs.size() < 2) ||
        std::ranges::any_of(graph.tensors, [](const Tensor& t) { return t.dims.empty(); });
    if (lacks_operand || node.outputs.empty() || node.outputs[0] == kAbsent) return {};
  }
  return Splitter(graph).Run();
}

}  // namespace kiln::graph
