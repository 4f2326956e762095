// The parser of case lines: recursive descent over one line, errors with line and column.
#include "tests/support/cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <set>
#include <sstream>

#include "tests/support/evaluate.h"
#include "tests/support/oracle/oracle.h"

namespace kiln::testing {
namespace {

// Attributes that a statement may have; anything else is a misspelling.
const std::set<std::string>& KnownAttributes() {
  static const std::set<std::string> known{"alpha",
                                           "beta",
                                           "alpha1",
                                           "alpha2",
                                           "axis",
                                           "bottom_right",
                                           "compare",
                                           "compute",
                                           "count",
                                           "deterministic",
                                           "dilation",
                                           "elu_alpha",
                                           "epsilon",
                                           "expect",
                                           "factor",
                                           "flip",
                                           "inference",
                                           "k",
                                           "left",
                                           "limit",
                                           "log2",
                                           "lower",
                                           "m",
                                           "mode",
                                           "n",
                                           "nan",
                                           "pad",
                                           "padding",
                                           "padding_value",
                                           "permutation",
                                           "post",
                                           "right",
                                           "rope_dim",
                                           "scale",
                                           "slope",
                                           "softplus_beta",
                                           "start",
                                           "step",
                                           "stride",
                                           "swish_beta",
                                           "unit",
                                           "upper",
                                           "window",
                                           "block",
                                           "distribution",
                                           "probability",
                                           "pad_value",
                                           "top_k",
                                           "seed",
                                           "from",
                                           "to",
                                           "mean",
                                           "deviation"};
  return known;
}

// Operations that are no pointwise mode, with their counts of operands and results.
struct OpRow {
  std::string_view name;
  size_t least, most, results;
  size_t more_results = 0;  // that may be there
  bool optional = false;    // any operand and result may be absent, and results left off
};
constexpr OpRow kOps[] = {
    {"conv_fprop", 2, 2, 1},
    {"conv_dgrad", 2, 2, 1},
    {"conv_wgrad", 2, 2, 1},
    {"matmul", 2, 5, 1},
    {"block_scale_dequantize", 2, 2, 1},
    {"block_scale_quantize", 1, 1, 2},
    {"rng", 0, 2, 1},
    {"expand_band", 1, 1, 1},
    {"contract_band", 1, 1, 1},
    {"moe", 3, 5, 1},
    {"moe_bwd", 3, 3, 1},
    {"rope", 2, 2, 1},
    {"rope_bwd", 2, 2, 1},
    {"gen_stats", 1, 1, 2},
    {"bn_finalize", 9, 9, 6, 0, true},
    {"bn_bwd_weights", 4, 5, 5, 0, true},
    {"norm_forward", 1, 17, 5, 0, true},
    {"norm_backward", 2, 14, 3, 0, true},
    {"reshape", 1, 1, 1},
    {"transpose", 1, 1, 1},
    {"slice", 1, 1, 1},
    {"softmax", 1, 2, 1, 3, true},
    {"band_mask", 1, 8, 1, 0, true},
    {"concat", 1, 64, 1},
    {"maxpool", 1, 1, 1, 1},
    {"avgpool", 1, 1, 1},
    {"avgpool_exclude", 1, 1, 1},
    {"bilinear", 1, 1, 1},
    {"nearest", 1, 1, 1},
    {"maxpool_bwd", 2, 4, 1},
    {"avgpool_bwd", 1, 1, 1},
    {"avgpool_exclude_bwd", 1, 1, 1},
    {"bilinear_bwd", 1, 1, 1},
    {"nearest_bwd", 1, 1, 1},
    {"sdpa_fwd", 3, 12, 1, 1, true},
    {"sdpa_bwd", 6, 11, 3, 1},
    {"paged_cache_load", 3, 3, 1},
    {"reduce_add", 1, 1, 1},
    {"reduce_mul", 1, 1, 1},
    {"reduce_min", 1, 1, 1},
    {"reduce_max", 1, 1, 1},
    {"reduce_amax", 1, 1, 1},
    {"reduce_avg", 1, 1, 1},
    {"reduce_norm1", 1, 1, 1},
    {"reduce_norm2", 1, 1, 1},
    {"reduce_mul_no_zeros", 1, 1, 1},
};

bool IsNameChar(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

struct Failure {
  size_t column;
  std::string message;
};

// Parses one line into a Case. The first failure stops it: every step returns false from then on.
class LineParser {
 public:
  LineParser(std::string_view text, Case& out) : text_(text), out_(out) {}

  bool Run() {
    out_.name = Name();
    if (out_.name.empty() || !Expect(':')) return Fail("a case begins with `name:`");
    do {
      if (!Statement()) return false;
    } while (Accept(';'));
    Skip();
    return at_ == text_.size() || Fail(fmt::format("unexpected `{}`", text_.substr(at_, 12)));
  }

  const Failure& failure() const { return failure_; }

 private:
  bool Fail(std::string message) { return FailAt(at_, std::move(message)); }
  bool FailAt(size_t at, std::string message) {
    if (failure_.message.empty()) failure_ = {.column = at + 1, .message = std::move(message)};
    return false;
  }
  // The word just read is wrong.
  bool FailWord(std::string message) { return FailAt(word_, std::move(message)); }
  void Skip() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool Accept(char c) {
    Skip();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool Expect(char c) { return Accept(c) || Fail(fmt::format("expected `{}`", c)); }

  std::string Name() {
    Skip();
    const size_t begin = word_ = at_;
    if (at_ < text_.size() && text_[at_] == '%') ++at_;
    while (at_ < text_.size() && IsNameChar(text_[at_])) ++at_;
    return std::string(text_.substr(begin, at_ - begin));
  }

  bool Integer(int64_t& value) {
    const auto [end, error] =
        std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (error != std::errc()) return Fail("expected an integer");
    at_ = static_cast<size_t>(end - text_.data());
    return true;
  }

  // Up to a space, comma, parenthesis or semicolon.
  std::string Word(std::string_view stops) {
    const size_t begin = word_ = at_;
    while (at_ < text_.size() && stops.find(text_[at_]) == std::string_view::npos) ++at_;
    return std::string(text_.substr(begin, at_ - begin));
  }

  bool Statement() {
    CaseOp op;
    op.name = Name();
    const size_t begin = word_;
    if (op.name.empty() || !Expect('(')) return Fail("expected `op(`");
    if (!Accept(')')) {
      do {
        if (!Tensor(op, op.inputs, true)) return false;
      } while (Accept(','));
      if (!Expect(')')) return false;
    }
    Skip();
    if (text_.substr(at_, 2) != "->") return Fail("expected `->`");
    at_ += 2;
    results_.clear();
    do {
      if (!Tensor(op, op.outputs, false)) return false;
    } while (Accept(','));
    while (Skip(), at_ < text_.size() && text_[at_] != ';') {
      const std::string key = Name();
      if (key.empty() || !Expect('=')) return Fail("expected `attribute=value`");
      if (!KnownAttributes().contains(key))
        return FailWord(fmt::format("unknown attribute `{}`", key));
      op.attributes[key] = Word(" ;");
    }
    out_.expects_bad_param |= op.Word("expect", "") == "bad_param";
    at_op_ = begin;
    return CheckOp(op) && Infer(op) && (out_.ops.push_back(std::move(op)), true);
  }

  bool CheckOp(const CaseOp& op) {
    const auto* mode = oracle::FindPointwiseMode(op.name);
    const auto* row = std::ranges::find(kOps, op.name, &OpRow::name);
    if (mode == nullptr && row == std::end(kOps)) {
      return FailAt(at_op_, fmt::format("unknown operation `{}`", op.name));
    }
    const size_t least = mode ? static_cast<size_t>(mode->operands) : row->least;
    const size_t most = mode ? least : row->most;
    if (op.inputs.size() < least || op.inputs.size() > most) {
      return FailAt(at_op_, fmt::format("{} takes {} to {} operands, not {}", op.name, least, most,
                                        op.inputs.size()));
    }
    const size_t results = mode ? 1 : row->results;
    const bool optional = mode == nullptr && row->optional;
    const bool too_few = op.outputs.size() < results && !optional;
    if (too_few || op.outputs.size() > results + (mode ? 0 : row->more_results))
      return FailAt(at_op_, fmt::format("{} has {} results", op.name, results));
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      const bool may_be_absent = (op.name == "matmul" && i >= 2) || (optional && i > 0) ||
                                 op.name == "bn_finalize" || op.name == "rng" ||
                                 (op.name == "sdpa_bwd" && i >= 6) ||
                                 (op.name == "maxpool_bwd" && i >= 1);
      if (op.inputs[i] < 0 && !may_be_absent)
        return FailAt(at_op_, fmt::format("operand {} of {} is absent", i, op.name));
    }
    if (IsWindow(op) && DimsOf(op.inputs[0]).size() < 3)
      return FailAt(at_op_, fmt::format("{} needs spatial dims behind N and C", op.name));
    if (op.name.starts_with("norm_") && NormModeNumber(op) < 0)
      return FailAt(at_op_, fmt::format("{} needs mode=layer, instance, batch, group, rms or "
                                        "ada_layer",
                                        op.name));
    const bool same_rank =
        op.name == "matmul" || op.name == "concat" || op.name.starts_with("conv_");
    const size_t rank = same_rank ? DimsOf(op.inputs[0]).size() : 0;
    for (size_t i = 0;
         same_rank && i < std::min<size_t>(op.inputs.size(), op.name == "concat" ? 64 : 2); ++i) {
      if (DimsOf(op.inputs[i]).size() != rank || rank < 2) {
        return FailAt(at_op_,
                      fmt::format("{} needs operands of one rank, two dims at least", op.name));
      }
    }
    return true;
  }

  int Find(const std::string& name) const {
    for (size_t i = 0; i < out_.tensors.size(); ++i) {
      if (out_.tensors[i].name == name) return static_cast<int>(i);
    }
    return -1;
  }

  bool Tensor(CaseOp&, std::vector<int>& list, bool is_operand) {
    const std::string name = Name();
    const size_t begin = word_;
    if (name == "_") return list.push_back(-1), true;
    if (name.empty()) return Fail("expected a tensor");
    const int known = Find(name);
    if (!Accept(':')) {
      if (known < 0) return FailAt(begin, fmt::format("tensor `{}` is not declared", name));
      if (!is_operand && out_.Produces(known))
        return FailAt(begin, fmt::format("tensor `{}` has two producers", name));
      return list.push_back(known), true;
    }
    if (known >= 0) return FailAt(begin, fmt::format("tensor `{}` is declared twice", name));
    CaseTensor tensor;
    tensor.name = name;
    tensor.is_virtual = name.front() == '%';
    tensor.uid = static_cast<int64_t>(out_.tensors.size()) + 1;
    Pending pending;
    if (!Type(tensor, pending)) return false;
    if (tensor.dims.empty() && is_operand)
      return Fail(fmt::format("operand `{}` needs its dims", name));
    list.push_back(static_cast<int>(out_.tensors.size()));
    if (!tensor.dims.empty() && !Layout(tensor, pending)) return false;
    out_.tensors.push_back(std::move(tensor));
    if (!is_operand) results_.push_back(pending);
    return true;
  }

  struct Pending {  // a layout whose dims are not known yet
    std::string layout = "row";
    int64_t pad = 0, scale = 1;
  };

  bool Type(CaseTensor& tensor, Pending& pending) {
    const std::string dtype = Name();
    const auto parsed = oracle::ParseDType(dtype);
    if (!parsed) return FailWord(fmt::format("`{}` is no data type", dtype));
    tensor.dtype = *parsed;
    if (Accept('[')) {
      do {
        int64_t extent = 0;
        Skip();
        if (!Integer(extent)) return false;
        tensor.dims.push_back(extent);
      } while (Accept(','));
      if (!Expect(']')) return false;
    }
    if (Accept('@')) pending.layout = Word("+*=!,); ");
    if (Accept('+') && !Integer(pending.pad)) return false;
    if (Accept('*') && !Integer(pending.scale)) return false;
    if (Accept('=')) {
      const std::string value = Word(",); ");
      char* end = nullptr;
      tensor.by_value = std::strtod(value.c_str(), &end);
      if (value.empty() || *end != '\0') return FailWord(fmt::format("`{}` is no number", value));
    }
    if (Accept('!')) tensor.fill = Name();
    if (!IsFill(tensor.fill)) return FailWord(fmt::format("`{}` is no fill", tensor.fill));
    return true;
  }

  // Dims from outermost to innermost in memory.
  static std::optional<std::vector<size_t>> Order(const std::string& layout, size_t rank) {
    std::vector<size_t> order(rank);
    for (size_t i = 0; i < rank; ++i) order[i] = i;
    if (layout == "row") return order;
    if (layout == "nhwc" && rank >= 3)
      return std::rotate(order.begin() + 1, order.begin() + 2, order.end()), order;
    if (layout == "col" && rank >= 2) return std::swap(order[rank - 1], order[rank - 2]), order;
    if (layout.size() != rank + 1 || layout[0] != 'p') return std::nullopt;
    std::set<size_t> seen;
    for (size_t i = 0; i < rank; ++i)
      seen.insert(order[i] = static_cast<size_t>(layout[i + 1] - '0'));
    if (seen.size() != rank || *seen.rbegin() != rank - 1) return std::nullopt;
    return order;
  }

  bool Layout(CaseTensor& tensor, const Pending& pending) {
    const size_t rank = tensor.dims.size();
    tensor.strides.assign(rank, 0);
    if (pending.layout[0] == 's') {
      std::istringstream parts(pending.layout.substr(1));
      std::string part;
      size_t i = 0;
      for (; std::getline(parts, part, '.') && i < rank; ++i)
        tensor.strides[i] = std::strtoll(part.c_str(), nullptr, 10);
      return i == rank || Fail(fmt::format("layout `{}` needs {} strides", pending.layout, rank));
    }
    const auto order = Order(pending.layout, rank);
    if (!order) return Fail(fmt::format("layout `{}` does not fit {} dims", pending.layout, rank));
    int64_t stride = 1;
    for (size_t i = rank; i-- > 0;) {
      const size_t dim = (*order)[i];
      tensor.strides[dim] = stride * pending.scale;
      stride *= std::max<int64_t>(tensor.dims[dim], 1) + (i == rank - 1 ? pending.pad : 0);
    }
    return true;
  }

  const Dims& DimsOf(int tensor) const { return out_.tensors[static_cast<size_t>(tensor)].dims; }

  // Result dims that the operation determines, for results declared without.
  std::optional<Dims> ResultDims(const CaseOp& op, size_t result) const {
    if (op.name == "matmul")
      return oracle::MatmulOutputDims(DimsOf(op.inputs[0]), DimsOf(op.inputs[1]));
    if (op.name == "conv_fprop") {
      const Dims& x = DimsOf(op.inputs[0]);
      const Dims ones(x.size() - 2, 1), zeros(x.size() - 2, 0);
      const Dims pad = op.List("pad", zeros);
      const oracle::ConvGeometry geometry{.pre_padding = pad,
                                          .post_padding = op.List("post", pad),
                                          .stride = op.List("stride", ones),
                                          .dilation = op.List("dilation", ones)};
      return oracle::ConvOutputDims(geometry, x, DimsOf(op.inputs[1]));
    }
    if (op.name == "block_scale_dequantize") return DimsOf(op.inputs[0]);
    if (op.name == "moe" && DimsOf(op.inputs[0]).size() == 3 && DimsOf(op.inputs[1]).size() == 3) {
      const bool gathers = op.Word("mode", "none") == "gather" && op.inputs.size() > 3;
      return Dims{1, DimsOf(op.inputs[gathers ? 3 : 0])[1], DimsOf(op.inputs[1])[2]};
    }
    if (op.name.starts_with("rope")) return DimsOf(op.inputs[0]);
    if (op.name == "gen_stats") {
      Dims dims(DimsOf(op.inputs[0]).size(), 1);
      dims[1] = DimsOf(op.inputs[0])[1];
      return dims;
    }
    if (IsWindow(op) && !op.name.ends_with("_bwd"))
      return WindowOutputDims(op, DimsOf(op.inputs[0]));
    if (op.name == "bn_finalize") return DimsOf(op.inputs[0] >= 0 ? op.inputs[0] : op.inputs[4]);
    if (op.name == "bn_bwd_weights") return DimsOf(op.inputs[2]);
    if (op.name.starts_with("norm_") && result == 0) return DimsOf(op.inputs[0]);
    if (op.name == "norm_backward" && op.inputs.size() > 4 && op.inputs[4] >= 0)
      return DimsOf(op.inputs[4]);
    if (op.name == "concat") {
      Dims dims = DimsOf(op.inputs[0]);
      const auto axis = static_cast<size_t>(op.Number("axis", 0));
      dims[axis] = 0;
      for (const int input : op.inputs) dims[axis] += DimsOf(input)[axis];
      return dims;
    }
    if (oracle::FindPointwiseMode(op.name) == nullptr) return std::nullopt;
    std::vector<oracle::Dense> shapes;
    for (const int input : op.inputs) shapes.push_back({.dims = DimsOf(input), .values = {}});
    std::vector<const oracle::Dense*> pointers;
    for (const auto& shape : shapes) pointers.push_back(&shape);
    return oracle::BroadcastDims(pointers);
  }

  bool Infer(const CaseOp& op) {
    size_t declared = 0;
    for (size_t i = 0; i < op.outputs.size(); ++i) {
      const int output = op.outputs[i];
      if (output < 0) continue;
      CaseTensor& tensor = out_.tensors[static_cast<size_t>(output)];
      if (!tensor.strides.empty()) {
        ++declared;
        continue;
      }
      const auto dims = ResultDims(op, i);
      if (!dims)
        return FailAt(at_op_,
                      fmt::format("result `{}` of {} needs its dims", tensor.name, op.name));
      tensor.dims = *dims;
      if (!Layout(tensor, results_[declared++])) return false;
    }
    return true;
  }

  std::string_view text_;
  Case& out_;
  size_t at_ = 0;
  size_t word_ = 0;   // where the last word began
  size_t at_op_ = 0;  // where the statement began
  std::vector<Pending> results_;
  Failure failure_{.column = 0, .message = ""};
};

}  // namespace

double CaseOp::Number(const std::string& key, double fallback) const {
  const auto it = attributes.find(key);
  return it == attributes.end() ? fallback : std::strtod(it->second.c_str(), nullptr);
}

// One number stands for all dims: pad=1 is pad=1,1 in 2-D.
Dims CaseOp::List(const std::string& key, const Dims& fallback) const {
  const auto it = attributes.find(key);
  if (it == attributes.end()) return fallback;
  Dims list;
  std::istringstream parts(it->second);
  for (std::string part; std::getline(parts, part, ',');)
    list.push_back(std::strtoll(part.c_str(), nullptr, 10));
  if (list.size() == 1) list.assign(fallback.size(), list[0]);
  return list;
}

std::string CaseOp::Word(const std::string& key, const std::string& fallback) const {
  const auto it = attributes.find(key);
  return it == attributes.end() ? fallback : it->second;
}

int NormModeNumber(const CaseOp& op) {
  constexpr std::string_view kModes[] = {"layer", "instance", "batch", "group", "rms", "ada_layer"};
  const auto* found = std::ranges::find(kModes, op.Word("mode", ""));
  return found == std::end(kModes) ? -1 : static_cast<int>(found - kModes);
}

DType CaseOp::Compute() const {
  return oracle::ParseDType(Word("compute", "f32")).value_or(DType::kF32);
}

std::string Case::Label() const { return fmt::format("{}:{}/{}", file, list, name); }

bool Case::Produces(int tensor) const {
  return std::ranges::any_of(
      ops, [&](const CaseOp& op) { return std::ranges::count(op.outputs, tensor) > 0; });
}

std::vector<int> Case::Inputs() const {
  std::vector<int> list;
  for (int i = 0; i < static_cast<int>(tensors.size()); ++i) {
    if (!Produces(i) && !tensors[static_cast<size_t>(i)].by_value) list.push_back(i);
  }
  return list;
}

std::vector<int> Case::Outputs() const {
  std::vector<int> list;
  for (int i = 0; i < static_cast<int>(tensors.size()); ++i) {
    if (Produces(i) && !tensors[static_cast<size_t>(i)].is_virtual) list.push_back(i);
  }
  return list;
}

int64_t Case::Bytes() const {
  int64_t bytes = 0;
  for (const auto& list : {Inputs(), Outputs()}) {
    for (const int i : list) {
      const CaseTensor& tensor = tensors[static_cast<size_t>(i)];
      bytes += oracle::Count(tensor.dims) * oracle::Row(tensor.dtype).bytes;
    }
  }
  return bytes;
}

std::vector<Case> CaseFile::List(std::string_view list) const {
  std::vector<Case> chosen;
  for (const Case& c : cases) {
    if (c.list == list) chosen.push_back(c);
  }
  return chosen;
}

CaseFile ParseCases(const std::string& file_name, std::string_view text) {
  CaseFile file;
  std::string list;
  std::set<std::string> names;
  std::istringstream lines{std::string(text)};
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    const size_t begin = line.find_first_not_of(' ');
    if (begin == std::string::npos || line[begin] == '#') continue;
    const auto error = [&](size_t column, const std::string& message) {
      file.errors.push_back(fmt::format("{}:{}:{}: {}", file_name, number, column, message));
    };
    if (line[begin] == '[') {
      const size_t end = line.find(']');
      if (end == std::string::npos) error(begin + 1, "a list is `[name]`");
      list = line.substr(begin + 1, end - begin - 1);
      continue;
    }
    Case parsed{.file = file_name,
                .list = list,
                .name = {},
                .text = line,
                .line = number,
                .tensors = {},
                .ops = {}};
    LineParser parser(line, parsed);
    if (!parser.Run()) {
      error(parser.failure().column, parser.failure().message);
    } else if (!names.insert(list + "/" + parsed.name).second) {
      error(1, fmt::format("list [{}] has two cases `{}`", list, parsed.name));
    } else {
      file.cases.push_back(std::move(parsed));
    }
  }
  return file;
}

CaseFile LoadCases(const std::string& path) {
  std::ifstream in(path);
  if (!in) return {.cases = {}, .errors = {fmt::format("{}:0:0: cannot be read", path)}};
  std::stringstream text;
  text << in.rdbuf();
  return ParseCases(path.substr(path.rfind('/') + 1), text.str());
}

std::optional<Case> ParseCase(std::string_view line, std::string* error) {
  CaseFile file = ParseCases("line", line);
  if (file.cases.size() == 1) return std::move(file.cases.front());
  if (error != nullptr)
    *error = file.errors.empty() ? "the line holds no case" : file.errors.front();
  return std::nullopt;
}

}  // namespace kiln::testing
