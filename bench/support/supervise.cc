// fork, wait, read what the child wrote.
#include "bench/support/supervise.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <fstream>

namespace kiln::bench {

void Progress::Append(const std::string& line) const {
  std::ofstream out(path_, std::ios::app);
  out << line << "\n";
}

Progress::State Progress::Read() const {
  State state;
  std::ifstream in(path_);
  for (std::string line; std::getline(in, line);) {
    const size_t space = line.find(' ');
    const std::string kind = line.substr(0, space);
    const std::string rest = space == std::string::npos ? "" : line.substr(space + 1);
    if (kind == "meta") state.meta = rest;
    if (kind == "begin") state.begun = rest;
    if (kind != "row") continue;
    const size_t end = rest.find(' ');
    if (end == std::string::npos) continue;  // cut off by a death
    state.finished.insert(rest.substr(0, end));
    state.rows.push_back(rest.substr(end + 1));
    if (state.begun == rest.substr(0, end)) state.begun.clear();
  }
  return state;
}

namespace {

std::string Describe(int status) {
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM) return "no end within the time limit";
  if (WIFSIGNALED(status)) return fmt::format("the process died: {}", strsignal(WTERMSIG(status)));
  return fmt::format("the process ended with status {}", WEXITSTATUS(status));
}

}  // namespace

int Supervise(const Progress& progress, const std::function<int(const Attempt&)>& work,
              const std::function<std::string(const std::string&, const std::string&)>& lost) {
  Attempt attempt;
  while (true) {
    std::fflush(nullptr);
    const pid_t child = fork();
    if (child < 0) return 2;
    if (child == 0) {
      const int status = work(attempt);
      std::fflush(nullptr);
      // Without destructors: a lost device hangs or crashes in them.
      _exit(status);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) != kStartAgain) return WEXITSTATUS(status);
    Progress::State state = progress.Read();
    const size_t before = attempt.finished.size();
    if (!state.begun.empty()) {
      progress.Row(state.begun, lost(state.begun, Describe(status)));
      std::fprintf(stderr, "%s: %s\n", state.begun.c_str(), Describe(status).c_str());
      state.finished.insert(state.begun);
    }
    attempt.finished = state.finished;
    if (attempt.finished.size() > before) continue;
    std::fprintf(stderr, "%s, and no problem had begun\n", Describe(status).c_str());
    if (attempt.careful) return 2;
    attempt.careful = true;
  }
}

}  // namespace kiln::bench
