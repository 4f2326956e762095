// DevicePlan: the plan that a DeviceSession makes, a compiled program and what loading it gave. The
// session alone sees more of it than Plan shows.
#pragma once

#include <memory>
#include <utility>

#include "api/session/client_workspace.h"
#include "api/session/session.h"
#include "compiler/compile.h"
#include "runtime/executable.h"

namespace kiln::api {

class DevicePlan final : public Plan {
 public:
  DevicePlan(EngineConfig config, compiler::CompiledPlan compiled)
      : config_(std::move(config)), program_(std::move(compiled.program)) {}

  Status LoadOn(runtime::Device& device) {
    ASSIGN_OR_RETURN(executable_, runtime::Executable::Create(device, program_));
    return {};
  }

  const EngineConfig& config() const override { return config_; }
  int64_t workspace_bytes() const override { return WorkspaceBytes(program_); }
  std::span<const ProgramTensor> tensors() const override { return program_.tensors; }
  const Program& program() const { return program_; }
  // Null where the plan was compiled for a device that is not here.
  const runtime::Executable* executable() const { return executable_.get(); }

 private:
  EngineConfig config_;
  Program program_;
  std::unique_ptr<runtime::Executable> executable_;
};

}  // namespace kiln::api
