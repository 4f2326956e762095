// kiln tune LIST…: times the configurations of each group of each graph, best by the model first,
// and stores every result at once as a record.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>

#include "api/tuning/tuner.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/device_option.h"
#include "cli/graph_file.h"
#include "cli/graph_list.h"
#include "cli/reference.h"
#include "cli/units.h"
#include "compiler/compile.h"

namespace kiln::cli {
namespace {

using compiler::Group;
using compiler::SearchResult;
using compiler::SearchStep;

constexpr const char* kFooter =
    "A LIST is a graph, a folder of graphs (what KILN_CAPTURE=FOLDER wrote), a file *.txt whose\n"
    "lines name graphs, or a file of recorded graphs *.jsonl. Graphs are divided into groups, and\n"
    "equal groups are tuned once. A configuration is stored only if its outputs agree with the\n"
    "generic engine's (and with the interpreter, where the group is small) and nothing was\n"
    "written outside of its buffers. What is on record already is not measured again, so a run\n"
    "that was stopped goes on where it was. Records go to KILN_RECORDS_DIR, else records/ in the\n"
    "kernel cache.\n"
    "\n"
    "Examples:\n"
    "  kiln tune captured/ --budget 600 --jobs 8\n"
    "  kiln tune list.txt --shard 2/4          on the second of four machines\n"
    "  kiln tune examples/graphs/wgrad.kiln --device cpu --top 5\n"
    "  kiln records export h200.txt            what to ship";

struct TuneOptions {
  std::vector<std::string> lists;
  std::string device = "auto", shard = "1/1";
  double budget = 0;
  compiler::SearchOptions search{.vary_arguments = true};
};

struct Shard {
  size_t index = 0, count = 1;
};

Result<Shard> ParseShard(const std::string& text) {
  size_t index = 0, count = 0;
  char rest = 0;
  const int read = std::sscanf(text.c_str(), "%zu/%zu%c", &index, &count, &rest);
  if (read == 2 && index >= 1 && index <= count) return Shard{.index = index - 1, .count = count};
  return Status::Error(Code::kInvalidValue, "--shard {} is not of the form i/n with 1 <= i <= n",
                       text);
}

struct Problem {
  compiler::Problem about;
  Group group;
  compiler::Inputs inputs = compiler::Inputs::kExact;
};

// Adds those of the graph's groups that have engines for such inputs.
Status AddProblems(const graph::Graph& graph, const Target& target, compiler::Inputs inputs,
                   std::map<std::string, Problem>& by_hash) {
  ASSIGN_OR_RETURN(compiler::Groups groups, compiler::GroupsOf(graph, target, inputs));
  for (Group& group : groups.all) {
    const bool is_exact = inputs == compiler::Inputs::kExact;
    if (!is_exact && compiler::RankCandidates(group, target, inputs).empty()) continue;
    compiler::Problem about = compiler::ProblemOf(group, target);
    const std::string hash = about.hash + std::to_string(static_cast<int>(inputs));
    by_hash.try_emplace(hash, Problem{std::move(about), std::move(group), inputs});
  }
  return {};
}

// Distinct groups of all graphs, by their hash: every shard sees the same order.
Result<std::vector<Problem>> ProblemsOf(const TuneOptions& options, const Target& target) {
  ASSIGN_OR_RETURN(const Shard shard, ParseShard(options.shard));
  std::map<std::string, Problem> by_hash;
  size_t graphs = 0;
  for (const std::string& list : options.lists) {
    ASSIGN_OR_RETURN(const std::vector<std::string> arguments, ExpandGraphList(list));
    for (const std::string& argument : arguments) {
      ASSIGN_OR_RETURN(const graph::Graph graph, ReadGraph(argument));
      ++graphs;
      for (const auto inputs : compiler::kAllInputs) {
        Status status = AddProblems(graph, target, inputs, by_hash);
        if (!status.ok()) return std::move(status).Within(argument);
      }
    }
  }
  std::vector<Problem> problems;
  size_t place = 0;
  for (auto& [hash, problem] : by_hash)
    if (place++ % shard.count == shard.index) problems.push_back(std::move(problem));
  PrintOut("{} graphs, {} distinct groups, of which {} are tuned here\n", graphs, by_hash.size(),
           problems.size());
  return problems;
}

// The interpreter's word on small groups.
Result<api::Judge> InterpreterJudge(const graph::Graph& graph, graph::TensorValues inputs) {
  static constexpr uint64_t kSeed = 1;
  ASSIGN_OR_RETURN(Reference made, Interpret(graph, std::move(inputs), kSeed));
  auto reference = std::make_shared<Reference>(std::move(made));
  auto copy = std::make_shared<const graph::Graph>(graph);
  return api::Judge([copy, reference](graph::TensorId output, const std::vector<double>& got) {
    ASSIGN_OR_RETURN(const Comparison c, CompareClosely(*copy, output, kSeed, got, *reference));
    if (c.ok()) return Status();
    return Status::Error(Code::kUnexpectedValue,
                         "{} of {} elements of {} are wrong; at {} it is {:.6g}, by the "
                         "interpreter {:.6g}",
                         c.wrong, c.elements, (*copy)[output].name,
                         ElementText((*copy)[output], c.element), c.got, c.want);
  });
}

std::string ClockText(double seconds) {
  const auto whole = static_cast<int64_t>(std::max(seconds, 0.0));
  return whole >= 3600 ? fmt::format("{}h{:02}m", whole / 3600, whole / 60 % 60)
                       : fmt::format("{}m{:02}s", whole / 60, whole % 60);
}

// One line that is written over on a terminal; elsewhere a line a problem.
class Progress {
 public:
  explicit Progress(size_t problems) : problems_(problems) {}

