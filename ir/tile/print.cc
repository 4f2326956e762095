// Text of tile kernels: the form in which they are dumped, cached by content and handed to the CPU
// plug-in. The parser (parse.cc) reads exactly this; the picture at the top of tile.h is the
// grammar by example.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <iterator>

#include "ir/tile/names.h"
#include "ir/tile/tile.h"

namespace kiln::tile {
namespace {

void AppendFloat(std::string& out, double value, DType type) {
  const char* suffix = type == DType::kF32 ? "f" : "";
  if (std::isnan(value)) {
    fmt::format_to(std::back_inserter(out), "nan{}", suffix);
  } else if (std::isinf(value)) {
    fmt::format_to(std::back_inserter(out), "{}inf{}", value < 0 ? "-" : "", suffix);
  } else {
    fmt::format_to(std::back_inserter(out), "{:a}{}", value, suffix);
  }
}

void AppendInt(std::string& out, int64_t value, DType type) {
  if (type == DType::kBool) {
    out += value != 0 ? "true" : "false";
    return;
  }
  fmt::format_to(std::back_inserter(out), "{}{}", value, type == DType::kI64 ? "l" : "");
}

void AppendExpr(std::string& out, const Expr& e) {
  const auto append_args = [&] {
    for (size_t i = 0; i < e->args.size(); ++i) {
      if (i > 0) out += ", ";
      AppendExpr(out, e->args[i]);
    }
  };
  switch (e->kind) {
    case ExprKind::kInt:
      AppendInt(out, e->int_value, e->type);
      return;
    case ExprKind::kFloat:
      AppendFloat(out, e->float_value, e->type);
      return;
    case ExprKind::kVar:
      out += e->name;
      return;
    case ExprKind::kLoad:
      out += "load " + e->name + "[";
      append_args();
      out += "]";
      return;
    case ExprKind::kOp:
      out += Info(e->op).text;
      out += "(";
      append_args();
      out += ")";
      return;
    case ExprKind::kCast:
      fmt::format_to(std::back_inserter(out), "cast<{}>(", Info(e->type).text);
      append_args();
      out += ")";
      return;
    case ExprKind::kShuffle:
      out += "shuffle_xor(";
      append_args();
      fmt::format_to(std::back_inserter(out), ", {})", e->int_value);
      return;
  }
}

class Printer {
 public:
  std::string Run(const Kernel& kernel) {
    for (const std::string& line : kernel.comment) CommentLine(line);
    std::string params;
    for (const Param& p : kernel.params) params += (params.empty() ? "" : ", ") + ParamText(p);
    const std::string min_blocks =
        kernel.min_blocks > 0 ? fmt::format(" min_blocks {}", kernel.min_blocks) : "";
    const std::string cooperative = kernel.cooperative ? " cooperative" : "";
    const std::string cluster =
        kernel.cluster > 1 ? fmt::format(" cluster {}", kernel.cluster) : "";
    Line("kernel {}({}) threads {}{}{}{} {{", kernel.name, params, kernel.threads, min_blocks,
         cluster, cooperative);
    Body(kernel.body);
    Line("}}");
    return std::move(out_);
  }

  std::string HeadLine(const Stmt& s) {
    std::visit([this](const auto& node) { Emit(node); }, s.node);
    const std::string line = out_.substr(0, out_.find('\n'));
    return line.ends_with(" {") ? line.substr(0, line.size() - 2) : line;
  }

 private:
  template <class... A>
  void Line(fmt::format_string<A...> format, A&&... args) {
    out_.append(2 * depth_, ' ');
    fmt::format_to(std::back_inserter(out_), format, std::forward<A>(args)...);
    out_ += '\n';
  }

  void CommentLine(const std::string& text) { Line("//{}{}", text.empty() ? "" : " ", text); }

  static std::string ParamText(const Param& p) {
    if (p.is_map) return p.name + ": map";
    if (!p.is_pointer) return fmt::format("{}: {}", p.name, Info(p.type).text);
    const std::string align = p.alignment > 1 ? fmt::format(" align {}", p.alignment) : "";
    return fmt::format("{}: ptr<{}>{}{}", p.name, Info(p.type).text, p.is_const ? " const" : "",
                       align);
  }

  void Body(const Block& block) {
    ++depth_;
    for (const Stmt& s : block) std::visit([this](const auto& node) { Emit(node); }, s.node);
    --depth_;
  }

