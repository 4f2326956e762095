// Attention and its gradients, spelled out as clients do, beside NVIDIA's cuDNN.
//
//   attention --out attention.json [--commit HASH] [--filter backward] [--nvidia
//   libcudnn.so.9|none]
//
// Each graph runs at small extents against the oracle first. Then our first plan (or the one that
// --plan counts from, or that of the engine that --engine names by its global index) and NVIDIA's
// first are timed in turns, on bf16 numbers from -1 to 1; the median over the rounds counts. The
// last lines are geometric means of NVIDIA's time over ours.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>

#include "bench/support/case_time.h"

namespace kiln::bench {
namespace {

struct Shape {
  int64_t batch, heads, key_heads, length, depth;
  bool causal = false;
  int64_t window = 0;  // keys that a query sees, with those after it hidden; 0: all
};

constexpr Shape kShapes[] = {
    {4, 32, 32, 4096, 128},      {4, 32, 32, 4096, 128, true}, {8, 32, 32, 2048, 64},
    {8, 32, 32, 2048, 64, true}, {1, 64, 8, 8192, 128},        {1, 64, 8, 8192, 128, true},
    {2, 64, 8, 4096, 64},        {2, 64, 8, 4096, 64, true},   {2, 64, 8, 4096, 64, true, 1024},
};

std::string NameOf(const Shape& s, bool backward) {
  const std::string mask = s.window > 0 ? fmt::format("window{}", s.window)
                           : s.causal   ? "causal"
                                        : "full";
  return fmt::format("{}_{}x{}/{}x{}x{}_{}", backward ? "backward" : "forward", s.batch, s.heads,
                     s.key_heads, s.length, s.depth, mask);
}

// From `score` to the scores that a row sees; returns the name of the last tensor.
std::string Masks(const Shape& s, std::string score, std::string& text) {
  if (!s.causal) return score;
  text += fmt::format(
      "gen_index({0}) -> %i:i32 axis=2; gen_index({0}) -> %j:i32 axis=3; cmp_ge(%i, %j) -> "
      "%m:bool; binary_select({0}, n:f32[1,1,1,1]=-inf, %m) -> %seen:f32; ",
      score);
  if (s.window == 0) return "%seen";
  text += fmt::format(
      "add(%j, w:i32[1,1,1,1]={}) -> %w:i32; cmp_gt(%w, %i) -> %near:bool; binary_select(%seen, n, "
      "%near) -> %last:f32; ",
      s.window);
  return "%last";
}

std::string Forward(const Shape& s) {
  const std::string q = fmt::format("{},{},{}", s.batch, s.heads, s.length);
  const std::string k = fmt::format("{},{}", s.batch, s.key_heads);
  std::string text = fmt::format(
      "matmul(q:bf16[{},{}], k:bf16[{},{},{}]@p0132) -> %s:f32; mul(%s, "
      "c:f32[1,1,1,1]={}) -> %t:f32; ",
      q, s.depth, k, s.depth, s.length, 1 / std::sqrt(static_cast<double>(s.depth)));
  const std::string x = Masks(s, "%t", text);
  return text + fmt::format(
                    "reduce_max({0}) -> %a:f32[{1},1]; sub({0}, %a) -> %d:f32; exp(%d) -> %e:f32; "
                    "reduce_add(%e) -> %l:f32[{1},1]; log(%l) -> %g:f32; add(%a, %g) -> stats:f32; "
                    "div(%e, %l) -> %p:bf16; matmul(%p, v:bf16[{2},{3},{4}]) -> y:bf16",
                    x, q, k, s.length, s.depth);
}

// NVIDIA's library leaves what it likes in `sums`, which it takes for its own; `direct` has none.
std::string Backward(const Shape& s, bool direct) {
  const std::string q = fmt::format("{},{},{}", s.batch, s.heads, s.length);
  const std::string k = fmt::format("{},{}", s.batch, s.key_heads);
  const std::string scores = fmt::format("bf16[{},{}]@p0132", q, s.length);
  // Gradient of k or v: summed over the heads that share it.
  const auto shared = [&](const std::string& left, const std::string& right,
                          const std::string& name) {
    if (s.heads == s.key_heads)
      return fmt::format("matmul({}, {}) -> {}:bf16; ", left, right, name);
    return fmt::format("matmul({}, {}) -> %{}:f32; reduce_add(%{}) -> {}:bf16[{},{},{}]; ", left,
                       right, name, name, name, k, s.length, s.depth);
  };
  std::string text = fmt::format(
      "mul(g:bf16[{0},{1}], o:bf16[{0},{1}]) -> %u:f32; reduce_add(%u) -> %r:f32[{0},1]; mul(%r, "
      "e:f32[1,1,1,1]=1) -> delta:f32; matmul(q:bf16[{0},{1}], k:bf16[{2},{1},{3}]@p0132) -> "
      "%s:f32; mul(%s, c:f32[1,1,1,1]={4}) -> %t:f32; sub(%t, l:f32[{0},1]) -> %x:f32; ",
      q, s.depth, k, s.length, 1 / std::sqrt(static_cast<double>(s.depth)));
  const std::string x = Masks(s, "%x", text);
  text += fmt::format("exp({}) -> %p:f32; reshape(%p) -> %pt:{}; ", x, scores);
  text += shared("%pt", "g", "dv");
  text += fmt::format(
      "matmul(g, v:bf16[{},{},{}]@p0132) -> %z:f32; sub(%z, delta) -> %y:f32; mul(%y, %p) -> "
      "%b:f32; mul(%b, c) -> %ds:f32; reshape(%ds) -> %dt:{}; ",
      k, s.depth, s.length, scores);
  text += shared("%dt", "q", "dk");
  return text + fmt::format("reshape(k) -> %kk:f32[{},{},{}]; matmul(%ds, %kk) -> {}", k, s.length,
                            s.depth, direct ? "dq:bf16" : "sums:f32; identity(sums) -> dq:bf16");
}

// The shape of a smaller graph of the same kind, at extents that the oracle manages.
Shape SmallOf(const Shape& s, bool backward) {
  const bool shares = s.heads != s.key_heads && !backward;
  return {1, 2, shares ? 1 : 2, 70, s.depth, s.causal, s.window > 0 ? 20 : 0};
}

struct Row {
  std::string name;
  double flops = 0;
  Comparison::Times times;
  double ratio() const {
    return times.ours.median > 0 ? times.nvidia.median / times.ours.median : 0;
  }
};

double FlopsOf(const Shape& s, bool backward) {
  const auto n = static_cast<double>(s.length), w = static_cast<double>(s.window);
  const double places = s.window > 0 ? w * (n - w / 2) : s.causal ? n * n / 2 : n * n;
  return (backward ? 10 : 4) * static_cast<double>(s.batch * s.heads * s.depth) * places;
}

Row Measure(Comparison& comparison, const Shape& shape, bool backward) {
  const Shape less = SmallOf(shape, backward);
  const auto parsed = [&](const char* name, const Shape& s, bool direct) {
    const std::string text = backward ? Backward(s, direct) : Forward(s);
    return ParseOrExit(fmt::format("{}: {}", name, text).c_str());
  };
  const Case large = parsed("large", shape, false), small = parsed("small", less, false),
             direct = parsed("small", less, true);
  return {.name = NameOf(shape, backward),
          .flops = FlopsOf(shape, backward),
          .times = comparison.Measure(
              {.large = large, .small = small, .for_nvidia = direct, .fill = Fill::kRandom})};
}

void Print(const Row& row) {
  if (!row.times.error.empty())
    return void(std::printf("%-40s %s\n", row.name.c_str(), row.times.error.c_str()));
  const std::string theirs =
      row.times.nvidia.median > 0
          ? fmt::format("{:8.1f} us, ratio {:.3f}", row.times.nvidia.median, row.ratio())
          : row.times.nvidia_error.substr(0, row.times.nvidia_error.find('\n'));
  std::printf("%-40s %8.1f us %6.1f TFLOP/s   NVIDIA %s\n", row.name.c_str(), row.times.ours.median,
              row.flops / row.times.ours.median * 1e-6, theirs.c_str());
  std::fflush(stdout);
}

std::string Json(const Row& row) {
  return fmt::format(
      "    {{\"name\": {}, \"flops\": {:.0f}, \"error\": {}, \"kiln\": {}, \"nvidia\": {}, "
      "\"nvidia_error\": {}}}",
      JsonText(row.name), row.flops, JsonText(row.times.error), Json(row.times.ours),
      Json(row.times.nvidia), JsonText(row.times.nvidia_error));
}

int Main(int argc, char** argv) {
  const Options options = Options::Parse(argc, argv);
  const auto libraries = Libraries::Open(options);
  if (!libraries) return 2;
  Comparison comparison(*libraries, options);
  std::string rows;
  const auto write = [&] {
    return WriteResults(options, "attention", libraries->device->name(),
                        libraries->nvidia_version(), rows);
  };
  if (!write()) return 2;
  bool failed = false;
  for (const bool backward : {false, true}) {
    double logs = 0, least = 0;
    int count = 0;
    for (const Shape& shape : kShapes) {
      if (NameOf(shape, backward).find(options.filter) == std::string::npos) continue;
      const Row row = Measure(comparison, shape, backward);
      Print(row);
      failed |= !row.times.error.empty();
      rows += (rows.empty() ? "" : ",\n") + Json(row);
      if (!write()) return 2;
      if (row.ratio() <= 0) continue;
      logs += std::log(row.ratio());
      least = count++ == 0 ? row.ratio() : std::min(least, row.ratio());
    }
    if (count > 0)
      std::printf("%s: geometric mean %.3f, least %.3f of %d\n", backward ? "backward" : "forward",
                  std::exp(logs / count), least, count);
  }
  return failed;
}

}  // namespace
}  // namespace kiln::bench

int main(int argc, char** argv) { return kiln::bench::Main(argc, argv); }
