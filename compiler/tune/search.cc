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

// One search: its problem, how far it goes, what it measures on, and who hears of it.
struct Task {
  const Group& group;
  const Target& target;
  const SearchOptions& options;
  Bench& bench;
  const std::function<void(const SearchStep&)>& on_step;
  const Problem problem;

  bool IsOutOfBudget() const { return options.deadline > 0 && bench.Now() >= options.deadline; }
};

// All that is known so far.
struct Findings {
  std::map<std::string, Record> known = {};      // by KnobKey
  std::map<std::string, Record> by_binary = {};  // by BinaryKey
  std::optional<Record> best = {};
  SearchResult result = {};
  Status first_failure = {};
  int since_best = 0, failures_in_a_row = 0;
};

// How much of the ranked list has been looked at.
struct Place {
  size_t next, total;
};

std::string KnobKey(const Candidate& c) {
  const Engine& engine = Engines()[static_cast<size_t>(c.engine)];
  return fmt::format("{}/{} {}", engine.name, engine.version, KnobText(engine, c.knobs));
}
void Remember(const Record& record, Findings& found) {
  found.known[fmt::format("{}/{} {}", record.engine, record.version, record.knobs)] = record;
}
const Record* KnownOf(const Candidate& candidate, const Task& task, const Findings& found) {
  const auto known = found.known.find(KnobKey(candidate));
  return known == found.known.end() || task.options.retune ? nullptr : &known->second;
}

// Whether the record is the fastest so far; patience counts from the last improvement.
bool Count(const Record& record, double worthwhile, Findings& found) {
  ++found.since_best;
  if (record.is_rejected()) return false;
  const bool first = !found.best.has_value();
  if (!first && record.microseconds >= found.best->microseconds) return false;
  if (first || record.microseconds < found.best->microseconds * (1 - worthwhile))
    found.since_best = 0;
  found.best = record;
  return true;
}

void Report(const Task& task, Record record, bool is_best, Place place) {
  const auto total = static_cast<int>(place.total);
  task.on_step({.record = std::move(record),
                .is_best = is_best,
                .done = std::min(static_cast<int>(place.next) + 1, total),
                .total = total});
}

// Why no further candidate is looked at; empty where one is.
std::string ReasonToStop(const Task& task, const Findings& found, Place place) {
  if (place.next + 1 == place.total) return {};
  if (task.options.patience > 0 && found.since_best >= task.options.patience)
    return fmt::format("{} candidates brought nothing", found.since_best);
  return task.IsOutOfBudget() ? "the budget is used up" : "";
}

// ---- compiling

Ready Make(const Task& task, const Candidate& candidate, bool waits = true) {
  Result<Program> program = CompileGroup(task.group, task.target, candidate);
  if (!program.ok()) return {.key = {}, .trial = std::move(program).status()};
  if (!waits && !task.bench.IsCompiled(*program))
    return {.key = {}, .trial = std::shared_ptr<Trial>()};
  return {.key = BinaryKey(*program), .trial = task.bench.Prepare(*program)};
}

// How many candidates from the next one on are looked at whatever they bring.
size_t Certain(const SearchOptions& options, const Findings& found, size_t total) {
  if (options.patience <= 0) return total;
  const int left =
      found.best.has_value() ? options.patience - found.since_best : options.patience + 1;
  return static_cast<size_t>(std::max(left, 1));
}

// The candidates that are with the compiler. They refer to the task and to the list, which stay
// until all that is under way has been waited for.
class Compiling {
 public:
  Compiling(const Task& task, const std::vector<Candidate>& ranked)
      : task_(task), ranked_(ranked) {}

  // Keeps `jobs` candidates in the compiler, the next one among them, but none that may be for
  // nothing; waits for the next one.
  Ready Take(size_t next, const Findings& found) {
    const SearchOptions& options = task_.options;
    const size_t wanted = std::min(static_cast<size_t>(CappedThreads(options.jobs)),
                                   Certain(options, found, ranked_.size()));
    for (ahead_ = std::max(ahead_, next); ahead_ < ranked_.size() && ahead_ < next + wanted;
         ++ahead_) {
      const Candidate& candidate = ranked_[ahead_];
      if (KnownOf(candidate, task_, found) != nullptr) continue;
      const bool waits = !options.worth_compiling.has_value() ||
                         static_cast<int>(ahead_) < *options.worth_compiling;
      const auto make = [&task = task_, &candidate, waits] { return Make(task, candidate, waits); };
      under_way_[ahead_] = options.jobs > 1 ? Async(make) : std::async(std::launch::deferred, make);
    }
    Ready ready = under_way_.at(next).get();
    under_way_.erase(next);
    return ready;
  }

 private:
  const Task& task_;
  const std::vector<Candidate>& ranked_;
  size_t ahead_ = 0;  // the first that is not with the compiler
  std::map<size_t, std::future<Ready>> under_way_;
};

