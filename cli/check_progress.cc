#include "cli/check_progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <system_error>

#include "cli/console.h"
#include "ir/graph/ops.h"

namespace kiln::cli {

using std::chrono::milliseconds;

ProgressOptions ProgressOptions::OfStderr() {
  if (::isatty(STDERR_FILENO) == 0) return {};
  return {.is_terminal = true, .first = milliseconds(1000), .period = milliseconds(500)};
}

CheckProgress::CheckProgress(const graph::Graph& graph, ProgressOptions options)
    : options_(options), nodes_(graph.nodes.size()) {
  try {
    printer_ = std::thread([this] { Print(); });
  } catch (const std::system_error&) {
    // No thread is to be had: the check goes on in silence.
  }
}

CheckProgress::~CheckProgress() {
  {
    const std::lock_guard lock(mutex_);
    is_ended_ = true;
  }
  ended_.notify_all();
  if (printer_.joinable()) printer_.join();
  if (is_shown_ && options_.is_terminal) WriteRaw(stderr, "\r\x1b[K");
}

void CheckProgress::Begin(const graph::Node& node) {
  const std::lock_guard lock(mutex_);
  ++begun_;
  mnemonic_ = graph::Info(node.op).mnemonic;
}

// The interpreter runs once as the reference, then with disturbed results.
std::string CheckProgress::Text() {
  const size_t at = begun_ == 0 || nodes_ == 0 ? 0 : begun_ - 1;
  const size_t run = nodes_ == 0 ? 0 : at / nodes_;
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - start_);
  return fmt::format("checking: {} of {} operations ({}) interpreted{}, {} s",
                     nodes_ == 0 ? 0 : at % nodes_, nodes_, mnemonic_,
                     run == 0 ? "" : fmt::format(" with disturbed results, run {}", run),
                     seconds.count());
}

void CheckProgress::Print() {
  std::unique_lock lock(mutex_);
  for (milliseconds wait = options_.first;
       !ended_.wait_for(lock, wait, [this] { return is_ended_; }); wait = options_.period) {
    is_shown_ = true;
    if (options_.is_terminal) {
      WriteRaw(stderr, "\r\x1b[K" + Text());
    } else {
      PrintError("kiln: {}\n", Text());
    }
  }
}

}  // namespace kiln::cli
