// The CUDA emitter: prints a verified tile kernel. Block loops become `const int bx = blockIdx.x`,
// a thread loop over the whole block `const int tx = threadIdx.x`, lets become const locals, and
// registers whose places are all constants plain variables. What there is to decide beyond the
// layout of text is decided before the first line, by a survey of the kernel (kernel_survey.h).
// Called by engines when they make a Program.
#include "codegen/cuda/emit.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "codegen/code_writer.h"
#include "codegen/cuda/device.h"
#include "codegen/cuda/expr_text.h"
#include "codegen/cuda/kernel_survey.h"
#include "codegen/cuda/wgmma_text.h"
#include "ir/tile/names.h"
#include "ir/tile/visit.h"

namespace kiln::cuda_codegen {
namespace {

using namespace tile;  // NOLINT: this file is about its nodes

constexpr int64_t kStaticSharedLimit = 48 * 1024;
constexpr size_t kColumns = 100;
constexpr std::string_view kRelease = "asm volatile(\"griddepcontrol.launch_dependents;\");";

std::string KernelHead(const Kernel& kernel) {
  const std::string min_blocks =
      kernel.min_blocks > 0 ? fmt::format(", {}", kernel.min_blocks) : "";
  const std::string cluster =
      kernel.cluster > 1 ? fmt::format("__cluster_dims__({}, 1, 1) ", kernel.cluster) : "";
  return fmt::format("extern \"C\" __global__ void {}__launch_bounds__({}{}) {}(", cluster,
                     kernel.threads, min_blocks, kernel.name);
}

// `head`, each parameter as `text_of` has it, and `end`, wrapped at the right margin.
template <class TextOf>
void ListBehind(CodeWriter& w, const Kernel& kernel, std::string line, std::string_view end,
                const TextOf& text_of) {
  for (size_t i = 0; i < kernel.params.size(); ++i) {
    const bool last = i + 1 == kernel.params.size();
    const std::string param = text_of(kernel.params[i]) + (last ? "" : ",");
    const bool opens = line.ends_with('(');
    if (line.size() + param.size() + 4 > kColumns) {
      w.Text(line);
      line = "    " + param;
    } else {
      line += (opens ? "" : " ") + param;
    }
  }
  w.Text(line.append(end));
}

std::string ParamText(const Param& p, std::string_view pointer) {
  if (p.is_map) return fmt::format("const __grid_constant__ tensor_map {}", p.name);
  if (!p.is_pointer) return fmt::format("const {} {}", Info(p.type).cuda, p.name);
  return fmt::format("{}{}* {}{}", p.is_const ? "const " : "", Info(p.type).cuda, pointer, p.name);
}

std::string Restricted(const Param& p) { return ParamText(p, "__restrict__ "); }

// The constants that a skeleton is instantiated with, and its wgmma.
void Configuration(CodeWriter& w, const Call& s) {
  w.Text("struct Config {");
  w.Indent();
  for (const Call::Constant& c : s.config) w.Line("static constexpr int {} = {};", c.name, c.value);
  w.Line("static constexpr int kSharedBytes = {};", s.shared_bytes);
  // 32-bit elements that wgmma would have to transpose, or that are split, come in registers.
  const bool splits = std::ranges::any_of(
      s.config, [](const Call::Constant& c) { return c.name == "kTerms" && c.value == 2; });
  const bool in_registers = splits || (s.wgmma.left_is_outer && SizeOf(s.wgmma.type) == 4);
  if (s.wgmma.columns > 0)
    for (const std::string& line : WgmmaLines(s.wgmma, in_registers)) w.Text(line);
  const auto add = [&](const Call::Wgmma& wgmma, const char* name) {
    for (const std::string& line : WgmmaFunction(wgmma, name, wgmma.left_in_registers))
      w.Text(line);
  };
  if (s.second)
    add(*s.second, s.second->left_in_registers ? "multiply_registers" : "multiply_second");
  if (s.third) add(*s.third, "multiply_third");
  if (s.fourth) add(*s.fourth, "multiply_fourth");
  w.Dedent();
  w.Text("};");
  w.Text("");
}

// The parameters of a function that a skeleton calls.
std::string ParamsOf(const Call::Function& f) {
  std::string params;
  for (const Call::FunctionParam& p : f.params) {
    const std::string_view type = Info(p.type).cuda;
    params += params.empty() ? "" : ", ";
    const std::string_view constant = p.is_output ? "" : "const ";
    params += p.size > 0 ? fmt::format("{}{} (&{})[{}]", constant, type, p.name, p.size)
                         : fmt::format("const {} {}", type, p.name);
  }
  return params;
}

class Emitter {
 public:
  Emitter(const Kernel& kernel, Neighbours neighbours)
      : kernel_(kernel),
        neighbours_(neighbours),
        survey_(SurveyOf(kernel)),
        exprs_(ScalarsOf(kernel)) {}

