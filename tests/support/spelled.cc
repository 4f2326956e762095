#include "tests/support/spelled.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "tests/support/oracle/oracle.h"

namespace kiln::testing {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Writes one attention operation into `c`.
class Speller {
 public:
  Speller(Case& c, const CaseOp& op) : c_(c), op_(op) {}

  void Forward() {
    Find(6, 7, 3, 4, 5, 8, 9);
    int s = Left(Right(Padded(Score())));
    int max = Op("reduce_max", {s}, DType::kF32, RowDims());
    const int sink = In(10);
    if (sink >= 0) max = Op("max", {max, sink}, DType::kF32, RowDims());
    const int e = Op("exp", {Op("sub", {s, max}, DType::kF32, dims_)}, DType::kF32, dims_);
    int share = -1;
    if (sink >= 0)
      share = Op("exp", {Op("sub", {sink, max}, DType::kF32, RowDims())}, DType::kF32, RowDims());
    int sum = Op("reduce_add", {e}, DType::kF32, RowDims());
    if (sink >= 0) sum = Op("add", {sum, share}, DType::kF32, RowDims());
    if (op_.outputs.size() > 1 && op_.outputs[1] >= 0)
      Write("add", {max, Op("log", {sum}, DType::kF32, RowDims())}, op_.outputs[1]);
    const int weight = Op("div", {e, sum}, Tensor(In(0)).dtype, dims_);
    Product({weight, v_}, Limits(seq_q_, -1, seq_kv_), op_.outputs[0]);
  }

  void Backward() {
    Find(-1, -1, 6, 7, 8, 9, 10);
    const DType type = Tensor(In(0)).dtype;
    const int product = Op("mul", {In(4), In(3)}, DType::kF32, Tensor(In(3)).dims);
    const int inner = Op("reduce_add", {product}, DType::kF32, RowDims());
    const int shifted = Op("sub", {Padded(Score()), In(5)}, DType::kF32, dims_);
    const int weight = Op("exp", {Left(Right(shifted))}, DType::kF32, dims_);
    WriteOfKeys(Op("identity", {weight}, type, dims_), In(4), op_.outputs[2]);
    const int dp = Virtual(DType::kF32, dims_);
    Product({In(4), Transposed(In(2))}, Limits(seq_q_, seq_kv_, -1), dp);
    const int difference = Op("sub", {dp, inner}, DType::kF32, dims_);
    const int ds = Op("mul", {difference, weight}, DType::kF32, dims_);
    if (op_.outputs.size() > 3 && op_.outputs[3] >= 0) {
      const bool same = Tensor(op_.outputs[3]).dims == dims_;
      Write(same ? "identity" : "reduce_add", {ds}, op_.outputs[3]);
    }
    const int scaled =
        scale_ < 0 ? Op("identity", {ds}, type, dims_) : Op("mul", {ds, scale_}, type, dims_);
    WriteOfKeys(scaled, In(0), op_.outputs[1]);
    Product({scaled, In(1)}, Limits(seq_q_, -1, seq_kv_), op_.outputs[0]);
  }

 private:
  void Find(int table_k, int table_v, int scale, int seq_q, int seq_kv, int bias, int alibi) {
    dims_ = Tensor(In(0)).dims;
    dims_[3] = Tensor(In(1)).dims[2];
    scale_ = In(scale), seq_q_ = In(seq_q), seq_kv_ = In(seq_kv), bias_ = In(bias);
    alibi_ = In(alibi);
    k_ = In(1), v_ = In(2);
    if (table_k < 0 || In(table_k) < 0) return;
    if (In(table_v) < 0 || seq_kv_ < 0) std::abort();  // words for pages need lengths
    dims_[3] = Tensor(In(table_k)).dims[2] * Tensor(k_).dims[2];
    k_ = Loaded(k_, In(table_k));
    v_ = Loaded(v_, In(table_v));
  }
  int In(int i) const {
    const auto at = static_cast<size_t>(i);
    return at < op_.inputs.size() ? op_.inputs[at] : -1;
  }
  const CaseTensor& Tensor(int i) const { return c_.tensors[static_cast<size_t>(i)]; }
  Dims RowDims() const { return {dims_[0], dims_[1], dims_[2], 1}; }

