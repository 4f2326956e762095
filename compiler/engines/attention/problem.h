// AttentionProblem: the facts of their group that the engines of softmax(q k) v share, whatever
// multiplies and loads; the engines of its gradients ask some of them as well.
#pragma once

#include <initializer_list>
#include <span>

#include "compiler/kernel/kernel_builder.h"
#include "compiler/patterns/attention.h"

namespace kiln::compiler {

// The most places along a dim, which are exact as f32, in which masks may be compared.
inline constexpr int64_t kMostAttentionPlaces = int64_t{1} << 23;

struct AttentionProblem {
  Attention attention = {};
  int64_t queries = 0, keys = 0, inner = 1, outer = 1;  // heads of an image; images
  int64_t depth = 0, width = 0;                         // of rows of q and k, of v
  // True if anything but the operands has several places along some of the last two dims; along
  // both.
  bool reads_by_place = false, reads_by_element = false;
  // The one tensor with several places along both, of 16 bits, if maps alone read it, place by
  // place, where they make scores: a bias. It can be copied as operands are.
  graph::TensorId beside = graph::kAbsent;
  bool reads_besides = false;  // as reads_by_place, without that one
  bool hides_blocks = false;   // some mask has known bounds
  bool draws = false;          // weights are made of random bits
  bool has_bytes = false;      // operands have 8 bits
  int64_t element_bytes = 2;   // of operands
  int64_t heads() const { return inner * outer; }
};

// Bits of the types of operands that an engine takes.
enum class OperandBits : uint8_t { k16, k16Or8, k32 };
// The number that device code has for a type of 8 bits
// (codegen/cuda/device/numbers/eight_bits.cuh); 0 of any other one.
int EightBits(DType type);

// The problem for rows of at most `most_depth`, operands of one type of 16 (or 8) bits, or f32,
// scores in f32; or why there is none.
Result<AttentionProblem> AttentionProblemOf(const Group& group, int64_t most_depth,
                                            OperandBits bits = OperandBits::k16);

// {depth, places, inner, outer} of a tensor whose dim `places` has rows of `depth`, in boxes of 64
// by `rows`; what tensor maps cannot read or write is declined.
Result<TensorMapSpec> AttentionMapOf(const graph::Tensor& tensor, int64_t places, int64_t depth,
                                     int rows);

bool HidesBlocks(const graph::Graph& graph, std::span<const ScoreMask> masks);
// True if keys end at a number in memory, the length of a sequence.
bool EndsInMemory(const graph::Graph& graph, std::span<const ScoreMask> masks);

// True if a tensor beside scores has a head for each, along the dim that is `back` from the last.
bool IsOfEach(const graph::Graph& graph, const AttentionProblem& problem, int64_t back);

// Index type of kernels that count scores by batch, row and column: only what is in memory has
// larger indices.
DType IndexTypeInMemory(const graph::Graph& graph);

// The number of heads of the result that share one head of an operand, along the dim that is `back`
// from the last.
int64_t HeadsSharing(const graph::Graph& graph, const Attention& attention, graph::TensorId operand,
                     int64_t back);

// The numbers of attention_shape (codegen/cuda/device/attention/attention_rows.cuh) for tiles of
// `rows` queries; returns how many tiles there are. `in_turns`: a block a multiprocessor goes back
// and forth over them, else each is a block.
int64_t AddAttentionShape(KernelBuilder& b, const AttentionProblem& problem, int64_t rows,
                          const Target& target, bool in_turns, tile::Call& call);

// Adds numbers of attention_shape: how many heads of the result share one head of each operand.
void AddSharing(KernelBuilder& b, const Attention& attention, tile::Call& call);

// The value of a number in memory before kernels make it the largest absolute value of something:
// -infinity; 0 where some of these are skipped, because they are hidden and 0.
struct LargestStart {
  graph::TensorId number = -1;
  double value = 0;
};
void AddLargestStart(const Group& group, const Target& target, std::span<const LargestStart> all,
                     const char* engine, Lowered& lowered);
// Starts for an attention's weights, of which blocks are skipped, and results.
std::vector<LargestStart> LargestStarts(const Attention& attention);

}  // namespace kiln::compiler
