// Sm90Functions: the functions that the skeletons of sm_90a call with what they have multiplied.
#pragma once

#include <string>

#include "compiler/engines/contraction_epilogue.h"

namespace kiln::compiler {

// A new parameter of a function.
tile::Expr AddScalar(KernelBuilder& b, tile::Call::Function& f, const char* name, DType type);
std::string AddArray(KernelBuilder& b, tile::Call::Function& f, const char* name, DType type,
                     int64_t size, bool is_output = false);

// function rows(batch, left, operands out), function apply(value, operands, result out): the
// epilogue where it works by rows, of an output of this type. With the constants that go with them.
void AddRowFunctions(KernelBuilder& b, ContractionEpilogue& epilogue, DType type, tile::Call& call);

// What follows the parameters of function store(values[vector], batch, split, left, right): the
// neighbours along left through the epilogue to memory.
void StoreNeighbours(KernelBuilder& b, ContractionEpilogue& epilogue, tile::Block& out,
                     const std::string& values, DType type, int vector, const tile::Expr& batch,
                     const tile::Expr& left, const tile::Expr& right,
                     const tile::Expr& phase = nullptr);

}  // namespace kiln::compiler