  std::string Run() {
    if (survey_.call != nullptr) Configuration(w_, *survey_.call);
    if (neighbours_.waits) {
      BodyAsFunction();
      w_.Text("");
      KernelThatWaits();
    } else {
      ListBehind(w_, kernel_, KernelHead(kernel_), ") {", Restricted);
      Text(neighbours_.releases);
    }
    std::string out;
    for (const std::string& line : kernel_.comment)
      out += line.empty() ? "//\n" : "// " + line + "\n";
    if (!out.empty()) out += "\n";
    out += PreludeFor(w_.str());
    return out + w_.str();
  }

 private:
  // A compiler may read what is not written at any time after a pointer was said to be restricted:
  // this function's are, which come to it from after_wait.
  void BodyAsFunction() {
    const std::string head = fmt::format("__device__ __forceinline__ void {}_body(", kernel_.name);
    ListBehind(w_, kernel_, head, ") {", [](const Param& p) {
      return p.is_map ? fmt::format("const tensor_map& {}", p.name) : Restricted(p);
    });
    Text(false);
  }

  void KernelThatWaits() {
    ListBehind(w_, kernel_, KernelHead(kernel_), ") {",
               [](const Param& p) { return ParamText(p, ""); });
    const CodeWriter::Scope scope(w_);
    if (neighbours_.releases) w_.Text(kRelease);
    w_.Text("asm volatile(\"griddepcontrol.wait;\" ::: \"memory\");");
    ListBehind(w_, kernel_, kernel_.name + "_body(", ");", [](const Param& p) {
      return p.is_pointer ? fmt::format("after_wait({})", p.name) : p.name;
    });
  }

  // The text between the braces, and the last of them.
  void Text(bool releases) {
    const CodeWriter::Scope scope(w_);
    if (releases) w_.Text(kRelease);
    if (survey_.shared_bytes > kStaticSharedLimit)
      w_.Text("extern __shared__ __align__(16) unsigned char shared_memory[];");
    Body(kernel_.body);
  }

  void Body(const tile::Block& block) {
    for (size_t i = 0; i < block.size(); ++i) {
      if (i + 1 < block.size() && Initialised(block[i], block[i + 1])) {
        ++i;
        continue;
      }
      std::visit([this](const auto& node) { Emit(node); }, block[i].node);
    }
  }

  // A variable and its first value in one line.
  bool Initialised(const Stmt& first, const Stmt& second) {
    const auto* alloc = std::get_if<Alloc>(&first.node);
    const auto* store = std::get_if<Store>(&second.node);
    if (alloc == nullptr || store == nullptr || alloc->name != store->buffer || alloc->size != 1 ||
        !exprs_.IsScalar(alloc->name))
      return false;
    w_.Line("{} {} = {};", Info(alloc->type).cuda, alloc->name, exprs_.Text(store->value));
    return true;
  }

  void Emit(const Let& s) {
    std::string text = exprs_.Text(s.value);
    if (survey_.coarse_erfs.contains(s.name))
      text = fmt::format("erf_to_add({})", exprs_.Text(s.value->args[0]));
    if (survey_.exponents.contains(s.name))
      if (std::string apart = exprs_.Exponent(s.value); !apart.empty()) text = std::move(apart);
    w_.Line("const {} {} = {};", Info(s.value->type).cuda, s.name, text);
  }

