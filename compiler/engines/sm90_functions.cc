#include "compiler/engines/sm90_functions.h"

#include <algorithm>

namespace kiln::compiler {

using tile::Block;
using tile::Call;
using tile::Expr;

Expr AddScalar(KernelBuilder& b, Call::Function& f, const char* name, DType type) {
  f.params.push_back({b.Name(name), type, 0});
  return tile::Var(f.params.back().name, type);
}

std::string AddArray(KernelBuilder& b, Call::Function& f, const char* name, DType type,
                     int64_t size, bool is_output) {
  f.params.push_back({b.Name(name), type, size, is_output});
  return f.params.back().name;
}

void AddRowFunctions(KernelBuilder& b, ContractionEpilogue& epilogue, DType type, Call& call) {
  const int operands = std::max(epilogue.row_operands(), 1);
  call.config.push_back({"kOperands", epilogue.row_operands()});
  call.config.push_back({"kPackBf16", type == DType::kBF16 ? 1 : 0});
  Call::Function rows{.name = "rows"}, apply{.name = "apply"};
  const Expr batch = AddScalar(b, rows, "batch", b.index_type());
  const Expr left = AddScalar(b, rows, "left", b.index_type());
  epilogue.Rows(rows.body, batch, left, AddArray(b, rows, "operands", DType::kF32, operands, true));
  const Expr value = AddScalar(b, apply, "value", DType::kF32);
  const std::string taken = AddArray(b, apply, "operands", DType::kF32, operands);
  epilogue.Apply(apply.body, value, taken, AddArray(b, apply, "result", DType::kF32, 1, true));
  call.functions.push_back(std::move(rows));
  call.functions.push_back(std::move(apply));
}

void StoreNeighbours(KernelBuilder& b, ContractionEpilogue& epilogue, Block& out,
                     const std::string& values, DType type, int vector, const Expr& batch,
                     const Expr& left, const Expr& right, const Expr& phase) {
  const int lanes = std::min(vector, epilogue.lanes());
  for (int first = 0; first < vector; first += lanes) {
    const Expr at = b.Let(out, "at", left + b.Idx(first));
    epilogue.Store(
        out, batch, at, right, lanes,
        [&](const Expr& lane) { return tile::Load(values, type, b.Idx(first) + lane); }, phase);
  }
}

}  // namespace kiln::compiler
