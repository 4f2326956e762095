// Reference execution of tile kernels. Names are resolved to slots once; then each expression node
// owns one value a thread and is evaluated for all active threads before the next node is, which is
// the lockstep and keeps the interpretive cost per value low. It is stricter than any device:
// out-of-bounds and misaligned access, undefined reads, barriers and shuffles that some thread
// misses, and races on shared memory are errors. Called by tests and by `kiln run --interpret`.
// This file runs statements; memory, expressions and warps are interpret_memory.h and
// interpret_values.h.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ir/tile/interpret_values.h"
#include "ir/tile/names.h"
#include "ir/tile/tools.h"
#include "ir/tile/visit.h"

namespace kiln::tile {
namespace {

// Threads of a team that has barriers of its own, or 0.
int TeamOf(const Kernel& kernel) {
  int team = 0;
  Walk(kernel.body, [&](const Stmt& s) {
    if (const auto* barrier = std::get_if<Barrier>(&s.node); barrier != nullptr)
      team = std::max(team, barrier->team);
  });
  return team;
}

class Machine {
 public:
  explicit Machine(const Kernel& kernel)
      : threads_(kernel.threads),
        memory_(kernel.threads, TeamOf(kernel), faults_),
        values_(kernel.threads, faults_, memory_) {}

  Status Run(std::vector<Step>& body) {
    std::vector<int> all;
    for (int t = 0; t < threads_; ++t) all.push_back(t);
    Run(body, all);
    return faults_.status;
  }

 private:
  void Run(std::vector<Step>& steps, Lanes lanes) {
    for (Step& s : steps) {
      faults_.at = &s;
      std::visit([&](const auto& node) { Execute(s, node, lanes); }, s.source->node);
      if (!faults_.status.ok()) return;
    }
  }

  void Execute(Step& s, const Let&, Lanes lanes) { values_.Eval(*s.first, lanes); }

  void Execute(Step& s, const Alloc&, Lanes lanes) { memory_.Forget(*s.dst, lanes); }

  void Execute(Step& s, const Store&, Lanes lanes) {
    values_.Eval(*s.first, lanes);
    values_.Eval(*s.second, lanes);
    for (const int t : lanes) {
      const int64_t index = s.first->out[t].i;
      if (memory_.InBounds(*s.dst, index, 1, t)) memory_.Write(*s.dst, index, t, s.second->out[t]);
    }
  }

  void Execute(Step& s, const Copy& copy, Lanes lanes) {
    values_.Eval(*s.first, lanes);
    values_.Eval(*s.second, lanes);
    for (const int t : lanes) {
      const int64_t dst = s.first->out[t].i, src = s.second->out[t].i;
      if (!memory_.InBounds(*s.src, src, copy.lanes, t) ||
          !memory_.InBounds(*s.dst, dst, copy.lanes, t))
        return;
      for (int k = 0; k < copy.lanes; ++k)
        memory_.Write(*s.dst, dst + k, t, memory_.Read(*s.src, src + k, t));
    }
  }

  void Execute(Step&, const Call& s, Lanes lanes) {
    faults_.Fail(lanes.empty() ? 0 : lanes[0],
                 "{} is a skeleton of the device library: only a GPU runs it", s.skeleton);
  }

  void Execute(Step& s, const CopyAsync& copy, Lanes lanes) {
    values_.Eval(*s.first, lanes);
    values_.Eval(*s.second, lanes);
    values_.Eval(*s.third, lanes);
    for (const int t : lanes) {
      const int64_t dst = s.first->out[t].i, src = s.second->out[t].i;
      const bool valid = s.third->out[t].i != 0;
      if (!memory_.InBounds(*s.dst, dst, copy.lanes, t)) return;
      if (valid && !memory_.InBounds(*s.src, src, copy.lanes, t)) return;
      for (int k = 0; k < copy.lanes; ++k) {
        const Cell zero = IsFloat(s.dst->type) ? Cell{.f = 0} : Cell{.i = 0};
        memory_.Write(*s.dst, dst + k, t, valid ? memory_.Read(*s.src, src + k, t) : zero);
      }
      memory_.StartCopy(*s.dst, dst, copy.lanes, t);
    }
  }

  void Execute(Step&, const CommitAsync&, Lanes lanes) {
    for (const int t : lanes) memory_.CommitCopies(t);
  }
  void Execute(Step&, const WaitAsync& wait, Lanes lanes) {
    for (const int t : lanes) memory_.WaitForCopies(t, wait.groups);
  }

