// Types and names of the verifier's rules.
#include <algorithm>

#include "ir/tile/names.h"
#include "ir/tile/verify_rules.h"

namespace kiln::tile {
namespace {

// Operand types an operation takes.
enum class Domain : uint8_t { kNumber, kFloat, kI64, kI32, kNumberOrBool, kBool, kSelect };

struct DomainRow {
  ScalarOp op;
  Domain domain;
};

constexpr DomainRow kDomains[] = {
    {ScalarOp::kAdd, Domain::kNumber},      {ScalarOp::kSub, Domain::kNumber},
    {ScalarOp::kMul, Domain::kNumber},      {ScalarOp::kDiv, Domain::kNumber},
    {ScalarOp::kMod, Domain::kNumber},      {ScalarOp::kPow, Domain::kFloat},
    {ScalarOp::kMin, Domain::kNumber},      {ScalarOp::kMax, Domain::kNumber},
    {ScalarOp::kMinNan, Domain::kNumber},   {ScalarOp::kMaxNan, Domain::kNumber},
    {ScalarOp::kAtan2, Domain::kFloat},     {ScalarOp::kNeg, Domain::kNumber},
    {ScalarOp::kAbs, Domain::kNumber},      {ScalarOp::kCeil, Domain::kNumber},
    {ScalarOp::kFloor, Domain::kNumber},    {ScalarOp::kSqrt, Domain::kFloat},
    {ScalarOp::kRsqrt, Domain::kFloat},     {ScalarOp::kRecip, Domain::kFloat},
    {ScalarOp::kExp, Domain::kFloat},       {ScalarOp::kLog, Domain::kFloat},
    {ScalarOp::kLog1p, Domain::kFloat},     {ScalarOp::kExpm1, Domain::kFloat},
    {ScalarOp::kSin, Domain::kFloat},       {ScalarOp::kCos, Domain::kFloat},
    {ScalarOp::kTan, Domain::kFloat},       {ScalarOp::kTanh, Domain::kFloat},
    {ScalarOp::kErf, Domain::kFloat},       {ScalarOp::kFma, Domain::kNumber},
    {ScalarOp::kEq, Domain::kNumberOrBool}, {ScalarOp::kNe, Domain::kNumberOrBool},
    {ScalarOp::kGt, Domain::kNumber},       {ScalarOp::kGe, Domain::kNumber},
    {ScalarOp::kLt, Domain::kNumber},       {ScalarOp::kLe, Domain::kNumber},
    {ScalarOp::kAnd, Domain::kBool},        {ScalarOp::kOr, Domain::kBool},
    {ScalarOp::kNot, Domain::kBool},        {ScalarOp::kSelect, Domain::kSelect},
    {ScalarOp::kPhilox, Domain::kI64},      {ScalarOp::kBit, Domain::kI32},
    {ScalarOp::kFastDiv, Domain::kI32},
};

constexpr bool RowsInEnumOrder() {
  for (size_t i = 0; i < std::size(kDomains); ++i)
    if (kDomains[i].op != ScalarOp(i)) return false;
  return std::size(kDomains) == static_cast<size_t>(ScalarOp::kFastDiv) + 1;
}
static_assert(RowsInEnumOrder(), "kDomains must list the scalar ops in enum order");

bool InDomain(Domain domain, DType t) {
  const bool number = IsComputeType(t) && t != DType::kBool;
  switch (domain) {
    case Domain::kNumber:
      return number;
    case Domain::kFloat:
      return number && IsFloat(t);
    case Domain::kI32:
      return t == DType::kI32;
    case Domain::kI64:
      return t == DType::kI64;
    case Domain::kNumberOrBool:
      return number || t == DType::kBool;
    case Domain::kBool:
      return t == DType::kBool;
    case Domain::kSelect:
      return number || t == DType::kBool;
  }
  return false;
}

// Types that tensor cores multiply, and those that they sum products in.
struct Product {
  DType operand, accumulator;
};
constexpr Product kProducts[] = {{DType::kF16, DType::kF32},  {DType::kBF16, DType::kF32},
                                 {DType::kF32, DType::kF32},  {DType::kE4M3, DType::kF32},
                                 {DType::kE5M2, DType::kF32}, {DType::kI8, DType::kI32},
                                 {DType::kU8, DType::kI32}};

template <class Map>
const typename Map::mapped_type* Find(const Map& map, const std::string& name) {
  const auto at = map.find(name);
  return at == map.end() ? nullptr : &at->second;
}

}  // namespace

bool Takes(ScalarOp op, DType type) {
  return InDomain(kDomains[static_cast<size_t>(op)].domain, type);
}

std::optional<DType> AccumulatorOfMma(DType operand) {
  const auto* row = std::ranges::find(kProducts, operand, &Product::operand);
  if (row == std::end(kProducts)) return std::nullopt;
  return row->accumulator;
}

Status Scope::Define(const std::string& name) {
  if (!IsIdentifier(name)) return BrokenRule("'{}' is not a name", name);
  if (IsReservedName(name)) return BrokenRule("{} is a reserved word", name);
  if (!used_.insert(name).second) return BrokenRule("{} is defined twice", name);
  open_.push_back(name);
  return {};
}

Status Scope::DefineVariable(const std::string& name, Variable v) {
  RETURN_IF_ERROR(Define(name));
  vars_.insert_or_assign(name, v);
  return {};
}

Status Scope::DefineBuffer(const std::string& name, Buffer b) {
  RETURN_IF_ERROR(Define(name));
  buffers_.insert_or_assign(name, b);
  return {};
}

Status Scope::DefineMap(const std::string& name) {
  RETURN_IF_ERROR(Define(name));
  maps_.insert(name);
  return {};
}

void Scope::Leave(size_t mark) {
  for (; open_.size() > mark; open_.pop_back()) {
    vars_.erase(open_.back());
    buffers_.erase(open_.back());
  }
}

const Variable* Scope::FindVariable(const std::string& name) const { return Find(vars_, name); }

const Buffer* Scope::FindBuffer(const std::string& name) const { return Find(buffers_, name); }

}  // namespace kiln::tile
