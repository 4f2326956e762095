// Attention of one query over many keys, in memory as they are or behind page tables, beside
// NVIDIA's cuDNN and beside a copy of as many bytes.
//
//   decode --out decode.json [--commit HASH] [--filter p16_k32768] [--nvidia libcudnn.so.9|none]
//
// Each graph runs at small extents against the oracle first, then at its own, where some heads of
// the result are compared with sums in f64. Then our plan, a copy of k to v, which moves as many
// bytes as k and v have, and NVIDIA's plan are timed in turns; the median over the rounds counts.
// Pages lie in memory in random order.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <random>

#include "bench/support/case_time.h"

namespace kiln::bench {
namespace {

namespace oracle = kiln::oracle;

constexpr size_t kNumbers = size_t{1} << 21;  // that operands repeat
constexpr uint32_t kSeeds[] = {1, 2, 3};      // of q, k and v
constexpr double kMostBytes = 60e9;           // of a GPU that has 80 GB

struct Shape {
  int64_t page, keys, batch, heads, key_heads, depth;  // page: 0 where there is no table
  const char* type;
  int64_t pages() const { return page == 0 ? 0 : (keys + page - 1) / page; }
  int64_t places() const { return page == 0 ? keys : page; }
  int64_t blocks() const { return page == 0 ? batch : batch * pages(); }
  double bytes() const {
    return 2.0 * 2 * static_cast<double>(blocks() * key_heads * places() * depth);
  }
  std::string Name() const {
    return fmt::format("p{}_k{}_b{}_h{}x{}_d{}_{}", page, keys, batch, heads, key_heads, depth,
                       type);
  }
};

std::string Text(const Shape& s) {
  const std::string of_keys =
      fmt::format("{}[{},{},{},{}]", s.type, s.blocks(), s.key_heads, s.places(), s.depth);
  const std::string lengths = s.page == 0
                                  ? ""
                                  : fmt::format(
                                        ", lq:i32[{0},1,1,1]!ones, lk:i32[{0},1,1,1]!many, "
                                        "tk:i32[{0},1,{1},1]!zeros, tv:i32[{0},1,{1},1]!zeros",
                                        s.batch, s.pages());
  return fmt::format(
      "decode: sdpa_fwd(q:{0}[{1},{2},1,{3}], k:{4}, v:{4}, s:f32[1,1,1,1]={5}{6}) -> "
      "o:{0}[{1},{2},1,{3}]",
      s.type, s.batch, s.heads, s.depth, of_keys, 1 / std::sqrt(static_cast<double>(s.depth)),
      lengths);
}

Shape SmallOf(Shape s) {
  s.batch = 2;
  s.keys = s.page == 0 ? 150 : std::max<int64_t>(2 * s.page, 64);
  return s;
}

std::vector<Shape> Shapes(const std::string& filter) {
  std::vector<Shape> all;
  for (const char* type : {"f16", "bf16"})
    for (const int64_t depth : {128, 64})
      for (const auto& [heads, key_heads] : {std::pair{32, 8}, {8, 1}})
        for (const int64_t batch : {1, 8, 64})
          for (const int64_t keys : {4096, 32768, 131072})
            for (const int64_t page : {0, 1, 16, 64, 128}) {
              const Shape s{page, keys, batch, heads, key_heads, depth, type};
              if (s.bytes() < kMostBytes && s.Name().find(filter) != std::string::npos)
                all.push_back(s);
            }
  return all;
}

const testing::CaseTensor& TensorOf(const Case& c, std::string_view name) {
  return *std::ranges::find(c.tensors, name, &testing::CaseTensor::name);
}

// The case's tensors with numbers that are known on the host.
class Inputs {
 public:
  Inputs(testing::GpuDevice& device, const Case& c, const Shape& s, const LargeMemory& memory)
      : device_(device), c_(c), s_(s), memory_(memory), table_(s.batch * s.pages()) {
    const char* const names[] = {"q", "k", "v"};
    for (size_t i = 0; i < std::size(names); ++i) {
      const auto& t = TensorOf(c, names[i]);
      const auto bytes = static_cast<size_t>(oracle::Count(t.dims)) * 2;
      FillWithRandom(device, t.dtype, At(names[i]), bytes, {.seed = kSeeds[i]});
    }
    const auto& o = TensorOf(c, "o");
    device.FillAsync(At("o"), 0xff, static_cast<size_t>(oracle::Count(o.dims)) * 2);
    if (s.page == 0) return;
    std::iota(table_.begin(), table_.end(), 0);
    std::ranges::shuffle(table_, std::mt19937(7));
    for (const char* table : {"tk", "tv"})
      device.CopyIn(At(table), table_.data(), table_.size() * sizeof(int32_t));
    const std::vector<int32_t> ones(static_cast<size_t>(s.batch), 1),
        lengths(static_cast<size_t>(s.batch), static_cast<int32_t>(s.keys));
    device.CopyIn(At("lq"), ones.data(), ones.size() * sizeof(int32_t));
    device.CopyIn(At("lk"), lengths.data(), lengths.size() * sizeof(int32_t));
  }

