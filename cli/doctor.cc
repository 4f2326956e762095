// kiln doctor: what was found and loaded, and why something is missing, with what to do about it.
#include <fmt/format.h>

#include <algorithm>

#include "cli/commands.h"
#include "runtime/device_select.h"

namespace kiln::cli {
namespace {

constexpr const char* kFooter =
    "Looks for the driver, the GPUs, NVRTC, the kernel cache and the CPU plug-in, as a program "
    "that loads\n"
    "libcudnn would. Wrong KILN_* variables are listed first. Exit status 1 if there is no device "
    "to run\n"
    "on, or a variable is wrong.\n"
    "\n"
    "Examples:\n"
    "  kiln doctor\n"
    "  KILN_DEVICE=cpu kiln doctor";

using State = runtime::DoctorLine::State;

const char* Text(State state) {
  switch (state) {
    case State::kGood:
      return "ok";
    case State::kNote:
      return "note";
    case State::kMissing:
      return "missing";
  }
  return "";
}

bool StopsUs(const runtime::DoctorLine& line) {
  return line.state == State::kMissing &&
         (line.subject == "device" || line.subject == "environment");
}

int Examine() {
  const std::vector<runtime::DoctorLine> lines = runtime::Doctor();
  size_t width = 0;
  for (const runtime::DoctorLine& line : lines) width = std::max(width, line.subject.size());
  for (const runtime::DoctorLine& line : lines)
    fmt::print("{:<8} {:<{}}  {}\n", Text(line.state), line.subject, width, line.detail);
  return std::ranges::any_of(lines, StopsUs) ? kExitFailed : kExitOk;
}

}  // namespace

void AddDoctor(CLI::App& app, int& exit_status) {
  CLI::App* command = app.add_subcommand("doctor", "what is installed, what is missing, and why");
  command->footer(kFooter);
  command->callback([&exit_status] { exit_status = Examine(); });
}

}  // namespace kiln::cli
