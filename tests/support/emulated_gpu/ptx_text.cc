#include "tests/support/emulated_gpu/ptx_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace kiln::emulated {
namespace {

struct ParseError {
  int line;
  std::string text;
};

bool IsWordCharacter(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$' || c == '%' ||
         c == '.' || c == ':';
}

int BitsOfType(std::string_view type) {
  if (type == ".pred") return 1;
  const size_t digit = type.find_first_of("0123456789");
  int bits =
      digit == std::string_view::npos ? 0 : std::atoi(std::string(type.substr(digit)).c_str());
  if (type.ends_with("x2")) bits *= 2;
  return bits;
}

struct Scope {
  int number = 0;
  std::map<std::string, std::string> names;  // to unique ones
};

class Parser {
 public:
  Parser(std::string_view text, PtxModule& module) : text_(text), module_(module) {}

  void Run() {
    while (SkipSpace(), at_ < text_.size()) TopLevel();
  }

 private:
  // ---- characters

  [[noreturn]] void Fail(const std::string& text) const { throw ParseError{line_, text}; }

  void SkipSpace() {
    while (at_ < text_.size()) {
      if (text_[at_] == '\n') ++line_;
      if (std::isspace(static_cast<unsigned char>(text_[at_]))) {
        ++at_;
      } else if (text_.substr(at_, 2) == "//") {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (text_.substr(at_, 2) == "/*") {
        const size_t end = std::min(text_.find("*/", at_), text_.size() - 2) + 2;
        line_ += static_cast<int>(std::count(text_.begin() + static_cast<long>(at_),
                                             text_.begin() + static_cast<long>(end), '\n'));
        at_ = end;
      } else {
        return;
      }
    }
  }
  char Peek() {
    SkipSpace();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool Take(char c) {
    if (Peek() != c) return false;
    ++at_;
    return true;
  }
  void Expect(char c) {
    if (!Take(c)) Fail(fmt::format("'{}' is expected before '{}'", c, text_.substr(at_, 20)));
  }
  std::string Word() {
    SkipSpace();
    const size_t begin = at_;
    if (at_ < text_.size() && (text_[at_] == '-' || text_[at_] == '!')) ++at_;
    while (at_ < text_.size() && IsWordCharacter(text_[at_])) ++at_;
    return std::string(text_.substr(begin, at_ - begin));
  }
  // Up to one of the characters, which stays; white space of the ends is dropped.
  std::string Until(std::string_view ends) {
    SkipSpace();
    const size_t begin = at_;
    while (at_ < text_.size() && ends.find(text_[at_]) == std::string_view::npos) {
      if (text_[at_] == '\n') ++line_;
      ++at_;
    }
    std::string taken(text_.substr(begin, at_ - begin));
    while (!taken.empty() && std::isspace(static_cast<unsigned char>(taken.back())))
      taken.pop_back();
    return taken;
  }
  int64_t Number() { return std::strtoll(Word().c_str(), nullptr, 0); }

  // ---- declarations

  void TopLevel() {
    const std::string word = Word();
    if (word == ".version" || word == ".address_size" || word == ".file") {
      at_ = std::min(text_.find('\n', at_), text_.size());
    } else if (word == ".target") {
      module_.target = Word();
      at_ = std::min(text_.find('\n', at_), text_.size());
    } else if (word == ".visible" || word == ".extern" || word == ".weak" || word == ".common") {
      return;
    } else if (word == ".entry" || word == ".func") {
      Function(word == ".entry");
    } else if (word == ".global" || word == ".const") {
      Variables(module_.globals);
    } else if (word == ".shared") {
      Variables(module_.shared);
    } else if (word == ".section") {
      Until("{");
      Expect('{');
      Until("}");
      Expect('}');
    } else {
      Fail(fmt::format("'{}' is no declaration", word.empty() ? std::string(1, Peek()) : word));
    }
  }

  // ".align 16 .b8 name[64]" without its end; elements of 0 stand for [].
  PtxVariable Variable() {
    PtxVariable made;
    int bits = 0, vector = 1;
    std::string word = Word();
    for (; word.starts_with("."); word = Word()) {
      if (word == ".align")
        made.align = std::max(made.align, Number());
      else if (word == ".v2" || word == ".v4")
        vector = word[2] - '0';
      else if (word == ".ptr" || word == ".global" || word == ".const" || word == ".shared" ||
               word == ".attribute" || word == ".param" || word == ".reg")
        continue;
      else
        bits = BitsOfType(word);
    }
    made.name = word;
    made.bytes = static_cast<int64_t>(std::max(bits, 8)) / 8 * vector;
    made.align = std::max(made.align, made.bytes);
    element_bytes_ = static_cast<int>(made.bytes);
    while (Take('[')) {
      made.bytes *= Peek() == ']' ? 0 : Number();
      Expect(']');
    }
    return made;
  }

  void Variables(std::vector<PtxVariable>& into) {
    do {
      PtxVariable made = Variable();
      if (Take('=')) Initial(made);
      into.push_back(std::move(made));
    } while (Take(','));
    Expect(';');
  }

  void Initial(PtxVariable& variable) {
    const auto number = [&] {
      const std::string word = Word();
      uint64_t value = 0;
      if (word.starts_with("0f") || word.starts_with("0F") || word.starts_with("0d") ||
          word.starts_with("0D"))
        value = std::strtoull(word.c_str() + 2, nullptr, 16);
      else
        value = std::strtoull(word.c_str(), nullptr, 0);
      for (int i = 0; i < element_bytes_; ++i)
        variable.initial.push_back(static_cast<uint8_t>(i < 8 ? value >> (8 * i) : 0));
    };
    if (!Take('{')) return number();
    while (!Take('}')) {
      if (Peek() == '{') Fail("an initial value of several dimensions is not understood");
      number();
      Take(',');
    }
  }

  void ParameterList(std::vector<PtxVariable>& into) {
    if (!Take('(')) return;
    while (!Take(')')) {
      into.push_back(Variable());
      Take(',');
    }
  }

  // ---- functions

  void Function(bool is_entry) {
    PtxFunction function;
    function.is_entry = is_entry;
    if (!is_entry) ParameterList(function.results);
    function.name = Word();
    ParameterList(function.params);
    for (;;) {
      if (Take(';')) return;  // declared alone
      if (Peek() == '{') break;
      const std::string word = Word();
      int* numbers = nullptr;
      int three[3] = {1, 1, 1};
      numbers = word == ".reqnctapercluster" ? function.cluster : three;
      if (numbers == function.cluster) std::fill_n(function.cluster, 3, 1);
      if (word == ".explicitcluster" || word == ".noreturn") continue;
      if (word == ".pragma") {
        Until(";");
        Expect(';');
        continue;
      }
      if (!word.starts_with(".")) Fail(fmt::format("'{}' is no directive", word));
      for (int i = 0; std::isdigit(static_cast<unsigned char>(Peek())); ++i) {
        numbers[std::min(i, 2)] = static_cast<int>(Number());
        if (!Take(',')) break;
      }
      if (word == ".maxntid" || word == ".reqntid")
        function.max_threads = three[0] * three[1] * three[2];
    }
    function_ = &function;
    scopes_.clear();
    last_scope_ = 0;
    Block();
    module_.functions.push_back(std::move(function));
  }

  void Block() {
    Expect('{');
    scopes_.push_back({.number = last_scope_++, .names = {}});
    const size_t first = function_->statements.size();
    while (!Take('}')) Statement();
    // Labels of the scope are known only now.
    for (size_t s = first; s < function_->statements.size(); ++s)
      for (std::string& operand : function_->statements[s].operands) {
        const auto known = scopes_.back().names.find(operand);
        if (known != scopes_.back().names.end()) operand = known->second;
      }
    scopes_.pop_back();
  }

  std::string Declare(const std::string& name) {
    Scope& scope = scopes_.back();
    const std::string unique = scope.number == 0 ? name : fmt::format("{}@{}", name, scope.number);
    scope.names[name] = unique;
    return unique;
  }
  std::string Resolve(const std::string& name) const {
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
      const auto known = scope->names.find(name);
      if (known != scope->names.end()) return known->second;
    }
    return name;
  }
  // Every name in an operand.
  std::string ResolveAll(std::string_view operand) const {
    std::string made;
    for (size_t i = 0; i < operand.size();) {
      if (!IsWordCharacter(operand[i])) {
        if (!std::isspace(static_cast<unsigned char>(operand[i]))) made += operand[i];
        ++i;
        continue;
      }
      size_t end = i;
      while (end < operand.size() && IsWordCharacter(operand[end])) ++end;
      made += Resolve(std::string(operand.substr(i, end - i)));
      i = end;
    }
    return made;
  }

  void Statement() {
    if (Take(';')) return;
    if (Peek() == '{') return Block();
    const int line = line_;
    PtxStatement made{
        .opcode = {}, .operands = {}, .guard = {}, .guard_negated = false, .line = line};
    if (Take('@')) {
      made.guard_negated = Take('!');
      made.guard = Resolve(Word());
    }
    std::string word = Word();
    if (word.empty()) Fail(fmt::format("'{}' begins no statement", text_.substr(at_, 20)));
    if (word.ends_with(":") && !word.ends_with("::")) return Label(word.substr(0, word.size() - 1));
    if (word.starts_with(".")) return Directive(word);
    made.opcode = word;
    Operands(Until(";"), made.operands);
    Expect(';');
    function_->statements.push_back(std::move(made));
  }

  void Label(const std::string& name) {
    const std::string unique = Declare(name);
    if (Peek() == '.') {
      const size_t before = at_;
      if (Word() == ".branchtargets") {
        std::vector<std::string> names;
        Operands(Until(";"), names);
        Expect(';');
        function_->branch_targets[unique] = names;
        return;
      }
      at_ = before;
    }
    function_->labels[unique] = static_cast<int>(function_->statements.size());
  }

  void Operands(std::string_view text, std::vector<std::string>& into) const {
    int depth = 0;
    size_t begin = 0;
    for (size_t i = 0; i <= text.size(); ++i) {
      const char c = i < text.size() ? text[i] : ',';
      if (c == '{' || c == '[' || c == '(') ++depth;
      if (c == '}' || c == ']' || c == ')') --depth;
      if (c != ',' || depth > 0) continue;
      std::string operand = ResolveAll(text.substr(begin, i - begin));
      if (!operand.empty()) into.push_back(std::move(operand));
      begin = i + 1;
    }
  }

  void Directive(const std::string& word) {
    if (word == ".reg") return Registers();
    if (word == ".shared" || word == ".local" || word == ".param") {
      auto& into = word == ".shared"  ? function_->shared
                   : word == ".local" ? function_->local
                                      : function_->call_params;
      const size_t first = into.size();
      Variables(into);
      for (size_t i = first; i < into.size(); ++i) into[i].name = Declare(into[i].name);
    } else {  // .loc, .pragma, …
      if (word == ".loc") {
        at_ = std::min(text_.find('\n', at_), text_.size());
        return;
      }
      Until(";");
      Expect(';');
    }
  }

  // ".reg .f32 %f<17>;" or ".reg .pred p, q;"
  void Registers() {
    std::string type = Word();
    if (type == ".v2" || type == ".v4") Fail("vectors of registers are not understood");
    const int bits = BitsOfType(type);
    do {
      const std::string name = Word();
      if (Take('<')) {
        const int64_t count = Number();
        Expect('>');
        for (int64_t i = 0; i < count; ++i)
          function_->registers[Declare(fmt::format("{}{}", name, i))] = bits;
      } else {
        function_->registers[Declare(name)] = bits;
      }
    } while (Take(','));
    Expect(';');
  }

  std::string_view text_;
  PtxModule& module_;
  size_t at_ = 0;
  int line_ = 1;
  int element_bytes_ = 0;
  PtxFunction* function_ = nullptr;
  std::vector<Scope> scopes_;
  int last_scope_ = 0;
};

}  // namespace

std::optional<std::string> ParsePtx(std::string_view text, PtxModule& module) {
  module.text = text;
  try {
    Parser(module.text, module).Run();
  } catch (const ParseError& error) {
    return fmt::format("line {} of the PTX: {}", error.line, error.text);
  }
  return std::nullopt;
}

}  // namespace kiln::emulated
