#include "tests/support/row_factor.h"

#include <algorithm>
#include <initializer_list>
#include <string_view>

namespace kiln::testing {
namespace {

const CaseOp* Producer(const Case& c, int tensor) {
  const auto writes = [&](const CaseOp& op) {
    return std::ranges::find(op.outputs, tensor) != op.outputs.end();
  };
  const auto op = std::ranges::find_if(c.ops, writes);
  return tensor < 0 || op == c.ops.end() ? nullptr : &*op;
}

bool IsOneOf(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, name) != names.end();
}

// One number for each row.
bool IsOfRows(const Case& c, int tensor) {
  if (tensor < 0) return false;
  const CaseTensor& t = c.tensors[static_cast<size_t>(tensor)];
  return !t.by_value && !t.dims.empty() && t.dims.back() == 1;
}

bool IsMadeWithRowFactor(const Case& c, int tensor) {
  const CaseOp* op = Producer(c, tensor);
  if (op == nullptr) return false;
  if (op->name == "softmax") return op->outputs[0] == tensor;  // divided by the row's sum
  if (IsOneOf(op->name, {"mul", "div"}))
    return IsOfRows(c, op->inputs[1]) || IsMadeWithRowFactor(c, op->inputs[0]);
  if (IsOneOf(op->name, {"identity", "binary_select"}))
    return IsMadeWithRowFactor(c, op->inputs[0]);
  if (op->name != "exp") return false;
  const CaseOp* shift = Producer(c, op->inputs[0]);
  return shift != nullptr && IsOneOf(shift->name, {"sub", "add"}) && IsOfRows(c, shift->inputs[1]);
}

}  // namespace

std::optional<oracle::DType> RoundedForMatmuls(const Case& c, int tensor) {
  const auto type = [&](int id) { return c.tensors[static_cast<size_t>(id)].dtype; };
  const auto is_virtual = [&](int id) { return c.tensors[static_cast<size_t>(id)].is_virtual; };
  const auto is_copy = [&](const CaseOp* op) {
    return op != nullptr && IsOneOf(op->name, {"reshape", "identity"}) &&
           is_virtual(op->inputs[0]) && is_virtual(op->outputs[0]) &&
           oracle::Row(type(op->outputs[0])).bytes == 2;
  };
  const auto only_matmuls_read = [&](int id) {
    return std::ranges::all_of(c.ops, [&](const CaseOp& op) {
      return std::ranges::find(op.inputs, id) == op.inputs.end() || op.name == "matmul";
    });
  };
  // `tensor` is the copy, or what is copied.
  const CaseOp* copy = Producer(c, tensor);
  if (!is_copy(copy)) {
    const auto copies = [&](const CaseOp& op) { return is_copy(&op) && op.inputs[0] == tensor; };
    const auto found = std::ranges::find_if(c.ops, copies);
    copy = found == c.ops.end() ? nullptr : &*found;
  }
  if (copy == nullptr || !only_matmuls_read(copy->outputs[0])) return std::nullopt;
  for (const CaseOp& op : c.ops) {
    const bool reads = std::ranges::find(op.inputs, copy->inputs[0]) != op.inputs.end();
    if (reads && &op != copy && op.name != "matmul") return std::nullopt;
  }
  return type(copy->outputs[0]);
}

bool HasRowFactor(const Case& c, int tensor) {
  bool is_summed = false;
  for (const CaseOp& op : c.ops) {
    const auto reads = std::ranges::count(op.inputs, tensor);
    if (reads == 0) continue;
    if (op.name != "matmul" || reads != 1 || op.inputs[0] != tensor) return false;
    is_summed = true;
  }
  return is_summed && c.tensors[static_cast<size_t>(tensor)].is_virtual &&
         IsMadeWithRowFactor(c, tensor);
}

}  // namespace kiln::testing