  void Emit(const Alloc& s) {
    const std::string_view type = Info(s.type).cuda;
    if (s.space == Space::kShared) return SharedBuffer(s);
    if (exprs_.IsScalar(s.name)) return Variables(s);
    const auto copied = survey_.access_bytes.find(s.name);
    const bool wide = copied != survey_.access_bytes.end() && copied->second > SizeOf(s.type);
    w_.Line("{}{} {}[{}];", wide ? fmt::format("alignas({}) ", copied->second) : "", type, s.name,
            s.size);
  }

  // Registers as variables, wrapped at the right margin.
  void Variables(const Alloc& s) {
    std::string line(Info(s.type).cuda);
    for (int64_t i = 0; i < s.size; ++i) {
      const std::string name = exprs_.Element(s.name, Int(i));
      if (w_.column() + line.size() + name.size() + 2 > kColumns) {
        w_.Text(line);
        line = "   ";
      }
      line += " " + name + (i + 1 < s.size ? "," : ";");
    }
    w_.Text(line);
  }

  void SharedBuffer(const Alloc& s) {
    const std::string_view type = Info(s.type).cuda;
    if (survey_.shared_bytes <= kStaticSharedLimit)
      return w_.Line("__shared__ __align__(16) {} {}[{}];", type, s.name, s.size);
    const int64_t offset = survey_.shared_offset.at(s.name);
    const std::string at =
        offset == 0 ? "shared_memory" : fmt::format("shared_memory + {}", offset);
    w_.Line("{}* const {} = reinterpret_cast<{}*>({});  // [{}]", type, s.name, type, at, s.size);
  }

  void Emit(const Store& s) {
    const std::string to = exprs_.Element(s.buffer, s.index);
    const std::string compound = exprs_.Compound(s);
    if (!compound.empty()) return w_.Line("{} {};", to, compound);
    w_.Line("{} = {};", to, exprs_.Text(s.value));
  }

  void Emit(const Copy& s) {
    w_.Line("copy<{}>({}, {});", s.lanes * SizeOf(survey_.types.at(s.dst)),
            exprs_.Address(s.dst, s.dst_index), exprs_.Address(s.src, s.src_index));
  }

  void Emit(const CopyAsync& s) {
    const int bytes = s.lanes * SizeOf(survey_.types.at(s.dst));
    w_.Line("copy_async{}({}, {}, {});", bytes == 16 ? "" : fmt::format("<{}>", bytes),
            exprs_.Address(s.dst, s.dst_index), exprs_.Address(s.src, s.src_index),
            exprs_.Text(s.valid));
  }
  void Emit(const CommitAsync&) { w_.Line("commit_async();"); }
  void Emit(const WaitAsync& s) { w_.Line("wait_async<{}>();", s.groups); }

  void Emit(const LoadMatrix& s) {
    w_.Line("load_matrix{}<{}>({}, {});", s.transposed ? "_transposed" : "", s.matrices,
            exprs_.Address(s.dst, s.dst_index), exprs_.Address(s.src, s.src_index));
  }
  void Emit(const Largest& s) {
    const std::string numbers = s.numbers.empty() ? "" : ", " + s.numbers;
    const std::string taps =
        s.numbers.empty() ? "" : fmt::format(", {{{}}}", fmt::join(s.taps, ", "));
    w_.Line("largest_of<{}, {}>({}{}, {{{}}}{});", s.lanes, s.keeps_nan, s.values, numbers,
            fmt::join(s.sources, ", "), taps);
  }
  void Emit(const AtomicAdd& s) {
    w_.Line("atomicAdd({}, {});", exprs_.Address(s.buffer, s.index), exprs_.Text(s.value));
  }

  void Emit(const Mma& s) {
    w_.Line("mma_{}({}, {}, {});", Info(survey_.types.at(s.a)).text,
            exprs_.Address(s.acc, s.acc_index), exprs_.Address(s.a, s.a_index),
            exprs_.Address(s.b, s.b_index));
  }

