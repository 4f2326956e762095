// peer_reduce as a kernel: the skeleton with functions that read x and store its sums, through the
// maps that x is computed by. Numbers of the second operand stand behind those of the first.
#include "compiler/engines/peers/kernels.h"
#include "compiler/kernel/peers_members.h"
#include "compiler/kernel/skeleton_call.h"
#include "compiler/kernel/vectors.h"
#include "ir/graph/peers.h"
#include "ir/peers.h"

namespace kiln::compiler {
namespace {

using graph::Node;
using graph::TensorId;
using tile::Block;
using tile::Call;
using tile::Expr;

constexpr int kThreads = 128;

class PeerReduceKernel {
 public:
  PeerReduceKernel(const Group& group, const Target& target)
      : node_(group.graph.nodes.back()),
        b_(group, target, fmt::format("peers, sums over {} ranks", graph::PeersOf(node_).size()),
           IndexType(group.graph)) {}

  Lowered Lower() {
    for (const char* reserved : {"bx", "shape", "read", "store"}) b_.Name(reserved);
    const std::span<const TensorId> buffers = graph::PeersOf(node_);
    Call call{.skeleton = "peer_reduce", .maps = {}, .buffers = {b_.Fault()}};
    for (const TensorId peer : buffers) call.buffers.push_back(b_.SharedPointer(peer));
    const Expr rank = b_.PeerRank(static_cast<int>(buffers.size()));
    const int64_t count = Count(0) + Count(1), blocks = CeilDiv(count, kThreads);
    call.config = {{peers::kRanks, std::ssize(buffers)}, {peers::kFirstRankFault, kFirstRankFault}};
    AddShapeMember(call, peers::limit, b_.PeerLimit());
    AddShapeMember(call, peers::count, b_.Arg("numbers", count));
    AddShapeMember(b_, call, peers::first, node_.As<graph::PeerReduceAttrs>().first);
    AddShapeMember(call, peers::rank, rank);
    AddRead(call);
    AddStore(call);
    Lowered lowered;
    b_.Finish(CallOfBlocks(b_, blocks, std::move(call)), {blocks, 1, 1}, kThreads, lowered);
    return lowered;
  }

 private:
  bool has_second() const { return node_.outputs.size() > 1 && node_.outputs[1] != graph::kAbsent; }
  int64_t Count(size_t which) const {
    if (which == 1 && !has_second()) return 0;
    return NumElements(b_.graph()[node_.inputs[which]].dims);
  }

  // emit(out, which, its index) for the operand that number `i` is of.
  void ForOperand(Block& out, const Expr& i,
                  const std::function<void(Block&, size_t, const Index&)>& emit) {
    const auto one = [&](Block& block, size_t which, const Expr& place) {
      const TensorId x = node_.inputs[which];
      const Dims& dims = b_.graph()[x].dims;
      Index extents;
      for (int64_t d = 0; d < std::ssize(dims); ++d) extents.push_back(b_.Extent(x, d));
      emit(block, which, b_.Unravel(block, place, extents, dims, "i"));
    };
    if (!has_second()) return one(out, 0, i);
    const Expr of_first = b_.Arg("numbers_of_first", Count(0));
    Block first, second;
    one(first, 0, i);
    one(second, 1, b_.Let(second, "beyond", i - of_first));
    out.push_back({tile::If{tile::Lt(i, of_first), std::move(first), std::move(second)}});
  }

  // function read(i, number out)
  void AddRead(Call& call) {
    Call::Function f{.name = "read", .params = {}, .body = {}};
    const Expr i = AddScalar(b_, f, "i", b_.index_type());
    const std::string number = AddArray(b_, f, "number", DType::kF32, 1, true);
    ForOperand(f.body, i, [&](Block& out, size_t which, const Index& index) {
      const Expr value = ValueScope(b_, out).Value(node_.inputs[which], index);
      out.push_back({tile::Store{number, b_.Idx(0), value}});
    });
    call.functions.push_back(std::move(f));
  }

  // function store(i, sum)
  void AddStore(Call& call) {
    Call::Function f{.name = "store", .params = {}, .body = {}};
    const Expr i = AddScalar(b_, f, "i", b_.index_type());
    const Expr sum = AddScalar(b_, f, "sum", DType::kF32);
    ForOperand(f.body, i, [&](Block& out, size_t which, const Index& index) {
      const TensorId y = node_.outputs[which];
      out.push_back({tile::Store{b_.Pointer(y), b_.Offset(y, index), sum}});
    });
    call.functions.push_back(std::move(f));
  }

  const Node& node_;
  KernelBuilder b_;
};

}  // namespace

Result<Lowered> LowerPeerReduce(const Group& group, const Target& target) {
  const Node& node = group.graph.nodes.back();
  if (graph::PeersOf(node).size() > 1) return PeerReduceKernel(group, target).Lower();
  Lowered lowered;
  for (size_t k = 0; k < node.outputs.size(); ++k)
    if (node.outputs[k] != graph::kAbsent)
      Append(lowered, LowerPeerCopy(group, target, node.inputs[k], node.outputs[k]));
  return lowered;
}

}  // namespace kiln::compiler
