// Says on stderr how far a check is, once it has taken some seconds: one line that is written over
// on a terminal, elsewhere a line now and then. A thread of its own prints, since one operation may
// take minutes.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "ir/graph/graph.h"

namespace kiln::cli {

struct ProgressOptions {
  bool is_terminal = false;
  std::chrono::milliseconds first{5000}, period{30000};

  // The options for stderr: a second's silence on a terminal, longer ones in a log.
  static ProgressOptions OfStderr();
};

class CheckProgress {
 public:
  CheckProgress(const graph::Graph& graph, ProgressOptions options);
  ~CheckProgress();
  CheckProgress(const CheckProgress&) = delete;

  // The interpreter's observer: called before each node of each run.
  void Begin(const graph::Node& node);

 private:
  void Print();
  std::string Text();

  using Clock = std::chrono::steady_clock;
  const ProgressOptions options_;
  const size_t nodes_;
  const Clock::time_point start_ = Clock::now();
  std::mutex mutex_;
  std::condition_variable ended_;
  bool is_ended_ = false, is_shown_ = false;
  size_t begun_ = 0;  // nodes of all runs
  std::string mnemonic_;
  std::thread printer_;
};

}  // namespace kiln::cli
