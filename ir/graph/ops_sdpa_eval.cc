// The values of attention and of loads through page tables in f64; the formulas are in sdpa.h.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "ir/graph/ops.h"
#include "ir/graph/sdpa.h"
#include "ir/graph/verify_util.h"

namespace kiln::graph {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A row-major operand that may be absent and whose extents of 1 broadcast.
struct Values {
  const std::vector<double>* data = nullptr;
  Dims dims;

  double At(int64_t b, int64_t h, int64_t i, int64_t j) const {
    const int64_t index[] = {b, h, i, j};
    int64_t at = 0;
    for (size_t d = 0; d < dims.size(); ++d)
      at = at * dims[d] + (dims[d] == 1 ? 0 : index[4 - dims.size() + d]);
    return (*data)[static_cast<size_t>(at)];
  }
};

// Row s of batch b in a container, or -1: the index of its first element over dims [block, head].
int64_t BlockOf(const Values& table, const Dims& container, int64_t b, int64_t s) {
  const auto block = static_cast<int64_t>(table.At(b, 0, s / container[2], 0));
  return block >= 0 && block < container[0] ? block : -1;
}

class Attention {
 public:
  explicit Attention(const EvalArgs& args) : args_(args), in_(SdpaOperandsOf(args.node)) {
    const Dims& q = args.graph[in_.q].dims;
    keys = SdpaKeys(args.graph, in_);
    batches = q[0], heads = q[1], queries = q[2], depth = q[3];
    width = args.graph[in_.v].dims[3];
    q_ = Of(in_.q), k_ = Of(in_.k), v_ = Of(in_.v);
    seq_q_ = Of(in_.seq_q), seq_kv_ = Of(in_.seq_kv), bias_ = Of(in_.bias), alibi_ = Of(in_.alibi);
    table_k_ = Of(in_.page_table_k), table_v_ = Of(in_.page_table_v);
    block_mask_ = Of(in_.block_mask);
    scale = args.node.As<SdpaAttrs>().scale;
    if (in_.scale != kAbsent) scale *= Of(in_.scale).data->front();
  }

  int64_t batches, heads, queries, keys, depth, width;
  double scale;

  Values Of(TensorId id) const {
    for (size_t i = 0; id != kAbsent && i < args_.node.inputs.size(); ++i)
      if (args_.node.inputs[i] == id) return {args_.inputs[i], args_.graph[id].dims};
    return {};
  }
  double Q(int64_t b, int64_t h, int64_t i, int64_t d) const { return q_.At(b, h, i, d); }
  double K(int64_t b, int64_t h, int64_t j, int64_t d) const {
    return Row(k_, table_k_, b, h, j, d);
  }
  double V(int64_t b, int64_t h, int64_t j, int64_t d) const {
    return Row(v_, table_v_, b, h, j, d);
  }

  bool Sees(int64_t b, int64_t h, int64_t i, int64_t j) const {
    const auto& attrs = args_.node.As<SdpaAttrs>();
    const int64_t rows = Length(seq_q_, b, queries), columns = Length(seq_kv_, b, keys);
    const int64_t place = i + (attrs.bottom_right ? columns - rows : 0);
    if (block_mask_.data != nullptr && !BlockIsSeen(b, h, i / kMaskBlock, j / kMaskBlock))
      return false;
    return IsQuery(b, i) && (seq_kv_.data == nullptr || j < columns) &&
           (attrs.right < 0 || j <= place + attrs.right) &&
           (attrs.left < 0 || place - attrs.left < j);
  }

  // True if there is such a query: lengths end before some.
  bool IsQuery(int64_t b, int64_t i) const {
    return seq_q_.data == nullptr || i < Length(seq_q_, b, queries);
  }

  double Score(int64_t b, int64_t h, int64_t i, int64_t j) const {
    double dot = 0;
    for (int64_t d = 0; d < depth; ++d) dot += Q(b, h, i, d) * K(b, h, j, d);
    double score = dot * scale;
    if (bias_.data != nullptr) score += bias_.At(b, h, i, j);
    if (alibi_.data != nullptr) score += alibi_.At(b, h, 0, 0) * static_cast<double>(j - i);
    return score;
  }

