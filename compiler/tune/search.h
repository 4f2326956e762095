// Search: times the candidates of one problem in the order of the cost model, and says which to
// remember. It knows no device and no clock: both are a Bench, so that tests bring their own.
// Called by `kiln tune` and, for KILN_TUNE=on-miss and retune, when a plan is made.
//
//   rank → known? skip → compile ahead, in threads (or skip, what the model ranks too far behind to
//        wait for a compiler) → same binary as before? its time → check → time
//        → store → stop after `patience` without improvement, or out of budget → where asked to,
//        the fastest with other arguments (the order of tiles), and the few fastest again, in
//        turns, since clocks and temperatures drift
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compiler/tune/record.h"
#include "ir/program.h"

namespace kiln::compiler {

struct Timing {
  double seconds = 0;  // median
  double spread = 0;   // relative
};

// A program that is ready to run on the data of the problem.
class Trial {
 public:
  virtual ~Trial() = default;
  // Checks one run. kUnexpectedValue: wrong results or a write outside of the buffers. Other
  // errors: it could not be run.
  virtual Status Check() = 0;
  // Times runs. `best` is the fastest so far, or 0: what is clearly slower needs no exact time.
  virtual Result<Timing> Time(double best) = 0;
};

// One problem's data on a device.
class Bench {
 public:
  virtual ~Bench() = default;
  // Makes a program ready to run. Called from several threads at once.
  virtual Result<std::shared_ptr<Trial>> Prepare(const Program& program) = 0;
  // True if Prepare takes no compiler for it. Called from several threads at once.
  virtual bool IsCompiled(const Program& program) = 0;
  virtual double Now() = 0;  // seconds
};

struct SearchOptions {
  Inputs inputs = Inputs::kExact;
  std::optional<Candidate> first;  // tried before what the model ranks
  int patience = 64;               // candidates in a row that bring nothing; 0: never stop for it
  int top = 0;                     // at most so many of the ranked list; 0: all
  std::optional<int> worth_compiling;  // so many of them wait for a compiler; nothing: all
  int jobs = 1;                 // candidates that are compiled ahead, each in a thread, at most
  double deadline = 0;          // by Bench::Now(); 0: none
  bool retune = false;          // measure what is on record too
  bool vary_arguments = false;  // of the fastest kernel
  bool confirm = true;          // by timing the few fastest again
  double worthwhile = 0.002;    // relative gain that counts as an improvement
};

struct SearchStep {
  Record record;            // with the time, or why it was rejected
  bool is_best = false;     // the fastest so far
  int done = 0, total = 0;  // candidates looked at, and of the list
};

struct SearchResult {
  std::vector<Record> fastest;  // at most one: of this search and of what was known
  int measured = 0, rejected = 0, known = 0, same_binary = 0, failed = 0, not_compiled = 0;
  std::string stopped;  // why before the end of the list, or empty
  bool complete() const { return stopped.empty(); }
};

// `known` are the usable and the rejected records of the problem. `on_step` is called for each new
// record, in order, and stores it. An error: nothing could be run, or the device failed for good.
Result<SearchResult> Search(const Group& group, const Target& target,
                            const std::vector<Record>& known, const SearchOptions& options,
                            Bench& bench, const std::function<void(const SearchStep&)>& on_step);

// The texts and launches of a program as a key: equal ones run equally long.
std::string BinaryKey(const Program& program);

}  // namespace kiln::compiler
