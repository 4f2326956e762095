#include "compiler/tune/search.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <future>
#include <map>
#include <optional>
#include <set>

#include "compiler/compile.h"
#include "compiler/engines/registry.h"
#include "ir/base/hash.h"
#include "ir/base/log.h"
#include "ir/base/threads.h"

namespace kiln::compiler {
namespace {

// So many failures to run in a row mean that the device is gone, not that a kernel is bad.
constexpr int kFailuresForGood = 4;
// Candidates that are so close to the best are timed again, in turns.
constexpr double kClose = 0.03;
constexpr size_t kFinalists = 4;
constexpr int kRounds = 5;

// A candidate on its way through the compiler.
struct Ready {
  std::string key;                       // of the binary
  Result<std::shared_ptr<Trial>> trial;  // null: not worth compiling
};

void AddMap(FieldHasher& hasher, const TensorMapSpec& map) {
  hasher.Add(static_cast<int64_t>(map.kind)).Add(static_cast<int64_t>(map.type)).Add(map.rank);
  for (const int64_t dim : map.dims) hasher.Add(dim);
  for (const int64_t stride : map.stride_bytes) hasher.Add(stride);
  for (const auto* values : {&map.box, &map.element_strides})
    for (const int32_t value : *values) hasher.Add(value);
  for (const auto* values : {&map.lower, &map.upper})
    for (const int32_t value : *values) hasher.Add(value);
  hasher.Add(map.offset_bytes).Add(map.channels).Add(map.pixels).Add(map.swizzle_bytes);
}

class Searcher {
 public:
  Searcher(const Group& group, const Target& target, const std::vector<Record>& known,
           const SearchOptions& options, Bench& bench,
           const std::function<void(const SearchStep&)>& on_step)
      : group_(group),
        target_(target),
        options_(options),
        bench_(bench),
        on_step_(on_step),
        problem_(ProblemOf(group, target)),
        ranked_(RankCandidates(group, target, options.inputs)) {
    for (const Record& record : known) Remember(record);
    if (options.first.has_value()) {
      std::erase(ranked_, *options.first);
      ranked_.insert(ranked_.begin(), *options.first);
    }
    if (options.top > 0 && ranked_.size() > static_cast<size_t>(options.top))
      ranked_.resize(static_cast<size_t>(options.top));
  }

  Result<SearchResult> Run() {
    for (; next_ < ranked_.size(); ++next_) {
      if (const auto known = known_.find(KnobKey(ranked_[next_]));
          known != known_.end() && !options_.retune) {
        ++result_.known;
        Count(known->second);
      } else {
        Ready ready = Take();
        if (ready.trial.ok() && *ready.trial == nullptr)
          ++result_.not_compiled;
        else
          RETURN_IF_ERROR(Examine(ranked_[next_], std::move(ready)));
      }
      if (MustStop()) break;
    }
    if (options_.vary_arguments) RETURN_IF_ERROR(VaryArguments());
    if (options_.confirm) RETURN_IF_ERROR(Confirm());
    if (best_.has_value()) result_.fastest.push_back(*best_);
    if (!best_.has_value() && !first_failure_.ok()) return first_failure_;
    return std::move(result_);
  }

 private:
  static std::string KnobKey(const Candidate& c) {
    const Engine& engine = Engines()[static_cast<size_t>(c.engine)];
    return fmt::format("{}/{} {}", engine.name, engine.version, KnobText(engine, c.knobs));
  }

  void Remember(const Record& record) {
    known_[fmt::format("{}/{} {}", record.engine, record.version, record.knobs)] = record;
  }

  // True if the record is the fastest so far; patience counts from the last improvement.
  bool Count(const Record& record) {
    ++since_best_;
    if (record.is_rejected()) return false;
    const bool first = !best_.has_value();
    if (!first && record.microseconds >= best_->microseconds) return false;
    if (first || record.microseconds < best_->microseconds * (1 - options_.worthwhile))
      since_best_ = 0;
    best_ = record;
    return true;
  }

  bool IsOutOfBudget() { return options_.deadline > 0 && bench_.Now() >= options_.deadline; }

  bool MustStop() {
    if (next_ + 1 == ranked_.size()) return false;
    if (options_.patience > 0 && since_best_ >= options_.patience) {
      result_.stopped = fmt::format("{} candidates brought nothing", since_best_);
    } else if (IsOutOfBudget()) {
      result_.stopped = "the budget is used up";
    }
    return !result_.stopped.empty();
  }

  // The number of candidates from the next one on that are looked at whatever they bring.
  size_t Certain() const {
    if (options_.patience <= 0) return ranked_.size();
    const int left = best_.has_value() ? options_.patience - since_best_ : options_.patience + 1;
    return static_cast<size_t>(std::max(left, 1));
  }

