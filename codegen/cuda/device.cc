// Device files by name, and the choice of those that an emitted text needs: the identifiers that
// occur in it decide, so the emitter cannot forget one. The build writes device_text.inc from the
// folder device/.
#include "codegen/cuda/device.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <set>
#include <unordered_set>

#include "ir/base/check.h"

namespace kiln::cuda_codegen {
namespace {

constexpr DeviceFile kFiles[] = {
#include "codegen/cuda/device_text.inc"
};

// A file of the prelude and one name it defines.
struct PreludeRow {
  std::string_view name;
  std::string_view file;
};

constexpr PreludeRow kPrelude[] = {
    {"half_t", "half.cuh"},
    {"bf16_t", "bfloat16.cuh"},
    {"e4m3_t", "fp8_e4m3.cuh"},
    {"e5m2_t", "fp8_e5m2.cuh"},
    {"e8m0_t", "fp8_e8m0.cuh"},
    {"round_odd", "round_odd.cuh"},
    {"to_i8", "saturate.cuh"},
    {"to_u8", "saturate.cuh"},
    {"to_i32", "saturate.cuh"},
    {"to_i64", "saturate.cuh"},
    {"min_nan", "minmax.cuh"},
    {"max_nan", "minmax.cuh"},
    {"bit", "bit.cuh"},
    {"fast_div", "fast_div.cuh"},
    {"philox", "philox.cuh"},
    {"contract_sm90", "fast_div.cuh"},
    {"contract_reduced_sm90", "fast_div.cuh"},
    {"contract_full_sm90", "fast_div.cuh"},
    {"contract_phased_sm90", "fast_div.cuh"},
    {"contract_stream_sm90", "fast_div.cuh"},
    {"div_or_zero", "integer.cuh"},
    {"mod_or_zero", "integer.cuh"},
    {"after_wait", "after_wait.cuh"},
    {"copy", "copy.cuh"},
    {"shuffle_xor", "shuffle.cuh"},
    {"erf_rational", "erf.cuh"},
    {"erf_to_add", "erf_to_add.cuh"},
    {"one_over", "one_over.cuh"},
    {"mma_f16", "mma.cuh"},
    {"mma_bf16", "mma.cuh"},
    {"mma_f32", "mma.cuh"},
    {"mma_e4m3", "mma.cuh"},
    {"mma_e5m2", "mma.cuh"},
    {"mma_i8", "mma.cuh"},
    {"mma_u8", "mma.cuh"},
    {"largest_of", "half.cuh"},
    {"largest_of", "bfloat16.cuh"},
    {"largest_of", "largest.cuh"},
    {"copy_async", "copy_async.cuh"},
    {"load_matrix", "load_matrix.cuh"},
    {"load_matrix_transposed", "load_matrix.cuh"},
    {"attention_sm80", "mma.cuh"},
    {"attention_sm80", "load_matrix.cuh"},
    {"attention_sm80", "copy.cuh"},
    {"attention_sm80", "copy_async.cuh"},
    {"attention_sm80", "pairs.cuh"},
    {"attention_sm80", "panels.cuh"},
    {"attention_sm80", "fp8_e4m3.cuh"},
    {"attention_sm80", "fp8_e5m2.cuh"},
    {"attention_sm80", "eight_bits.cuh"},
    {"attention_sm80", "byte_panels.cuh"},
    {"attention_sm80", "add_largest.cuh"},
    {"attention_sm80", "philox.cuh"},
    {"attention_sm80", "attention_rows.cuh"},
    {"attention_sm80", "attention_sm80.cuh"},
    {"attention_decode_split", "mma.cuh"},
    {"attention_decode_split", "load_matrix.cuh"},
    {"attention_decode_split", "copy.cuh"},
    {"attention_decode_split", "copy_async.cuh"},
    {"attention_decode_split", "pairs.cuh"},
    {"attention_decode_split", "panels.cuh"},
    {"attention_decode_split", "fp8_e4m3.cuh"},
    {"attention_decode_split", "fp8_e5m2.cuh"},
    {"attention_decode_split", "eight_bits.cuh"},
    {"attention_decode_split", "byte_panels.cuh"},
    {"attention_decode_split", "add_largest.cuh"},
    {"attention_decode_split", "philox.cuh"},
    {"attention_decode_split", "attention_rows.cuh"},
    {"attention_decode_split", "attention_sm80.cuh"},
    {"attention_decode_split", "attention_decode.cuh"},
    {"attention_decode_combine", "mma.cuh"},
    {"attention_decode_combine", "load_matrix.cuh"},
    {"attention_decode_combine", "copy.cuh"},
    {"attention_decode_combine", "copy_async.cuh"},
    {"attention_decode_combine", "pairs.cuh"},
    {"attention_decode_combine", "panels.cuh"},
    {"attention_decode_combine", "fp8_e4m3.cuh"},
    {"attention_decode_combine", "fp8_e5m2.cuh"},
    {"attention_decode_combine", "eight_bits.cuh"},
    {"attention_decode_combine", "byte_panels.cuh"},
    {"attention_decode_combine", "add_largest.cuh"},
    {"attention_decode_combine", "philox.cuh"},
    {"attention_decode_combine", "attention_rows.cuh"},
    {"attention_decode_combine", "attention_sm80.cuh"},
    {"attention_decode_combine", "attention_decode.cuh"},
    {"add_largest_of", "add_largest.cuh"},
    {"attention_grad_sm80", "mma.cuh"},
    {"attention_grad_sm80", "load_matrix.cuh"},
    {"attention_grad_sm80", "copy.cuh"},
    {"attention_grad_sm80", "copy_async.cuh"},
    {"attention_grad_sm80", "pairs.cuh"},
    {"attention_grad_sm80", "panels.cuh"},
    {"attention_grad_sm80", "fp8_e4m3.cuh"},
    {"attention_grad_sm80", "fp8_e5m2.cuh"},
    {"attention_grad_sm80", "eight_bits.cuh"},
    {"attention_grad_sm80", "byte_panels.cuh"},
    {"attention_grad_sm80", "add_largest.cuh"},
    {"attention_grad_sm80", "philox.cuh"},
    {"attention_grad_sm80", "attention_grad_tiles.cuh"},
    {"attention_grad_sm80", "attention_grad_rows.cuh"},
    {"attention_grad_sm80", "attention_grad_sm80.cuh"},
    {"recurrence_sm80", "mma.cuh"},
    {"recurrence_sm80", "copy.cuh"},
    {"recurrence_sm80", "copy_async.cuh"},
    {"recurrence_sm80", "recurrence_shape.cuh"},
    {"recurrence_sm80", "recurrence_cells.cuh"},
    {"recurrence_sm80", "recurrence_sm80.cuh"},
    {"recurrence_projected_sm80", "mma.cuh"},
    {"recurrence_projected_sm80", "copy.cuh"},
    {"recurrence_projected_sm80", "copy_async.cuh"},
    {"recurrence_projected_sm80", "recurrence_shape.cuh"},
    {"recurrence_projected_sm80", "recurrence_cells.cuh"},
    {"recurrence_projected_sm80", "recurrence_sm80.cuh"},
    {"recurrence_projected_sm80", "recurrence_projected_sm80.cuh"},
    {"recurrence_sm90", "mma.cuh"},
    {"recurrence_sm90", "copy.cuh"},
    {"recurrence_sm90", "pairs.cuh"},
    {"recurrence_sm90", "mbarrier.cuh"},
    {"recurrence_sm90", "tma.cuh"},
    {"recurrence_sm90", "bulk.cuh"},
    {"recurrence_sm90", "wgmma.cuh"},
    {"recurrence_sm90", "recurrence_shape.cuh"},
    {"recurrence_sm90", "recurrence_cells.cuh"},
    {"recurrence_sm90", "recurrence_sm90.cuh"},
    {"attention_sm90", "pairs.cuh"},
    {"attention_sm90", "fp8_e4m3.cuh"},
    {"attention_sm90", "fp8_e5m2.cuh"},
    {"attention_sm90", "eight_bits.cuh"},
    {"attention_sm90", "mbarrier.cuh"},
    {"attention_sm90", "tma.cuh"},
    {"attention_sm90", "wgmma.cuh"},
    {"attention_sm90", "philox.cuh"},
    {"attention_sm90", "attention_rows.cuh"},
    {"attention_sm90", "attention_sm90.cuh"},
    {"attention_loaded_sm90", "mma.cuh"},
    {"attention_loaded_sm90", "copy.cuh"},
    {"attention_loaded_sm90", "copy_async.cuh"},
    {"attention_loaded_sm90", "pairs.cuh"},
    {"attention_loaded_sm90", "fp8_e4m3.cuh"},
    {"attention_loaded_sm90", "fp8_e5m2.cuh"},
    {"attention_loaded_sm90", "eight_bits.cuh"},
    {"attention_loaded_sm90", "mbarrier.cuh"},
    {"attention_loaded_sm90", "tma.cuh"},
    {"attention_loaded_sm90", "wgmma.cuh"},
    {"attention_loaded_sm90", "panels.cuh"},
    {"attention_loaded_sm90", "philox.cuh"},
    {"attention_loaded_sm90", "attention_rows.cuh"},
    {"attention_loaded_sm90", "attention_sm90.cuh"},
    {"attention_loaded_sm90", "attention_loaded_sm90.cuh"},
    {"attention_bytes_sm90", "copy.cuh"},
    {"attention_bytes_sm90", "pairs.cuh"},
    {"attention_bytes_sm90", "fp8_e4m3.cuh"},
    {"attention_bytes_sm90", "fp8_e5m2.cuh"},
    {"attention_bytes_sm90", "eight_bits.cuh"},
    {"attention_bytes_sm90", "add_largest.cuh"},
    {"attention_bytes_sm90", "mbarrier.cuh"},
    {"attention_bytes_sm90", "tma.cuh"},
    {"attention_bytes_sm90", "wgmma.cuh"},
    {"attention_bytes_sm90", "staged_rows.cuh"},
    {"attention_bytes_sm90", "philox.cuh"},
    {"attention_bytes_sm90", "attention_rows.cuh"},
    {"attention_bytes_sm90", "attention_sm90.cuh"},
    {"attention_bytes_sm90", "attention_bytes_sm90.cuh"},
    {"attention_runs_sm90", "mma.cuh"},
    {"attention_runs_sm90", "copy.cuh"},
    {"attention_runs_sm90", "copy_async.cuh"},
    {"attention_runs_sm90", "pairs.cuh"},
    {"attention_runs_sm90", "fp8_e4m3.cuh"},
    {"attention_runs_sm90", "fp8_e5m2.cuh"},
    {"attention_runs_sm90", "eight_bits.cuh"},
    {"attention_runs_sm90", "mbarrier.cuh"},
    {"attention_runs_sm90", "tma.cuh"},
    {"attention_runs_sm90", "wgmma.cuh"},
    {"attention_runs_sm90", "panels.cuh"},
    {"attention_runs_sm90", "philox.cuh"},
    {"attention_runs_sm90", "attention_rows.cuh"},
    {"attention_runs_sm90", "attention_sm90.cuh"},
    {"attention_runs_sm90", "attention_boxes_sm90.cuh"},
    {"attention_runs_sm90", "attention_runs_sm90.cuh"},
    {"attention_grad_sm90", "pairs.cuh"},
    {"attention_grad_sm90", "fp8_e4m3.cuh"},
    {"attention_grad_sm90", "fp8_e5m2.cuh"},
    {"attention_grad_sm90", "eight_bits.cuh"},
    {"attention_grad_sm90", "mbarrier.cuh"},
    {"attention_grad_sm90", "tma.cuh"},
    {"attention_grad_sm90", "wgmma.cuh"},
    {"attention_grad_sm90", "philox.cuh"},
    {"attention_grad_sm90", "attention_grad_tiles.cuh"},
    {"attention_grad_sm90", "attention_grad_rows.cuh"},
    {"attention_grad_sm90", "attention_grad_layout_sm90.cuh"},
    {"attention_grad_sm90", "attention_grad_producers_sm90.cuh"},
    {"attention_grad_sm90", "attention_grad_consumer_sm90.cuh"},
    {"attention_grad_sm90", "attention_grad_sm90.cuh"},
    {"attention_grad_bytes_sm90", "copy.cuh"},
    {"attention_grad_bytes_sm90", "pairs.cuh"},
    {"attention_grad_bytes_sm90", "fp8_e4m3.cuh"},
    {"attention_grad_bytes_sm90", "fp8_e5m2.cuh"},
    {"attention_grad_bytes_sm90", "eight_bits.cuh"},
    {"attention_grad_bytes_sm90", "add_largest.cuh"},
    {"attention_grad_bytes_sm90", "mbarrier.cuh"},
    {"attention_grad_bytes_sm90", "tma.cuh"},
    {"attention_grad_bytes_sm90", "wgmma.cuh"},
    {"attention_grad_bytes_sm90", "staged_rows.cuh"},
    {"attention_grad_bytes_sm90", "philox.cuh"},
    {"attention_grad_bytes_sm90", "attention_grad_tiles.cuh"},
    {"attention_grad_bytes_sm90", "attention_grad_rows.cuh"},
    {"attention_grad_bytes_sm90", "attention_grad_layout_sm90.cuh"},
    {"attention_grad_bytes_sm90", "attention_grad_producers_sm90.cuh"},
    {"attention_grad_bytes_sm90", "attention_grad_consumer_sm90.cuh"},
    {"attention_grad_bytes_sm90", "attention_grad_sm90.cuh"},
    {"attention_grad_bytes_sm90", "attention_grad_bytes_sm90.cuh"},
    {"attention_grad_runs_sm90", "mma.cuh"},
    {"attention_grad_runs_sm90", "copy.cuh"},
    {"attention_grad_runs_sm90", "copy_async.cuh"},
    {"attention_grad_runs_sm90", "pairs.cuh"},
    {"attention_grad_runs_sm90", "fp8_e4m3.cuh"},
    {"attention_grad_runs_sm90", "fp8_e5m2.cuh"},
    {"attention_grad_runs_sm90", "eight_bits.cuh"},
    {"attention_grad_runs_sm90", "mbarrier.cuh"},
    {"attention_grad_runs_sm90", "tma.cuh"},
    {"attention_grad_runs_sm90", "wgmma.cuh"},
    {"attention_grad_runs_sm90", "panels.cuh"},
    {"attention_grad_runs_sm90", "philox.cuh"},
    {"attention_grad_runs_sm90", "attention_grad_tiles.cuh"},
    {"attention_grad_runs_sm90", "attention_grad_rows.cuh"},
    {"attention_grad_runs_sm90", "attention_boxes_sm90.cuh"},
    {"attention_grad_runs_sm90", "attention_grad_layout_sm90.cuh"},
    {"attention_grad_runs_sm90", "attention_grad_producers_sm90.cuh"},
    {"attention_grad_runs_sm90", "attention_grad_consumer_sm90.cuh"},
    {"attention_grad_runs_sm90", "attention_grad_sm90.cuh"},
    {"attention_grad_runs_sm90", "attention_grad_runs_sm90.cuh"},
    {"contract_sm90", "pairs.cuh"},
    {"contract_sm90", "mbarrier.cuh"},
    {"contract_sm90", "tma.cuh"},
    {"contract_sm90", "wgmma.cuh"},
    {"contract_sm90", "contract_shape_sm90.cuh"},
    {"contract_sm90", "f32_operands_sm90.cuh"},
    {"contract_sm90", "contract_sm90.cuh"},
    {"conv_halo_sm90", "pairs.cuh"},
    {"conv_halo_sm90", "mbarrier.cuh"},
    {"conv_halo_sm90", "tma.cuh"},
    {"conv_halo_sm90", "wgmma.cuh"},
    {"conv_halo_sm90", "conv_halo_sm90.cuh"},
    {"conv_halo_full_sm90", "pairs.cuh"},
    {"conv_halo_full_sm90", "mbarrier.cuh"},
    {"conv_halo_full_sm90", "tma.cuh"},
    {"conv_halo_full_sm90", "wgmma.cuh"},
    {"conv_halo_full_sm90", "conv_halo_sm90.cuh"},
    {"conv_halo_full_sm90", "conv_halo_full_sm90.cuh"},
    {"conv_halo_deep_sm90", "pairs.cuh"},
    {"conv_halo_deep_sm90", "mbarrier.cuh"},
    {"conv_halo_deep_sm90", "tma.cuh"},
    {"conv_halo_deep_sm90", "wgmma.cuh"},
    {"conv_halo_deep_sm90", "conv_halo_sm90.cuh"},
    {"conv_halo_deep_sm90", "conv_halo_deep_sm90.cuh"},
    {"wgrad_halo_sm90", "pairs.cuh"},
    {"wgrad_halo_sm90", "mbarrier.cuh"},
    {"wgrad_halo_sm90", "tma.cuh"},
    {"wgrad_halo_sm90", "wgmma.cuh"},
    {"wgrad_halo_sm90", "wgrad_halo_sm90.cuh"},
    {"contract_reduced_sm90", "pairs.cuh"},
    {"contract_reduced_sm90", "mbarrier.cuh"},
    {"contract_reduced_sm90", "tma.cuh"},
    {"contract_reduced_sm90", "wgmma.cuh"},
    {"contract_reduced_sm90", "contract_shape_sm90.cuh"},
    {"contract_reduced_sm90", "f32_operands_sm90.cuh"},
    {"contract_reduced_sm90", "contract_sm90.cuh"},
    {"contract_reduced_sm90", "contract_reduced_sm90.cuh"},
    {"contract_full_sm90", "pairs.cuh"},
    {"contract_full_sm90", "mbarrier.cuh"},
    {"contract_full_sm90", "tma.cuh"},
    {"contract_full_sm90", "wgmma.cuh"},
    {"contract_full_sm90", "contract_shape_sm90.cuh"},
    {"contract_full_sm90", "f32_operands_sm90.cuh"},
    {"contract_full_sm90", "contract_sm90.cuh"},
    {"contract_full_sm90", "contract_full_sm90.cuh"},
    {"contract_phased_sm90", "pairs.cuh"},
    {"contract_phased_sm90", "mbarrier.cuh"},
    {"contract_phased_sm90", "tma.cuh"},
    {"contract_phased_sm90", "wgmma.cuh"},
    {"contract_phased_sm90", "contract_shape_sm90.cuh"},
    {"contract_phased_sm90", "f32_operands_sm90.cuh"},
    {"contract_phased_sm90", "contract_sm90.cuh"},
    {"contract_phased_sm90", "contract_phased_sm90.cuh"},
    {"contract_stream_sm90", "pairs.cuh"},
    {"contract_stream_sm90", "mbarrier.cuh"},
    {"contract_stream_sm90", "tma.cuh"},
    {"contract_stream_sm90", "wgmma.cuh"},
    {"contract_stream_sm90", "contract_shape_sm90.cuh"},
    {"contract_stream_sm90", "f32_operands_sm90.cuh"},
    {"contract_stream_sm90", "contract_sm90.cuh"},
    {"contract_stream_sm90", "contract_stream_sm90.cuh"},
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

}  // namespace

std::span<const DeviceFile> DeviceFiles() { return kFiles; }

std::string_view DeviceText(std::string_view name) {
  const auto* file = std::ranges::find(kFiles, name, &DeviceFile::name);
  CHECK(file != std::end(kFiles), "no device file is named {}", name);
  return file->text;
}

std::string PreludeFor(std::string_view code) {
  std::string out;
  const std::set<std::string_view> names = NamesIn(code);
  std::set<std::string_view> taken;
  for (const PreludeRow& row : kPrelude) {
    if (taken.contains(row.file) || !names.contains(row.name)) continue;
    out.append(DeviceText(row.file)).append("\n");
    taken.insert(row.file);
  }
  return out;
}

}  // namespace kiln::cuda_codegen