  uint8_t* At(std::string_view name) const {
    const auto& uids = memory_.pack().uids;
    const auto at = std::ranges::find(uids, TensorOf(c_, name).uid) - uids.begin();
    return static_cast<uint8_t*>(memory_.pack().pointers[static_cast<size_t>(at)]);
  }

  // Compares some heads with f64; returns what is wrong.
  std::string Check() const {
    const oracle::DType type = TensorOf(c_, "q").dtype;
    const double unit = std::string_view(s_.type) == "f16" ? 0x1p-10 : 0x1p-7;
    const std::vector<double> q = Numbers(0), k = Numbers(1), v = Numbers(2);
    std::vector<uint8_t> o(static_cast<size_t>(s_.batch * s_.heads * s_.depth) * 2);
    device_.CopyOut(o.data(), At("o"), o.size());
    for (const int64_t head : {int64_t{0}, s_.batch * s_.heads / 2 + 1, s_.batch * s_.heads - 1}) {
      const auto [sums, sizes] = Attend(head, q, k, v);
      for (int64_t d = 0; d < s_.depth; ++d) {
        const double got = oracle::Decode(type, o.data() + (head * s_.depth + d) * 2),
                     want = sums[d];
        // Weights and the result are rounded once each, scores are sums in f32.
        if (!(std::abs(got - want) <= 1.5 * unit * sizes[d]))
          return fmt::format("head {} column {}: {} instead of {}", head, d, got, want);
      }
    }
    return "";
  }

 private:
  std::vector<double> Numbers(int which) const {
    std::vector<double> numbers(kNumbers);
    std::mt19937 random(kSeeds[which]);
    std::uniform_real_distribution<double> uniform(-1, 1);
    const oracle::DType type = TensorOf(c_, "q").dtype;
    for (double& x : numbers) {
      uint8_t bytes[8];
      oracle::Encode(type, uniform(random), bytes);
      x = oracle::Decode(type, bytes);
    }
    return numbers;
  }
  // The element where key number j of a head begins.
  int64_t RowOf(int64_t batch, int64_t head, int64_t j) const {
    const int64_t block =
        s_.page == 0 ? batch : table_[static_cast<size_t>(batch * s_.pages() + j / s_.page)];
    const int64_t place = s_.page == 0 ? j : j % s_.page;
    return ((block * s_.key_heads + head) * s_.places() + place) * s_.depth;
  }
  // A row of the result, and the same of magnitudes.
  std::pair<std::vector<double>, std::vector<double>> Attend(int64_t head,
                                                             const std::vector<double>& q,
                                                             const std::vector<double>& k,
                                                             const std::vector<double>& v) const {
    const int64_t batch = head / s_.heads, key_head = head % s_.heads * s_.key_heads / s_.heads;
    const auto depth = static_cast<size_t>(s_.depth);
    std::vector<double> sums(depth), sizes(depth);
    double total = 0;
    const float scale = static_cast<float>(1 / std::sqrt(static_cast<double>(s_.depth)));
    for (int64_t j = 0; j < s_.keys; ++j) {
      const auto row = static_cast<size_t>(RowOf(batch, key_head, j));
      double score = 0;
      for (size_t d = 0; d < depth; ++d)
        score += q[(static_cast<size_t>(head) * depth + d) % kNumbers] * k[(row + d) % kNumbers];
      const double weight = std::exp(score * scale);  // scores are small
      total += weight;
      for (size_t d = 0; d < depth; ++d) {
        sums[d] += weight * v[(row + d) % kNumbers];
        sizes[d] += weight * std::abs(v[(row + d) % kNumbers]);
      }
    }
    for (size_t d = 0; d < depth; ++d) sums[d] /= total, sizes[d] /= total;
    return {sums, sizes};
  }

