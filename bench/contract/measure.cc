// Order: our plans are checked, all of them, before anything is timed; the others' when they turn
// out to be fast enough to be reported.
#include "bench/contract/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>

namespace kiln::bench {
namespace {

enum Competitor : int { kOurs, kNvidia, kBlas, kCompetitors };
constexpr size_t kBlasWorkspace = size_t{64} << 20;

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

struct Measurer::Entry {
  std::string label;
  Runner runner;
  testing::Descriptor pack;
  bool checked = false;
};

struct Measurer::Contest {
  const Problem& problem;
  Row row;
  std::unique_ptr<ProblemData> data;
  std::unique_ptr<ProblemMemory> memory;
  std::unique_ptr<Checker> checker;
  // Entry 0 is the library's first choice until entries drop out; `first` keeps it.
  std::array<std::vector<std::unique_ptr<Entry>>, kCompetitors> entries;
  std::array<Entry*, kCompetitors> first{};

  SideResult& Result(int side) {
    return side == kOurs ? row.kiln : side == kNvidia ? row.nvidia : row.blas;
  }
};

Row Measurer::Measure(const Problem& problem, const PlanMakers::Offers& offers) {
  Contest contest{.problem = problem};
  int64_t workspace = kBlasWorkspace;
  for (const Offer* offer : {&offers.ours, &offers.nvidia}) {
    for (const Candidate& c : offer->candidates) {
      if (c.plan->workspace_bytes <= settings_.most_workspace)
        workspace = std::max(workspace, c.plan->workspace_bytes);
    }
  }
  contest.data = std::make_unique<ProblemData>(problem.graph, store_);
  contest.memory =
      std::make_unique<ProblemMemory>(device_, problem.graph, *contest.data, workspace);
  if (!contest.memory->ok()) {
    contest.row.kiln.error = contest.row.nvidia.error = "device memory is out";
    return contest.row;
  }
  contest.checker = std::make_unique<Checker>(device_, buffers_, problem, *contest.data);
  contest.row.has_oracle = contest.checker->has_samples();
  Enter(contest, offers.ours, true);
  Enter(contest, offers.nvidia, false);
  EnterBlas(contest);
  CheckOurs(contest);
  if (contest.row.fault.empty()) LookAtAll(contest);
  if (contest.row.fault.empty()) Finish(contest);
  return contest.row;
}

void Measurer::Enter(Contest& contest, const Offer& offer, bool ours) {
  const int side = ours ? kOurs : kNvidia;
  SideResult& result = contest.Result(side);
  result.offered = offer.offered;
  result.error = offer.refusal;
  for (const Candidate& c : offer.candidates) {
    if (c.plan->workspace_bytes > settings_.most_workspace) {
      if (result.error.empty())
        result.error = fmt::format("asks for {} bytes of workspace", c.plan->workspace_bytes);
      continue;
    }
    auto entry = std::make_unique<Entry>();
    testing::ClientError error;
    entry->label = c.label + ", list " + c.mode;
    entry->pack = contest.memory->pack().Make(*c.cudnn, &error);
    if (!error.ok()) {
      result.error = error.text;
      continue;
    }
    entry->runner.launch = [&c, pack = entry->pack.get()]() -> std::string {
      const auto status = c.cudnn->execute(c.cudnn->handle(), c.plan->descriptor().get(), pack);
      return status == CUDNN_STATUS_SUCCESS ? ""
                                            : c.cudnn->ErrorOf(status, "cudnnBackendExecute").text;
    };
    contest.entries[static_cast<size_t>(side)].push_back(std::move(entry));
  }
  const auto& entries = contest.entries[static_cast<size_t>(side)];
  result.plans = static_cast<int>(entries.size());
  if (!entries.empty()) contest.first[static_cast<size_t>(side)] = entries[0].get();
}

void Measurer::EnterBlas(Contest& contest) {
  if (blas_ == nullptr) return;
  const auto algorithms =
      blas_->Algorithms(contest.problem, *contest.memory, contest.memory->pack().workspace,
                        kBlasWorkspace, device_.stream(), &contest.row.blas.error);
  for (const Blas::Algorithm& algorithm : algorithms) {
    auto entry = std::make_unique<Entry>();
    entry->label = algorithm.label;
    entry->runner.launch = algorithm.launch;
    contest.entries[kBlas].push_back(std::move(entry));
  }
  contest.row.blas.offered = contest.row.blas.plans = static_cast<int>(algorithms.size());
  if (!algorithms.empty()) contest.first[kBlas] = contest.entries[kBlas][0].get();
}

// Into poisoned outputs. Errors of the device stay for good: they end the process.
std::string Measurer::RunOnce(Contest& contest, Entry& entry) {
  contest.memory->Poison();
  std::string error = entry.runner.launch();
  if (const std::string fault = device_.Synchronize(); !fault.empty()) {
    contest.row.fault = fmt::format("{}: {}", entry.label, fault);
    return contest.row.fault;
  }
  return error;
}

void Measurer::CheckOurs(Contest& contest) {
  std::erase_if(contest.entries[kOurs], [&](const std::unique_ptr<Entry>& entry) {
    if (!contest.row.fault.empty()) return false;
    std::string reference_is_wrong;
    std::string why = RunOnce(contest, *entry);
    const bool ran = why.empty();
    if (ran) why = contest.checker->Check(*contest.memory, Checker::kOurs, &reference_is_wrong);
    if (!reference_is_wrong.empty()) contest.row.wrong = "an earlier plan: " + reference_is_wrong;
    if (ran && !why.empty()) contest.row.wrong = fmt::format("{}: {}", entry->label, why);
    if (why.empty()) return entry->checked = true, false;
    contest.row.kiln.error = why;
    if (contest.first[kOurs] == entry.get()) contest.first[kOurs] = nullptr;
    return true;
  });
}

// NVIDIA's and cuBLAS's. A difference for which ours is to blame is noted as ours.
bool Measurer::CheckOther(Contest& contest, Entry& entry) {
  if (entry.checked) return true;
  std::string reference_is_wrong;
  std::string why = RunOnce(contest, entry);
  if (why.empty())
    why = contest.checker->Check(*contest.memory, Checker::kOthers, &reference_is_wrong);
  if (!reference_is_wrong.empty()) contest.row.wrong = "against NVIDIA's: " + reference_is_wrong;
  entry.checked = why.empty();
  if (!entry.checked) contest.row.note = fmt::format("{}: {}", entry.label, why);
  return entry.checked;
}

// Ours and NVIDIA's in turns, best ranked first, until the time is up.
void Measurer::LookAtAll(Contest& contest) {
  const double end = Now() + settings_.seconds;
  std::array<double, kCompetitors> best{};
  size_t most = 0;
  for (const auto& entries : contest.entries) most = std::max(most, entries.size());
  for (size_t i = 0; i < most && (i == 0 || Now() < end); ++i) {
    for (int side = 0; side < kCompetitors; ++side) {
      const auto at = static_cast<size_t>(side);
      if (i >= contest.entries[at].size()) continue;
      Entry& entry = *contest.entries[at][i];
      watch_.Look(entry.runner, settings_.looks, &best[at]);
      if (!entry.runner.error.empty()) contest.Result(side).error = entry.runner.error;
      if (!entry.runner.times.empty()) ++contest.Result(side).timed;
      if (std::string fault = device_.Synchronize(); !fault.empty())
        return void(contest.row.fault = fmt::format("{}: {}", entry.label, fault));
    }
  }
}

// The fastest few that are right, and the first choice.
std::vector<Measurer::Entry*> Measurer::Finalists(Contest& contest, int side) {
  const auto at = static_cast<size_t>(side);
  std::vector<Entry*> ranked, chosen;
  for (const auto& entry : contest.entries[at]) {
    if (!entry->runner.times.empty() && entry->runner.error.empty()) ranked.push_back(entry.get());
  }
  std::ranges::stable_sort(ranked, {}, [](const Entry* e) { return e->runner.Median(); });
  for (Entry* entry : ranked) {
    if (!contest.row.fault.empty()) return {};
    const bool is_first = entry == contest.first[at];
    if (chosen.size() >= settings_.finalists && !is_first) continue;
    if (CheckOther(contest, *entry)) chosen.push_back(entry);
  }
  return chosen;
}

void Measurer::Finish(Contest& contest) {
  std::array<std::vector<Entry*>, kCompetitors> finalists;
  std::vector<Runner*> runners;
  double sum_us = 0;
  for (int side = 0; side < kCompetitors; ++side) {
    const auto at = static_cast<size_t>(side);
    finalists[at] = Finalists(contest, side);
    if (!contest.row.fault.empty()) return;
    for (Entry* entry : finalists[at]) {
      // Reading 268 MB before each launch takes some 80 us.
      sum_us += entry->runner.Median() + 90 + settings_.rest_us;
      runners.push_back(&entry->runner);
    }
  }
  if (runners.empty()) return;
  const auto affordable = static_cast<int>(settings_.seconds * 1e6 / 2 / sum_us);
  watch_.Alternate(runners, std::clamp(affordable, 5, std::max(5, settings_.rounds)),
                   settings_.rest_us);
  contest.row.fault = device_.Synchronize();
  for (int side = 0; side < kCompetitors; ++side) {
    SideResult& result = contest.Result(side);
    for (const Entry* entry : finalists[static_cast<size_t>(side)]) {
      const Timing timing = Summarise(entry->runner.times);
      if (timing.median <= 0) continue;
      if (entry == contest.first[static_cast<size_t>(side)]) result.first = timing;
      if (result.best.median > 0 && result.best.median <= timing.median) continue;
      result.best = timing;
      result.best_label = entry->label;
    }
    if (result.best.median > 0) result.error.clear();
  }
}

}  // namespace kiln::bench
