// Attention and its gradients, spelled out as clients do, beside NVIDIA's cuDNN.
//
//   attention --out attention.json [--commit HASH] [--filter backward] [--nvidia
//   libcudnn.so.9|none]
//
// Each graph runs at small extents against the oracle first. Then our first plan (or the one that
// --plan counts from) and NVIDIA's first are timed in turns, on bf16 numbers from -1 to 1; the
// median over the rounds counts. The last lines are geometric means of NVIDIA's time over ours.
#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <map>

#include "bench/case_time.h"

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
  // Of k or v: summed over the heads that share it.
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

// The same graph at extents that the oracle manages.
Shape SmallOf(const Shape& s, bool backward) {
  const bool shares = s.heads != s.key_heads && !backward;
  return {1, 2, shares ? 1 : 2, 70, s.depth, s.causal, s.window > 0 ? 20 : 0};
}

struct Row {
  std::string name, error, nvidia_error;
  double flops = 0;
  Timing ours, nvidia;
  double ratio() const { return ours.median > 0 ? nvidia.median / ours.median : 0; }
};

double FlopsOf(const Shape& s, bool backward) {
  const auto n = static_cast<double>(s.length), w = static_cast<double>(s.window);
  const double places = s.window > 0 ? w * (n - w / 2) : s.causal ? n * n / 2 : n * n;
  return (backward ? 10 : 4) * static_cast<double>(s.batch * s.heads * s.depth) * places;
}

class Attention {
 public:
  Attention(testing::GpuDevice& device, const Cudnn& ours, const Cudnn* nvidia,
            const Options& options)
      : device_(device), ours_(ours), nvidia_(nvidia), options_(options), rounds_(device, ours) {}

  Row Measure(const Shape& shape, bool backward) {
    const auto text = [&](const Shape& s) { return backward ? Backward(s, false) : Forward(s); };
    Row row{.name = NameOf(shape, backward), .flops = FlopsOf(shape, backward)};
    const Case large = ParseOrExit(("large: " + text(shape)).c_str());
    const Shape less = SmallOf(shape, backward);
    const Case small = ParseOrExit(("small: " + text(less)).c_str());
    const Case checked =
        ParseOrExit(("small: " + (backward ? Backward(less, true) : Forward(less))).c_str());
    row.error = CheckNumbers(ours_, device_, small);
    if (!row.error.empty()) return row;
    const auto ours = CaseBench::Make(ours_, large, &row.error, options_.plan);
    if (!ours) return row;
    const auto theirs =
        nvidia_ ? CaseBench::MakeForNvidia(*nvidia_, device_, large, checked, &row.nvidia_error)
                : nullptr;
    const int64_t workspace =
        std::max(ours->workspace_bytes(), theirs ? theirs->workspace_bytes() : 0);
    const LargeMemory memory(device_, large, workspace, Fill::kRandom);
    if (!memory.ok()) return row.error = "device memory is out", row;
    row.error = ours->Bind(memory.pack());
    if (theirs) row.nvidia_error = theirs->Bind(memory.pack());
    if (!row.error.empty()) return row;
    std::vector<Rounds::Entry> entries = {{.launch = [&] { return ours->Launch(); }}};
    if (theirs) entries.push_back({.launch = [&] { return theirs->Launch(); }});
    row.error = rounds_.Run(entries, options_.repeats);
    if (entries[0].status != CUDNN_STATUS_SUCCESS) row.error = ours->Describe(entries[0].status);
    row.ours = Summarise(entries[0].times);
    if (!theirs) return row;
    if (entries[1].status != CUDNN_STATUS_SUCCESS)
      row.nvidia_error = theirs->Describe(entries[1].status);
    else
      row.nvidia = Summarise(entries[1].times);
    return row;
  }

 private:
  testing::GpuDevice& device_;
  const Cudnn& ours_;
  const Cudnn* nvidia_;
  const Options& options_;
  Rounds rounds_;
};

void Print(const Row& row) {
  if (!row.error.empty())
    return void(std::printf("%-40s %s\n", row.name.c_str(), row.error.c_str()));
  const std::string theirs =
      row.nvidia.median > 0
          ? fmt::format("{:8.1f} us, ratio {:.3f}", row.nvidia.median, row.ratio())
          : row.nvidia_error.substr(0, row.nvidia_error.find('\n'));
  std::printf("%-40s %8.1f us %6.1f TFLOP/s   NVIDIA %s\n", row.name.c_str(), row.ours.median,
              row.flops / row.ours.median * 1e-6, theirs.c_str());
  std::fflush(stdout);
}

std::string Json(const Row& row) {
  return fmt::format(
      "    {{\"name\": {}, \"flops\": {:.0f}, \"error\": {}, \"kiln\": {}, \"nvidia\": {}, "
      "\"nvidia_error\": {}}}",
      JsonText(row.name), row.flops, JsonText(row.error), Json(row.ours), Json(row.nvidia),
      JsonText(row.nvidia_error));
}

int Main(int argc, char** argv) {
  const Options options = Options::Parse(argc, argv);
  std::string error;
  const auto device = testing::OpenGpuDevice(&error);
  if (!device) return std::fprintf(stderr, "%s\n", error.c_str()), 2;
  std::string no_nvidia = "not found";
  std::unique_ptr<Cudnn> nvidia;
  if (!options.nvidia.empty()) nvidia = Cudnn::Open(options.nvidia, device->stream(), &no_nvidia);
  const auto ours = Cudnn::Open(options.cudnn, device->stream(), &error);
  if (!ours)
    return std::fprintf(stderr, "library '%s': %s\n", options.cudnn.c_str(), error.c_str()), 2;
  std::printf("%s, ours %s, NVIDIA's %s\n", device->name().c_str(), options.cudnn.c_str(),
              nvidia ? options.nvidia.c_str() : no_nvidia.c_str());
  Attention attention(*device, *ours, nvidia.get(), options);
  std::string rows;
  bool failed = false;
  for (const bool backward : {false, true}) {
    double logs = 0, least = 0;
    int count = 0;
    for (const Shape& shape : kShapes) {
      if (NameOf(shape, backward).find(options.filter) == std::string::npos) continue;
      const Row row = attention.Measure(shape, backward);
      Print(row);
      failed |= !row.error.empty();
      rows += (rows.empty() ? "" : ",\n") + Json(row);
      if (row.ratio() <= 0) continue;
      logs += std::log(row.ratio());
      least = count++ == 0 ? row.ratio() : std::min(least, row.ratio());
    }
    if (count > 0)
      std::printf("%s: geometric mean %.3f, least %.3f of %d\n", backward ? "backward" : "forward",
                  std::exp(logs / count), least, count);
  }
  const size_t version = nvidia ? nvidia->version() : 0;
  if (!WriteResults(options, "attention", device->name(), version, rows)) return 2;
  return failed;
}

}  // namespace
}  // namespace kiln::bench

int main(int argc, char** argv) { return kiln::bench::Main(argc, argv); }
