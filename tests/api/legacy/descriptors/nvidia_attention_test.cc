// Multi-head attention's descriptors, the layout of its weights and what its calls refuse, on ours
// and on NVIDIA's libcudnn.so.9: statuses and values must be equal, or the row says why ours
// differs; a row that gives a reason and does not differ fails too. Skipped where NVIDIA's library
// is not installed. Its calls look at nothing of a handle before they have checked their arguments,
// so that any memory is one.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <climits>
#include <cmath>
#include <cstring>
#include <limits>

#include "tests/support/legacy_client.h"
#include "tests/support/nvidia_library.h"

namespace {

using Client = kiln::testing::LegacyClient;

struct Library {
  Client& client;
  cudnnHandle_t handle;
};
struct Row {
  std::string name;
  std::function<void(Library&)> run;
  const char* why_ours_differs = nullptr;
};

template <class E>
E As(int value) {
  return static_cast<E>(value);
}

// ---- sequences

struct Sequences {
  int type = CUDNN_DATA_FLOAT, rank = 4;
  std::array<int, 5> dims = {4, 3, 2, 5, 1}, axes = {0, 1, 2, 3, 0};
  std::vector<int> lengths = {1, 2, 3, 4, 1, 2};
  bool has_fill = false;
};

cudnnSeqDataDescriptor_t Set(Client& c, const Sequences& s, cudnnStatus_t& status) {
  auto d = c.New<cudnnSeqDataDescriptor_t>("SeqData");
  std::array<cudnnSeqDataAxis_t, 5> axes;
  for (size_t i = 0; i < axes.size(); ++i) axes[i] = As<cudnnSeqDataAxis_t>(s.axes[i]);
  std::array<unsigned char, 8> fill = {1, 2, 3, 4, 5, 6, 7, 8};
  status = KILN_CALL(c, cudnnSetSeqDataDescriptor, d, As<cudnnDataType_t>(s.type), s.rank,
                     s.dims.data(), axes.data(), s.lengths.size(), s.lengths.data(),
                     static_cast<void*>(s.has_fill ? fill.data() : nullptr));
  return d;
}

void Read(Client& c, cudnnSeqDataDescriptor_t d, int dims_wanted, size_t lengths_wanted) {
  cudnnDataType_t type = As<cudnnDataType_t>(77);
  int rank = 77;
  size_t count = 77;
  std::array<int, 6> dims, lengths;
  std::array<cudnnSeqDataAxis_t, 6> axes;
  std::array<unsigned char, 8> fill;
  dims.fill(-9);
  lengths.fill(-9);
  axes.fill(As<cudnnSeqDataAxis_t>(9));
  fill.fill(99);
  KILN_CALL(c, cudnnGetSeqDataDescriptor, d, &type, &rank, dims_wanted, dims.data(), axes.data(),
            &count, lengths_wanted, lengths.data(), static_cast<void*>(fill.data()));
  c.Note(std::array{static_cast<int>(type), rank, static_cast<int>(count)});
  c.Note(dims);
  c.Note(lengths);
  c.Note(fill);
  for (const cudnnSeqDataAxis_t axis : axes) c.Note(std::array{static_cast<int>(axis)});
}

Row SequenceRow(const std::string& name, const Sequences& s, const char* why = nullptr) {
  return {"sequences_" + name,
          [=](Library& l) {
            cudnnStatus_t status;
            const auto d = Set(l.client, s, status);
            if (status == CUDNN_STATUS_SUCCESS) Read(l.client, d, 4, 6);
          },
          why};
}

std::vector<Row> SequenceRows() {
  std::vector<Row> rows;
  for (int type = -1; type < 15; ++type) {
    const char* const why = type < 3 ? nullptr
                            : type == CUDNN_DATA_BFLOAT16
                                ? "9.19 has no bytes for a fill of bfloat16, which it takes"
                                : "NOT_SUPPORTED says what an INTERNAL_ERROR does not";
    rows.push_back(SequenceRow("type_" + std::to_string(type), {.type = type}, why));
  }
  for (const int rank : {-1, 0, 1, 3, 5})
    rows.push_back(SequenceRow("rank_" + std::to_string(rank), {.rank = rank}));
  rows.push_back(SequenceRow("fill", {.has_fill = true}));
  rows.push_back(SequenceRow("fill_f64", {.type = CUDNN_DATA_DOUBLE, .has_fill = true}));
  rows.push_back(SequenceRow("fill_f16", {.type = CUDNN_DATA_HALF, .has_fill = true}));
  rows.push_back(SequenceRow("time_inside", {.axes = {1, 2, 0, 3, 0}}));
  rows.push_back(SequenceRow("axis_again", {.axes = {0, 0, 2, 3, 0}}));
  rows.push_back(SequenceRow("axis_4", {.axes = {0, 1, 4, 3, 0}}));
  rows.push_back(SequenceRow("vectors_outside", {.axes = {0, 1, 3, 2, 0}}));
  for (size_t d = 0; d < 4; ++d) {
    Sequences s;
    s.dims[d] = 0;
    rows.push_back(SequenceRow("no_extent_" + std::to_string(d), s));
  }
  rows.push_back(SequenceRow("few_lengths", {.lengths = {1, 2, 3, 4, 1}}));
  rows.push_back(SequenceRow("many_lengths", {.lengths = {1, 2, 3, 4, 1, 2, 3}}));
  rows.push_back(SequenceRow("long", {.lengths = {1, 2, 3, 5, 1, 2}}));
  rows.push_back(SequenceRow("negative", {.lengths = {1, 2, 3, -1, 1, 2}}));
  rows.push_back(SequenceRow("empty", {.lengths = {1, 2, 3, 0, 1, 2}},
                             "the reference allows sequences of no step"));
  rows.push_back({"sequences_unset", [](Library& l) {
                    Read(l.client, l.client.New<cudnnSeqDataDescriptor_t>("SeqData"), 4, 6);
                  }});
  for (const int wanted : {-1, 0, 2, 4})
    rows.push_back({"sequences_wanted_" + std::to_string(wanted), [=](Library& l) {
                      cudnnStatus_t status;
                      const auto d = Set(l.client, {}, status);
                      Read(l.client, d, wanted, static_cast<size_t>(std::abs(wanted)));
                    }});
  return rows;
}

// ---- layers

struct Layer {
  unsigned mode = 0;
  int heads = 3;
  double scale = 0.5;
  int type = CUDNN_DATA_FLOAT, compute = CUDNN_DATA_FLOAT, math = 0;
  std::array<int, 3> size = {5, 5, 7};
  std::array<int, 4> projected = {3, 3, 4, 9};
  std::array<int, 4> most = {8, 9, 10, 1};  // queries, keys, batch, beam
  void *attn_dropout = nullptr, *post_dropout = nullptr;
};

cudnnStatus_t Set(Client& c, cudnnAttnDescriptor_t d, const Layer& l) {
  return KILN_CALL(c, cudnnSetAttnDescriptor, d, l.mode, l.heads, l.scale,
                   As<cudnnDataType_t>(l.type), As<cudnnDataType_t>(l.compute),
                   As<cudnnMathType_t>(l.math),
                   static_cast<cudnnDropoutDescriptor_t>(l.attn_dropout),
                   static_cast<cudnnDropoutDescriptor_t>(l.post_dropout), l.size[0], l.size[1],
                   l.size[2], l.projected[0], l.projected[1], l.projected[2], l.projected[3],
                   l.most[0], l.most[1], l.most[2], l.most[3]);
}

void Read(Client& c, cudnnAttnDescriptor_t d) {
  unsigned mode = 77;
  double scale = 77;
  std::array<int, 12> ints;
  ints.fill(77);
  auto type = As<cudnnDataType_t>(77), compute = type;
  auto math = As<cudnnMathType_t>(77);
  cudnnDropoutDescriptor_t attn = nullptr, post = nullptr;
  KILN_CALL(c, cudnnGetAttnDescriptor, d, &mode, &ints[0], &scale, &type, &compute, &math, &attn,
            &post, &ints[1], &ints[2], &ints[3], &ints[4], &ints[5], &ints[6], &ints[7], &ints[8],
            &ints[9], &ints[10], &ints[11]);
  c.Note(ints);
  c.Note(std::array{scale});
  c.Note(std::array{static_cast<int>(mode), static_cast<int>(type), static_cast<int>(compute),
                    static_cast<int>(math)});
  c.Note(std::array{reinterpret_cast<intptr_t>(attn), reinterpret_cast<intptr_t>(post)});
}

// Every kind at an address that is nobody's.
void ReadWeights(Library& l, cudnnAttnDescriptor_t d, size_t bytes, uintptr_t base = 4096) {
  for (int kind = -1; kind < 9; ++kind) {
    auto t = l.client.New<cudnnTensorDescriptor_t>("Tensor");
    KILN_CALL(l.client, cudnnSetTensor4dDescriptor, t, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 1, 2, 3,
              4);
    void* address = reinterpret_cast<void*>(7);
    KILN_CALL(l.client, cudnnGetMultiHeadAttnWeights, l.handle, d,
              As<cudnnMultiHeadAttnWeightKind_t>(kind), bytes, reinterpret_cast<const void*>(base),
              t, &address);
    std::array<int, 8> dims, strides;
    dims.fill(-9);
    strides.fill(-9);
    int rank = -1;
    cudnnDataType_t type{};
    KILN_CALL(l.client, cudnnGetTensorNdDescriptor, t, 8, &type, &rank, dims.data(),
              strides.data());
    l.client.Note(std::array{rank, static_cast<int>(type)});
    l.client.Note(dims);
    l.client.Note(strides);
    l.client.Note(std::array{reinterpret_cast<intptr_t>(address)});
  }
}

Row LayerRow(const std::string& name, const Layer& layer, const char* why = nullptr) {
  return {"layer_" + name,
          [=](Library& l) {
            auto d = l.client.New<cudnnAttnDescriptor_t>("Attn");
            if (Set(l.client, d, layer) != CUDNN_STATUS_SUCCESS) return;
            Read(l.client, d);
            ReadWeights(l, d, size_t{1} << 40);
          },
          why};
}

std::vector<Row> LayerRows() {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  std::vector<Row> rows;
  for (unsigned mode = 0; mode < 5; ++mode)
    rows.push_back(LayerRow("mode_" + std::to_string(mode), {.mode = mode}));
  rows.push_back(LayerRow("beams", {.most = {8, 9, 10, 4}}));
  rows.push_back(LayerRow("beams_one_to_one", {.mode = 1, .most = {8, 9, 10, 4}}));
  rows.push_back(LayerRow("beams_of_no_head", {.mode = 1, .heads = 0, .most = {8, 9, 10, 4}}));
  for (const int heads : {-1, 0, 1, 100})
    rows.push_back(LayerRow("heads_" + std::to_string(heads), {.heads = heads}));
  for (const double scale : {-1.0, -0.0, 0.0, 1e300, kInfinity, std::nan("")})
    rows.push_back(LayerRow("scale_" + std::to_string(scale), {.scale = scale}));
  for (int type = -1; type < 15; ++type)
    rows.push_back({"layer_types_" + std::to_string(type), [=](Library& l) {
                      auto d = l.client.New<cudnnAttnDescriptor_t>("Attn");
                      for (int compute = -1; compute < 15; ++compute)
                        Set(l.client, d, {.type = type, .compute = compute});
                      Read(l.client, d);
                    }});
  for (int math = -1; math < 5; ++math)
    rows.push_back(LayerRow("math_" + std::to_string(math), {.math = math}));
  for (size_t i = 0; i < 4; ++i) {
    Layer layer;
    layer.most[i] = 0;
    rows.push_back(LayerRow("at_most_" + std::to_string(i), layer));
    layer = {};
    layer.projected[i] = -1;
    rows.push_back(LayerRow("negative_" + std::to_string(i), layer));
    layer = {.mode = 2, .size = {3, 3, 7}};
    layer.projected[i] = 0;
    rows.push_back(LayerRow("without_" + std::to_string(i), layer));
    layer = {.mode = 2, .size = {3, 3, 7}, .projected = {}};
    layer.projected[i] = 3;
    rows.push_back(LayerRow("with_alone_" + std::to_string(i), layer));
  }
  for (size_t i = 0; i < 3; ++i) {
    Layer layer;
    layer.size[i] = 0;
    rows.push_back(LayerRow("no_size_" + std::to_string(i), layer));
  }
  rows.push_back(LayerRow("nothing_projected", {.projected = {}}));
  rows.push_back(LayerRow("widths", {.projected = {3, 4, 4, 9}}));
  rows.push_back(LayerRow("raw_widths", {.size = {4, 3, 7}, .projected = {}}));
  rows.push_back(LayerRow("one_is_raw", {.size = {4, 3, 7}, .projected = {3, 0, 4, 9}}));
  rows.push_back(LayerRow("type_before_width",
                          {.compute = CUDNN_DATA_HALF, .size = {4, 3, 7}, .projected = {}}));
  rows.push_back(LayerRow("f64", {.mode = 2, .type = 1, .compute = 1}));
  rows.push_back(LayerRow("f16", {.mode = 2, .type = 2, .compute = 2}));
  rows.push_back(LayerRow("bf16", {.mode = 2, .type = 9}));
  rows.push_back(LayerRow("dropout", {.attn_dropout = reinterpret_cast<void*>(0x50),
                                      .post_dropout = reinterpret_cast<void*>(0x60)}));
  rows.push_back({"layer_unset", [](Library& l) {
                    auto d = l.client.New<cudnnAttnDescriptor_t>("Attn");
                    Read(l.client, d);
                    ReadWeights(l, d, 0);
                  }});
  const Layer of_1320_bytes = {.mode = 2, .size = {5, 6, 7}};
  for (const size_t bytes : {size_t{0}, size_t{1319}, size_t{1320}})
    rows.push_back({"weights_of_" + std::to_string(bytes), [=](Library& l) {
                      auto d = l.client.New<cudnnAttnDescriptor_t>("Attn");
                      Set(l.client, d, of_1320_bytes);
                      ReadWeights(l, d, bytes);
                    }});
  for (const uintptr_t base : {0, 4097})
    rows.push_back({"weights_at_" + std::to_string(base), [=](Library& l) {
                      auto d = l.client.New<cudnnAttnDescriptor_t>("Attn");
                      Set(l.client, d, of_1320_bytes);
                      ReadWeights(l, d, 1320, base);
                    }});
  return rows;
}

// ---- calls that are refused

// A call's arguments; memory that nobody touches.
struct Arguments {
  std::array<Sequences, 4> sequences;  // q, k, v, o
  Layer layer = {.heads = 1, .size = {4, 4, 4}, .projected = {}, .most = {8, 8, 2, 2}};
  int step = -1;
  bool has_residual = false, has_reserve = false;
  size_t weight_bytes = size_t{1} << 30, work_bytes = size_t{1} << 30,
         reserve_bytes = size_t{1} << 30;
  int null = -1;  // a pointer by its number in RefusedRows
  int wgrad = 0;
  std::array<bool, 4> unset = {};

