// Reads the text form of a graph. The grammar, with words as the printer writes them:
//
//   graph  := "graph" name "{" (tensor | node)* "}"
//   tensor := "tensor" %name { dtype | [dims] | uid=n | strides=[…] | align=n
//                            | "virtual" | "by_value" | value=x }
//   node   := operands "=" op "(" operands ")" { compute=dtype | name="…" | attribute=value | flag
//          }
//   operands := (%name | "_") { "," … }         "#" starts a comment; line breaks mean nothing
//
// What a graph means is checked by Verify, not here. Errors start with line:column.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <set>
#include <variant>

#include "ir/base/similar_names.h"
#include "ir/graph/graph.h"
#include "ir/graph/ops.h"
#include "ir/graph/text.h"

namespace kiln::graph {
namespace {

constexpr size_t kMaxListed = 64;  // values in one […] or operands of one node
constexpr std::string_view kReference = "docs/text_language.md lists them";

enum class Kind { kWord, kTensor, kString, kPunctuation, kEnd };

struct Token {
  Kind kind = Kind::kEnd;
  size_t at = 0;
  std::string text;  // without % and quotes
};

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}
  Result<Graph> Run();

 private:
  Status Fail(const Token& token, std::string_view sentence) const;
  // With the nearest of the known names, where a word was found that is none of them.
  Status Expected(std::string_view what, const std::vector<std::string_view>& known = {}) const;
  Status Next();
  Status NextString(Token& token);
  void SkipBlanks();
  bool At(std::string_view punctuation) const {
    return token_.kind == Kind::kPunctuation && token_.text == punctuation;
  }
  Status Take(std::string_view punctuation);
  Status TakeWord(std::string_view word);

  Status ParseTensor();
  Status ParseTensorProperty(Tensor& tensor, std::set<std::string>& seen);
  Status ParseNode();
  Status ParseOperands(std::vector<TensorId>& ids);
  std::string NoTensor(const std::string& name) const;
  Status NoOperation() const;
  void FillSpatial(Node& node) const;
  Status ParseNodeProperty(Node& node, std::set<std::string>& seen);
  Status Once(std::set<std::string>& seen, const std::string& key, const Token& at) const;

  // Values, after "key=".
  Status Value(Dims& out);
  Status Value(DType& out);
  template <class T>
  Status Value(T& out);

  std::string_view text_;
  size_t at_ = 0;
  Token token_;
  Graph graph_;
  std::map<std::string, TensorId> ids_;
};

