#include "tests/support/emulated_gpu/decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "tests/support/emulated_gpu/machine.h"
#include "tests/support/emulated_gpu/ptxas_faults.h"

namespace kiln::emulated {
namespace {

constexpr struct {
  std::string_view name;
  Type type;
  int bits;
} kTypes[] = {
    {"pred", Type::kPred, 1},      {"b8", Type::kB8, 8},          {"b16", Type::kB16, 16},
    {"b32", Type::kB32, 32},       {"b64", Type::kB64, 64},       {"b128", Type::kB128, 128},
    {"u8", Type::kU8, 8},          {"u16", Type::kU16, 16},       {"u32", Type::kU32, 32},
    {"u64", Type::kU64, 64},       {"s8", Type::kS8, 8},          {"s16", Type::kS16, 16},
    {"s32", Type::kS32, 32},       {"s64", Type::kS64, 64},       {"f16", Type::kF16, 16},
    {"f16x2", Type::kF16x2, 32},   {"bf16", Type::kBF16, 16},     {"bf16x2", Type::kBF16x2, 32},
    {"tf32", Type::kTF32, 32},     {"f32", Type::kF32, 32},       {"f64", Type::kF64, 64},
    {"e4m3x2", Type::kE4M3x2, 16}, {"e5m2x2", Type::kE5M2x2, 16}, {"u16x2", Type::kU16x2, 32},
    {"s16x2", Type::kS16x2, 32},
};

int64_t AlignUp(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// Bytes of all lanes.
int SlotBytes(int bits) { return bits == 1 ? 4 : bits <= 32 ? 128 : bits * 4; }
bool SameSlot(int bits, int other) {
  return (bits == 1) == (other == 1) && SlotBytes(bits) == SlotBytes(other);
}

bool ParseNumber(const std::string& text, uint64_t& value) {
  if (text.empty()) return false;
  const bool negative = text[0] == '-';
  const char* const digits = text.c_str() + (negative ? 1 : 0);
  if (!std::isdigit(static_cast<unsigned char>(*digits))) return false;
  const char second = digits[0] == '0' ? digits[1] : '\0';
  char* end = nullptr;
  if (second == 'f' || second == 'F' || second == 'd' || second == 'D')
    value = std::strtoull(digits + 2, &end, 16);
  else if (second == 'b' || second == 'B')
    value = std::strtoull(digits + 2, &end, 2);
  else
    value = std::strtoull(digits, &end, 0);
  if (negative) value = ~value + 1;
  return *end == '\0' || *end == 'U';
}

}  // namespace

Type ParseType(std::string_view text) {
  for (const auto& row : kTypes)
    if (row.name == text) return row.type;
  return Type::kNone;
}
int BitsOf(Type type) {
  for (const auto& row : kTypes)
    if (row.type == type) return row.bits;
  return 0;
}
bool IsSigned(Type type) { return type >= Type::kS8 && type <= Type::kS64; }
bool IsFloat(Type type) { return type >= Type::kF16 && type <= Type::kE5M2x2; }

std::string TextOf(const Module& module, const Instr& instr) {
  const size_t line = static_cast<size_t>(instr.line);
  if (line == 0 || line > module.lines.size()) return fmt::format("line {}", line);
  std::string text = module.lines[line - 1];
  text.erase(0, text.find_first_not_of(" \t"));
  return fmt::format("line {}: {}", line, text);
}

// ---- names

Decoder::Decoder(const Module& module, Function& function) : module_(module), function_(function) {
  for (const auto& [name, bits] : function.text->registers)
    registers_[name] = {.slot = NewSlot(bits), .bits = bits};
  Variables();
}

void Decoder::Variables() {
  const PtxFunction& text = *function_.text;
  int64_t at = 0;
  for (const PtxVariable& param : text.params) {
    at = AlignUp(at, param.align);
    symbols_[param.name] = {.space = Space::kParam, .address = static_cast<uint64_t>(at)};
    function_.params.push_back({.offset = at, .bytes = param.bytes});
    at += param.bytes;
  }
  function_.param_bytes = at;
  at = 0;
  for (const PtxVariable& local : text.local) {
    at = AlignUp(at, local.align);
    symbols_[local.name] = {.space = Space::kLocal, .address = static_cast<uint64_t>(at)};
    at += local.bytes;
  }
  function_.local_bytes = AlignUp(at, 16);
  at = 0;
  int64_t dynamic_align = 16;
  std::vector<std::string> dynamic;
  for (const auto* of : {&module_.text.shared, &text.shared})
    for (const PtxVariable& shared : *of) {
      if (shared.bytes == 0) {
        dynamic_align = std::max(dynamic_align, shared.align);
        dynamic.push_back(shared.name);
        continue;
      }
      at = AlignUp(at, shared.align);
      symbols_[shared.name] = {.space = Space::kShared,
                               .address = kSharedBegin + static_cast<uint64_t>(at)};
      at += shared.bytes;
    }
  function_.shared_bytes = at;
  function_.dynamic_shared_at = AlignUp(at, dynamic_align);
  for (const std::string& name : dynamic)
    symbols_[name] = {.space = Space::kShared,
                      .address = kSharedBegin + static_cast<uint64_t>(function_.dynamic_shared_at)};
  for (const auto& [name, memory] : module_.globals)
    symbols_[name] = {.space = Space::kGlobal, .address = reinterpret_cast<uint64_t>(memory.get())};
}

uint32_t Decoder::NewSlot(int bits) {
  auto& file = function_.registers;
  const size_t bytes = static_cast<size_t>(SlotBytes(bits));
  const size_t align = std::min<size_t>(bytes, 128);
  const size_t at = (file.size() + align - 1) / align * align;
  file.resize(at + bytes, 0xff);
  return static_cast<uint32_t>(at);
}

uint32_t Decoder::Constant(uint64_t value, int bits) {
  if (bits < 64 && bits > 1) value &= (uint64_t{1} << bits) - 1;
  const auto [known, is_new] = constants_.try_emplace({value, SlotBytes(bits)}, 0);
  if (!is_new) return known->second;
  const uint32_t slot = known->second = NewSlot(bits);
  for (int lane = 0; lane < kLanes; ++lane) {
    if (bits == 64)
      std::memcpy(function_.registers.data() + slot + lane * 8, &value, 8);
    else if (bits > 1)
      std::memcpy(function_.registers.data() + slot + lane * 4, &value, 4);
  }
  if (bits == 1) {
    const Mask mask = value != 0 ? ~Mask{0} : 0;
    std::memcpy(function_.registers.data() + slot, &mask, 4);
  }
  return slot;
}

uint32_t Decoder::Special(const std::string& name, int bits, uint64_t number) {
  for (const SpecialRegister& known : function_.specials)
    if (known.name == name && known.bits == bits && known.number == number) return known.slot;
  function_.specials.push_back(
      {.name = name, .slot = NewSlot(bits), .bits = bits, .number = number});
  return function_.specials.back().slot;
}

// ---- the opcode

void Decoder::Begin(const PtxStatement& statement) {
  statement_ = &statement;
  parts_.clear();
  const std::string_view opcode = statement.opcode;
  for (size_t begin = 0; begin <= opcode.size();) {
    const size_t end = std::min(opcode.find('.', begin), opcode.size());
    parts_.push_back(opcode.substr(begin, end - begin));
    begin = end + 1;
  }
}

bool Decoder::Has(std::string_view part) const {
  return std::find(parts_.begin() + 1, parts_.end(), part) != parts_.end();
}

std::vector<Type> Decoder::Types() const {
  std::vector<Type> types;
  for (const std::string_view part : parts_)
    if (const Type type = ParseType(part); type != Type::kNone) types.push_back(type);
  return types;
}

Type Decoder::LastType() const {
  const std::vector<Type> types = Types();
  return types.empty() ? Type::kNone : types.back();
}

int Decoder::VectorSize() const { return Has("v2") ? 2 : Has("v4") ? 4 : Has("v8") ? 8 : 1; }

Space Decoder::SpaceOf() const {
  if (Has("shared::cluster")) return Space::kSharedCluster;
  if (Has("shared") || Has("shared::cta")) return Space::kShared;
  if (Has("local")) return Space::kLocal;
  if (Has("param") || Has("param::entry")) return Space::kParam;
  if (Has("global") || Has("const")) return Space::kGlobal;
  return Space::kGeneric;
}

bool Decoder::Flag(std::string_view part, Instr& i, uint8_t flag) const {
  if (!Has(part)) return false;
  i.flags |= flag;
  return true;
}

// ---- operands

void Decoder::Fail(const std::string& text) const {
  throw Unknown{fmt::format("line {}: {} {}", statement_->line, statement_->opcode, text)};
}

const std::string& Decoder::text(size_t operand) const {
  if (operand >= count()) Fail(fmt::format("has no operand {}", operand));
  return statement_->operands[operand];
}

int Decoder::RegisterBits(const std::string& text) const {
  const auto known = registers_.find(text);
  return known == registers_.end() ? 0 : known->second.bits;
}

uint32_t Decoder::SourceOf(const std::string& text, int bits) {
  if (const auto known = registers_.find(text); known != registers_.end()) {
    if (!SameSlot(known->second.bits, bits))
      Fail(fmt::format("takes {}, which has {} bits and not {}", text, known->second.bits, bits));
    return known->second.slot;
  }
  uint64_t value = 0;
  if (ParseNumber(text, value)) return Constant(value, bits);
  if (const auto symbol = symbols_.find(text); symbol != symbols_.end()) {
    if (symbol->second.space == Space::kShared)
      return Special("@shared", bits, symbol->second.address);
    return Constant(symbol->second.address, bits);
  }
  if (text == "WARP_SZ") return Constant(kLanes, bits);
  if (text.starts_with("%")) return Special(text, bits, 0);
  Fail(fmt::format("takes {}, which is not known", text));
}

uint32_t Decoder::TargetOf(const std::string& text, int bits) {
  if (text == "_") return NewSlot(bits);
  const auto known = registers_.find(text);
  if (known == registers_.end()) Fail(fmt::format("writes {}, which is no register", text));
  if (!SameSlot(known->second.bits, bits))
    Fail(fmt::format("writes {}, which has {} bits and not {}", text, known->second.bits, bits));
  return known->second.slot;
}

uint32_t Decoder::Predicate(const std::string& text, bool& negated) {
  negated = text.starts_with("!");
  return SourceOf(negated ? text.substr(1) : text, 1);
}

std::pair<std::string, std::string> Decoder::Halves(size_t operand) const {
  const std::string& both = text(operand);
  const size_t bar = both.find('|');
  if (bar == std::string::npos) return {both, ""};
  return {both.substr(0, bar), both.substr(bar + 1)};
}

void Decoder::Address(const std::string& text, Instr& i) {
  std::string inner = text;
  if (inner.starts_with("[") && inner.ends_with("]")) inner = inner.substr(1, inner.size() - 2);
  const size_t plus = inner.find('+', 1);
  i.offset = 0;
  if (plus != std::string::npos) {
    uint64_t number = 0;
    if (!ParseNumber(inner.substr(plus + 1), number)) Fail(fmt::format("has address {}", text));
    i.offset = static_cast<int64_t>(number);
    inner = inner.substr(0, plus);
  }
  const int bits = RegisterBits(inner);
  const auto symbol = symbols_.find(inner);
  i.a_is_wide = bits == 64 ||
                (bits == 0 && (symbol == symbols_.end() || symbol->second.space != Space::kShared));
  i.a = SourceOf(inner, i.a_is_wide ? 64 : 32);
}

bool Decoder::IsNumber(size_t operand) const {
  uint64_t ignored = 0;
  return ParseNumber(text(operand), ignored);
}

int64_t Decoder::Number(size_t operand) const {
  uint64_t value = 0;
  if (!ParseNumber(text(operand), value))
    Fail(fmt::format("needs a number, not {}", text(operand)));
  return static_cast<int64_t>(value);
}

std::vector<std::string> Decoder::Split(std::string_view text) {
  if (text.starts_with("{") && text.ends_with("}")) text = text.substr(1, text.size() - 2);
  std::vector<std::string> parts;
  int depth = 0;
  size_t begin = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    const char c = i < text.size() ? text[i] : ',';
    depth += (c == '{') - (c == '}');
    if (c != ',' || depth > 0) continue;
    parts.emplace_back(text.substr(begin, i - begin));
    begin = i + 1;
  }
  return parts;
}

void Decoder::List(const std::string& text, int bits, bool is_target, int& first, int& size) {
  first = static_cast<int>(function_.lists.size());
  std::vector<uint32_t> slots;
  for (const std::string& part : Split(text))
    slots.push_back(is_target ? TargetOf(part, bits) : SourceOf(part, bits));
  function_.lists.insert(function_.lists.end(), slots.begin(), slots.end());
  size = static_cast<int>(slots.size());
}

// ---- functions

namespace {

const OpRow* FindOp(std::string_view word) {
  static const auto* const all = [] {
    auto* const made = new std::map<std::string_view, const OpRow*>;
    for (const auto ops : {ScalarOps(), ProductOps(), BitOps(), CompareOps(), ConvertOps(),
                           MemoryOps(), WarpOps(), ControlOps(), AsyncOps(), WgmmaOps()})
      for (const OpRow& row : ops) made->emplace(row.word, &row);
    return made;
  }();
  const auto known = all->find(word);
  return known == all->end() ? nullptr : known->second;
}

int LabelIndex(const PtxFunction& text, const std::string& name, const Decoder& decoder) {
  const auto label = text.labels.find(name);
  if (label == text.labels.end()) decoder.Fail(fmt::format("goes to {}, which is no label", name));
  return label->second;
}

// Registers of wgmma, which others may touch only when it is done.
void MarkSums(Function& function, const std::vector<std::vector<uint32_t>>& slots) {
  std::vector<bool> is_sum(function.registers.size() + 1, false);
  for (size_t n = 0; n < function.instrs.size(); ++n) {
    if (function.text->statements.size() <= n) break;
    if (!function.text->statements[n].opcode.starts_with("wgmma.mma_async")) continue;
    for (const uint32_t slot : slots[n]) is_sum[slot] = true;
  }
  for (size_t n = 0; n < function.instrs.size(); ++n) {
    if (function.text->statements.size() <= n ||
        function.text->statements[n].opcode.starts_with("wgmma.mma_async"))
      continue;
    for (const uint32_t slot : slots[n]) function.instrs[n].touches_sums |= is_sum[slot];
  }
}

void DecodeFunction(const Module& module, Function& function) {
  const PtxFunction& text = *function.text;
  Decoder decoder(module, function);
  std::vector<std::vector<uint32_t>> slots;  // of each statement's registers
  const bool has_products = std::ranges::any_of(text.statements, [](const PtxStatement& s) {
    return s.opcode.starts_with("wgmma.mma_async");
  });
  for (const PtxStatement& statement : text.statements) {
    decoder.Begin(statement);
    Instr i;
    i.line = statement.line;
    if (!statement.guard.empty()) {
      i.has_guard = true;
      i.guard_negated = statement.guard_negated;
      bool ignored = false;
      i.guard = decoder.Predicate(statement.guard, ignored);
    }
    const OpRow* const op = FindOp(decoder.parts()[0]);
    if (op == nullptr) decoder.Fail("is an instruction that the emulated GPU does not know");
    op->decode(decoder, i);
    if (i.control == Control::kBranch) i.target = LabelIndex(text, decoder.text(0), decoder);
    if (i.control == Control::kBranchIndexed) {
      const auto targets = text.branch_targets.find(decoder.text(1));
      if (targets == text.branch_targets.end()) decoder.Fail("has no list of targets");
      i.first_list = static_cast<int>(function.lists.size());
      i.list_size = static_cast<int>(targets->second.size());
      for (const std::string& name : targets->second)
        function.lists.push_back(static_cast<uint32_t>(LabelIndex(text, name, decoder)));
    }
    if (i.run == nullptr && i.control != Control::kBranch && i.control != Control::kExit &&
        i.control != Control::kBranchIndexed)
      decoder.Fail("is not understood");
    function.instrs.push_back(i);
    slots.emplace_back();
    if (!has_products) continue;
    for (const std::string& operand : statement.operands) {
      std::string plain = operand;
      for (char& c : plain)
        if (c == '{' || c == '}' || c == '[' || c == ']' || c == '|') c = ',';
      for (const std::string& name : Decoder::Split(plain))
        if (const int bits = decoder.RegisterBits(name); bits != 0)
          slots.back().push_back(decoder.SourceOf(name, bits));
    }
  }
  // Behind its last instruction a function ends.
  function.instrs.push_back({.control = Control::kExit, .line = 0});
  if (has_products) MarkSums(function, slots);
  std::copy_n(text.cluster, 3, function.cluster);
}

}  // namespace

std::unique_ptr<Module> LoadModule(std::string_view ptx, std::string& error) {
  auto module = std::make_unique<Module>();
  if (auto sentence = ParsePtx(ptx, module->text)) {
    error = *sentence;
    return nullptr;
  }
  const std::string_view text = module->text.text;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    module->lines.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  for (const PtxVariable& global : module->text.globals) {
    const auto bytes = static_cast<size_t>((global.bytes + 256) / 256 * 256);
    auto& memory = module->globals[global.name];
    memory.reset(static_cast<uint8_t*>(std::aligned_alloc(256, bytes)), std::free);
    std::memset(memory.get(), 0, bytes);
    std::copy(global.initial.begin(), global.initial.end(), memory.get());
  }
  for (const PtxFunction& function : module->text.functions) {
    if (!function.is_entry) continue;
    Function& made = module->functions[function.name];
    made.name = function.name;
    made.text = &function;
    try {
      DecodeFunction(*module, made);
      if (const auto fault = FoldedComplement(function)) throw Unknown{*fault};
    } catch (const Unknown& unknown) {
      module->undecoded[function.name] = unknown.text;
    }
  }
  return module;
}

}  // namespace kiln::emulated
