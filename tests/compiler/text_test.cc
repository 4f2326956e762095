// Pass tests from text: each file of tests/text/<pass>/ is a graph and what the module must look
// like after that pass.
//
//   // target: cpu                  one of TargetFromArch's, sm_90a if it is not said
//   // choice: tile_m=32            knobs of the leading group
//   // engine: contract_simt        and its engine
//   graph g { … }
//   // CHECK: %y = map(…            stands in the module's text, after what the line before found
//   // CHECK-NOT: identity          does not stand between its neighbours
//   // ERROR: declines              instead of all others: compiling fails with these words
//
// Up to partition the module is also evaluated before and after: passes may not change a result.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "compiler/compile.h"
#include "compiler/engines/registry.h"
#include "compiler/passes/print_module.h"
#include "compiler/patterns/memory_places.h"
#include "tests/support/random_graph.h"
#include "tests/support/run_tiles.h"

namespace kiln::compiler {
namespace {

struct Line {
  enum class Kind : uint8_t { kCheck, kNot, kError };
  Kind kind;
  std::string text;
};

struct Case {
  std::string pass, graph, target = "sm_90a";
  EngineChoice choice;
  std::vector<Line> lines;
};

bool Takes(std::string_view line, std::string_view prefix, std::string& rest) {
  if (!line.starts_with(prefix)) return false;
  line.remove_prefix(prefix.size());
  while (line.starts_with(' ')) line.remove_prefix(1);
  rest = line;
  return true;
}

Case ReadCase(const std::filesystem::path& path) {
  Case c{.pass = path.parent_path().filename()};
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path;
  std::string rest;
  for (std::string line; std::getline(file, line);) {
    if (Takes(line, "// CHECK-NOT:", rest))
      c.lines.push_back({Line::Kind::kNot, rest});
    else if (Takes(line, "// CHECK:", rest))
      c.lines.push_back({Line::Kind::kCheck, rest});
    else if (Takes(line, "// ERROR:", rest))
      c.lines.push_back({Line::Kind::kError, rest});
    else if (Takes(line, "// target:", rest))
      c.target = rest;
    else if (Takes(line, "// choice:", rest))
      c.choice.knobs.push_back(
          {rest.substr(0, rest.find('=')), std::stoi(rest.substr(rest.find('=') + 1))});
    else if (Takes(line, "// engine:", rest))
      c.choice.engine = EngineIndex(rest);
    else if (!Takes(line, "//", rest))
      c.graph += line + "\n";
  }
  return c;
}

// The program as text: kernels, then launches with what their arguments became.
std::string PrintProgram(const Program& program) {
  std::string text;
  for (const KernelSource& kernel : program.kernels)
    text += fmt::format("kernel {}\n{}\n", kernel.entry, kernel.text);
  for (const Launch& launch : program.launches) {
    text += fmt::format(
        "{} {} grid {}x{}x{} block {}:", launch.may_overlap ? "overlapping launch" : "launch",
        program.kernels[launch.kernel].entry, launch.grid[0], launch.grid[1], launch.grid[2],
        launch.block[0]);
    for (const LaunchArg& arg : launch.args) {
      const bool workspace = arg.buffer.kind == BufferRef::Kind::kWorkspace;
      switch (arg.kind) {
        case LaunchArg::Kind::kPointer:
          text += workspace ? fmt::format(" workspace+{}", arg.buffer.byte_offset)
                            : fmt::format(" uid{}", program.tensors[arg.buffer.index].uid);
          break;
        case LaunchArg::Kind::kScalar:
          text += fmt::format(" {}", arg.bits);
          break;
        case LaunchArg::Kind::kByValue:
          text += fmt::format(" value(uid{})", program.tensors[arg.buffer.index].uid);
          break;
        case LaunchArg::Kind::kTensorMap:
          text += " map";
          break;
        case LaunchArg::Kind::kPeerRank:
          text += fmt::format(" rank({})", arg.bits);
          break;
        case LaunchArg::Kind::kPeerLimit:
          text += " limit";
          break;
        case LaunchArg::Kind::kFault:
          text += " fault";
          break;
      }
    }
    text += "\n";
  }
  return text + fmt::format("workspace {}\n", program.workspace_bytes);
}

std::string WithoutTrailing(std::string text) {
  return text.substr(0, text.find_last_not_of(" \r") + 1);
}

void Match(const Case& c, const std::string& text) {
  size_t at = 0;
  std::vector<std::string> forbidden;
  const auto check_forbidden = [&](size_t end) {
    for (const std::string& word : forbidden) {
      const size_t found = text.find(word, at);
      EXPECT_GE(found, end) << "found, which must not be here: " << word << "\n" << text;
    }
    forbidden.clear();
  };
  for (const Line& line : c.lines) {
    const std::string wanted = WithoutTrailing(line.text);
    if (line.kind == Line::Kind::kNot) {
      forbidden.push_back(wanted);
      continue;
    }
    const size_t found = text.find(wanted, at);
    ASSERT_NE(found, std::string::npos) << "not found after offset " << at << ": " << wanted << "\n"
                                        << text;
    check_forbidden(found);
    at = found + wanted.size();
  }
  check_forbidden(text.size());
}

// Inputs and outputs are memory: a pass may see them with dims in another order, or as bytes.
using MemoryByUid = std::map<int64_t, std::vector<std::byte>>;

std::vector<double> Read(const graph::Tensor& t, const MemoryByUid& memory) {
  return graph::Unpack(t, memory.at(t.uid).data());
}

// Outputs by uid; inputs are the ones of `original`, found by uid.
void EvaluateInto(const graph::Graph& g, const MemoryByUid& inputs, MemoryByUid& outputs) {
  graph::TensorValues values;
  for (graph::TensorId id : graph::Inputs(g)) values[id] = Read(g[id], inputs);
  const Status status = graph::Evaluate(g, values);
  ASSERT_TRUE(status.ok()) << status.message() << "\n" << graph::Print(g);
  for (graph::TensorId id : graph::Outputs(g))
    graph::Pack(g[id], values.at(id), outputs[g[id].uid]);
}

// Memory that groups pass on: that of the module's tensors, in which a group's tensor has a place
// and strides of its own.
class GroupMemory {
 public:
  GroupMemory(const Module& module, const MemoryByUid& inputs) : places_(module) {
    for (const graph::TensorId id : graph::Inputs(module.graph))
      memory_[id] = inputs.at(module.graph[id].uid);
  }