  void Begin(size_t problem, const compiler::Problem& about) {
    problem_ = problem;
    best_.clear();
    if (!terminal_)
      PrintOut("[{}/{}] {} {}\n", problem + 1, problems_, about.hash.substr(0, 12), about.work);
    std::fflush(stdout);
  }

  void Step(const SearchStep& step) {
    const compiler::Record& r = step.record;
    const std::string what = fmt::format("{} {}", r.engine, r.knobs);
    if (step.is_best) best_ = fmt::format("{} {}", TimeText(r.microseconds * 1e-6), what);
    if (r.is_rejected()) Line(fmt::format("  rejected {}: {}", what, r.rejected));
    if (!terminal_) return;
    const double done = static_cast<double>(problem_) + static_cast<double>(step.done) / step.total;
    constexpr int kWidth = 20;
    const int filled = static_cast<int>(kWidth * done / static_cast<double>(problems_));
    WriteRaw(stdout,
             fmt::format("\r\x1b[K[{:#<{}}{:.<{}}] {}/{} candidate {}/{} ETA {}  best {:.70}", "",
                         filled, "", kWidth - filled, problem_ + 1, problems_, step.done,
                         step.total, Eta(done), Printable(best_)));
    std::fflush(stdout);
  }

  void End(const SearchResult& result) {
    std::string text = fmt::format(
        "  {} measured, {} known, {} of the same binary, {} rejected, {} failed", result.measured,
        result.known, result.same_binary, result.rejected, result.failed);
    if (!result.stopped.empty()) text += "; stopped: " + result.stopped;
    if (!result.fastest.empty()) {
      const compiler::Record& r = result.fastest.front();
      text +=
          fmt::format("\n  best {} by {} {}", TimeText(r.microseconds * 1e-6), r.engine, r.knobs);
    }
    text += "  ETA " + Eta(static_cast<double>(problem_) + 1);
    Line(text);
  }

  void Line(const std::string& text) {
    if (terminal_) WriteRaw(stdout, "\r\x1b[K");
    PrintOut("{}\n", text);
    std::fflush(stdout);
  }

  double Elapsed() const { return api::GroupBench::Clock() - start_; }

 private:
  std::string Eta(double done) const {
    if (done <= 0) return "?";
    return ClockText(Elapsed() / done * (static_cast<double>(problems_) - done));
  }

  const bool terminal_ = ::isatty(STDOUT_FILENO) != 0;
  const double start_ = api::GroupBench::Clock();
  const size_t problems_;
  size_t problem_ = 0;
  std::string best_;
};

// True if every problem could be measured.
Result<bool> Tune(TuneOptions options) {
  ASSIGN_OR_RETURN(runtime::Device* const device, OpenDevice(options.device));
  api::RecordStore& store = api::RecordStore::OfProcess();
  ASSIGN_OR_RETURN(const std::vector<Problem> problems, ProblemsOf(options, device->target()));
  const std::string& folder = store.options().user_folder;
  if (folder.empty())
    return Status::Error(Code::kInvalidValue,
                         "there is no folder for records; set KILN_RECORDS_DIR");
  PrintOut("device {}, records {}/{}\n", device->target().name, folder,
           api::RecordFileName(device->target().name));
  const api::BenchOptions bench{.judge = InterpreterJudge};
  Progress progress(problems.size());
  if (options.budget > 0) options.search.deadline = api::GroupBench::Clock() + options.budget;
  size_t tuned = 0, failed = 0;
  for (size_t i = 0; i < problems.size(); ++i) {
    if (options.search.deadline > 0 && api::GroupBench::Clock() >= options.search.deadline) {
      progress.Line(fmt::format("the budget is used up; {} groups are left", problems.size() - i));
      break;
    }
    progress.Begin(i, problems[i].about);
    compiler::SearchOptions search = options.search;
    search.inputs = problems[i].inputs;
    const auto result = api::TuneGroup(*device, problems[i].group, store, search, bench,
                                       [&](const SearchStep& step) { progress.Step(step); });
    ++(result.ok() ? tuned : failed);
    if (result.ok()) {
      progress.End(*result);
    } else {
      progress.Line(fmt::format("  {} could not be tuned: {}", problems[i].about.work,
                                result.status().message()));
    }
  }
  PrintOut("{} groups tuned, {} failed, in {}\n", tuned, failed, ClockText(progress.Elapsed()));
  return failed == 0;
}

}  // namespace

void AddTune(CLI::App& app, int& exit_status) {
  auto options = std::make_shared<TuneOptions>();
  CLI::App* command = app.add_subcommand("tune", "measure configurations, remember the fastest");
  command->add_option("LIST", options->lists, "graphs; see below")->required();
  command->add_option("--budget", options->budget, "seconds for everything; 0 is no limit")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command
      ->add_option("--patience", options->search.patience,
                   "candidates in a row without a gain that end a search; 0 looks at all")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_option("--top", options->search.top, "candidates of a group at most; 0 is all")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_option("--jobs", options->search.jobs, "candidates that are compiled ahead")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  command->add_option("--shard", options->shard, "the i-th of n parts of the list")
      ->type_name("I/N")
      ->capture_default_str();
  command->add_flag("--retune", options->search.retune, "measure what is on record too");
  AddDeviceOption(*command, options->device);
  command->footer(kFooter);
  command->callback([options, &exit_status] {
    const Result<bool> ok = Tune(*options);
    exit_status = !ok.ok() ? Fail(ok.status()) : *ok ? kExitOk : kExitFailed;
  });
}

}  // namespace kiln::cli
