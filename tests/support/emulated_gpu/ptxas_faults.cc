#include "tests/support/emulated_gpu/ptxas_faults.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <string_view>
#include <vector>

namespace kiln::emulated {
namespace {

std::optional<int64_t> ConstantOf(const std::string& text) {
  int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [last, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && last == end ? std::optional(value) : std::nullopt;
}

bool IsBranch(const PtxStatement& s) { return s.opcode == "bra" || s.opcode.starts_with("bra."); }
bool Ends(const PtxStatement& s) {
  return s.guard.empty() && (IsBranch(s) || s.opcode == "ret" || s.opcode == "exit" ||
                             s.opcode == "trap" || s.opcode.starts_with("brx"));
}

// A register and the constant that it is equal to.
struct Equality {
  std::string name;
  int64_t value;
};
using Known = std::map<std::string, int64_t>;

// Registers that are equal to a constant before each statement, as far as branches tell.
class KnownConstants {
 public:
  explicit KnownConstants(const PtxFunction& f) : f_(f), before_(f.statements.size()) {
    for (const PtxStatement& s : f.statements)
      if (!s.operands.empty()) ++writes_[s.operands[0]];
    for (const PtxStatement& s : f.statements) Compare(s);
    if (before_.empty()) return;
    Reach(0, {});
    while (!reached_.empty()) {
      const size_t at = *reached_.begin();
      reached_.erase(reached_.begin());
      Leave(at);
    }
  }
  const Known& before(size_t statement) const {
    static const Known none;
    return before_[statement] ? *before_[statement] : none;
  }
  bool IsWrittenOnce(const std::string& name) const {
    const auto at = writes_.find(name);
    return at != writes_.end() && at->second == 1;
  }

 private:
  void Compare(const PtxStatement& s) {
    const bool is_equal = s.opcode.starts_with("setp.eq.");
    if ((!is_equal && !s.opcode.starts_with("setp.ne.")) || s.operands.size() != 3) return;
    const auto constant = ConstantOf(s.operands[2]);
    if (!constant || !IsWrittenOnce(s.operands[0])) return;
    (is_equal ? equal_ : unequal_).insert({s.operands[0], {s.operands[1], *constant}});
  }
  // The equality that holds where the guard of a branch has this value.
  std::optional<Equality> Shown(const PtxStatement& branch, bool is_taken) const {
    const auto& shown = is_taken != branch.guard_negated ? equal_ : unequal_;
    const auto at = shown.find(branch.guard);
    return at == shown.end() ? std::nullopt : std::optional(at->second);
  }
  void Reach(size_t statement, const Known& known) {
    if (statement >= before_.size()) return;
    std::optional<Known>& now = before_[statement];
    const Known was = now.value_or(Known());
    if (!now)
      now = known;
    else
      std::erase_if(*now, [&](const auto& each) {
        const auto at = known.find(each.first);
        return at == known.end() || at->second != each.second;
      });
    if (!visited_.insert(statement).second && was == *now) return;
    reached_.insert(statement);
  }
  void Leave(size_t at) {
    const PtxStatement& s = f_.statements[at];
    Known known = *before_[at];
    const auto shown = [&](bool is_taken) {
      Known more = known;
      if (const auto e = Shown(s, is_taken)) more[e->name] = e->value;
      return more;
    };
    if (IsBranch(s)) {
      if (const auto target = f_.labels.find(s.operands[0]); target != f_.labels.end())
        Reach(static_cast<size_t>(target->second), s.guard.empty() ? known : shown(true));
      if (!s.guard.empty()) Reach(at + 1, shown(false));
      return;
    }
    if (s.opcode.starts_with("brx"))
      for (const auto& [name, targets] : f_.branch_targets)
        for (const std::string& label : targets)
          Reach(static_cast<size_t>(f_.labels.at(label)), known);
    if (Ends(s)) return;
    if (!s.operands.empty()) known.erase(s.operands[0]);
    if (s.operands.size() > 1 && s.operands[0].starts_with('{')) known.clear();  // any of them
    Reach(at + 1, known);
  }

  const PtxFunction& f_;
  std::vector<std::optional<Known>> before_;  // absent: not reached
  std::set<size_t> reached_, visited_;
  std::map<std::string, int> writes_;
  std::map<std::string, Equality> equal_, unequal_;  // by the predicate that says so
};

// The register that each register is the complement of.
std::map<std::string, std::string> ComplementsOf(const PtxFunction& f,
                                                 const KnownConstants& known) {
  std::map<std::string, std::string> all;
  for (const PtxStatement& s : f.statements) {
    const bool is_not = s.opcode.starts_with("not.b");
    const bool is_xor = s.opcode.starts_with("xor.b") && s.operands[2] == "-1";
    if ((is_not || is_xor) && known.IsWrittenOnce(s.operands[0]))
      all[s.operands[0]] = s.operands[1];
  }
  return all;
}

}  // namespace

std::optional<std::string> FoldedComplement(const PtxFunction& function) {
  const KnownConstants known(function);
  const auto complements = ComplementsOf(function, known);
  if (complements.empty()) return std::nullopt;
  for (size_t i = 0; i < function.statements.size(); ++i) {
    const PtxStatement& s = function.statements[i];
    if (!s.opcode.starts_with("and.b") && !s.opcode.starts_with("or.b") &&
        !s.opcode.starts_with("xor.b"))
      continue;
    for (size_t operand = 1; operand < s.operands.size(); ++operand) {
      const auto complement = complements.find(s.operands[operand]);
      if (complement == complements.end()) continue;
      const auto constant = known.before(i).find(complement->second);
      if (constant != known.before(i).end())
        return fmt::format(
            "line {}: {} takes the complement of {}, which is {} there; ptxas takes {} itself",
            s.line, s.opcode, complement->second, constant->second, constant->second);
    }
  }
  return std::nullopt;
}

}  // namespace kiln::emulated