// ---- measuring

void SetTime(Record& record, const Timing& timing) {
  // Nanoseconds are below what any clock here resolves.
  record.microseconds = std::max(std::round(timing.seconds * 1e9), 1.0) / 1e3;
  record.spread = std::round(timing.spread * 1e4) / 1e4;
}

// The record with the time or the rejection; an error where neither is known.
Result<Record> TryOut(Trial& trial, const std::optional<Record>& best, Record record) {
  if (Status status = trial.Check(); !status.ok()) {
    if (status.code() != Code::kUnexpectedValue) return status;
    record.rejected = status.message();
    return record;
  }
  ASSIGN_OR_RETURN(const Timing timing, trial.Time(best ? best->microseconds * 1e-6 : 0));
  SetTime(record, timing);
  return record;
}

Status Failed(const Candidate& candidate, Status status, Findings& found) {
  ++found.result.failed;
  ++found.since_best;
  LOG(kWarn, "tuning: {} could not be run: {}", KnobKey(candidate), status.message());
  if (found.first_failure.ok()) found.first_failure = status;
  if (++found.failures_in_a_row < kFailuresForGood) return {};
  return std::move(status).Within(
      fmt::format("{} candidates in a row could not be run", found.failures_in_a_row));
}

Status Examine(const Task& task, const Candidate& candidate, Ready ready, Place place,
               Findings& found) {
  Record record = RecordOf(task.problem, candidate);
  if (const auto same = found.by_binary.find(ready.key);
      !ready.key.empty() && same != found.by_binary.end()) {
    ++found.result.same_binary;
    record.microseconds = same->second.microseconds;
    record.spread = same->second.spread;
    record.rejected = same->second.rejected;
  } else {
    if (!ready.trial.ok()) return Failed(candidate, ready.trial.status(), found);
    Result<Record> tried = TryOut(**ready.trial, found.best, record);
    if (!tried.ok()) return Failed(candidate, std::move(tried).status(), found);
    record = *std::move(tried);
    found.by_binary.emplace(ready.key, record);
  }
  found.failures_in_a_row = 0;
  Remember(record, found);
  ++(record.is_rejected() ? found.result.rejected : found.result.measured);
  LOG(kDebug, "tuning: {} takes {:.2f} us", KnobKey(candidate), record.microseconds);
  const bool is_best = Count(record, task.options.worthwhile, found);
  Report(task, std::move(record), is_best, place);
  return {};
}

// The ranked candidates, as far as the search goes; where it has ended.
Result<Place> ExamineRanked(const Task& task, const std::vector<Candidate>& ranked,
                            Findings& found) {
  Compiling compiling(task, ranked);
  Place place{.next = 0, .total = ranked.size()};
  for (; place.next < place.total; ++place.next) {
    const Candidate& candidate = ranked[place.next];
    if (const Record* known = KnownOf(candidate, task, found)) {
      ++found.result.known;
      Count(*known, task.options.worthwhile, found);
    } else {
      Ready ready = compiling.Take(place.next, found);
      if (ready.trial.ok() && *ready.trial == nullptr)
        ++found.result.not_compiled;
      else
        RETURN_IF_ERROR(Examine(task, candidate, std::move(ready), place, found));
    }
    found.result.stopped = ReasonToStop(task, found, place);
    if (!found.result.complete()) break;
  }
  return place;
}

// The fastest again, with other values of what its kernel takes as arguments: nothing is compiled
// for them, and the model tells none of them apart, so that no engine proposes them.
Result<std::vector<Candidate>> VaryArguments(const Task& task, Place place, Findings& found) {
  std::vector<Candidate> varied;
  if (!found.best.has_value()) return varied;
  ASSIGN_OR_RETURN(const Candidate best, CandidateOf(*found.best, task.group, task.target));
  const Engine& engine = Engines()[static_cast<size_t>(best.engine)];
  ASSIGN_OR_RETURN(const auto plan, engine.plan(task.group, task.target));
  for (size_t k = 0; k < engine.knobs.size(); ++k) {
    if (engine.knobs[k].in_text != InText::kNothing) continue;
    for (const int value : engine.knobs[k].domain) {
      Candidate other = best;
      other.knobs[k] = value;
      if (other == best || !std::isfinite(plan->EstimateOf(other.knobs).seconds)) continue;
      if (task.IsOutOfBudget()) return varied;
      varied.push_back(other);
      if (const Record* known = KnownOf(other, task, found))
        Count(*known, task.options.worthwhile, found);
      else
        RETURN_IF_ERROR(Examine(task, other, Make(task, other), place, found));
    }
  }
  return varied;
}

// ---- the few fastest again, in turns

struct Finalist {
  Record record;
  std::shared_ptr<Trial> trial;
  std::vector<double> times = {};
};
double Median(const Finalist& finalist) { return finalist.times[kRounds / 2]; }