  Arguments() {
    for (Sequences& s : sequences) s = Of(3, 2, 1, 4);
  }
  static Sequences Of(int steps, int batch, int beam, int width) {
    Sequences s;
    s.dims = {steps, batch, beam, width, 1};
    s.axes = {1, 2, 0, 3, 0};
    s.lengths.assign(static_cast<size_t>(batch * beam), steps);
    return s;
  }
};

void* Memory(const Arguments& a, int number) {
  return a.null == number ? nullptr : reinterpret_cast<void*>(uintptr_t{0x10000});
}
const int* Device(const Arguments& a, int number) {
  return static_cast<const int*>(Memory(a, number));
}

void Call(Library& l, const Arguments& a, int which) {
  static const std::array<int, 8> lo = {}, hi = {8, 8, 8, 8, 8, 8, 8, 8};
  std::array<cudnnSeqDataDescriptor_t, 4> d;
  for (size_t i = 0; i < 4; ++i) {
    cudnnStatus_t status;
    d[i] = a.unset[i] ? l.client.New<cudnnSeqDataDescriptor_t>("SeqData")
                      : Set(l.client, a.sequences[i], status);
    if (a.null == 20 + static_cast<int>(i)) d[i] = nullptr;
  }
  auto layer = a.null == 19 ? nullptr : l.client.New<cudnnAttnDescriptor_t>("Attn");
  if (layer != nullptr) Set(l.client, layer, a.layer);
  const cudnnHandle_t handle = a.null == 18 ? nullptr : l.handle;
  const int *const from = a.null == 0 ? nullptr : lo.data(), *const to =
                                                                 a.null == 1 ? nullptr : hi.data();
  void* const reserve = a.has_reserve || which > 0 ? Memory(a, 10) : nullptr;
  const size_t reserve_bytes = a.has_reserve || which > 0 ? a.reserve_bytes : 0;
  if (which == 0)
    KILN_CALL(l.client, cudnnMultiHeadAttnForward, handle, layer, a.step, from, to, Device(a, 2),
              Device(a, 3), d[0], Memory(a, 4), a.has_residual ? Memory(a, -2) : nullptr, d[1],
              Memory(a, 5), d[2], Memory(a, 6), d[3], Memory(a, 7), a.weight_bytes, Memory(a, 8),
              a.work_bytes, Memory(a, 9), reserve_bytes, reserve);
  else if (which == 1)
    KILN_CALL(l.client, cudnnMultiHeadAttnBackwardData, handle, layer, from, to, Device(a, 2),
              Device(a, 3), d[3], Memory(a, 7), d[0], Memory(a, 11), Memory(a, 4), d[1],
              Memory(a, 12), Memory(a, 5), d[2], Memory(a, 13), Memory(a, 6), a.weight_bytes,
              Memory(a, 8), a.work_bytes, Memory(a, 9), reserve_bytes, reserve);
  else
    KILN_CALL(l.client, cudnnMultiHeadAttnBackwardWeights, handle, layer,
              As<cudnnWgradMode_t>(a.wgrad), d[0], Memory(a, 4), d[1], Memory(a, 5), d[2],
              Memory(a, 6), d[3], Memory(a, 7), a.weight_bytes, Memory(a, 8), Memory(a, 14),
              a.work_bytes, Memory(a, 9), reserve_bytes, reserve);
}

constexpr const char* kFunctions[] = {"forward_", "data_", "weights_"};

// Adds rows with the same spoiled arguments for each of the functions that `which` names.
void Add(std::vector<Row>& rows, const std::string& name, const Arguments& a,
         std::initializer_list<int> which = {0, 1, 2}, const char* why = nullptr) {
  for (const int function : which)
    rows.push_back({kFunctions[function] + name, [=](Library& l) { Call(l, a, function); }, why});
}

void AddNulls(std::vector<Row>& rows) {
  const auto null = [&](const char* name, int number, std::initializer_list<int> which) {
    Arguments a;
    a.null = number;
    Add(rows, std::string("no_") + name, a, which);
  };
  null("handle", 18, {0, 1, 2});
  null("layer", 19, {0, 1, 2});
  for (const int number : {0, 1, 2, 3}) null("lookups", number, {0, 1});
  for (const int number : {4, 5, 6, 7, 20, 21, 22, 23}) null("sequences", number, {0, 1, 2});
  for (const int number : {11, 12, 13}) null("gradients", number, {1});
  null("work", 9, {0});
  null("reserve", 10, {1, 2});
}

std::vector<Row> RefusedRows() {
  std::vector<Row> rows;
  AddNulls(rows);
  const auto with = [](auto&& change) {
    Arguments a;
    change(a);
    return a;
  };
  for (size_t i = 0; i < 4; ++i) {
    const std::string of = std::to_string(i);
    Add(rows, "unset_" + of, with([&](Arguments& a) { a.unset[i] = true; }));
    Add(rows, "axes_" + of, with([&](Arguments& a) { a.sequences[i].axes = {0, 1, 2, 3, 0}; }));
    Add(rows, "lengths_" + of, with([&](Arguments& a) { a.sequences[i].lengths = {2, 3}; }));
    Add(rows, "width_" + of,
        with([&](Arguments& a) { a.sequences[i] = Arguments::Of(3, 2, 1, 5); }));
    Add(rows, "batch_" + of,
        with([&](Arguments& a) { a.sequences[i] = Arguments::Of(3, 1, 1, 4); }));
    Add(rows, "steps_" + of,
        with([&](Arguments& a) { a.sequences[i] = Arguments::Of(2, 2, 1, 4); }));
    Add(rows, "beam_" + of,
        with([&](Arguments& a) { a.sequences[i] = Arguments::Of(3, 2, 2, 4); }));
  }
  Add(rows, "many_steps",
      with([](Arguments& a) { a.sequences[0] = a.sequences[3] = Arguments::Of(9, 2, 1, 4); }));
  Add(rows, "many_keys",
      with([](Arguments& a) { a.sequences[1] = a.sequences[2] = Arguments::Of(9, 2, 1, 4); }));
  Add(rows, "large_batch", with([](Arguments& a) {
        for (Sequences& s : a.sequences) s = Arguments::Of(3, 3, 1, 4);
      }));
  Add(rows, "beams_of_keys", with([](Arguments& a) {
        for (Sequences& s : a.sequences) s = Arguments::Of(3, 2, 2, 4);
      }));
  Add(rows, "step_3", with([](Arguments& a) { a.step = 3; }), {0});
  Add(rows, "step_in_training", with([](Arguments& a) {
        a.step = 0;
        a.has_reserve = true;
      }),
      {0});
  Add(rows, "small_work", with([](Arguments& a) { a.work_bytes = 1; }), {0});
  Add(rows, "small_reserve", with([](Arguments& a) {
        a.has_reserve = true;
        a.reserve_bytes = 1;
      }));
  Add(rows, "no_reserve", with([](Arguments& a) {
        a.has_reserve = true;
        a.null = 10;
      }),
      {0});
  Add(rows, "reserve_of_0", with([](Arguments& a) {
        a.has_reserve = true;
        a.reserve_bytes = 0;
      }));
  Add(rows, "small_weights", with([](Arguments& a) {
        a.layer.projected = {4, 4, 4, 4};
        a.weight_bytes = 255;
      }));
  Add(rows, "no_weights", with([](Arguments& a) {
        a.layer.projected = {4, 4, 4, 4};
        a.null = 8;
      }));
  Add(rows, "no_weight_gradients", with([](Arguments& a) {
        a.layer.projected = {4, 4, 4, 4};
        a.null = 14;
      }),
      {2});
  Add(rows, "residual", with([](Arguments& a) {
        a.has_residual = true;
        a.layer.heads = 2;
        a.sequences[3] = Arguments::Of(3, 2, 1, 8);
      }),
      {0});
  for (const int mode : {-1, 2})
    Add(rows, "mode_" + std::to_string(mode), with([=](Arguments& a) { a.wgrad = mode; }), {2});
  return rows;
}

// ---- both

// The text of what a library did, in a process of its own: it may crash.
std::string Transcript(void* library, const Row& row, cudnnHandle_t handle) {
  int ends[2];
  if (pipe(ends) != 0) return "no pipe";
  const pid_t child = fork();
  if (child == 0) {
    Client client(library);
    Library l = {client, handle};
    row.run(l);
    const std::string& text = client.transcript();
    if (write(ends[1], text.data(), text.size()) < 0) _exit(1);
    _exit(0);
  }
  close(ends[1]);
  std::string text;
  char part[4096];
  for (ssize_t n; (n = read(ends[0], part, sizeof part)) > 0;)
    text.append(part, static_cast<size_t>(n));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? text : "crashed";
}

TEST(NvidiaAttention, BothDoTheSameOrTheReasonIsKnown) {
  const std::string path = kiln::testing::NvidiaLibraryPath("");
  if (path.empty()) GTEST_SKIP() << "NVIDIA's cuDNN 9.19 is not installed";
  kiln::testing::LoadPartsBeside(path);
  void* const theirs = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(theirs, nullptr) << dlerror();
  void* const ours = dlopen("api/libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(ours, nullptr) << dlerror();
  Client client(ours);
  cudnnHandle_t handle = nullptr;
  ASSERT_EQ(KILN_CALL(client, cudnnCreate, &handle), CUDNN_STATUS_SUCCESS);
  std::vector<char> memory(1 << 16);
  size_t compared = 0;
  for (const auto& rows : {SequenceRows(), LayerRows(), RefusedRows()})
    for (const Row& row : rows) {
      const std::string is = Transcript(ours, row, handle),
                        should =
                            Transcript(theirs, row, reinterpret_cast<cudnnHandle_t>(memory.data()));
      ++compared;
      if (row.why_ours_differs == nullptr)
        EXPECT_EQ(is, should) << row.name;
      else
        EXPECT_NE(is, should) << row.name << ": " << row.why_ours_differs;
    }
  EXPECT_GT(compared, 200u);
  KILN_CALL(client, cudnnDestroy, handle);
}

}  // namespace
