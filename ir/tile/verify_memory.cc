// Rules of statements that touch memory: where operands lie, their types, and widths of accesses.
#include <algorithm>

#include "ir/tile/verify_rules.h"

namespace kiln::tile {

Status MemoryRules::RequireDefined(const std::string& name) const {
  return scope_.FindBuffer(name) == nullptr ? BrokenRule("buffer {} is not defined here", name)
                                            : Status();
}

Status MemoryRules::CheckWritable(const std::string& name) const {
  return scope_.BufferOf(name).is_const ? BrokenRule("{} is const", name) : Status();
}

Status MemoryRules::Check(const Store& s) const {
  RETURN_IF_ERROR(expressions_.CheckElement(s.buffer, s.index, 1));
  RETURN_IF_ERROR(CheckWritable(s.buffer));
  RETURN_IF_ERROR(expressions_.Check(s.value));
  const DType type = scope_.BufferOf(s.buffer).type;
  if (type != s.value->type)
    return BrokenRule("{} holds {}, the value is {}", s.buffer, Info(type).text,
                      Info(s.value->type).text);
  return {};
}

Status MemoryRules::Check(const Copy& s) const {
  if (s.lanes < 1) return BrokenRule("{} lanes", s.lanes);
  RETURN_IF_ERROR(expressions_.CheckElement(s.dst, s.dst_index, s.lanes));
  RETURN_IF_ERROR(expressions_.CheckElement(s.src, s.src_index, s.lanes));
  RETURN_IF_ERROR(CheckWritable(s.dst));
  const Buffer &dst = scope_.BufferOf(s.dst), &src = scope_.BufferOf(s.src);
  if (dst.type != src.type)
    return BrokenRule("copy from {} to {}", Info(src.type).text, Info(dst.type).text);
  const int64_t bytes = int64_t{s.lanes} * SizeOf(dst.type);
  if (bytes != 2 && bytes != 4 && bytes != 8 && bytes != 16)
    return BrokenRule("one access of {} bytes: 2, 4, 8 and 16 are possible", bytes);
  for (const auto& [name, buffer] : {std::pair(s.dst, dst), std::pair(s.src, src)})
    if (buffer.alignment < bytes)
      return BrokenRule("{} is aligned to {} bytes, the access has {}", name, buffer.alignment,
                        bytes);
  return {};
}

Status MemoryRules::Check(const Mma& s) const {
  for (const std::string& name : {s.acc, s.a, s.b}) RETURN_IF_ERROR(RequireDefined(name));
  const DType acc = scope_.BufferOf(s.acc).type;
  const DType a = scope_.BufferOf(s.a).type, b = scope_.BufferOf(s.b).type;
  if (a != b || AccumulatorOfMma(a) != acc)
    return BrokenRule(
        "{} += {} * {}: f32 += the product of two f16, bf16, f32, e4m3 or e5m2, and i32 += of "
        "two i8 or u8 are possible",
        Info(acc).text, Info(a).text, Info(b).text);
  const struct {
    const std::string& name;
    const Expr& index;
    int lanes;
  } operands[] = {
      {s.acc, s.acc_index, 4}, {s.a, s.a_index, 16 / SizeOf(a)}, {s.b, s.b_index, 8 / SizeOf(a)}};
  for (const auto& operand : operands) {
    RETURN_IF_ERROR(expressions_.CheckElement(operand.name, operand.index, operand.lanes));
    if (!scope_.BufferOf(operand.name).per_thread)
      return BrokenRule("{} is not in registers", operand.name);
  }
  return {};
}

Status MemoryRules::Check(const LoadMatrix& s) const {
  if (s.matrices != 1 && s.matrices != 2 && s.matrices != 4)
    return BrokenRule("{} matrices: 1, 2 and 4 are possible", s.matrices);
  RETURN_IF_ERROR(RequireDefined(s.src));
  const Buffer& src = scope_.BufferOf(s.src);
  const int size = SizeOf(src.type);
  if (size > (s.transposed ? 2 : 4) || (s.transposed && size != 2))
    return BrokenRule("{} matrices of {}", s.transposed ? "transposed" : "plain",
                      Info(src.type).text);
  RETURN_IF_ERROR(expressions_.CheckElement(s.src, s.src_index, 16 / size));
  RETURN_IF_ERROR(expressions_.CheckElement(s.dst, s.dst_index, s.matrices * 4 / size));
  const Buffer& dst = scope_.BufferOf(s.dst);
  if (!dst.per_thread) return BrokenRule("{} is not in registers", s.dst);
  if (!src.is_shared()) return BrokenRule("{} is not in shared memory", s.src);
  if (dst.type != src.type)
    return BrokenRule("matrices of {} into {}", Info(src.type).text, Info(dst.type).text);
  return {};
}

Status MemoryRules::Check(const Largest& s) const {
  if (s.lanes < 2 || s.lanes % 2 != 0)
    return BrokenRule("{} lanes: an even number is possible", s.lanes);
  if (s.sources.empty() || s.taps.size() != s.sources.size())
    return BrokenRule("{} sources with {} numbers", s.sources.size(), s.taps.size());
  for (const int tap : s.taps)
    if (tap < 0 || tap > 127) return BrokenRule("number {}: 0 to 127 are possible", tap);
  std::vector<std::string> all = s.sources;
  all.push_back(s.values);
  if (!s.numbers.empty()) all.push_back(s.numbers);
  for (const std::string& name : all) {
    RETURN_IF_ERROR(expressions_.CheckElement(name, Int(0), s.lanes));
    const Buffer& b = scope_.BufferOf(name);
    if (!b.per_thread) return BrokenRule("{} is not in registers", name);
    const DType type = name == s.numbers ? DType::kI8 : scope_.BufferOf(s.values).type;
    if (b.type != type)
      return BrokenRule("{} holds {}, not {}", name, Info(b.type).text, Info(type).text);
  }
  const DType type = scope_.BufferOf(s.values).type;
  if (type != DType::kF16 && type != DType::kBF16)
    return BrokenRule("the largest of {}: f16 and bf16 are possible", Info(type).text);
  return {};
}

Status MemoryRules::Check(const CopyAsync& s) const {
  RETURN_IF_ERROR(Check(Copy{s.dst, s.dst_index, s.src, s.src_index, s.lanes}));
  const Buffer &dst = scope_.BufferOf(s.dst), &src = scope_.BufferOf(s.src);
  if (!dst.is_shared()) return BrokenRule("{} is not in shared memory", s.dst);
  if (!src.is_global()) return BrokenRule("{} is not in global memory", s.src);
  const int bytes = s.lanes * SizeOf(dst.type);
  if (bytes != 4 && bytes != 8 && bytes != 16)
    return BrokenRule("one access of {} bytes: 4, 8 and 16 are possible", bytes);
  RETURN_IF_ERROR(expressions_.Check(s.valid));
  if (s.valid->type != DType::kBool)
    return BrokenRule("condition is {}, not bool", Info(s.valid->type).text);
  return {};
}

Status MemoryRules::Check(const WaitAsync& s) const {
  return s.groups < 0 || s.groups > 7 ? BrokenRule("{} groups: 0 to 7 are possible", s.groups)
                                      : Status();
}

Status MemoryRules::Check(const AtomicAdd& s) const {
  RETURN_IF_ERROR(Check(Store{s.buffer, s.index, s.value}));
  const Buffer& b = scope_.BufferOf(s.buffer);
  if (!b.is_global()) return BrokenRule("{} is not in global memory", s.buffer);
  if (b.type != DType::kF32 && b.type != DType::kF64 && b.type != DType::kI32)
    return BrokenRule("{} holds {}: f32, f64 and i32 are possible", s.buffer, Info(b.type).text);
  return {};
}

}  // namespace kiln::tile