  void Emit(const Let& s) {
    Line("let {} = {} : {}", s.name, Print(s.value), Info(s.value->type).text);
  }
  void Emit(const Alloc& s) {
    Line("alloc {} : {}[{}] {}", s.name, Info(s.type).text, s.size, SpaceText(s.space));
  }
  void Emit(const Store& s) { Line("store {}[{}] = {}", s.buffer, Print(s.index), Print(s.value)); }
  void Emit(const Copy& s) {
    Line("copy {}[{}] <- {}[{}] lanes {}", s.dst, Print(s.dst_index), s.src, Print(s.src_index),
         s.lanes);
  }
  void Emit(const CopyAsync& s) {
    Line("copy_async {}[{}] <- {}[{}] lanes {} if {}", s.dst, Print(s.dst_index), s.src,
         Print(s.src_index), s.lanes, Print(s.valid));
  }
  void Emit(const CommitAsync&) { Line("commit_async"); }
  void Emit(const WaitAsync& s) { Line("wait_async {}", s.groups); }
  void Emit(const LoadMatrix& s) {
    Line("load_matrix {}[{}] <- {}[{}] count {}{}", s.dst, Print(s.dst_index), s.src,
         Print(s.src_index), s.matrices, s.transposed ? " transposed" : "");
  }
  void Emit(const Largest& s) {
    std::string sources;
    for (size_t i = 0; i < s.sources.size(); ++i)
      sources += fmt::format("{}{} {}", i == 0 ? "" : ", ", s.sources[i], s.taps[i]);
    const std::string numbers = s.numbers.empty() ? "" : ", " + s.numbers;
    Line("largest {}{} <- {} lanes {}{}", s.values, numbers, sources, s.lanes,
         s.keeps_nan ? " keeps_nan" : "");
  }
  void Emit(const AtomicAdd& s) {
    Line("atomic_add {}[{}], {}", s.buffer, Print(s.index), Print(s.value));
  }
  void Emit(const Mma& s) {
    Line("mma {}[{}], {}[{}], {}[{}]", s.acc, Print(s.acc_index), s.a, Print(s.a_index), s.b,
         Print(s.b_index));
  }
  void Emit(const For& s) {
    const std::string type = s.type == DType::kI32 ? "" : fmt::format(": {}", Info(s.type).text);
    const std::string bind = s.bind == Bind::kSerial ? "" : fmt::format(" {}", BindText(s.bind));
    Line("for {}{} in 0..{}{} {{", s.var, type, Print(s.extent), bind);
    Body(s.body);
    Line("}}");
  }
  void Emit(const If& s) {
    Line("if {} {{", Print(s.condition));
    Body(s.then_body);
    if (!s.else_body.empty()) {
      Line("}} else {{");
      Body(s.else_body);
    }
    Line("}}");
  }
  void Emit(const Call& s) {
    const auto text = [](const Call::Wgmma& w) {
      const char* left = w.left_in_registers ? "registers" : w.left_is_outer ? "outer" : "k";
      return fmt::format("wgmma {} {} {} {} {}", w.columns, Info(w.type).text, left,
                         Info(w.right_type).text, w.right_is_outer ? "outer" : "k");
    };
    const std::string buffers =
        s.buffers.empty() ? "" : fmt::format(" buffers({})", fmt::join(s.buffers, ", "));
    std::string products;
    if (s.wgmma.columns > 0) products += " " + text(s.wgmma);
    for (const std::optional<Call::Wgmma>* w : {&s.second, &s.third, &s.fourth})
      if (*w) products += " " + text(**w);
    Line("call {}({}){}{} shared {} {{", s.skeleton, fmt::join(s.maps, ", "), buffers, products,
         s.shared_bytes);
    ++depth_;
    for (const Call::Constant& c : s.config) Line("config {} {}", c.name, c.value);
    for (const Call::Member& m : s.shape) Line("shape {} = {}", m.name, Print(m.value));
    for (const Call::Function& f : s.functions) {
      std::string params;
      for (const Call::FunctionParam& p : f.params) {
        params += fmt::format("{}{}: {}", params.empty() ? "" : ", ", p.name, Info(p.type).text);
        if (p.size > 0) params += fmt::format("[{}]{}", p.size, p.is_output ? " out" : "");
      }
      Line("function {}({}) {{", f.name, params);
      Body(f.body);
      Line("}}");
    }
    --depth_;
    Line("}}");
  }
  void Emit(const Barrier& s) {
    if (s.team == 0)
      Line("barrier");
    else
      Line("barrier of {}", s.team);
  }
  void Emit(const Comment& s) { CommentLine(s.text); }

  std::string out_;
  int depth_ = 0;
};

}  // namespace

std::string Print(const Expr& expr) {
  std::string out;
  AppendExpr(out, expr);
  return out;
}

std::string Print(const Kernel& kernel) { return Printer().Run(kernel); }

std::string HeadLine(const Stmt& s) { return Printer().HeadLine(s); }

}  // namespace kiln::tile