  void Execute(Step& s, const AtomicAdd&, Lanes lanes) {
    values_.Eval(*s.first, lanes);
    values_.Eval(*s.second, lanes);
    Memory& m = *s.dst;
    for (const int t : lanes) {
      const int64_t index = s.first->out[t].i;
      if (!memory_.InBounds(m, index, 1, t)) return;
      const Cell sum = Apply(ScalarOp::kAdd, m.type, m.type, memory_.Read(m, index, t),
                             s.second->out[t], {.i = 0});
      memory_.Write(m, index, t, sum);
    }
  }

  void Execute(Step& s, const Largest& largest, Lanes lanes) {
    for (const int t : lanes) {
      for (int64_t lane = 0; lane < largest.lanes; ++lane) {
        const ScalarOp op = largest.keeps_nan ? ScalarOp::kMaxNan : ScalarOp::kMax;
        double best = -std::numeric_limits<double>::infinity();
        for (Memory* source : s.sources)
          best = EvalScalar(op, best, memory_.Read(*source, lane, t).f, 0);
        memory_.Write(*s.dst, lane, t, {.f = best});
        if (s.src2 == nullptr) continue;
        int64_t number = 0;
        for (size_t k = s.sources.size(); k-- > 0;)
          if (const double v = memory_.Read(*s.sources[k], lane, t).f;
              v == best || (largest.keeps_nan && std::isnan(v)))
            number = largest.taps[k];
        memory_.Write(*s.src2, lane, t, {.i = number});
      }
    }
  }

  void Execute(Step& s, const LoadMatrix& load, Lanes lanes) {
    values_.Eval(*s.first, lanes);
    values_.Eval(*s.second, lanes);
    LoadMatrices(faults_, memory_, s, load, lanes);
  }

  void Execute(Step& s, const Mma&, Lanes lanes) {
    values_.Eval(*s.first, lanes);
    values_.Eval(*s.second, lanes);
    values_.Eval(*s.third, lanes);
    MultiplyMatrices(faults_, memory_, s, lanes);
  }

  void Execute(Step& s, const For& loop, Lanes lanes) {
    values_.Eval(*s.first, lanes);
    if (loop.bind == Bind::kThreadX) return RunThreads(s, lanes);
    if (lanes.empty()) return;
    const Cell* extent = s.first->out;
    int64_t most = 0;
    bool uniform = true;
    for (const int t : lanes) {
      most = std::max(most, extent[t].i);
      uniform = uniform && extent[t].i == extent[lanes[0]].i;
    }
    std::vector<int> still(lanes.begin(), lanes.end());
    for (int64_t k = 0; k < most && faults_.status.ok(); ++k) {
      if (!uniform) std::erase_if(still, [&](int t) { return extent[t].i <= k; });
      for (const int t : still) s.var[t].i = k;
      if (IsBlockBind(loop.bind)) {
        faults_.block[static_cast<size_t>(loop.bind) - static_cast<size_t>(Bind::kBlockX)] = k;
        memory_.PassBarrier(false);
      }
      Run(s.body, still);
    }
  }

  void RunThreads(Step& s, Lanes lanes) {
    std::vector<int> taking_part;
    for (const int t : lanes) {
      if (t < s.first->out[t].i) taking_part.push_back(t);
      s.var[t].i = t;
    }
    Run(s.body, taking_part);
  }

  void Execute(Step& s, const If&, Lanes lanes) {
    values_.Eval(*s.first, lanes);
    if (!faults_.status.ok()) return;
    std::vector<int> then_lanes, else_lanes;
    for (const int t : lanes) (s.first->out[t].i != 0 ? then_lanes : else_lanes).push_back(t);
    if (!then_lanes.empty()) Run(s.body, then_lanes);
    if (!else_lanes.empty() && faults_.status.ok()) Run(s.else_body, else_lanes);
  }

  void Execute(Step&, const Barrier& barrier, Lanes lanes) {
    if (static_cast<int>(lanes.size()) != threads_)
      faults_.Fail(lanes.empty() ? 0 : lanes[0], "reached by {} of {} threads", lanes.size(),
                   threads_);
    memory_.PassBarrier(barrier.team != 0);
  }
  void Execute(Step&, const Comment&, Lanes) {}

  const int threads_;
  Faults faults_;
  BlockMemory memory_;
  Evaluator values_;
};

}  // namespace

Status Interpret(const Kernel& kernel, std::span<const Argument> args) {
  RETURN_IF_ERROR(Verify(kernel));
  if (args.size() != kernel.params.size())
    return Status::Error(Code::kBadParam, "{} takes {} arguments, not {}", kernel.name,
                         kernel.params.size(), args.size());
  for (size_t i = 0; i < args.size(); ++i)
    if (kernel.params[i].is_pointer && args[i].buffer == nullptr)
      return Status::Error(Code::kBadParam, "argument {} of {} needs a buffer",
                           kernel.params[i].name, kernel.name);
  Resolver resolved(kernel, args);
  return Machine(kernel).Run(resolved.body);
}

}  // namespace kiln::tile
