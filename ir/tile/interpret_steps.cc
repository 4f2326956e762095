#include "ir/tile/interpret_steps.h"

namespace kiln::tile {

Resolver::Resolver(const Kernel& kernel, std::span<const Argument> args)
    : threads_(kernel.threads) {
  for (size_t i = 0; i < kernel.params.size(); ++i) {
    const Param& p = kernel.params[i];
    if (p.is_pointer) {
      Memory& m = NewMemory(p.name, p.type);
      m.global = args[i].buffer;
      m.size = static_cast<int64_t>(args[i].buffer->size());
    } else {
      Cell value;
      if (IsFloat(p.type))
        value.f = args[i].scalar.f;
      else
        value.i = args[i].scalar.i;
      vars_[p.name] = params_.emplace_back(threads_, value).data();
    }
  }
  body = Resolve(kernel.body);
}

Memory& Resolver::NewMemory(const std::string& name, DType type) {
  Memory& m = memories_.emplace_back();
  m.name = name;
  m.type = type;
  by_name_[name] = &m;
  return m;
}

std::vector<Step> Resolver::Resolve(const Block& block) {
  std::vector<Step> steps;
  for (const Stmt& s : block) {
    if (std::holds_alternative<Comment>(s.node)) continue;
    Step& step = steps.emplace_back();
    step.source = &s;
    std::visit([&](const auto& node) { Fill(step, node); }, s.node);
  }
  return steps;
}

// A let needs no step of its own: the name means its value's slot, and nothing is copied.
void Resolver::Fill(Step& step, const Let& s) {
  step.first = Resolve(s.value);
  vars_[s.name] = step.first->out;
}
void Resolver::Fill(Step& step, const Alloc& s) {
  Memory& m = NewMemory(s.name, s.type);
  m.space = s.space;
  m.size = s.size;
  m.cells.resize(s.space == Space::kReg ? s.size * threads_ : s.size);
  m.defined.resize(m.cells.size());
  if (s.space == Space::kShared) {
    m.touches.resize(s.size);
    m.in_flight.resize(s.size);
  }
  step.dst = &m;
}
void Resolver::Fill(Step& step, const Store& s) {
  step.first = Resolve(s.index);
  step.second = Resolve(s.value);
  step.dst = by_name_.at(s.buffer);
}
void Resolver::Fill(Step& step, const Copy& s) {
  step.first = Resolve(s.dst_index);
  step.second = Resolve(s.src_index);
  step.dst = by_name_.at(s.dst);
  step.src = by_name_.at(s.src);
}
void Resolver::Fill(Step& step, const CopyAsync& s) {
  step.first = Resolve(s.dst_index);
  step.second = Resolve(s.src_index);
  step.third = Resolve(s.valid);
  step.dst = by_name_.at(s.dst);
  step.src = by_name_.at(s.src);
}
void Resolver::Fill(Step&, const CommitAsync&) {}
void Resolver::Fill(Step&, const WaitAsync&) {}
void Resolver::Fill(Step& step, const LoadMatrix& s) {
  step.first = Resolve(s.dst_index);
  step.second = Resolve(s.src_index);
  step.dst = by_name_.at(s.dst);
  step.src = by_name_.at(s.src);
}
void Resolver::Fill(Step& step, const Largest& s) {
  step.dst = by_name_.at(s.values);
  if (!s.numbers.empty()) step.src2 = by_name_.at(s.numbers);
  for (const std::string& source : s.sources) step.sources.push_back(by_name_.at(source));
}
void Resolver::Fill(Step& step, const AtomicAdd& s) {
  step.first = Resolve(s.index);
  step.second = Resolve(s.value);
  step.dst = by_name_.at(s.buffer);
}
void Resolver::Fill(Step& step, const Mma& s) {
  step.first = Resolve(s.acc_index);
  step.second = Resolve(s.a_index);
  step.third = Resolve(s.b_index);
  step.dst = by_name_.at(s.acc);
  step.src = by_name_.at(s.a);
  step.src2 = by_name_.at(s.b);
}
void Resolver::Fill(Step&, const Call&) {}
void Resolver::Fill(Step& step, const For& s) {
  step.first = Resolve(s.extent);
  step.var.resize(threads_);
  vars_[s.var] = step.var.data();
  step.body = Resolve(s.body);
}
void Resolver::Fill(Step& step, const If& s) {
  step.first = Resolve(s.condition);
  step.body = Resolve(s.then_body);
  step.else_body = Resolve(s.else_body);
}
void Resolver::Fill(Step&, const Barrier&) {}
void Resolver::Fill(Step&, const Comment&) {}

ExprCode* Resolver::Resolve(const Expr& e) {
  ExprCode& code = codes_.emplace_back();
  code.node = e.get();
  for (size_t i = 0; i < e->args.size(); ++i) code.args[i] = Resolve(e->args[i]);
  if (e->kind == ExprKind::kVar) {
    code.out = vars_.at(e->name);
    return &code;
  }
  if (e->kind == ExprKind::kLoad) code.memory = by_name_.at(e->name);
  Cell value;
  if (e->kind == ExprKind::kFloat)
    value.f = e->float_value;
  else
    value.i = e->int_value;
  code.own.assign(threads_, value);
  code.out = code.own.data();
  return &code;
}

}  // namespace kiln::tile