  int Add(CaseTensor tensor) {
    tensor.uid = 1000 + static_cast<int64_t>(c_.tensors.size());
    tensor.name = fmt::format("%{}", tensor.uid);
    tensor.strides.assign(tensor.dims.size(), 1);
    for (size_t d = tensor.dims.size(); d-- > 1;)
      tensor.strides[d - 1] = tensor.strides[d] * std::max<int64_t>(tensor.dims[d], 1);
    c_.tensors.push_back(std::move(tensor));
    return static_cast<int>(c_.tensors.size()) - 1;
  }
  int Number(double value, DType type = DType::kF32) {
    return Add({.dtype = type, .dims = {1, 1, 1, 1}, .by_value = value});
  }
  void Write(const char* name, std::vector<int> inputs, int y, const char* axis = nullptr) {
    CaseOp op{.name = name, .inputs = std::move(inputs), .outputs = {y}, .attributes = {}};
    if (axis != nullptr) op.attributes["axis"] = axis;
    c_.ops.push_back(std::move(op));
  }
  int Virtual(DType type, Dims dims) {
    return Add({.dtype = type, .dims = std::move(dims), .is_virtual = true});
  }
  int Op(const char* name, std::vector<int> inputs, DType type, Dims dims,
         const char* axis = nullptr) {
    const int y = Virtual(type, std::move(dims));
    Write(name, std::move(inputs), y, axis);
    return y;
  }

  // The keys that a table of pages names, one behind the other.
  int Loaded(int pages, int table) {
    const CaseTensor container = Tensor(pages);
    return Op("paged_cache_load", {pages, table, seq_kv_}, container.dtype,
              {dims_[0], container.dims[1], dims_[3], container.dims[3]});
  }

  // A view of x with the last two dims exchanged.
  int Transposed(int x) {
    const CaseTensor t = Tensor(x);
    const int y = Add({.dtype = t.dtype, .dims = t.dims, .is_virtual = true});
    CaseTensor& made = c_.tensors[static_cast<size_t>(y)];
    made.strides = t.strides;
    std::swap(made.dims[2], made.dims[3]);
    std::swap(made.strides[2], made.strides[3]);
    Write("reshape", {x}, y);
    return y;
  }
  int Index(const char* axis) { return Op("gen_index", {score_}, DType::kI32, dims_, axis); }

  // cudnn-frontend limits products where both lengths are given.
  std::vector<int> Limits(int m, int n, int k) const {
    return seq_q_ < 0 || seq_kv_ < 0 ? std::vector<int>() : std::vector<int>{m, n, k};
  }
  void Product(std::vector<int> operands, const std::vector<int>& limits, int y) {
    operands.insert(operands.end(), limits.begin(), limits.end());
    Write("matmul", std::move(operands), y);
  }

  int Score() {
    int s = score_ = Virtual(DType::kF32, dims_);
    Product({In(0), Transposed(k_)}, Limits(seq_q_, seq_kv_, -1), s);
    if (scale_ >= 0) s = Op("mul", {s, scale_}, DType::kF32, dims_);
    if (bias_ >= 0) s = Op("add", {s, bias_}, DType::kF32, dims_);
    if (alibi_ >= 0) {
      const int distance = Op("sub", {Index("3"), Index("2")}, DType::kF32, dims_);
      s = Op("add", {s, Op("mul", {distance, alibi_}, DType::kF32, dims_)}, DType::kF32, dims_);
    }
    return s;
  }