  int64_t HeadOf(TensorId id, int64_t h) const { return h / (heads / args_.graph[id].dims[1]); }
  const SdpaOperands& operands() const { return in_; }

 private:
  bool BlockIsSeen(int64_t b, int64_t h, int64_t row, int64_t column) const {
    const auto byte = static_cast<uint32_t>(block_mask_.At(b, h, row, column / 8));
    return (byte >> (column % 8) & 1) != 0;
  }
  static int64_t Length(const Values& lengths, int64_t b, int64_t extent) {
    return lengths.data == nullptr ? extent : static_cast<int64_t>(lengths.At(b, 0, 0, 0));
  }
  // An element of k or v; a container gives 0 for keys from seq_kv on.
  double Row(const Values& t, const Values& table, int64_t b, int64_t h, int64_t j,
             int64_t d) const {
    const int64_t head = h / (heads / t.dims[1]);
    if (table.data == nullptr) return t.At(b, head, j, d);
    const int64_t block = BlockOf(table, t.dims, b, j);
    const bool is_there = block >= 0 && j < Length(seq_kv_, b, keys);
    return is_there ? t.At(block, head, j % t.dims[2], d) : 0;
  }

  const EvalArgs& args_;
  const SdpaOperands in_;
  Values q_, k_, v_, seq_q_, seq_kv_, bias_, alibi_, table_k_, table_v_, block_mask_;
};

// max, and the sum of exp(score - shift) over the keys that are seen and the sink: 0 where there
// are neither.
struct RowSums {
  std::vector<double> scores;  // -inf where not seen
  double max = -kInfinity, sum = 0;

  // The shift of the exponents: in a row that sees no key, -inf must not meet itself, nor 0 be
  // divided by itself.
  double shift() const { return max == -kInfinity ? 0 : max; }
  double Weight(size_t j) const { return std::exp(scores[j] - shift()) / (sum == 0 ? 1 : sum); }
};

RowSums SumRow(const Attention& a, int64_t b, int64_t h, int64_t i, const Values& sink) {
  RowSums row;
  for (int64_t j = 0; j < a.keys; ++j) {
    row.scores.push_back(a.Sees(b, h, i, j) ? a.Score(b, h, i, j) : -kInfinity);
    row.max = std::fmax(row.max, row.scores.back());
  }
  const bool has_sink = sink.data != nullptr && a.IsQuery(b, i);
  if (has_sink) row.max = std::fmax(row.max, sink.At(b, h, 0, 0));
  for (const double score : row.scores) row.sum += std::exp(score - row.shift());
  if (has_sink) row.sum += std::exp(sink.At(b, h, 0, 0) - row.shift());
  return row;
}

}  // namespace

void EvalSdpaFwd(const EvalArgs& args) {
  const Attention a(args);
  const Values sink = a.Of(a.operands().sink);
  double* o = args.outputs[sdpa_fwd::kO]->data();
  const bool has_stats = args.outputs.size() > 1 && args.outputs[sdpa_fwd::kStats] != nullptr;
  double* stats = has_stats ? args.outputs[sdpa_fwd::kStats]->data() : nullptr;
  for (int64_t b = 0; b < a.batches; ++b) {
    for (int64_t h = 0; h < a.heads; ++h) {
      for (int64_t i = 0; i < a.queries; ++i, o += a.width) {
        const RowSums row = SumRow(a, b, h, i, sink);
        std::fill_n(o, a.width, 0.0);
        for (int64_t j = 0; j < a.keys; ++j) {
          if (row.scores[static_cast<size_t>(j)] == -kInfinity) continue;
          const double weight = row.Weight(static_cast<size_t>(j));
          for (int64_t d = 0; d < a.width; ++d) o[d] += weight * a.V(b, h, j, d);
        }
        if (stats != nullptr) *stats++ = row.max + std::log(row.sum);
      }
    }
  }
}

