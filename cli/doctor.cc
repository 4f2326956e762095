// kiln doctor: what was found and loaded, and why something is missing, with what to do about it.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>

#include "api/tuning/record_store.h"
#include "cli/clients.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "runtime/cache/record_files.h"
#include "runtime/device_select.h"

namespace kiln::cli {
namespace {

constexpr const char* kFooter =
    "Looks for the driver, the GPUs, NVRTC, the kernel cache, the CPU plug-in and tuning\n"
    "records, as a program that loads libcudnn would. KILN_* variables that have no effect\nare "
    "listed first.\n"
    "Last are the frameworks in the packages of python3 (PyTorch, JAX, ONNX Runtime,\n"
    "TensorFlow, CuPy, Transformer Engine, cudnn-frontend): which libcudnn each of them\n"
    "would load with the LD_PRELOAD and LD_LIBRARY_PATH of now, and why. It is read from\n"
    "their files by the rules of ld.so, and nothing is loaded; not known are $LIB,\n"
    "$PLATFORM, glibc-hwcaps, an RPATH of libpython, and what a program itself loads first.\n"
    "Exit status 1 if there is no device to run on.\n"
    "\n"
    "Examples:\n"
    "  kiln doctor\n"
    "  KILN_DEVICE=cpu kiln doctor\n"
    "  LD_PRELOAD=/opt/kiln/lib/libcudnn.so.9 kiln doctor --site "
    "venv/lib/python3.12/site-packages";

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
  return line.state == State::kMissing && line.subject == "device";
}

// The line on tuning records: how many there are of each device, of the user and shipped.
runtime::DoctorLine RecordsLine() {
  std::vector<std::string> paths = runtime::ShippedRecordPaths();
  if (std::string user = runtime::UserRecordFolder(); !user.empty())
    paths.push_back(std::move(user));
  std::vector<compiler::Record> all;
  size_t damaged = 0;
  for (const std::string& path : paths) {
    const Result<api::RecordsRead> read = api::ReadRecords(path);
    if (!read.ok()) return {State::kNote, "tuning records", read.status().message()};
    all.insert(all.end(), read->records.begin(), read->records.end());
    damaged += read->damage.size();
  }
  if (all.empty() && damaged == 0)
    return {State::kNote, "tuning records",
            fmt::format("none in {}; the engines' models choose", fmt::join(paths, ", "))};
  std::map<std::string, size_t> of_device;
  for (const compiler::Record& record : compiler::Merge(std::move(all)))
    ++of_device[record.problem.device];
  std::string text;
  for (const auto& [device, count] : of_device)
    text += fmt::format("{}{} of {}", text.empty() ? "" : ", ", count, device);
  if (damaged > 0) text += fmt::format("; {} damaged lines, see `kiln records verify`", damaged);
  return {damaged > 0 ? State::kNote : State::kGood, "tuning records", text};
}

int Examine(const std::vector<std::string>& folders) {
  std::vector<runtime::DoctorLine> lines = runtime::Doctor();
  lines.push_back(RecordsLine());
  PythonSites sites = SitesOfEnvironment();
  if (!folders.empty()) sites = {.folders = folders, .interpreter = std::move(sites.interpreter)};
  std::ranges::move(ExamineClients(sites, LoaderSettings::OfEnvironment()),
                    std::back_inserter(lines));
  size_t width = 0;
  for (const runtime::DoctorLine& line : lines) width = std::max(width, line.subject.size());
  for (const runtime::DoctorLine& line : lines)
    PrintOut("{:<8} {:<{}}  {}\n", Text(line.state), line.subject, width, line.detail);
  return std::ranges::any_of(lines, StopsUs) ? kExitFailed : kExitOk;
}

}  // namespace

void AddDoctor(CLI::App& app, int& exit_status) {
  CLI::App* command = app.add_subcommand("doctor", "what is installed, what is missing, and why");
  command->footer(kFooter);
  auto sites = std::make_shared<std::vector<std::string>>();
  command
      ->add_option("--site", *sites,
                   "folder of Python packages to look for frameworks in, instead of python3's; may "
                   "be repeated")
      ->type_name("DIR")
      ->check(CLI::ExistingDirectory);
  command->callback([&exit_status, sites] { exit_status = Examine(*sites); });
}

}  // namespace kiln::cli