  // Masks, in cudnn-frontend's order and each by its own selection.
  int Padded(int s) {
    int inside = -1;
    if (seq_q_ >= 0) inside = Op("cmp_lt", {Index("2"), seq_q_}, DType::kBool, dims_);
    if (seq_kv_ >= 0) {
      const int is_key = Op("cmp_lt", {Index("3"), seq_kv_}, DType::kBool, dims_);
      inside = inside < 0 ? is_key : Op("logical_and", {inside, is_key}, DType::kBool, dims_);
    }
    return inside < 0 ? s : Masked(s, inside);
  }
  int Right(int s) {
    const auto right = static_cast<int64_t>(op_.Number("right", -1));
    if (right < 0) return s;
    return Masked(s, Op("cmp_ge", {Moved(Shifted(), right), Index("3")}, DType::kBool, dims_));
  }
  int Left(int s) {
    const auto left = static_cast<int64_t>(op_.Number("left", -1));
    if (left < 0) return s;
    return Masked(s, Op("cmp_gt", {Moved(Index("3"), left), Shifted()}, DType::kBool, dims_));
  }
  int Masked(int s, int visible) {
    return Op("binary_select", {s, Number(-kInfinity), visible}, DType::kF32, dims_);
  }
  int Moved(int x, int64_t by) {
    return Op("add", {x, Number(static_cast<double>(by), DType::kI32)}, DType::kI32, dims_);
  }
  int Shifted() {
    if (op_.Number("bottom_right", 0) == 0) return Index("2");
    const auto length = [&](int lengths, int64_t extent) {
      return lengths >= 0 ? lengths : Number(static_cast<double>(extent), DType::kI32);
    };
    const int last = Op("add", {Index("2"), length(seq_kv_, dims_[3])}, DType::kI32, dims_);
    return Op("sub", {last, length(seq_q_, dims_[2])}, DType::kI32, dims_);
  }

  // Sums over the heads that share one of the keys', as clients reduce them: in groups.
  void WriteOfKeys(int a, int b, int y) {
    const CaseTensor result = Tensor(y);
    const Dims each = {dims_[0], dims_[1], result.dims[2], result.dims[3]};
    const int at = Transposed(a);
    const std::vector<int> limits = Limits(seq_kv_, -1, seq_q_);
    if (result.dims == each) return Product({at, b}, limits, y);
    const int of_heads = Virtual(DType::kF32, each);
    Product({at, b}, limits, of_heads);
    Write("reduce_add", {of_heads}, y);
  }

  Case& c_;
  const CaseOp& op_;
  Dims dims_;  // batches, heads, queries, keys
  int scale_ = -1, seq_q_ = -1, seq_kv_ = -1, bias_ = -1, alibi_ = -1;
  int k_ = -1, v_ = -1;  // as operations read them
  int score_ = -1;
};

bool NeedsWords(const CaseOp& op) {
  const bool forward = op.name == "sdpa_fwd";
  if (!forward && op.name != "sdpa_bwd") return false;
  // The last of the 12 operands of sdpa_fwd is a block mask, which the C interface has.
  const size_t from = forward ? 8 : 9, to = std::min<size_t>(op.inputs.size(), 11);
  const bool has_more = from < to && std::any_of(
                                         op.inputs.begin() + static_cast<std::ptrdiff_t>(from),
                                         op.inputs.begin() + static_cast<std::ptrdiff_t>(to),
                                         [](int id) { return id >= 0; });
  const bool words = has_more || op.outputs.size() > 3 || op.Has("left") || op.Has("right") ||
                     op.Has("bottom_right");
  if (words && op.inputs.size() > 11) std::abort();  // a block mask has no words
  return words;
}

}  // namespace

Case SpelledOut(const Case& c) {
  Case spelled = c;
  if (std::ranges::none_of(c.ops, NeedsWords)) return spelled;
  spelled.ops.clear();
  for (const CaseOp& op : c.ops) {
    if (!NeedsWords(op)) {
      spelled.ops.push_back(op);
      continue;
    }
    Speller speller(spelled, op);
    op.name == "sdpa_fwd" ? speller.Forward() : speller.Backward();
  }
  return spelled;
}

}  // namespace kiln::testing
