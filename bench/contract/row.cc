// Results as JSON and as text.
#include "bench/contract/row.h"

#include <fmt/format.h>

#include "bench/support/case_bench.h"

namespace kiln::bench {
namespace {

std::string Json(const Timing& t) {
  if (t.median <= 0) return "null";
  return fmt::format(R"({{"median_us": {:.3f}, "p10_us": {:.3f}, "p90_us": {:.3f}}})", t.median,
                     t.p10, t.p90);
}

std::string Json(const SideResult& side) {
  return fmt::format(
      R"({{"first": {}, "best": {}, "config": {}, "offered": {}, "plans": {}, "timed": {}, "error": {}}})",
      Json(side.first), Json(side.best), JsonText(side.best_label), side.offered, side.plans,
      side.timed, JsonText(side.error));
}

std::string Shorten(const std::string& text, size_t most) {
  return text.size() <= most ? text : text.substr(0, most) + "…";
}

std::string Microseconds(const SideResult& side) {
  if (side.best.median <= 0) return "-";
  return fmt::format("{:.1f}/{:.1f}", side.first.median, side.best.median);
}

}  // namespace

std::string ToJson(const Problem& problem, const Row& row) {
  return fmt::format(
      R"({{"section": {}, "name": {}, "graph": {}, "flops": {:.0f}, "bytes": {}, "floor_us": {:.3f}, )"
      R"("roof_tflops": {:.0f}, "wrong": {}, "note": {}, "fault": {}, "oracle": {}, )"
      R"("kiln": {}, "nvidia": {}, "cublas": {}}})",
      JsonText(problem.section()), JsonText(problem.graph.name), JsonText(problem.graph.text),
      problem.flops, problem.bytes, problem.FloorMicroseconds(), problem.flops_per_second * 1e-12,
      JsonText(row.wrong), JsonText(row.note), JsonText(row.fault),
      row.has_oracle ? "true" : "false", Json(row.kiln), Json(row.nvidia), Json(row.blas));
}

std::string LostRow(const Problem& problem, const std::string& why) {
  Row row;
  row.fault = why;
  row.kiln.error = row.nvidia.error = row.blas.error = why;
  return ToJson(problem, row);
}

std::string ToText(const Problem& problem, const Row& row) {
  std::string text =
      fmt::format("{:<44} floor {:8.1f}  ours {:>15}  NVIDIA {:>15}", problem.Name(),
                  problem.FloorMicroseconds(), Microseconds(row.kiln), Microseconds(row.nvidia));
  const double ours = row.kiln.best.median, theirs = row.nvidia.best.median;
  if (ours > 0 && theirs > 0) text += fmt::format("  ratio {:.2f}", theirs / ours);
  if (ours > 0) text += fmt::format("  of floor {:.2f}", problem.FloorMicroseconds() / ours);
  if (row.blas.best.median > 0) {
    text += fmt::format("  cuBLAS {:.1f}", row.blas.best.median);
    if (ours > 0) text += fmt::format(" ratio {:.2f}", row.blas.best.median / ours);
  }
  if (!row.wrong.empty()) text += "  WRONG: " + row.wrong;
  if (ours <= 0) text += "  ours: " + Shorten(row.kiln.error, 160);
  if (theirs <= 0 && !row.nvidia.error.empty())
    text += "  NVIDIA: " + Shorten(row.nvidia.error, 100);
  if (!row.note.empty()) text += "  note: " + Shorten(row.note, 160);
  if (!row.fault.empty()) text += "  LOST: " + row.fault;
  return text;
}

}  // namespace kiln::bench
