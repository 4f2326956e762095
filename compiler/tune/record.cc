#include "compiler/tune/record.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <tuple>

#include "compiler/engines/registry.h"
#include "ir/base/hash.h"
#include "ir/graph/ops.h"

namespace kiln::compiler {
namespace {

constexpr std::string_view kMark = "kiln-record-1\t";
constexpr std::string_view kSum = "\tsum=";
constexpr size_t kSumDigits = 8;
constexpr size_t kHashDigits = 32;

std::string SumOf(std::string_view text) { return HashBytes(text).Hex().substr(0, kSumDigits); }

std::string Clean(std::string_view value) {
  std::string out(value);
  for (char& c : out)
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  return out;
}

template <class T>
std::optional<T> Number(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// "name=value" fields between tabs; each name once.
using Fields = std::map<std::string_view, std::string_view>;

Result<Fields> Split(std::string_view text) {
  Fields fields;
  while (!text.empty()) {
    const size_t tab = std::min(text.find('\t'), text.size());
    const std::string_view field = text.substr(0, tab);
    const size_t equals = field.find('=');
    if (equals == std::string_view::npos)
      return Status::Error(Code::kInvalidValue, "'{}' is not of the form name=value",
                           Clean(field.substr(0, 40)));
    if (!fields.emplace(field.substr(0, equals), field.substr(equals + 1)).second)
      return Status::Error(Code::kInvalidValue, "the field {} stands twice",
                           Clean(field.substr(0, equals)));
    text.remove_prefix(std::min(tab + 1, text.size()));
  }
  return fields;
}

bool IsHash(std::string_view text) {
  return text.size() == kHashDigits &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

Status BadField(std::string_view name, std::string_view value) {
  return Status::Error(Code::kInvalidValue, "the field {} has the value '{}'", name,
                       Clean(value.substr(0, 60)));
}

Status ReadResult(const Fields& fields, Record& record) {
  const bool timed = fields.contains("us"), rejected = fields.contains("rejected");
  if (timed == rejected)
    return Status::Text(Code::kInvalidValue, "one of the fields us and rejected must stand there");
  if (rejected) {
    record.rejected = fields.at("rejected");
    return record.rejected.empty() ? BadField("rejected", "") : Status();
  }
  const auto microseconds = Number<double>(fields.at("us"));
  if (!microseconds || !std::isfinite(*microseconds) || *microseconds <= 0)
    return BadField("us", fields.at("us"));
  record.microseconds = *microseconds;
  if (const auto confirmed = fields.find("confirmed"); confirmed != fields.end()) {
    if (confirmed->second != "0" && confirmed->second != "1")
      return BadField("confirmed", confirmed->second);
    record.confirmed = confirmed->second == "1";
  }
  const auto spread = fields.find("spread");
  if (spread == fields.end()) return {};
  const auto number = Number<double>(spread->second);
  if (!number || !std::isfinite(*number) || *number < 0) return BadField("spread", spread->second);
  record.spread = *number;
  return {};
}

// Total: no two records of one key are equal unless all their text is.
auto Order(const Record& r) {
  return std::tuple(r.is_rejected(), !r.confirmed, r.microseconds, std::string_view(r.date),
                    r.spread, std::string_view(r.library), std::string_view(r.rejected));
}

// "tile_m=128,tile_n=64".
Result<std::vector<KnobSetting>> ParseKnobs(std::string_view text) {
  std::vector<KnobSetting> settings;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view item = text.substr(0, comma);
    const size_t equals = std::min(item.find('='), item.size());
    const auto value = Number<int>(item.substr(std::min(equals + 1, item.size())));
    if (!value) return BadField("knobs", item);
    settings.push_back({std::string(item.substr(0, equals)), *value});
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return settings;
}

// "x:f16:256x64x56x56/200704x1x3584x64", extents and strides.
std::string TensorText(const graph::Tensor& tensor) {
  std::string text =
      fmt::format("{}:{}:{}", tensor.name, Info(tensor.dtype).text, DimsText(tensor.dims));
  if (!tensor.by_value) text += "/" + DimsText(tensor.strides);
  return text;
}

}  // namespace

std::string ProblemHash(std::string_view text, std::string_view device, int multiprocessors) {
  FieldHasher hasher;
  hasher.Add("kiln-problem-1").Add(text).Add(device).Add(int64_t{multiprocessors});
  return hasher.Finish().Hex();
}

Problem ProblemOf(const Group& group, const Target& target) {
  Problem problem{
      .hash = ProblemHash(graph::CanonicalText(group.graph), target.name, target.multiprocessors),
      .device = Clean(target.name),
      .multiprocessors = target.multiprocessors,
      .work = {}};
  for (const graph::Node& node : group.graph.nodes) {
    const bool is_map = node.op == graph::GraphOp::kMap;
    problem.work += problem.work.empty() ? "" : ",";
    problem.work += is_map ? std::string_view(Info(node.As<graph::MapAttrs>().op).text)
                           : std::string_view(graph::Info(node.op).mnemonic);
  }
  for (graph::TensorId id : graph::Inputs(group.graph))
    problem.work += " " + TensorText(group.graph[id]);
  for (graph::TensorId id : graph::Outputs(group.graph))
    problem.work += " " + TensorText(group.graph[id]);
  return problem;
}

Record RecordOf(const Problem& problem, const Candidate& candidate) {
  const Engine& engine = Engines()[static_cast<size_t>(candidate.engine)];
  return {.problem = problem,
          .engine = engine.name,
          .version = engine.version,
          .knobs = KnobText(engine, candidate.knobs)};
}

std::string ToLine(const Record& r) {
  std::string line = fmt::format("{}problem={}\tdevice={}\tsms={}\tengine={}/{}\tknobs={}", kMark,
                                 r.problem.hash, Clean(r.problem.device), r.problem.multiprocessors,
                                 Clean(r.engine), r.version, Clean(r.knobs));
  line += r.is_rejected() ? fmt::format("\trejected={}", Clean(r.rejected))
                          : fmt::format("\tus={}\tspread={}", r.microseconds, r.spread);
  if (r.confirmed) line += "\tconfirmed=1";
  line += fmt::format("\tdate={}\tlibrary={}\twork={}", Clean(r.date), Clean(r.library),
                      Clean(r.problem.work));
  return Sealed(line);
}

std::string Sealed(std::string_view text) { return fmt::format("{}{}{}", text, kSum, SumOf(text)); }

Result<Record> ParseRecord(std::string_view line) {
  const size_t mark = line.rfind(kMark);
  if (mark == std::string_view::npos)
    return Status::Text(Code::kInvalidValue, "the line does not begin with kiln-record-1");
  line.remove_prefix(mark);
  const size_t sum = line.rfind(kSum);
  if (sum == std::string_view::npos || line.substr(sum + kSum.size()) != SumOf(line.substr(0, sum)))
    return Status::Text(Code::kInvalidValue, "the line is damaged: its sum does not fit");
  ASSIGN_OR_RETURN(const Fields fields, Split(line.substr(kMark.size(), sum - kMark.size())));
  for (const char* name :
       {"problem", "device", "sms", "engine", "knobs", "date", "library", "work"})
    if (!fields.contains(name))
      return Status::Error(Code::kInvalidValue, "the field {} is missing", name);

  Record record;
  record.problem.hash = fields.at("problem");
  record.problem.device = fields.at("device");
  record.problem.work = fields.at("work");
  const std::string_view engine = fields.at("engine");
  const size_t slash = std::min(engine.rfind('/'), engine.size());
  record.engine = engine.substr(0, slash);
  const auto version = Number<int>(engine.substr(std::min(slash + 1, engine.size())));
  const auto sms = Number<int>(fields.at("sms"));
  if (!IsHash(record.problem.hash)) return BadField("problem", record.problem.hash);
  if (!version || record.engine.empty()) return BadField("engine", engine);
  if (!sms || *sms < 0) return BadField("sms", fields.at("sms"));
  record.version = *version;
  record.problem.multiprocessors = *sms;
  record.knobs = fields.at("knobs");
  record.date = fields.at("date");
  record.library = fields.at("library");
  RETURN_IF_ERROR(ReadResult(fields, record));
  return record;
}

// A record's key. A wrong result that one build found says nothing of another, so these stand
// apart.
std::string KeyOf(const Record& r) {
  return fmt::format("{}\t{}/{}\t{}\t{}", r.problem.hash, r.engine, r.version, r.knobs,
                     r.is_rejected() ? "rejected by " + r.library : "");
}

std::vector<Record> Merge(std::vector<Record> records) {
  RecordTable table;
  std::vector<std::string> problems;
  for (Record& record : records) {
    problems.push_back(record.problem.hash);
    table.Add(std::move(record));
  }
  std::ranges::sort(problems);
  problems.erase(std::ranges::unique(problems).begin(), problems.end());
  std::vector<Record> merged;
  for (const std::string& problem : problems)
    for (Record& record : table.For(problem)) merged.push_back(std::move(record));
  return merged;
}

Result<Candidate> CandidateOf(const Record& record, const Group& group, const Target& target) {
  if (record.is_rejected())
    return Status::Error(Code::kInvalidValue, "its results were wrong: {}", record.rejected);
  const int index = EngineIndex(record.engine);
  if (index < 0) return Status::Error(Code::kInvalidValue, "there is no engine {}", record.engine);
  const Engine& engine = Engines()[static_cast<size_t>(index)];
  if (engine.version != record.version) {
    return Status::Error(Code::kInvalidValue, "engine {} has version {}, the record is of {}",
                         engine.name, engine.version, record.version);
  }
  ASSIGN_OR_RETURN(const std::vector<KnobSetting> settings, ParseKnobs(record.knobs));
  Candidate candidate{.engine = index};
  ASSIGN_OR_RETURN(candidate.knobs, KnobsWith(engine, settings));
  ASSIGN_OR_RETURN(const auto plan, engine.plan(group, target));
  const Estimate of = plan->EstimateOf(candidate.knobs);
  RETURN_IF_ERROR(FitsShared(engine, group, target, candidate.knobs, of.shared_bytes));
  candidate.seconds = of.seconds;
  return candidate;
}

void RecordTable::Add(Record record) {
  std::string key = KeyOf(record);
  auto& of_problem = by_problem_[record.problem.hash];
  const auto [entry, is_new] = of_problem.try_emplace(std::move(key));
  if (is_new || Order(record) < Order(entry->second)) entry->second = std::move(record);
}

std::vector<Record> RecordTable::For(const std::string& problem_hash) const {
  std::vector<Record> found;
  const auto known = by_problem_.find(problem_hash);
  if (known == by_problem_.end()) return found;
  for (const auto& [key, record] : known->second) found.push_back(record);
  // Stable: equal times stay in the order of their keys.
  std::ranges::stable_sort(
      found, {}, [](const Record& r) { return std::pair(r.is_rejected(), r.microseconds); });
  return found;
}

}  // namespace kiln::compiler
