// Runs a benchmark in a child process and starts it again after the problem on which it died.
//
// A kernel that reads beyond its memory takes the whole context with it, a library may crash, a
// kernel may hang. None of that may cost the results of the other problems: the child notes in a
// file which problem it begins and each finished row, and the parent begins anew behind them.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

namespace kiln::bench {

// Lines that the child writes: "begin NAME", "row NAME JSON", "meta JSON".
class Progress {
 public:
  explicit Progress(std::string path) : path_(std::move(path)) {}
  void Begin(const std::string& name) const { Append("begin " + name); }
  void Row(const std::string& name, const std::string& json) const {
    Append("row " + name + " " + json);
  }
  void Meta(const std::string& json) const { Append("meta " + json); }

  struct State {
    std::string meta;
    std::vector<std::string> rows;   // JSON, in the order of the runs
    std::set<std::string> finished;  // names
    std::string begun;               // without a row so far
  };
  State Read() const;

 private:
  void Append(const std::string& line) const;
  std::string path_;
};

// Exit statuses of the child: done, or lost the device and wants to be started again.
constexpr int kDone = 0, kStartAgain = 75;

struct Attempt {
  std::set<std::string> finished;
  bool careful = false;  // after a death outside of any problem: note each problem early
};

// `work` runs in a child of its own until it returns kDone; other statuses above 0 but kStartAgain
// end everything and are returned. `lost` makes the row of a problem on which a child died.
int Supervise(const Progress& progress, const std::function<int(const Attempt&)>& work,
              const std::function<std::string(const std::string&, const std::string&)>& lost);

}  // namespace kiln::bench