// Those within kClose of the best, fastest first, one of each binary.
Result<std::vector<Finalist>> FinalistsOf(const Task& task,
                                          const std::vector<Candidate>& candidates,
                                          const Findings& found) {
  std::vector<std::pair<Record, const Candidate*>> close;
  for (const Candidate& candidate : candidates) {
    const auto known = found.known.find(KnobKey(candidate));
    if (known == found.known.end() || known->second.is_rejected()) continue;
    if (known->second.microseconds <= found.best->microseconds * (1 + kClose))
      close.emplace_back(known->second, &candidate);
  }
  std::vector<Finalist> finalists;
  if (close.size() < 2) return finalists;
  std::ranges::stable_sort(close, {}, [](const auto& c) { return c.first.microseconds; });
  std::set<std::string> binaries;
  for (const auto& [record, candidate] : close) {
    if (finalists.size() == kFinalists) break;
    Ready ready = Make(task, *candidate);
    if (!binaries.insert(ready.key).second) continue;
    if (!ready.trial.ok()) return ready.trial.status();
    finalists.push_back({.record = record, .trial = *ready.trial});
  }
  return finalists;
}

Status TimeInTurns(std::vector<Finalist>& finalists) {
  for (int round = 0; round < kRounds; ++round) {
    for (Finalist& finalist : finalists) {
      ASSIGN_OR_RETURN(const Timing timing, finalist.trial->Time(0));
      finalist.times.push_back(timing.seconds);
    }
  }
  for (Finalist& finalist : finalists) std::ranges::sort(finalist.times);
  return {};
}

// Turns tell the order. On a GPU that has become hot they take longer than before, and the
// fastest would stand behind those that were slower while it was cool: its time stays.
double ScaleOf(const std::vector<Finalist>& finalists) {
  double before = finalists[0].record.microseconds * 1e-6, in_turns = Median(finalists[0]);
  for (const Finalist& finalist : finalists) {
    before = std::min(before, finalist.record.microseconds * 1e-6);
    in_turns = std::min(in_turns, Median(finalist));
  }
  return in_turns > before ? before / in_turns : 1;
}

Status Confirm(const Task& task, const std::vector<Candidate>& candidates, Place place,
               Findings& found) {
  if (!found.best.has_value() || (found.result.measured == 0 && found.best->confirmed)) return {};
  if (task.IsOutOfBudget()) return {};
  ASSIGN_OR_RETURN(std::vector<Finalist> finalists, FinalistsOf(task, candidates, found));
  if (finalists.size() < 2) return {};
  RETURN_IF_ERROR(TimeInTurns(finalists));
  const double scale = ScaleOf(finalists);
  found.best.reset();
  for (Finalist& finalist : finalists) {
    const auto& times = finalist.times;
    const double median = Median(finalist);
    SetTime(finalist.record, {.seconds = scale * median,
                              .spread = median > 0 ? (times.back() - times.front()) / median : 0});
    finalist.record.confirmed = true;
    const bool is_best = Count(finalist.record, task.options.worthwhile, found);
    Report(task, finalist.record, is_best, place);
  }
  return {};
}

// The candidates in the model's order, the first one that the options name, as many as they say.
std::vector<Candidate> CandidatesOf(const Group& group, const Target& target,
                                    const SearchOptions& options) {
  std::vector<Candidate> ranked = RankCandidates(group, target, options.inputs);
  if (options.first.has_value()) {
    std::erase(ranked, *options.first);
    ranked.insert(ranked.begin(), *options.first);
  }
  if (options.top > 0 && ranked.size() > static_cast<size_t>(options.top))
    ranked.resize(static_cast<size_t>(options.top));
  return ranked;
}

}  // namespace

Result<SearchResult> Search(const Group& group, const Target& target,
                            const std::vector<Record>& known, const SearchOptions& options,
                            Bench& bench, const std::function<void(const SearchStep&)>& on_step) {
  const Task task{.group = group,
                  .target = target,
                  .options = options,
                  .bench = bench,
                  .on_step = on_step,
                  .problem = ProblemOf(group, target)};
  std::vector<Candidate> candidates = CandidatesOf(group, target, options);
  Findings found;
  for (const Record& record : known) Remember(record, found);
  ASSIGN_OR_RETURN(const Place place, ExamineRanked(task, candidates, found));
  if (options.vary_arguments) {
    ASSIGN_OR_RETURN(const std::vector<Candidate> varied, VaryArguments(task, place, found));
    candidates.insert(candidates.end(), varied.begin(), varied.end());
  }
  if (options.confirm) RETURN_IF_ERROR(Confirm(task, candidates, place, found));
  if (found.best.has_value()) found.result.fastest.push_back(*found.best);
  if (!found.best.has_value() && !found.first_failure.ok()) return found.first_failure;
  return std::move(found.result);
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
