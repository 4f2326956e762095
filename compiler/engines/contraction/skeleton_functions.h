// Sm90Functions: the functions that the skeletons of sm_90a call with what they have multiplied.
#pragma once

#include <string>

#include "compiler/engines/contraction/epilogue.h"
#include "compiler/engines/contraction/epilogue_reductions.h"

namespace kiln::compiler {

// Adds function rows(batch, left, operands out) and function apply(value, operands, result out):
// the epilogue where it works by rows, with the constants that go with them; `bf16` is the mask of
// the results. The values of `also` stand behind the result. With full operands it is apply(value,
// operands, full, result out). `type` is that of the results, f32 or i32.
void AddRowFunctions(KernelBuilder& b, ContractionEpilogue& epilogue, int64_t bf16,
                     tile::Call& call, const std::vector<graph::TensorId>& also = {}, int full = 0,
                     DType type = DType::kF32);

// The most full operands that skeletons take.
inline constexpr int kMostFullOperands = 2;
// A bit for each of these tensors that is bf16.
int64_t Bf16Mask(const graph::Graph& graph, const std::vector<graph::TensorId>& tensors);

// A function that takes in the element that is neighbour number `neighbour`.
using ReduceNeighbour = std::function<void(tile::Block& out, ValueScope& values, const Index& at,
                                           const tile::Expr& neighbour)>;

// Adds the body of function store(values[vector], batch, split, left, right) behind its parameters:
// the neighbours along left (or right) through the epilogue to memory.
void StoreNeighbours(KernelBuilder& b, ContractionEpilogue& epilogue, tile::Block& out,
                     const std::string& values, DType type, int vector, const tile::Expr& batch,
                     const tile::Expr& left, const tile::Expr& right,
                     const tile::Expr& phase = nullptr, const ReduceNeighbour& reduce = {});

// Adds function right_end(end out), which contract_reduced_sm90 wants (its header says what for).
void AddRightEnd(KernelBuilder& b, int64_t right_size, tile::Call& call);
// Batches [groups, images] whose images are parts of what is reduced.
struct ImageParts {
  int64_t images = 1, parts_of_image = 1;
};
// Adds functions start(sums out), combine(sums in and out, others) and flush(batch, part, left,
// sums).
void AddReductionFunctions(KernelBuilder& b, const EpilogueReductions& reductions,
                           PartialResults& partial, int64_t left_size, const ImageParts& parts,
                           tile::Call& call);
// Adds to function store: sums[neighbour][reduction] take in the values at `index`.
void AddToSums(KernelBuilder& b, const EpilogueReductions& reductions, const std::string& sums,
               tile::Block& out, ValueScope& values, const Index& index,
               const tile::Expr& neighbour);

}  // namespace kiln::compiler