bool IsWordChar(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '+' ||
         c == '-';
}
bool IsNameChar(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

Status Parser::Fail(const Token& token, std::string_view sentence) const {
  size_t line = 1, column = 1;
  for (size_t i = 0; i < token.at; ++i) {
    column = text_[i] == '\n' ? 1 : column + 1;
    line += text_[i] == '\n';
  }
  return Status::Error(Code::kBadParam, "{}:{}: {}", line, column, sentence);
}

Status Parser::Expected(std::string_view what, const std::vector<std::string_view>& known) const {
  const std::string found =
      token_.kind == Kind::kEnd ? "the end" : fmt::format("'{}'", token_.text.substr(0, 60));
  return Fail(
      token_,
      fmt::format("expected {}, found {}{}", what, found,
                  token_.kind == Kind::kWord ? NearestText(token_.text, known, kReference) : ""));
}

void Parser::SkipBlanks() {
  while (at_ < text_.size()) {
    if (text_[at_] == '#') {
      at_ = std::min(text_.find('\n', at_), text_.size());
    } else if (std::isspace(static_cast<unsigned char>(text_[at_]))) {
      ++at_;
    } else {
      return;
    }
  }
}

Status Parser::Next() {
  SkipBlanks();
  token_ = Token{.kind = Kind::kEnd, .at = at_, .text = {}};
  if (at_ == text_.size()) return {};
  const char c = text_[at_];
  if (c == '"') return NextString(token_);
  const bool is_tensor = c == '%';
  if (is_tensor) ++at_;
  const size_t start = at_;
  while (at_ < text_.size() && (is_tensor ? IsNameChar(text_[at_]) : IsWordChar(text_[at_]))) ++at_;
  token_.text = std::string(text_.substr(start, at_ - start));
  token_.kind = is_tensor ? Kind::kTensor : Kind::kWord;
  if (!token_.text.empty() &&
      !(is_tensor && std::isdigit(static_cast<unsigned char>(token_.text[0]))))
    return {};
  if (is_tensor)
    return Fail(token_,
                "expected a tensor's name after '%': letters, digits and _, no digit first");
  if (std::string_view("{}()[]=,").find(c) == std::string_view::npos) {
    return Fail(token_, std::isprint(static_cast<unsigned char>(c))
                            ? fmt::format("'{}' has no meaning here", c)
                            : fmt::format("byte 0x{:02x} has no meaning here",
                                          static_cast<unsigned char>(c)));
  }
  token_.kind = Kind::kPunctuation;
  token_.text = c;
  ++at_;
  return {};
}

Status Parser::NextString(Token& token) {
  token.kind = Kind::kString;
  for (++at_; at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\n'; ++at_) {
    if (text_[at_] != '\\') {
      token.text += text_[at_];
      continue;
    }
    const std::string_view rest = text_.substr(at_ + 1);
    unsigned byte = 0;
    if (rest.starts_with('"') || rest.starts_with('\\')) {
      token.text += rest[0];
      ++at_;
    } else if (rest.starts_with('x') && rest.size() >= 3 &&
               std::from_chars(rest.data() + 1, rest.data() + 3, byte, 16).ptr == rest.data() + 3) {
      token.text += static_cast<char>(byte);
      at_ += 3;
    } else {
      return Fail(Token{.kind = Kind::kEnd, .at = at_, .text = {}},
                  "a \\ in a string precedes \", \\ or x and two digits");
    }
  }
  if (at_ >= text_.size() || text_[at_] != '"')
    return Fail(token, "the string has no end on its line");
  ++at_;
  return {};
}

Status Parser::Take(std::string_view punctuation) {
  if (!At(punctuation)) return Expected(fmt::format("'{}'", punctuation));
  return Next();
}

Status Parser::TakeWord(std::string_view word) {
  if (token_.kind != Kind::kWord || token_.text != word) return Expected(fmt::format("'{}'", word));
  return Next();
}

Status Parser::Once(std::set<std::string>& seen, const std::string& key, const Token& at) const {
  if (seen.insert(key).second) return {};
  return Fail(at, fmt::format("'{}' is given twice", key));
}

template <class T>
Status Parser::Value(T& out) {
  if (token_.kind != Kind::kWord || !FromText(token_.text, out)) {
    constexpr const char* kWhat = std::is_same_v<T, double>    ? "a number"
                                  : std::is_same_v<T, int64_t> ? "a whole number"
                                  : std::is_same_v<T, bool>    ? "true or false"
                                                               : "one of its names";
    if constexpr (std::is_enum_v<T>) return Expected(kWhat, NamesOf<T>());
    return Expected(kWhat);
  }
  return Next();
}

Status Parser::Value(DType& out) {
  const auto dtype = token_.kind == Kind::kWord ? DTypeFromText(token_.text) : std::nullopt;
  if (!dtype) return Expected("a data type", NamesOf<DType>());
  out = *dtype;
  return Next();
}

Status Parser::Value(Dims& out) {
  RETURN_IF_ERROR(Take("["));
  while (!At("]")) {
    if (out.size() == kMaxListed)
      return Fail(token_, fmt::format("more than {} values", kMaxListed));
    if (!out.empty()) RETURN_IF_ERROR(Take(","));
    RETURN_IF_ERROR(Value(out.emplace_back()));
  }
  return Next();
}

Result<Graph> Parser::Run() {
  RETURN_IF_ERROR(Next());
  RETURN_IF_ERROR(TakeWord("graph"));
  if (token_.kind != Kind::kWord && token_.kind != Kind::kString)
    return Expected("the graph's name");
  graph_.name = token_.text;
  RETURN_IF_ERROR(Next());
  RETURN_IF_ERROR(Take("{"));
  while (!At("}")) {
    if (token_.kind == Kind::kWord && token_.text == "tensor") {
      RETURN_IF_ERROR(ParseTensor());
    } else if (token_.kind == Kind::kTensor || token_.text == kAbsentText) {
      RETURN_IF_ERROR(ParseNode());
    } else {
      return Expected("'tensor', a node or '}'", {"tensor"});
    }
  }
  RETURN_IF_ERROR(Next());
  if (token_.kind != Kind::kEnd) return Expected("nothing after '}'");
  return std::move(graph_);
}

Status Parser::ParseTensor() {
  RETURN_IF_ERROR(Next());
  if (token_.kind != Kind::kTensor) return Expected("a tensor's name, as %x");
  const Token name = token_;
  if (!ids_.try_emplace(name.text, static_cast<TensorId>(graph_.tensors.size())).second) {
    return Fail(name, fmt::format("a second tensor %{}", name.text));
  }
  Tensor tensor;
  tensor.name = name.text;
  std::set<std::string> seen;
  RETURN_IF_ERROR(Next());
  while (At("[") ||
         (token_.kind == Kind::kWord && token_.text != "tensor" && token_.text != kAbsentText)) {
    RETURN_IF_ERROR(ParseTensorProperty(tensor, seen));
  }
  if (!seen.contains("data type"))
    return Fail(name, fmt::format("%{} has no data type", name.text));
  if (tensor.strides.empty() && !tensor.dims.empty() && tensor.dims.size() <= 8) {
    bool small = true;  // dense strides, unless Verify will refuse the extents
    int64_t elements = 1;
    for (const int64_t extent : tensor.dims) {
      small = small && extent >= 0 &&
              !__builtin_mul_overflow(elements, std::max<int64_t>(extent, 1), &elements);
    }
    if (small) tensor.strides = PackedStrides(tensor.dims);
  }
  graph_.tensors.push_back(std::move(tensor));
  return {};
}

// A sentence on a word in the place of a tensor's property, with the names that may have been
// meant.
std::string NoProperty(const std::string& word) {
  std::vector<std::string_view> known = {"uid", "strides", "align", "virtual", "by_value", "value"};
  std::string text = fmt::format("'{}' is no property of a tensor: a data type, [extents], {}",
                                 word, fmt::join(known, ", "));
  for (const std::string_view dtype : NamesOf<DType>()) known.push_back(dtype);
  if (!SimilarNames(word, known).empty()) text += NearestText(word, known);
  return text;
}

Status Parser::ParseTensorProperty(Tensor& tensor, std::set<std::string>& seen) {
  const Token key = token_;
  if (At("[")) {
    RETURN_IF_ERROR(Once(seen, "extents", key));
    return Value(tensor.dims);
  }
  if (DTypeFromText(key.text)) {
    RETURN_IF_ERROR(Once(seen, "data type", key));
    return Value(tensor.dtype);
  }
  RETURN_IF_ERROR(Once(seen, key.text, key));
  RETURN_IF_ERROR(Next());
  if (key.text == "virtual" || key.text == "by_value") {
    (key.text == "virtual" ? tensor.is_virtual : tensor.by_value) = true;
    return {};
  }
  const bool known =
      key.text == "uid" || key.text == "strides" || key.text == "align" || key.text == "value";
  if (!known) return Fail(key, NoProperty(key.text));
  RETURN_IF_ERROR(Take("="));
  if (key.text == "uid") return Value(tensor.uid);
  if (key.text == "strides") return Value(tensor.strides);
  if (key.text == "align") return Value(tensor.alignment);
  return Value(tensor.value.emplace());
}

std::string Parser::NoTensor(const std::string& name) const {
  std::vector<std::string_view> names;
  for (const auto& [known, id] : ids_) names.push_back(known);
  std::string near;
  for (const std::string_view other : SimilarNames(name, names))
    near += fmt::format("{}%{}", near.empty() ? "; the nearest: " : ", ", other);
  return fmt::format("no tensor %{} above{}", name.substr(0, 60), near);
}

Status Parser::ParseOperands(std::vector<TensorId>& ids) {
  for (;;) {
    if (ids.size() == kMaxListed)
      return Fail(token_, fmt::format("more than {} operands", kMaxListed));
    if (token_.kind == Kind::kTensor) {
      const auto found = ids_.find(token_.text);
      if (found == ids_.end()) return Fail(token_, NoTensor(token_.text));
      ids.push_back(found->second);
    } else if (token_.kind == Kind::kWord && token_.text == kAbsentText) {
      ids.push_back(kAbsent);
    } else {
      return Expected("a tensor, as %x, or _");
    }
    RETURN_IF_ERROR(Next());
    if (!At(",")) return {};
    RETURN_IF_ERROR(Next());
  }
}

// Modes of pointwise are taken for operations.
Status Parser::NoOperation() const {
  if (token_.kind != Kind::kWord || !PointwiseModeFromText(token_.text))
    return Expected("an operation", NamesOf<GraphOp>());
  return Fail(token_, fmt::format("expected an operation, found '{}', which is a mode of "
                                  "pointwise: %y = pointwise(%x) mode={}",
                                  token_.text, token_.text));
}

Status Parser::ParseNode() {
  Node node;
  RETURN_IF_ERROR(ParseOperands(node.outputs));
  RETURN_IF_ERROR(Take("="));
  const auto op = token_.kind == Kind::kWord ? GraphOpFromText(token_.text) : std::nullopt;
  if (!op) return NoOperation();
  node.op = *op;
  node.attrs = DefaultAttrs(*op);
  RETURN_IF_ERROR(Next());
  RETURN_IF_ERROR(Take("("));
  if (!At(")")) RETURN_IF_ERROR(ParseOperands(node.inputs));
  RETURN_IF_ERROR(Take(")"));
  std::set<std::string> seen;
  while (token_.kind == Kind::kWord && token_.text != "tensor" && token_.text != kAbsentText) {
    RETURN_IF_ERROR(ParseNodeProperty(node, seen));
  }
  FillSpatial(node);
  graph_.nodes.push_back(std::move(node));
  return {};
}

// x[N,C,spatial…] is the first operand, or dy, which has as many dims.
void Parser::FillSpatial(Node& node) const {
  if (!HasSpatialDims(node.op) || node.inputs.empty() || node.inputs[0] < 0) return;
  const int64_t spatial = std::max<int64_t>(graph_[node.inputs[0]].rank() - 2, 0);
  const auto fill = [&](const char* name, auto& member) {
    if constexpr (std::is_same_v<decltype(member), Dims&>) {
      const std::optional<int64_t> value = DefaultOfSpatialDim(node.op, name);
      if (member.empty() && value) member.assign(static_cast<size_t>(spatial), *value);
    }
  };
  std::visit([&](auto& attrs) { ForEachField(attrs, fill); }, node.attrs);
}

Status Parser::ParseNodeProperty(Node& node, std::set<std::string>& seen) {
  const Token key = token_;
  RETURN_IF_ERROR(Once(seen, key.text, key));
  RETURN_IF_ERROR(Next());
  const bool has_value = At("=");
  if (has_value) RETURN_IF_ERROR(Next());
  if (key.text == "compute") return has_value ? Value(node.compute) : Expected("'='");
  if (key.text == "name") {
    if (token_.kind != Kind::kString) return Expected("a name in quotes");
    node.name = token_.text;
    return Next();
  }
  bool found = false;
  Status status;
  std::vector<std::string_view> names = {"compute", "name"};
  const auto visit = [&](const char* name, auto& member) {
    names.emplace_back(name);
    if (found || key.text != name) return;
    found = true;
    if constexpr (std::is_same_v<decltype(member), bool&>) {
      if (!has_value) {
        member = true;
        return;
      }
    }
    status = has_value ? Value(member) : Expected("'='");
  };
  std::visit([&](auto& attrs) { ForEachField(attrs, visit); }, node.attrs);
  if (found) return status;
  const std::vector<std::string_view> near = SimilarNames(key.text, names);
  return Fail(
      key, fmt::format("'{}' is no attribute of {}: {}{}", key.text, Info(node.op).mnemonic,
                       fmt::join(names, ", "), near.empty() ? "" : NearestText(key.text, names)));
}

template <class T>
std::optional<T> WholeNumber(std::string_view text, T value, std::from_chars_result result) {
  if (result.ec != std::errc() || result.ptr != text.data() + text.size()) return std::nullopt;
  return value;
}

struct SpatialDefault {
  std::string_view attribute;
  int64_t value;
};
constexpr SpatialDefault kSpatialDefaults[] = {
    {"pre_padding", 0}, {"post_padding", 0}, {"stride", 1}, {"dilation", 1}, {"unit", 1},
};
constexpr GraphOp kSpatialOps[] = {GraphOp::kConvFprop, GraphOp::kConvDgrad, GraphOp::kConvWgrad,
                                   GraphOp::kResampleFwd, GraphOp::kResampleBwd};

}  // namespace

bool HasSpatialDims(GraphOp op) {
  return std::ranges::find(kSpatialOps, op) != std::end(kSpatialOps);
}

std::optional<int64_t> DefaultOfSpatialDim(GraphOp op, std::string_view attribute) {
  const auto* const row =
      std::ranges::find(kSpatialDefaults, attribute, &SpatialDefault::attribute);
  if (!HasSpatialDims(op) || row == std::end(kSpatialDefaults)) return {};
  return row->value;
}

std::optional<int64_t> IntFromText(std::string_view text) {
  int64_t value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  return WholeNumber(text, value, result);
}

std::optional<double> DoubleFromText(std::string_view text) {
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  const bool hex = text.starts_with("0x") || text.starts_with("0X");
  if (hex) text.remove_prefix(2);
  if (text.starts_with('-') || text.starts_with('+')) return std::nullopt;
  double value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value,
                                      hex ? std::chars_format::hex : std::chars_format::general);
  const auto number = WholeNumber(text, value, result);
  if (!number) return std::nullopt;
  return negative ? -*number : *number;
}

Result<Graph> Parse(std::string_view text) { return Parser(text).Run(); }

}  // namespace kiln::graph
