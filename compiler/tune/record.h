// Record: one configuration of one problem, measured, as a line of text (docs/tuning.md). The
// problem is a group with all its extents and the device; the configuration is an engine with its
// version and knobs. Called by the record store (api/tuning), `kiln tune` and `kiln records`.
//
//   kiln-record-1  problem=<hash>  device=NVIDIA H200  sms=132  engine=contract_mma/1
//       knobs=tile_m=128,tile_n=64  us=104.2  spread=0.01  confirmed=1  date=2026-11-22T04:00:00Z
//       library=<build>  work=conv_fprop x:f16:256x64x56x56/… …  sum=<8 digits>
//
// Fields are separated by tabs. A configuration whose results were wrong has `rejected=<why>` in
// place of us and spread: it is not tried again by the same build, and not used.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/engines/candidates.h"

namespace kiln::compiler {

// The problem that a record is about. The hash is over the canonical text of the group, which holds
// all extents and strides, the device's name and its number of SMs; the rest is for people.
struct Problem {
  std::string hash;  // 32 digits
  std::string device;
  int multiprocessors = 0;
  std::string work;

  bool operator==(const Problem&) const = default;
};

Problem ProblemOf(const Group& group, const Target& target);
// The hash of a group's canonical text on such a device.
std::string ProblemHash(std::string_view text, std::string_view device, int multiprocessors);

struct Record {
  Problem problem;
  std::string engine;
  int version = 0;
  std::string knobs;          // as KnobText writes them
  double microseconds = 0;    // median
  double spread = 0;          // (slowest - fastest) / median of the repeated medians
  bool confirmed = false;     // timed again, in turns with those that were about as fast
  std::string rejected = {};  // why, or empty
  std::string date = {};      // UTC
  std::string library = {};   // the build that measured

  bool is_rejected() const { return !rejected.empty(); }
  bool operator==(const Record&) const = default;
};

Record RecordOf(const Problem& problem, const Candidate& candidate);

// The record as a line, without the newline. Tabs and control characters in values become spaces.
std::string ToLine(const Record& record);
// A line's text with its sum behind it.
std::string Sealed(std::string_view text);
// Parses a line. Anything else than a whole, undamaged line is an error in words. Bytes before the
// line's beginning (a write that was cut off) are skipped.
Result<Record> ParseRecord(std::string_view line);

// The key that two records share if they measure the same thing.
std::string KeyOf(const Record& record);
// The union; of equal keys a confirmed one stays, then the fastest, of equal times the oldest.
// Order of the result: problem, time, key; so merging is idempotent, and the order of the inputs
// does not show.
std::vector<Record> Merge(std::vector<Record> records);

// The candidate that the record speaks of, if it may be used now: the engine exists and has the
// same version, the knobs are legal, and the engine takes the group on this target.
Result<Candidate> CandidateOf(const Record& record, const Group& group, const Target& target);

// Records by problem.
class RecordTable {
 public:
  // Replaces a record of the same key that Merge would not keep.
  void Add(Record record);
  // The records of a problem as Merge orders them; rejected ones last.
  std::vector<Record> For(const std::string& problem_hash) const;
  size_t problems() const { return by_problem_.size(); }

 private:
  std::map<std::string, std::map<std::string, Record>> by_problem_;  // hash → key → record
};

}  // namespace kiln::compiler
