// kiln records list|merge|export|verify: tuning records as files.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <set>

#include "api/tuning/record_store.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/graph_file.h"
#include "cli/units.h"
#include "compiler/engines/registry.h"
#include "runtime/cache/record_files.h"

namespace kiln::cli {
namespace {

using compiler::Record;

constexpr const char* kFooter =
    "Files and folders (their *.txt) default to the user's: KILN_RECORDS_DIR, else records/ in "
    "the\n"
    "kernel cache. Merging is a union in which the best time of a configuration stays; it may be\n"
    "repeated, and the order of the inputs does not matter.\n"
    "\n"
    "Examples:\n"
    "  kiln records list                        the fastest of each problem\n"
    "  kiln records merge all.txt a/ b.txt      all.txt, if it is there, is one of the inputs\n"
    "  kiln records export h200.txt --keep 3    what to ship: the fastest of each problem\n"
    "  kiln records verify                      status 1 if a line is damaged or of no use";

struct RecordsOptions {
  std::vector<std::string> inputs;
  std::string output;
  int keep = 1;
  bool all = false;
};

Result<api::RecordsRead> ReadAll(const std::vector<std::string>& inputs) {
  api::RecordsRead all;
  std::vector<std::string> paths = inputs;
  if (paths.empty()) paths.push_back(runtime::UserRecordFolder());
  for (const std::string& path : paths) {
    if (!inputs.empty() && runtime::RecordFiles(path).empty())
      return Status::Error(Code::kInvalidValue, "{}: there are no records", path);
    ASSIGN_OR_RETURN(api::RecordsRead read, api::ReadRecords(path));
    std::ranges::move(read.records, std::back_inserter(all.records));
    std::ranges::move(read.damage, std::back_inserter(all.damage));
  }
  for (const std::string& damage : all.damage) PrintError("kiln: {}\n", damage);
  return all;
}

size_t KindOf(const Record& record) {
  const int engine = compiler::EngineIndex(record.engine);
  return engine < 0 ? 0 : static_cast<size_t>(compiler::InputsOf(compiler::Engines()[engine]));
}

// The first `keep` of each problem and each kind of plans; rejected ones help nobody else.
std::vector<Record> Fastest(std::vector<Record> merged, int keep) {
  std::vector<Record> fastest;
  std::string problem;
  int taken[std::size(compiler::kAllInputs)] = {};
  for (Record& record : merged) {
    if (record.problem.hash != problem) std::ranges::fill(taken, 0);
    problem = record.problem.hash;
    if (!record.is_rejected() && taken[KindOf(record)]++ < keep)
      fastest.push_back(std::move(record));
  }
  return fastest;
}

Status Write(const std::string& file, const std::vector<Record>& records) {
  std::string text = "# Kiln's tuning records: docs/tuning.md\n";
  for (const Record& record : records) text += ToLine(record) + "\n";
  RETURN_IF_ERROR(runtime::ReplaceFile(file, text));
  PrintOut("{} records in {}\n", records.size(), file);
  return {};
}

Status List(const RecordsOptions& options) {
  ASSIGN_OR_RETURN(api::RecordsRead read, ReadAll(options.inputs));
  std::vector<Record> records = compiler::Merge(std::move(read.records));
  if (!options.all) records = Fastest(std::move(records), 1);
  std::set<std::string> problems;
  for (const Record& r : records) {
    problems.insert(r.problem.hash);
    PrintOut("{}  {}  {:>9}  {}/{} {}  {}\n", r.problem.hash.substr(0, 12), r.problem.device,
             r.is_rejected() ? "rejected" : TimeText(r.microseconds * 1e-6), r.engine, r.version,
             r.knobs, r.is_rejected() ? r.rejected : r.problem.work);
  }
  PrintOut("{} records of {} problems\n", records.size(), problems.size());
  return {};
}

Status MergeInto(const RecordsOptions& options) {
  std::vector<std::string> inputs = options.inputs;
  if (!runtime::RecordFiles(options.output).empty()) inputs.push_back(options.output);
  ASSIGN_OR_RETURN(api::RecordsRead read, ReadAll(inputs));
  return Write(options.output, compiler::Merge(std::move(read.records)));
}

Status Export(const RecordsOptions& options) {
  ASSIGN_OR_RETURN(api::RecordsRead read, ReadAll(options.inputs));
  return Write(options.output, Fastest(compiler::Merge(std::move(read.records)), options.keep));
}

// The reason why a record is of no use, as far as it is known without the group: whether the engine
// and its version are this build's.
std::string WhyUseless(const Record& record) {
  const int index = compiler::EngineIndex(record.engine);
  if (index < 0) return fmt::format("there is no engine {}", record.engine);
  const compiler::Engine& engine = compiler::Engines()[static_cast<size_t>(index)];
  if (engine.version == record.version) return {};
  return fmt::format("engine {} has version {}, the record is of {}", record.engine, engine.version,
                     record.version);
}

Result<bool> Verify(const RecordsOptions& options) {
  ASSIGN_OR_RETURN(const api::RecordsRead read, ReadAll(options.inputs));
  size_t useless = 0;
  for (const Record& record : read.records) {
    const std::string why = WhyUseless(record);
    if (why.empty()) continue;
    ++useless;
    PrintOut("{} {}: {}\n", record.problem.hash.substr(0, 12), record.knobs, why);
  }
  PrintOut("{} records are sound, {} lines are damaged, {} are of no use to this build\n",
           read.records.size() - useless, read.damage.size(), useless);
  return useless == 0 && read.damage.empty();
}

}  // namespace

void AddRecords(CLI::App& app, int& exit_status) {
  auto options = std::make_shared<RecordsOptions>();
  CLI::App* command = app.add_subcommand("records", "tuning records: list, merge, export, verify");
  command->footer(kFooter);
  command->require_subcommand(1);
  const auto finish = [&exit_status](const Status& status) {
    if (!status.ok()) exit_status = Fail(status);
  };
  const auto with_inputs = [options](CLI::App* sub) {
    sub->add_option("FILES", options->inputs, "files and folders of records");
    return sub;
  };
  CLI::App* list = with_inputs(command->add_subcommand("list", "the fastest of each problem"));
  list->add_flag("--all", options->all, "every configuration");
  list->callback([finish, options] { finish(List(*options)); });

  const auto with_output = [options, with_inputs](CLI::App* sub) {
    sub->add_option("OUTPUT", options->output, "the file to write")->required();
    return with_inputs(sub);
  };
  with_output(command->add_subcommand("merge", "the union of files, into one"))
      ->callback([finish, options] { finish(MergeInto(*options)); });
  CLI::App* out = with_output(command->add_subcommand("export", "the fastest, to ship"));
  out->add_option("--keep", options->keep, "records of a problem at most")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  out->callback([finish, options] { finish(Export(*options)); });

  with_inputs(command->add_subcommand("verify", "read every line; status 1 if one is of no use"))
      ->callback([finish, options, &exit_status] {
        const Result<bool> sound = Verify(*options);
        if (!sound.ok()) return finish(sound.status());
        if (!*sound) exit_status = kExitFailed;
      });
}

}  // namespace kiln::cli