  testing::GpuDevice& device_;
  const Case& c_;
  const Shape& s_;
  const LargeMemory& memory_;
  std::vector<int32_t> table_;
};

struct Row {
  std::string name, error, nvidia_error;
  double bytes = 0;
  Timing ours, copy, nvidia;
};

Row Measure(const Libraries& libraries, Rounds& rounds, const Options& options, const Shape& s) {
  Row row{.name = s.Name(), .error = {}, .nvidia_error = {}, .bytes = s.bytes()};
  testing::GpuDevice& device = *libraries.device;
  const Case large = ParseOrExit(Text(s).c_str()), small = ParseOrExit(Text(SmallOf(s)).c_str());
  row.error = CheckNumbers(*libraries.ours, device, small);
  if (!row.error.empty()) return row;
  const auto ours = CaseBench::Make(*libraries.ours, large, &row.error, options.plan);
  if (!ours) return row;
  const auto theirs = libraries.nvidia ? CaseBench::MakeForNvidia(*libraries.nvidia, device, large,
                                                                  small, &row.nvidia_error)
                                       : nullptr;
  const LargeMemory memory(
      device, large,
      std::max(ours->workspace_bytes(), theirs ? theirs->workspace_bytes() : int64_t{0}));
  if (!memory.ok()) return row.error = "device memory is out", row;
  const Inputs inputs(device, large, s, memory);
  row.error = ours->Bind(memory.pack());
  if (theirs) row.nvidia_error = theirs->Bind(memory.pack());
  if (!row.error.empty()) return row;
  ours->Launch();
  row.error = device.Synchronize();
  if (row.error.empty()) row.error = inputs.Check();
  if (!row.error.empty()) return row;
  uint8_t *const from = inputs.At("k"), *const to = inputs.At("v");
  std::vector<Rounds::Entry> entries = {{.launch = [&] { return ours->Launch(); }}, {.launch = [&] {
                                          device.CopyAsync(to, from,
                                                           static_cast<size_t>(s.bytes() / 2));
                                          return CUDNN_STATUS_SUCCESS;
                                        }}};
  if (theirs) entries.push_back({.launch = [&] { return theirs->Launch(); }});
  row.error = rounds.Run(entries, options.repeats);
  row.ours = Summarise(entries[0].times);
  row.copy = Summarise(entries[1].times);
  if (theirs) row.nvidia = Summarise(entries[2].times);
  return row;
}

void Print(const Row& row) {
  if (!row.error.empty())
    return void(std::printf("%-36s %s\n", row.name.c_str(), row.error.c_str()));
  const std::string theirs = row.nvidia.median > 0
                                 ? fmt::format("{:9.1f} us, ratio {:.3f}", row.nvidia.median,
                                               row.nvidia.median / row.ours.median)
                                 : row.nvidia_error.substr(0, row.nvidia_error.find('\n'));
  std::printf("%-36s %9.1f us %7.1f GB/s, of a copy %.3f   NVIDIA %s\n", row.name.c_str(),
              row.ours.median, row.bytes / row.ours.median * 1e-3,
              row.copy.median / row.ours.median, theirs.c_str());
  std::fflush(stdout);
}

std::string Json(const Row& row) {
  return fmt::format(
      "    {{\"name\": {}, \"bytes\": {:.0f}, \"error\": {}, \"kiln\": {}, \"copy\": {}, "
      "\"nvidia\": {}, \"nvidia_error\": {}}}",
      JsonText(row.name), row.bytes, JsonText(row.error), Json(row.ours), Json(row.copy),
      Json(row.nvidia), JsonText(row.nvidia_error));
}

int Main(int argc, char** argv) {
  const Options options = Options::Parse(argc, argv);
  const auto libraries = Libraries::Open(options);
  if (!libraries) return 2;
  Rounds rounds(*libraries->device, *libraries->ours);
  std::string rows;
  bool failed = false;
  for (const Shape& s : Shapes(options.filter)) {
    const Row row = Measure(*libraries, rounds, options, s);
    Print(row);
    failed |= !row.error.empty();
    rows += (rows.empty() ? "" : ",\n") + Json(row);
    if (!WriteResults(options, "decode", libraries->device->name(), libraries->nvidia_version(),
                      rows))
      return 2;
  }
  return failed;
}

}  // namespace
}  // namespace kiln::bench

int main(int argc, char** argv) { return kiln::bench::Main(argc, argv); }