  std::vector<double> Read(const Group& group, graph::TensorId id) {
    const graph::TensorId outer = group.outer[id];
    return graph::Unpack(group.graph[id],
                         memory_.at(places_.MemoryOf(outer)).data() + places_.OffsetBytesOf(outer));
  }
  void Write(const Group& group, graph::TensorId id, const std::vector<double>& values) {
    const graph::TensorId outer = group.outer[id];
    std::vector<std::byte>& memory = memory_[places_.MemoryOf(outer)];
    const auto begin = static_cast<size_t>(places_.OffsetBytesOf(outer));
    memory.resize(std::max(memory.size(), begin));
    std::vector<std::byte> own(memory.begin() + static_cast<std::ptrdiff_t>(begin), memory.end());
    graph::Pack(group.graph[id], values, own);
    memory.resize(begin);
    memory.insert(memory.end(), own.begin(), own.end());
  }
  const std::vector<std::byte>& Of(graph::TensorId id) const { return memory_.at(id); }

 private:
  const MemoryPlaces places_;
  std::map<graph::TensorId, std::vector<std::byte>> memory_;
};

// Groups in order.
void EvaluateGroups(const Module& module, const MemoryByUid& inputs, MemoryByUid& outputs) {
  GroupMemory memory(module, inputs);
  for (const Group& group : module.groups) {
    graph::TensorValues values;
    for (graph::TensorId id : graph::Inputs(group.graph)) values[id] = memory.Read(group, id);
    const Status status = graph::Evaluate(group.graph, values);
    ASSERT_TRUE(status.ok()) << status.message();
    for (graph::TensorId id : graph::Outputs(group.graph)) memory.Write(group, id, values.at(id));
  }
  for (graph::TensorId id : graph::Outputs(module.graph))
    outputs[module.graph[id].uid] = memory.Of(id);
}

void ExpectSameResults(graph::Graph original, const Module& module) {
  ASSERT_TRUE(graph::Normalize(original).ok());  // the evaluator takes nodes in order
  MemoryByUid inputs, want, got;
  const graph::TensorValues random = graph::RandomInputs(original, 3);
  for (graph::TensorId id : graph::Inputs(original))
    graph::Pack(original[id], random.at(id), inputs[original[id].uid]);
  EvaluateInto(original, inputs, want);
  if (module.form < Form::kGrouped)
    EvaluateInto(module.graph, inputs, got);
  else
    EvaluateGroups(module, inputs, got);
  for (graph::TensorId id : graph::Outputs(original)) {
    ASSERT_GE(got[original[id].uid].size(), want.at(original[id].uid).size());
    const Status status =
        CompareOutput(original[id], Read(original[id], got), Read(original[id], want), 1e-5);
    EXPECT_TRUE(status.ok()) << status.message();
  }
}

void RunCase(const std::filesystem::path& path) {
  SCOPED_TRACE(path.string());
  const Case c = ReadCase(path);
  ASSERT_FALSE(c.lines.empty()) << "nothing is expected";
  const Result<graph::Graph> g = graph::Parse(c.graph);
  ASSERT_TRUE(g.ok()) << g.status().message();
  const Result<Target> target = TargetFromArch(c.target);
  ASSERT_TRUE(target.ok()) << target.status().message();
  Module after;
  bool seen = false;
  const Result<CompiledPlan> plan =
      Compile(*g, *target, c.choice, [&](std::string_view pass, const Module& module) {
        if (pass != c.pass) return;
        after = module;
        seen = true;
      });
  if (c.lines[0].kind == Line::Kind::kError) {
    ASSERT_FALSE(plan.ok());
    EXPECT_EQ(c.lines.size(), 1u);
    EXPECT_NE(plan.status().message().find(WithoutTrailing(c.lines[0].text)), std::string::npos)
        << plan.status().message();
    return;
  }
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  ASSERT_TRUE(seen) << "no pass is named " << c.pass;
  const bool emitted = after.form == Form::kProgram;
  Match(c, emitted ? PrintProgram(after.program) : Print(after));
  if (after.form <= Form::kGrouped) ExpectSameResults(*g, after);
}

TEST(TextTest, EveryFile) {
  std::map<std::string, int> cases;
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator("tests/text"))
    if (entry.path().extension() == ".txt") paths.push_back(entry.path());
  std::ranges::sort(paths);
  for (const auto& path : paths) {
    RunCase(path);
    ++cases[path.parent_path().filename()];
  }
  for (const Pass& pass : Pipeline())
    EXPECT_GT(cases[std::string(pass.name)], 0) << "no case for pass " << pass.name;
}

}  // namespace
}  // namespace kiln::compiler