  void Emit(const For& s) {
    const std::string_view type = Info(s.type).cuda;
    if (IsBlockBind(s.bind) || s.bind == Bind::kThreadX) return Indexed(s);
    const bool unroll = s.bind == Bind::kUnroll || s.bind == Bind::kVector;
    if (unroll && s.extent->kind == ExprKind::kInt) w_.Text("#pragma unroll");
    const auto loop = w_.Block("for ({} {} = 0; {} < {}; ++{})", type, s.var, s.var,
                               exprs_.Text(s.extent, kOrder + 1), s.var);
    Body(s.body);
  }

  // A loop that the hardware runs. Its body stands where the loop stood: names are unique in a
  // kernel.
  void Indexed(const For& s) {
    static constexpr std::string_view kIndex[] = {
        "", "", "", "blockIdx.x", "blockIdx.y", "blockIdx.z", "threadIdx.x"};
    static_assert(std::size(kIndex) == std::size(kBindText));
    const std::string declaration = fmt::format("const {} {} = {}", Info(s.type).cuda, s.var,
                                                kIndex[static_cast<size_t>(s.bind)]);
    if (s.bind != Bind::kThreadX || IsConst(s.extent, kernel_.threads)) {
      bool used = false;
      WalkExprs(s.body, [&](const Expr& e) {
        used = used || (e->kind == ExprKind::kVar && e->name == s.var);
      });
      if (used) w_.Line("{};", declaration);
      return Body(s.body);
    }
    const auto scope = w_.Block("if ({}; {} < {})", declaration, s.var, exprs_.Text(s.extent));
    Body(s.body);
  }

  void Emit(const If& s) { EmitIf(s, ""); }

  // `before` is "} else " in a chain.
  void EmitIf(const If& s, std::string_view before) {
    w_.Line("{}if ({}) {{", before, exprs_.Text(s.condition));
    w_.Indent();
    Body(s.then_body);
    w_.Dedent();
    if (s.else_body.size() == 1) {
      if (const auto* next = std::get_if<If>(&s.else_body[0].node)) return EmitIf(*next, "} else ");
    }
    if (!s.else_body.empty()) {
      w_.Text("} else {");
      w_.Indent();
      Body(s.else_body);
      w_.Dedent();
    }
    w_.Text("}");
  }

  void Emit(const Call& s) {
    // The skeleton conv_halo_sm90 has a conv_halo_shape.
    w_.Line("{}_shape shape;", s.skeleton.substr(0, s.skeleton.rfind('_')));
    for (const Call::Member& m : s.shape) w_.Line("shape.{} = {};", m.name, exprs_.Text(m.value));
    std::string arguments;
    for (const std::string& map : s.maps) arguments += map + ", ";
    for (const std::string& buffer : s.buffers) arguments += buffer + ", ";
    arguments += "shape";
    for (const Call::Function& f : s.functions) {
      const std::string params = ParamsOf(f);
      w_.Line("const auto {} = [&]({}) {{", f.name, params);
      w_.Indent();
      Body(f.body);
      w_.Dedent();
      w_.Text("};");
      arguments += ", " + f.name;
    }
    w_.Line("{}<Config>({});", s.skeleton, arguments);
  }

  // Barrier 0 is __syncthreads.
  void Emit(const Barrier& s) {
    if (s.team == 0) return w_.Text("__syncthreads();");
    w_.Line("asm volatile(\"bar.sync %0, {};\" ::\"r\"(1 + threadIdx.x / {}) : \"memory\");",
            s.team, s.team);
  }
  void Emit(const Comment& s) { w_.Text(s.text.empty() ? "//" : "// " + s.text); }

  const Kernel& kernel_;
  const Neighbours neighbours_;
  const Survey survey_;
  const ExprPrinter exprs_;
  CodeWriter w_;
};

}  // namespace

std::string EmitCuda(const Kernel& kernel, Neighbours neighbours) {
  return Emitter(kernel, neighbours).Run();
}

int64_t DynamicSharedBytes(const Kernel& kernel) {
  const Survey survey = SurveyOf(kernel);
  if (survey.call != nullptr && survey.call->shared_bytes > 0) return survey.call->shared_bytes;
  const int64_t bytes = survey.shared_bytes;
  return bytes > kStaticSharedLimit ? bytes : 0;
}

}  // namespace kiln::cuda_codegen
