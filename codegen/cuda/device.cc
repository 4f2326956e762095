// Device files by name, and the choice of those that an emitted text needs: the identifiers that
// occur in it decide, so the emitter cannot forget one, and each file brings what it includes.
// codegen/cuda/device_text.py writes device_text.inc from the folder device/.
#include "codegen/cuda/device.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <set>
#include <unordered_set>

#include "ir/base/check.h"

namespace kiln::cuda_codegen {
namespace {

// Literals that know their lengths: clang gives up counting letters of a megabyte as it compiles.
using namespace std::string_view_literals;

#include "codegen/cuda/device_text.inc"

// A name that kernels call or declare things by, and the file that has it.
struct PreludeRow {
  std::string_view name;
  std::string_view file;
};

constexpr PreludeRow kPrelude[] = {
    {"half_t", "numbers/half.cuh"},
    {"bf16_t", "numbers/bfloat16.cuh"},
    {"e4m3_t", "numbers/fp8_e4m3.cuh"},
    {"e5m2_t", "numbers/fp8_e5m2.cuh"},
    {"e8m0_t", "numbers/fp8_e8m0.cuh"},
    {"round_odd", "numbers/round_odd.cuh"},
    {"to_i8", "numbers/saturate.cuh"},
    {"to_u8", "numbers/saturate.cuh"},
    {"to_i32", "numbers/saturate.cuh"},
    {"to_i64", "numbers/saturate.cuh"},
    {"min_nan", "numbers/minmax.cuh"},
    {"max_nan", "numbers/minmax.cuh"},
    {"bit", "numbers/bit.cuh"},
    {"fast_div", "numbers/fast_div.cuh"},
    {"philox", "numbers/philox.cuh"},
    {"contract_sm90", "contract/contract_sm90.cuh"},
    {"contract_reduced_sm90", "contract/contract_reduced_sm90.cuh"},
    {"contract_full_sm90", "contract/contract_full_sm90.cuh"},
    {"contract_phased_sm90", "contract/contract_phased_sm90.cuh"},
    {"contract_stream_sm90", "contract/contract_stream_sm90.cuh"},
    {"contract_grouped_sm90", "contract/contract_grouped_sm90.cuh"},
    {"div_or_zero", "numbers/integer.cuh"},
    {"mod_or_zero", "numbers/integer.cuh"},
    {"after_wait", "ptx/after_wait.cuh"},
    {"copy", "ptx/copy.cuh"},
    {"shuffle_xor", "ptx/shuffle.cuh"},
    {"erf_rational", "numbers/erf.cuh"},
    {"erf_to_add", "numbers/erf_to_add.cuh"},
    {"one_over", "numbers/one_over.cuh"},
    {"mma_f16", "ptx/mma.cuh"},
    {"mma_bf16", "ptx/mma.cuh"},
    {"mma_f32", "ptx/mma.cuh"},
    {"mma_e4m3", "ptx/mma.cuh"},
    {"mma_e5m2", "ptx/mma.cuh"},
    {"mma_i8", "ptx/mma.cuh"},
    {"mma_u8", "ptx/mma.cuh"},
    {"largest_of", "numbers/largest.cuh"},
    {"copy_async", "ptx/copy_async.cuh"},
    {"load_matrix", "ptx/load_matrix.cuh"},
    {"load_matrix_transposed", "ptx/load_matrix.cuh"},
    {"attention_sm80", "attention/attention_sm80.cuh"},
    {"attention_decode_split", "attention/attention_decode.cuh"},
    {"attention_decode_combine", "attention/attention_decode.cuh"},
    {"add_largest_of", "numbers/add_largest.cuh"},
    {"attention_grad_sm80", "attention/attention_grad_sm80.cuh"},
    {"recurrence_sm80", "recurrence/recurrence_sm80.cuh"},
    {"recurrence_projected_sm80", "recurrence/recurrence_projected_sm80.cuh"},
    {"recurrence_step_cells", "recurrence/recurrence_step_cells.cuh"},
    {"recurrence_stack_sm80", "recurrence/recurrence_stack_sm80.cuh"},
    {"recurrence_sm90", "recurrence/recurrence_sm90.cuh"},
    {"attention_sm90", "attention/attention_sm90.cuh"},
    {"attention_loaded_sm90", "attention/attention_loaded_sm90.cuh"},
    {"attention_bytes_sm90", "attention/attention_bytes_sm90.cuh"},
    {"attention_runs_sm90", "attention/attention_runs_sm90.cuh"},
    {"attention_grad_sm90", "attention/attention_grad_sm90.cuh"},
    {"attention_grad_bytes_sm90", "attention/attention_grad_bytes_sm90.cuh"},
    {"attention_grad_runs_sm90", "attention/attention_grad_runs_sm90.cuh"},
    {"conv_halo_sm90", "conv/conv_halo_sm90.cuh"},
    {"conv_halo_full_sm90", "conv/conv_halo_full_sm90.cuh"},
    {"conv_halo_deep_sm90", "conv/conv_halo_deep_sm90.cuh"},
    {"wgrad_halo_sm90", "conv/wgrad_halo_sm90.cuh"},
    {"peer_reduce", "peers/peer_reduce.cuh"},
    {"peer_wait", "peers/peer_wait.cuh"},
    {"peer_signal", "peers/peer_signal.cuh"},
};

bool IsWordChar(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// The names of the table that occur in the text.
std::set<std::string_view> NamesIn(std::string_view code) {
  static const auto* const kNames = [] {
    auto* const names = new std::unordered_set<std::string_view>;
    for (const PreludeRow& row : kPrelude) names->insert(row.name);
    return names;
  }();
  std::set<std::string_view> found;
  for (size_t at = 0; at < code.size();) {
    size_t end = at;
    while (end < code.size() && IsWordChar(code[end])) ++end;
    const std::string_view word = code.substr(at, end - at);
    if (kNames->contains(word)) found.insert(word);
    at = end + 1;
  }
  return found;
}

const DeviceFile& FileOf(std::string_view name) {
  const auto* file = std::ranges::find(kFiles, name, &DeviceFile::name);
  CHECK(file != std::end(kFiles), "no device file is named {}", name);
  return *file;
}

}  // namespace

std::span<const DeviceFile> DeviceFiles() { return kFiles; }

std::string_view DeviceText(std::string_view name) { return FileOf(name).text; }

std::string PreludeFor(std::string_view code) {
  const std::set<std::string_view> names = NamesIn(code);
  std::set<int> files;  // by place in kFiles, where a file stands behind those that it needs
  for (const PreludeRow& row : kPrelude)
    if (names.contains(row.name)) {
      const std::span<const int> needs = FileOf(row.file).needs;
      files.insert(needs.begin(), needs.end());
    }
  std::string out;
  for (const int file : files) out.append(kFiles[file].text).append("\n");
  return out;
}

}  // namespace kiln::cuda_codegen
