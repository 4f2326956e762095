#include "api/tuning/record_store.h"

#include <algorithm>
#include <cctype>
#include <ctime>
#include <set>

#include "compiler/engines/registry.h"
#include "ir/base/env.h"
#include "ir/base/log.h"
#include "runtime/cache/build_id.h"
#include "runtime/cache/record_files.h"

namespace kiln::api {
namespace {

using compiler::Candidate;
using compiler::Group;
using compiler::Record;

std::string DateText() {
  const std::time_t now = std::time(nullptr);
  std::tm utc = {};
  char text[32] = "";
  if (gmtime_r(&now, &utc) != nullptr) std::strftime(text, sizeof text, "%FT%TZ", &utc);
  return text;
}

std::string ShortBuildId() {
  static const std::string id = runtime::BuildId().substr(0, 12);
  return id;
}

// True if any build found the record wrong after it was timed.
bool IsRejectedSince(const Record& record, const std::vector<Record>& all) {
  return std::ranges::any_of(all, [&](const Record& r) {
    return r.is_rejected() && r.engine == record.engine && r.version == record.version &&
           r.knobs == record.knobs && r.date >= record.date;
  });
}

}  // namespace

TuneMode TuneModeFromEnv() {
  const std::string& text = GetEnv(Env::kTune);
  if (text == "off") return TuneMode::kOff;
  if (text == "heuristic") return TuneMode::kHeuristic;
  if (text == "on-miss") return TuneMode::kOnMiss;
  return text == "retune" ? TuneMode::kRetune : TuneMode::kRecords;
}

std::string RecordFileName(const std::string& device) {
  std::string name;
  for (const unsigned char c : device)
    name += std::isalnum(c) != 0 ? static_cast<char>(std::tolower(c)) : '_';
  return (name.empty() ? "device" : name) + ".txt";
}

Result<RecordsRead> ReadRecords(const std::string& path) {
  RecordsRead read;
  for (const std::string& file : runtime::RecordFiles(path)) {
    ASSIGN_OR_RETURN(const std::vector<std::string> lines, runtime::ReadRecordLines(file));
    for (const std::string& line : lines) {
      Result<Record> record = compiler::ParseRecord(line);
      if (record.ok())
        read.records.push_back(*std::move(record));
      else
        read.damage.push_back(
            fmt::format("{}: {}: '{:.60}…'", file, record.status().message(), line));
    }
  }
  return read;
}

RecordStore::Options RecordStore::OptionsFromEnv() {
  return {.user_folder = runtime::UserRecordFolder(),
          .shipped_paths = runtime::ShippedRecordPaths()};
}

RecordStore& RecordStore::OfProcess() {
  static auto* const store = new RecordStore(OptionsFromEnv());  // sessions live as long
  return *store;
}

void RecordStore::ReadInto(compiler::RecordTable& table, const std::string& path) {
  Result<RecordsRead> read = ReadRecords(path);
  if (!read.ok()) {
    LOG(kWarn, "tuning records: {}", read.status().message());
    return;
  }
  for (Record& record : read->records) table.Add(std::move(record));
  for (const std::string& damage : read->damage) LOG(kWarn, "tuning records: {}", damage);
}

void RecordStore::ReadOnce() {
  if (read_) return;
  read_ = true;
  if (!options_.user_folder.empty()) ReadInto(user_, options_.user_folder);
  for (const std::string& path : options_.shipped_paths) ReadInto(shipped_, path);
}

// A record that the user measured stands in the place of one that was shipped of the same
// configuration.
std::vector<Record> RecordStore::Usable(const Group& group, const Target& target,
                                        const std::string& problem_hash) {
  const std::lock_guard lock(mutex_);
  ReadOnce();
  std::vector<Record> all = user_.For(problem_hash);
  std::set<std::string> keys;
  for (const Record& record : all) keys.insert(compiler::KeyOf(record));
  for (Record& record : shipped_.For(problem_hash))
    if (keys.insert(compiler::KeyOf(record)).second) all.push_back(std::move(record));
  const auto refused = [&](const Record& record) {
    if (record.is_rejected() || IsRejectedSince(record, all)) return true;
    const Result<Candidate> candidate = compiler::CandidateOf(record, group, target);
    if (!candidate.ok())
      LOG(kDebug, "record {} {} is not used: {}", record.engine, record.knobs,
          candidate.status().message());
    return !candidate.ok();
  };
  std::vector<Record> usable;
  for (const Record& record : all)
    if (!refused(record)) usable.push_back(record);
  std::ranges::stable_sort(usable, {}, &Record::microseconds);
  return usable;
}

std::optional<Candidate> RecordStore::Best(const Group& group, const Target& target,
                                           compiler::Inputs inputs) {
  const std::vector<Candidate> all = Recorded(group, target, inputs);
  if (all.empty()) return std::nullopt;
  return all.front();
}

bool RecordStore::Has(const Group& group, const Target& target, compiler::Inputs inputs) {
  return !IsEmpty() &&
         !RecordedAs(compiler::ProblemOf(group, target).hash, group, target, inputs).empty();
}

bool RecordStore::IsEmpty() {
  const std::lock_guard lock(mutex_);
  ReadOnce();
  return user_.problems() + shipped_.problems() == 0;
}

std::vector<Candidate> RecordStore::Recorded(const Group& group, const Target& target,
                                             compiler::Inputs inputs) {
  // Without records there is nothing to look up, and no text to print and hash.
  if (IsEmpty()) return {};
  std::vector<std::string_view> devices = KinOf(target);
  devices.insert(devices.begin(), target.name);
  const std::string text = graph::CanonicalText(group.graph);
  for (const std::string_view device : devices) {
    const std::string hash = compiler::ProblemHash(text, device, target.multiprocessors);
    std::vector<Candidate> recorded = RecordedAs(hash, group, target, inputs);
    if (!recorded.empty()) return recorded;
  }
  return {};
}

std::vector<Candidate> RecordStore::RecordedAs(const std::string& problem_hash, const Group& group,
                                               const Target& target, compiler::Inputs inputs) {
  std::vector<Candidate> recorded;
  for (const Record& record : Usable(group, target, problem_hash)) {
    Candidate candidate = *compiler::CandidateOf(record, group, target);
    if (compiler::Offers(inputs, compiler::Engines()[static_cast<size_t>(candidate.engine)], group))
      recorded.push_back(std::move(candidate));
  }
  return recorded;
}

std::vector<Candidate> RecordStore::Rank(const Group& group, const Target& target,
                                         compiler::Inputs inputs) {
  const std::vector<Candidate> recorded = Recorded(group, target, inputs);
  std::vector<Candidate> ranked = recorded;
  for (Candidate& candidate : compiler::RankCandidates(group, target, inputs))
    if (std::ranges::find(recorded, candidate) == recorded.end())
      ranked.push_back(std::move(candidate));
  return ranked;
}

std::vector<Record> RecordStore::Known(const Group& group, const Target& target,
                                       const compiler::Problem& problem) {
  std::vector<Record> known = Usable(group, target, problem.hash);
  const std::lock_guard lock(mutex_);
  for (Record& record : user_.For(problem.hash))
    if (record.is_rejected() && record.library == ShortBuildId())
      known.push_back(std::move(record));
  return known;
}

void RecordStore::Add(Record record) {
  record.date = DateText();
  record.library = ShortBuildId();
  if (!options_.user_folder.empty()) {
    const std::string file =
        fmt::format("{}/{}", options_.user_folder, RecordFileName(record.problem.device));
    const Status kept = runtime::AppendRecordLine(file, compiler::ToLine(record));
    if (!kept.ok()) LOG(kWarn, "tuning record: {}", kept.message());
  }
  const std::lock_guard lock(mutex_);
  ReadOnce();
  user_.Add(std::move(record));
  ++epoch_;
}

}  // namespace kiln::api
