// RecordStore: the tuning records that this process knows, in two tiers: the user's (what was
// measured on this machine, by this process or others) and the shipped ones (KILN_RECORDS,
// share/kiln/records). Of one configuration the user's counts; of a problem the fastest. Read once,
// at the first question; a line that is damaged costs a line in the log. A record is used only if
// CandidateOf (compiler/tune/record.h) finds nothing against it. Called by the session and by `kiln
// tune`. Safe from many threads.
#pragma once

#include <atomic>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "compiler/tune/record.h"

namespace kiln::api {

// KILN_TUNE. docs/tuning.md says what each does.
enum class TuneMode : uint8_t { kOff, kRecords, kHeuristic, kOnMiss, kRetune };
TuneMode TuneModeFromEnv();

class RecordStore {
 public:
  struct Options {
    std::string user_folder;                 // may be empty: nothing is kept
    std::vector<std::string> shipped_paths;  // files and folders
  };
  static Options OptionsFromEnv();
  static RecordStore& OfProcess();

  explicit RecordStore(Options options) : options_(std::move(options)) {}

  // The fastest usable record of an engine that takes inputs so. Where this device has none, that
  // of a board of its chip with as many SMs (KinOf).
  std::optional<compiler::Candidate> Best(const compiler::Group& group, const Target& target,
                                          compiler::Inputs inputs = compiler::Inputs::kExact);
  // Usable records, or those of kin, fastest first, then what the model ranks behind them.
  std::vector<compiler::Candidate> Rank(const compiler::Group& group, const Target& target,
                                        compiler::Inputs inputs = compiler::Inputs::kExact);
  // True if something measured on such a device is of use.
  bool Has(const compiler::Group& group, const Target& target,
           compiler::Inputs inputs = compiler::Inputs::kExact);
  // Usable records of this device, fastest first, and what this build rejected.
  std::vector<compiler::Record> Known(const compiler::Group& group, const Target& target,
                                      const compiler::Problem& problem);

  // Stamps the record with date and build, keeps it, and appends it to the user's file.
  void Add(compiler::Record record);
  // Changes whenever answers may.
  int64_t epoch() const { return epoch_.load(); }
  const Options& options() const { return options_; }

 private:
  void ReadOnce();
  bool IsEmpty();
  // The candidates of usable records, fastest first.
  std::vector<compiler::Candidate> Recorded(const compiler::Group& group, const Target& target,
                                            compiler::Inputs inputs);
  // The candidates of one problem's usable records.
  std::vector<compiler::Candidate> RecordedAs(const std::string& problem_hash,
                                              const compiler::Group& group, const Target& target,
                                              compiler::Inputs inputs);
  static void ReadInto(compiler::RecordTable& table, const std::string& path);
  std::vector<compiler::Record> Usable(const compiler::Group& group, const Target& target,
                                       const std::string& problem_hash);

  const Options options_;
  std::mutex mutex_;  // guards the tables
  bool read_ = false;
  compiler::RecordTable user_, shipped_;
  std::atomic<int64_t> epoch_ = 0;
};

// Records of a file or folder, with a sentence for each damaged line.
struct RecordsRead {
  std::vector<compiler::Record> records;
  std::vector<std::string> damage;  // "FILE:LINE…: sentence"
};
Result<RecordsRead> ReadRecords(const std::string& path);

// "NVIDIA H200" → "nvidia_h200.txt": files of one device are of one name everywhere.
std::string RecordFileName(const std::string& device);

}  // namespace kiln::api