  // Keeps `jobs` candidates in the compiler, this one among them, but none that may be for nothing.
  Ready Take() {
    const size_t wanted = std::min(static_cast<size_t>(CappedThreads(options_.jobs)), Certain());
    for (ahead_ = std::max(ahead_, next_); ahead_ < ranked_.size() && ahead_ < next_ + wanted;
         ++ahead_) {
      const Candidate& candidate = ranked_[ahead_];
      if (known_.contains(KnobKey(candidate)) && !options_.retune) continue;
      const bool waits = !options_.worth_compiling.has_value() ||
                         static_cast<int>(ahead_) < *options_.worth_compiling;
      const auto make = [this, &candidate, waits] { return Make(candidate, waits); };
      compiling_[ahead_] =
          options_.jobs > 1 ? Async(make) : std::async(std::launch::deferred, make);
    }
    Ready ready = compiling_.at(next_).get();
    compiling_.erase(next_);
    return ready;
  }

  Ready Make(const Candidate& candidate, bool waits = true) const {
    Result<Program> program = CompileGroup(group_, target_, candidate);
    if (!program.ok()) return {.key = {}, .trial = std::move(program).status()};
    if (!waits && !bench_.IsCompiled(*program))
      return {.key = {}, .trial = std::shared_ptr<Trial>()};
    return {.key = BinaryKey(*program), .trial = bench_.Prepare(*program)};
  }

  Status Examine(const Candidate& candidate, Ready ready) {
    Record record = RecordOf(problem_, candidate);
    if (const auto same = by_binary_.find(ready.key);
        !ready.key.empty() && same != by_binary_.end()) {
      ++result_.same_binary;
      record.microseconds = same->second.microseconds;
      record.spread = same->second.spread;
      record.rejected = same->second.rejected;
    } else {
      Status status = ready.trial.ok() ? TryOut(**ready.trial, record) : ready.trial.status();
      if (!status.ok()) return Failed(candidate, std::move(status));
      by_binary_.emplace(ready.key, record);
    }
    failures_in_a_row_ = 0;
    Remember(record);
    ++(record.is_rejected() ? result_.rejected : result_.measured);
    LOG(kDebug, "tuning: {} takes {:.2f} us", KnobKey(candidate), record.microseconds);
    const bool is_best = Count(record);
    Report(std::move(record), is_best);
    return {};
  }

  // The fastest again, with other values of what its kernel takes as arguments: nothing is compiled
  // for them, and the model tells none of them apart, so that no engine proposes them.
  Status VaryArguments() {
    if (!best_.has_value()) return {};
    ASSIGN_OR_RETURN(const Candidate best, CandidateOf(*best_, group_, target_));
    const Engine& engine = Engines()[static_cast<size_t>(best.engine)];
    ASSIGN_OR_RETURN(const auto plan, engine.plan(group_, target_));
    for (size_t k = 0; k < engine.knobs.size(); ++k) {
      if (engine.knobs[k].in_text != InText::kNothing) continue;
      for (const int value : engine.knobs[k].domain) {
        Candidate other = best;
        other.knobs[k] = value;
        if (other == best || !std::isfinite(plan->EstimateOf(other.knobs).seconds)) continue;
        if (IsOutOfBudget()) return {};
        varied_.push_back(other);
        if (const auto known = known_.find(KnobKey(other));
            known != known_.end() && !options_.retune)
          Count(known->second);
        else
          RETURN_IF_ERROR(Examine(other, Make(other)));
      }
    }
    return {};
  }

  void Report(Record record, bool is_best) {
    const auto total = static_cast<int>(ranked_.size());
    on_step_({.record = std::move(record),
              .is_best = is_best,
              .done = std::min(static_cast<int>(next_) + 1, total),
              .total = total});
  }

  struct Finalist {
    Record record;
    std::shared_ptr<Trial> trial;
    std::vector<double> times = {};
  };

  // The candidates within kClose of the best, fastest first, one of each binary.
  Result<std::vector<Finalist>> Finalists() {
    std::vector<std::pair<Record, const Candidate*>> close;
    for (const std::vector<Candidate>* candidates : {&ranked_, &varied_}) {
      for (const Candidate& candidate : *candidates) {
        const auto known = known_.find(KnobKey(candidate));
        if (known == known_.end() || known->second.is_rejected()) continue;
        if (known->second.microseconds <= best_->microseconds * (1 + kClose))
          close.emplace_back(known->second, &candidate);
      }
    }
    std::vector<Finalist> finalists;
    if (close.size() < 2) return finalists;
    std::ranges::stable_sort(close, {}, [](const auto& c) { return c.first.microseconds; });
    std::set<std::string> binaries;
    for (const auto& [record, candidate] : close) {
      if (finalists.size() == kFinalists) break;
      Ready ready = Make(*candidate);
      if (!binaries.insert(ready.key).second) continue;
      if (!ready.trial.ok()) return ready.trial.status();
      finalists.push_back({.record = record, .trial = *ready.trial});
    }
    return finalists;
  }

