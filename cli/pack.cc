// kiln pack build|list|verify|merge|explain: kernels compiled ahead, in files.
#include "runtime/cache/pack.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>

#include "cli/commands.h"
#include "cli/console.h"
#include "cli/cubin.h"
#include "cli/graph_file.h"
#include "cli/pack_build.h"
#include "cli/pack_plans.h"
#include "cli/units.h"
#include "runtime/cuda/cuda_compiler.h"

namespace kiln::cli {
namespace {

using runtime::Pack;
using runtime::PackedKernel;

constexpr const char* kFooter =
    "A pack is a file of compiled kernels: a program that finds its kernels there waits for no\n"
    "compiler and needs none. The library looks in its cache, then in packs (KILN_PACKS, then\n"
    "share/kiln/packs beside the library), then compiles. docs/packs.md has more.\n"
    "\n"
    "Examples:\n"
    "  kiln pack build captured/ -o net.pack --arch sm_90a --jobs 8\n"
    "  kiln pack build resnet.kiln -o resnet.pack --arch sm_80 --batch 1,16,64,256\n"
    "  kiln pack merge -o all.pack net.pack resnet.pack\n"
    "  kiln pack verify all.pack               status 1 if a byte is not as it was written\n"
    "  kiln pack explain all.pack graph.kiln   which of its kernels are there, and why others are\n"
    "                                          not; status 1 if any is not\n"
    "  KILN_PACKS=all.pack python3 train.py";

constexpr const char* kBuildFooter =
    "A LIST is as in `kiln tune`: a graph, a folder of graphs (what KILN_CAPTURE=FOLDER wrote), a\n"
    "file *.txt whose lines name graphs, a file of recorded graphs *.jsonl; or a network, *.kiln\n"
    "with several graphs. Plans are those that the library makes, by models and tuning records, "
    "on\n"
    "every board of the architecture that Kiln knows. Needs NVRTC and no GPU. Kernels are kept in\n"
    "FILE.partial until the pack is written, so that a build that was stopped goes on where it\n"
    "was. The same lists, records, NVRTC and libzstd give the same bytes.";

struct ExplainOptions {
  std::string file;
  PackPlanOptions plans;
};

Status List(const std::string& file) {
  ASSIGN_OR_RETURN(const Pack pack, Pack::Open(file));
  std::vector<PackedKernel> kernels(pack.kernels().begin(), pack.kernels().end());
  std::ranges::sort(kernels, {}, [](const PackedKernel& k) { return std::pair(k.arch, k.entry); });
  int64_t cubin_bytes = 0;
  for (const PackedKernel& kernel : kernels) {
    cubin_bytes += kernel.cubin_bytes;
    PrintOut("{:<8}  {:>10}  {:>10} compressed  {}\n", kernel.arch, BytesText(kernel.cubin_bytes),
             BytesText(kernel.frame_bytes), kernel.entry);
  }
  std::map<std::string_view, int> compilers;
  for (const PackedKernel& kernel : kernels) ++compilers[kernel.compiler];
  for (const auto& [compiler, count] : compilers) PrintOut("{} kernels by {}\n", count, compiler);
  PrintOut("{} kernels, {} of code, {} in {}\n", kernels.size(), BytesText(cubin_bytes),
           BytesText(pack.file_bytes()), file);
  return {};
}

// Why a kernel is of no use, or success.
Status CheckKernel(const Pack& pack, const PackedKernel& kernel) {
  ASSIGN_OR_RETURN(const std::string cubin, pack.Read(kernel));
  return CheckCubin(cubin, kernel.arch).Within(fmt::format("kernel {}", kernel.entry));
}

Result<bool> Verify(const std::vector<std::string>& files) {
  bool is_sound = true;
  for (const std::string& file : files) {
    const Result<Pack> pack = Pack::Open(file);
    if (!pack.ok()) {
      PrintOut("{}\n", pack.status().message());
      is_sound = false;
      continue;
    }
    size_t damaged = 0;
    for (const PackedKernel& kernel : pack->kernels()) {
      const Status status = CheckKernel(*pack, kernel);
      if (status.ok()) continue;
      ++damaged;
      PrintOut("{}\n", status.message());
    }
    PrintOut("{}: {} kernels are sound, {} are not\n", file, pack->kernels().size() - damaged,
             damaged);
    is_sound = is_sound && damaged == 0;
  }
  return is_sound;
}

Status Merge(const std::string& output, const std::vector<std::string>& inputs) {
  std::vector<runtime::PackItem> items;
  for (const std::string& input : inputs) {
    ASSIGN_OR_RETURN(const Pack pack, Pack::Open(input));
    for (const PackedKernel& kernel : pack.kernels()) {
      ASSIGN_OR_RETURN(runtime::PackItem item, runtime::TakePackItem(pack, kernel));
      items.push_back(std::move(item));
    }
  }
  ASSIGN_OR_RETURN(const std::string bytes, runtime::MakePack(std::move(items)));
  RETURN_IF_ERROR(WritePack(output, bytes));
  ASSIGN_OR_RETURN(const Pack merged, Pack::Open(output));
  PrintOut("{} kernels, {} in {}\n", merged.kernels().size(), BytesText(merged.file_bytes()),
           output);
  return {};
}

// Why the pack does not have the kernel, from what it has beside.
std::string WhyMissing(const Pack& pack, const KernelSource& kernel) {
  std::string others;
  bool has_arch = false;
  for (const PackedKernel& there : pack.kernels()) {
    has_arch = has_arch || there.arch == kernel.arch;
    if (there.entry != kernel.entry) continue;
    if (there.arch == kernel.arch)
      return "the pack has one of that name with other compiler options, by another build of Kiln";
    others += fmt::format("{}{}", others.empty() ? "" : ", ", there.arch);
  }
  if (!others.empty()) return fmt::format("the pack has it for {} alone", others);
  if (!has_arch) return fmt::format("the pack has nothing for {}", kernel.arch);
  return "its text is no kernel's of the pack: another graph's, choice's or build's";
}

// Without graphs, what the pack is for; with them, whether each of their kernels is in it.
Result<bool> Explain(ExplainOptions options) {
  ASSIGN_OR_RETURN(const Pack pack, Pack::Open(options.file));
  std::map<std::string_view, std::pair<int, int64_t>> archs;
  for (const PackedKernel& kernel : pack.kernels()) {
    auto& [count, bytes] = archs[kernel.arch];
    ++count;
    bytes += kernel.frame_bytes;
  }
  for (const auto& [arch, about] : archs)
    PrintOut("{}: {} kernels for {}, {}\n", options.file, about.first, arch,
             BytesText(about.second));
  if (options.plans.lists.empty()) return true;
  if (options.plans.archs.empty() && options.plans.boards.empty())
    for (const auto& [arch, about] : archs) options.plans.archs.emplace_back(arch);
  ASSIGN_OR_RETURN(const PackPlans plans, PlanForPack(options.plans, [](size_t, size_t) {}));
  for (const std::string& refusal : plans.refused) PrintOut("left out: {}\n", refusal);
  size_t missing = 0;
  for (const KernelSource& kernel : plans.kernels) {
    const PackedKernel* const there =
        pack.Find(runtime::PackKey(runtime::CubinRequest(kernel, /*compiler=*/"")));
    missing += there == nullptr;
    PrintOut("{:<8}  {}  {}\n", kernel.arch, kernel.entry,
             there != nullptr ? fmt::format("there, by {}", there->compiler)
                              : "missing: " + WhyMissing(pack, kernel));
  }
  PrintOut("{} kernels of {} graphs are there, {} are missing\n", plans.kernels.size() - missing,
           plans.graphs - plans.refused.size(), missing);
  return missing == 0;
}

// The outcome of a command that checks: status 1 where it did not hold.
void Finish(const Result<bool>& outcome, int& exit_status) {
  exit_status = !outcome.ok() ? Fail(outcome.status()) : *outcome ? kExitOk : kExitFailed;
}

void AddBuild(CLI::App& pack, int& exit_status) {
  auto options = std::make_shared<PackBuildOptions>();
  CLI::App* command = pack.add_subcommand("build", "compile all kernels that graphs need");
  command->add_option("LIST", options->plans.lists, "graphs; see below")->required();
  command->add_option("-o,--output", options->output, "the pack")->type_name("FILE")->required();
  options->plans.AddTo(*command);
  command->footer(kBuildFooter);
  command->callback([options, &exit_status] {
    if (const Status status = BuildPack(*options); !status.ok()) exit_status = Fail(status);
  });
}

void AddMerge(CLI::App& pack, int& exit_status) {
  auto output = std::make_shared<std::string>();
  auto inputs = std::make_shared<std::vector<std::string>>();
  CLI::App* command = pack.add_subcommand("merge", "a pack of all kernels of several");
  command->add_option("FILE", *inputs, "packs")->required();
  command->add_option("-o,--output", *output, "the new pack")->type_name("FILE")->required();
  command->callback([output, inputs, &exit_status] {
    if (const Status status = Merge(*output, *inputs); !status.ok()) exit_status = Fail(status);
  });
}

void AddExplainPack(CLI::App& pack, int& exit_status) {
  auto options = std::make_shared<ExplainOptions>();
  CLI::App* command =
      pack.add_subcommand("explain", "which kernels of graphs a pack has, and why not the others");
  command->add_option("FILE", options->file, "the pack")->required();
  command->add_option("LIST", options->plans.lists, "graphs, as `kiln pack build` takes them");
  options->plans.AddTo(*command);
  command->callback([options, &exit_status] { Finish(Explain(*options), exit_status); });
}

}  // namespace

void AddPack(CLI::App& app, int& exit_status) {
  CLI::App* command =
      app.add_subcommand("pack", "kernels compiled ahead: build, list, verify, merge, explain");
  command->footer(kFooter);
  command->require_subcommand(1);
  AddBuild(*command, exit_status);
  auto file = std::make_shared<std::string>();
  CLI::App* list = command->add_subcommand("list", "every kernel, with its size");
  list->add_option("FILE", *file, "the pack")->required();
  list->callback([file, &exit_status] {
    if (const Status status = List(*file); !status.ok()) exit_status = Fail(status);
  });
  auto files = std::make_shared<std::vector<std::string>>();
  CLI::App* verify = command->add_subcommand("verify", "read every kernel; status 1 for damage");
  verify->add_option("FILE", *files, "packs")->required();
  verify->callback([files, &exit_status] { Finish(Verify(*files), exit_status); });
  AddMerge(*command, exit_status);
  AddExplainPack(*command, exit_status);
}

}  // namespace kiln::cli