namespace {

// Adds to the result at the operand's own index.
void AddTo(std::vector<double>* out, const Dims& dims, std::array<int64_t, 4> index, double value) {
  if (out == nullptr) return;
  int64_t at = 0;
  for (size_t d = 0; d < 4; ++d) at = at * dims[d] + (dims[d] == 1 ? 0 : index[d]);
  (*out)[static_cast<size_t>(at)] += value;
}

struct Gradients {
  std::vector<double>*dq, *dk, *dv, *dbias;
};

void AddRow(const Attention& a, const EvalArgs& args, const Gradients& out, int64_t b, int64_t h,
            int64_t i) {
  namespace in = sdpa_bwd;
  const Values o = a.Of(args.node.inputs[in::kO]), grad = a.Of(args.node.inputs[in::kDo]),
               stats = a.Of(args.node.inputs[in::kStats]);
  if (stats.At(b, h, i, 0) == -kInfinity) return;
  const SdpaOperands& ids = a.operands();
  const auto dims = [&](TensorId id) { return args.graph[id].dims; };
  double inner = 0;
  for (int64_t d = 0; d < a.width; ++d) inner += grad.At(b, h, i, d) * o.At(b, h, i, d);
  const int64_t hk = a.HeadOf(ids.k, h), hv = a.HeadOf(ids.v, h);
  for (int64_t j = 0; j < a.keys; ++j) {
    if (!a.Sees(b, h, i, j)) continue;
    const double weight = std::exp(a.Score(b, h, i, j) - stats.At(b, h, i, 0));
    double dp = 0;
    for (int64_t d = 0; d < a.width; ++d) {
      dp += grad.At(b, h, i, d) * a.V(b, h, j, d);
      AddTo(out.dv, dims(ids.v), {b, hv, j, d}, weight * grad.At(b, h, i, d));
    }
    const double ds = weight * (dp - inner);
    if (out.dbias != nullptr) AddTo(out.dbias, dims(ids.bias), {b, h, i, j}, ds);
    for (int64_t d = 0; d < a.depth; ++d) {
      AddTo(out.dq, dims(ids.q), {b, h, i, d}, ds * a.scale * a.K(b, h, j, d));
      AddTo(out.dk, dims(ids.k), {b, hk, j, d}, ds * a.scale * a.Q(b, h, i, d));
    }
  }
}

}  // namespace

void EvalSdpaBwd(const EvalArgs& args) {
  const Attention a(args);
  namespace out = sdpa_bwd;
  const bool has_dbias = args.outputs.size() > out::kDbias;
  const Gradients gradients = {args.outputs[out::kDq], args.outputs[out::kDk],
                               args.outputs[out::kDv],
                               has_dbias ? args.outputs[out::kDbias] : nullptr};
  for (std::vector<double>* values : args.outputs)
    if (values != nullptr) std::ranges::fill(*values, 0.0);
  for (int64_t b = 0; b < a.batches; ++b)
    for (int64_t h = 0; h < a.heads; ++h)
      for (int64_t i = 0; i < a.queries; ++i) AddRow(a, args, gradients, b, h, i);
}

void EvalPagedCacheLoad(const EvalArgs& args) {
  const auto values = [&](size_t i) -> Values {
    if (OperandOr(args.node.inputs, i) == kAbsent) return {};
    return {args.inputs[i], args.graph[args.node.inputs[i]].dims};
  };
  const Values container = values(paged_load::kContainer), table = values(paged_load::kPageTable),
               lengths = values(paged_load::kLengths);
  const Tensor& y = *OutputOf(args.graph, args.node, 0);
  const bool along_last = PagedAlongLast(args.graph[args.node.inputs[0]], y);
  double* out = args.outputs[0]->data();
  for (int64_t b = 0; b < y.dims[0]; ++b) {
    for (int64_t h = 0; h < y.dims[1]; ++h) {
      for (int64_t i = 0; i < y.dims[2]; ++i) {
        for (int64_t j = 0; j < y.dims[3]; ++j) {
          const int64_t s = along_last ? j : i, d = along_last ? i : j;
          const int64_t block = BlockOf(table, container.dims, b, s);
          const bool is_there = block >= 0 && (lengths.data == nullptr ||
                                               static_cast<double>(s) < lengths.At(b, 0, 0, 0));
          *out++ = is_there ? container.At(block, h, s % container.dims[2], d) : 0;
        }
      }
    }
  }
}

}  // namespace kiln::graph
