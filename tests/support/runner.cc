// Memory of a run, and where the libraries and cases are found.
#include "tests/support/runner.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>

namespace kiln::testing {
namespace {

namespace fs = std::filesystem;
constexpr int64_t kWorkspaceGuard = 256;
constexpr uint8_t kGuardByte = 0xc3;

std::string TakeEnv(const char* name) {
  const char* value = std::getenv(name);
  std::string taken = value ? value : "";
  unsetenv(name);
  return taken;
}

std::string FirstExisting(const std::vector<std::string>& candidates) {
  for (const std::string& path : candidates) {
    std::error_code ignored;
    if (fs::exists(path, ignored)) return fs::absolute(path).string();
  }
  return "";
}

TestOptions Read() {
  std::error_code ignored;
  const fs::path here = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  TestOptions options;
  options.cudnn = TakeEnv("KILN_TEST_CUDNN");
  if (options.cudnn.empty()) {
    options.cudnn = FirstExisting({"api/libcudnn.so.9", (here / "../lib/libcudnn.so.9").string(),
                                   "bazel-bin/api/libcudnn.so.9"});
  }
  options.nvidia = TakeEnv("KILN_TEST_NVIDIA");
  options.cases = TakeEnv("KILN_TEST_CASES");
  if (options.cases.empty()) {
    options.cases =
        FirstExisting({"tests/cases", (here / "../tests/cases").string(),
                       (here / "../data/tests/cases").string(), (here / "../cases").string()});
  }
  options.filter = TakeEnv("KILN_TEST_FILTER");
  const std::string seed = TakeEnv("KILN_TEST_SEED");
  const auto now = std::chrono::system_clock::now().time_since_epoch().count();
  options.seed = seed.empty() ? static_cast<uint64_t>(now) % 1000000007
                              : std::strtoull(seed.c_str(), nullptr, 10);
  return options;
}

}  // namespace

const TestOptions& TestOptions::Get() {
  static const TestOptions options = Read();
  return options;
}

CaseFile LoadAllCases(const TestOptions& options) {
  CaseFile all;
  std::vector<fs::path> paths;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(options.cases, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name == kDifferencesFile || name.starts_with(kBenchPrefix)) continue;
    if (entry.path().extension() == ".txt") paths.push_back(entry.path());
  }
  std::ranges::sort(paths);
  if (paths.empty()) all.errors.push_back(fmt::format("no case files in '{}'", options.cases));
  for (const fs::path& path : paths) {
    CaseFile file = LoadCases(path.string());
    all.errors.insert(all.errors.end(), file.errors.begin(), file.errors.end());
    for (Case& c : file.cases) {
      if (c.Label().find(options.filter) != std::string::npos) all.cases.push_back(std::move(c));
    }
  }
  return all;
}

CaseMemory::CaseMemory(Device& device, const Case& c, const CaseData& data, int64_t workspace_bytes)
    : device_(device), workspace_bytes_(workspace_bytes) {
  for (size_t i = 0; i < c.tensors.size(); ++i) {
    const CaseTensor& tensor = c.tensors[i];
    buffers_.push_back(nullptr);
    if (tensor.by_value) {
      auto& scalar = *scalars_.emplace_back(std::make_unique<std::array<uint8_t, 8>>());
      oracle::Encode(tensor.dtype, *tensor.by_value, scalar.data());
      pack_.uids.push_back(tensor.uid);
      pack_.pointers.push_back(scalar.data());
    } else if (!tensor.is_virtual) {
      const auto& bytes = data.images[i].bytes;
      buffers_.back() = std::make_unique<Buffer>(device, bytes.size());
      if (buffers_.back()->data() == nullptr) {
        error_ =
            fmt::format("{} bytes for tensor {} cannot be allocated", bytes.size(), tensor.name);
        return;
      }
      device.CopyIn(buffers_.back()->data(), bytes.data(), bytes.size());
      pack_.uids.push_back(tensor.uid);
      pack_.pointers.push_back(buffers_.back()->data() + oracle::Image::kGuard);
    }
  }
  const std::vector<uint8_t> guard(kWorkspaceGuard, kGuardByte);
  workspace_ =
      std::make_unique<Buffer>(device, static_cast<size_t>(workspace_bytes + kWorkspaceGuard));
  if (workspace_->data() == nullptr) {
    error_ = fmt::format("{} bytes of workspace cannot be allocated", workspace_bytes);
    return;
  }
  device.CopyIn(workspace_->data() + workspace_bytes, guard.data(), guard.size());
  pack_.workspace = workspace_->data();
}

void CaseMemory::Download(CaseData* data) const {
  for (size_t i = 0; i < buffers_.size(); ++i) {
    auto& bytes = data->images[i].bytes;
    if (buffers_[i]) device_.CopyOut(bytes.data(), buffers_[i]->data(), bytes.size());
  }
}

std::string CaseMemory::CheckWorkspaceGuard() const {
  std::vector<uint8_t> guard(kWorkspaceGuard);
  device_.CopyOut(guard.data(), workspace_->data() + workspace_bytes_, guard.size());
  const bool intact = std::ranges::all_of(guard, [](uint8_t b) { return b == kGuardByte; });
  return intact
             ? ""
             : fmt::format("memory behind the workspace of {} bytes was written", workspace_bytes_);
}

ClientError CaseRunner::Prepare() {
  ClientError error;
  graph_ = Graph::Build(cudnn_, case_, &error);
  return graph_ ? graph_->Heuristics() : error;
}

ClientError CaseRunner::PrepareThoroughly() {
  ClientError error;
  graph_ = Graph::Build(cudnn_, case_, &error);
  return graph_ ? graph_->AllHeuristics() : error;
}

ClientError CaseRunner::AddEngines() {
  if (graph_ != nullptr) return graph_->AddEngines();
  return {.status = CUDNN_STATUS_NOT_SUPPORTED, .text = "the graph was refused"};
}

EvaluateOptions CaseRunner::PrecisionOf(size_t config) const {
  const bool rounds = graph_->FactsOf(config).Has(CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS);
  return {.contraction_operand_roundoff = rounds ? kTf32Roundoff : 0};
}

ClientError CaseRunner::Run(size_t config, const CaseData& before, CaseData* after) const {
  const auto failed = [](const std::string& text) {
    return ClientError{.status = CUDNN_STATUS_EXECUTION_FAILED, .text = text};
  };
  ClientError error;
  const auto plan = graph_->MakePlan(config, &error);
  if (!plan) return error;
  const CaseMemory memory(device_, case_, before, plan->workspace_bytes);
  if (!memory.error().empty()) return failed(memory.error());
  if (error = plan->Execute(memory.pack()); !error.ok()) return error;
  if (const std::string text = device_.Synchronize(); !text.empty()) return failed(text);
  *after = before;
  memory.Download(after);
  if (const std::string text = memory.CheckWorkspaceGuard(); !text.empty()) return failed(text);
  return {};
}

}  // namespace kiln::testing