  Status Confirm() {
    if (!best_.has_value() || (result_.measured == 0 && best_->confirmed)) return {};
    if (IsOutOfBudget()) return {};
    ASSIGN_OR_RETURN(std::vector<Finalist> finalists, Finalists());
    if (finalists.size() < 2) return {};
    for (int round = 0; round < kRounds; ++round) {
      for (Finalist& finalist : finalists) {
        ASSIGN_OR_RETURN(const Timing timing, finalist.trial->Time(0));
        finalist.times.push_back(timing.seconds);
      }
    }
    for (Finalist& finalist : finalists) std::ranges::sort(finalist.times);
    const double scale = ScaleOf(finalists);
    best_.reset();
    for (Finalist& finalist : finalists) {
      const auto& times = finalist.times;
      const double median = Median(finalist);
      SetTime(finalist.record,
              {.seconds = scale * median,
               .spread = median > 0 ? (times.back() - times.front()) / median : 0});
      finalist.record.confirmed = true;
      const bool is_best = Count(finalist.record);
      Report(finalist.record, is_best);
    }
    return {};
  }

  static double Median(const Finalist& finalist) { return finalist.times[kRounds / 2]; }

  // Turns tell the order. On a GPU that has become hot they take longer than before, and the
  // fastest would stand behind those that were slower while it was cool: its time stays.
  static double ScaleOf(const std::vector<Finalist>& finalists) {
    double before = finalists[0].record.microseconds * 1e-6, in_turns = Median(finalists[0]);
    for (const Finalist& finalist : finalists) {
      before = std::min(before, finalist.record.microseconds * 1e-6);
      in_turns = std::min(in_turns, Median(finalist));
    }
    return in_turns > before ? before / in_turns : 1;
  }

  static void SetTime(Record& record, const Timing& timing) {
    // Nanoseconds are below what any clock here resolves.
    record.microseconds = std::max(std::round(timing.seconds * 1e9), 1.0) / 1e3;
    record.spread = std::round(timing.spread * 1e4) / 1e4;
  }

  // Fills in the time or the rejection; an error where neither is known.
  Status TryOut(Trial& trial, Record& record) {
    if (Status status = trial.Check(); !status.ok()) {
      if (status.code() != Code::kUnexpectedValue) return status;
      record.rejected = status.message();
      return {};
    }
    ASSIGN_OR_RETURN(const Timing timing, trial.Time(best_ ? best_->microseconds * 1e-6 : 0));
    SetTime(record, timing);
    return {};
  }

  Status Failed(const Candidate& candidate, Status status) {
    ++result_.failed;
    ++since_best_;
    LOG(kWarn, "tuning: {} could not be run: {}", KnobKey(candidate), status.message());
    if (first_failure_.ok()) first_failure_ = status;
    if (++failures_in_a_row_ < kFailuresForGood) return {};
    return std::move(status).Within(
        fmt::format("{} candidates in a row could not be run", failures_in_a_row_));
  }

  const Group& group_;
  const Target& target_;
  const SearchOptions& options_;
  Bench& bench_;
  const std::function<void(const SearchStep&)>& on_step_;
  const Problem problem_;
  std::vector<Candidate> ranked_, varied_;
  std::map<std::string, Record> known_;      // by KnobKey
  std::map<std::string, Record> by_binary_;  // by BinaryKey
  std::optional<Record> best_;
  SearchResult result_;
  Status first_failure_;
  size_t next_ = 0, ahead_ = 0;  // ahead_: the first that is not with the compiler
  int since_best_ = 0, failures_in_a_row_ = 0;
  // Last: what is under way refers to the rest, and is waited for before that goes.
  std::map<size_t, std::future<Ready>> compiling_;
};

}  // namespace

Result<SearchResult> Search(const Group& group, const Target& target,
                            const std::vector<Record>& known, const SearchOptions& options,
                            Bench& bench, const std::function<void(const SearchStep&)>& on_step) {
  return Searcher(group, target, known, options, bench, on_step).Run();
}

std::string BinaryKey(const Program& program) {
  FieldHasher hasher;
  for (const KernelSource& kernel : program.kernels) hasher.Add(kernel.text).Add(kernel.arch);
  for (const Launch& launch : program.launches) {
    hasher.Add(launch.kernel).Add(launch.dynamic_shared_bytes);
    for (int d = 0; d < 3; ++d) hasher.Add(launch.grid[d]).Add(launch.block[d]);
    for (const LaunchArg& arg : launch.args) {
      hasher.Add(static_cast<int64_t>(arg.kind)).Add(static_cast<int64_t>(arg.buffer.kind));
      hasher.Add(arg.buffer.index).Add(arg.buffer.byte_offset);
      hasher.Add(static_cast<int64_t>(arg.bits)).Add(arg.value_type);
    }
    for (const TensorMapSpec& map : launch.tensor_maps) AddMap(hasher, map);
  }
  return hasher.Finish().Hex();
}

}  // namespace kiln::compiler
