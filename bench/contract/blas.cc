// Row-major c[M,N] = a b is column-major cᵀ[N,M] = bᵀ aᵀ: b is cuBLAS's first operand.
#include "bench/contract/blas.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <glob.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <optional>

namespace kiln::bench {
namespace {

using oracle::DType;
using testing::Case;
using testing::CaseOp;
using testing::CaseTensor;

// Enumerators of cublasLt.h, cublas_api.h and library_types.h.
enum : int {
  kDescTransA = 3,
  kDescTransB = 4,
  kDescEpilogue = 7,
  kDescBiasPointer = 8,
  kDescScaleA = 17,
  kDescScaleB = 18,
  kDescScaleD = 20,
  kDescBiasType = 26,
  kLayoutBatchCount = 5,
  kLayoutBatchStride = 6,
  kPreferenceWorkspace = 1,
  kEpilogueBias = 4,
  kEpilogueReluBias = 6,
  kEpilogueGeluBias = 36,
  kCompute32F = 68,
  kCompute32I = 72,
  kComputeTf32 = 77,
  kR32F = 0,
  kR32I = 10,
};

std::optional<int> CudaType(DType type) {
  switch (type) {
    case DType::kF32:
      return kR32F;
    case DType::kF16:
      return 2;
    case DType::kBF16:
      return 14;
    case DType::kI8:
      return 3;
    case DType::kI32:
      return kR32I;
    case DType::kE4M3:
      return 28;
    case DType::kE5M2:
      return 29;
    default:
      return std::nullopt;
  }
}

struct HeuristicResult {  // cublasLtMatmulHeuristicResult_t
  std::array<uint64_t, 8> algorithm;
  size_t workspace_bytes;
  int status;
  float waves;
  std::array<int, 4> reserved;
};

// A problem as cuBLAS can express it.
struct Product {
  int a = -1, b = -1, c = -1;  // tensors
  std::vector<int> scales;     // of a and b, then of c
  int bias = -1;
  int epilogue = 0;
};

bool IsScalar(const CaseTensor& tensor) { return oracle::Count(tensor.dims) == 1; }

// Empty with the reason where the graph is more than cuBLAS has.
std::optional<Product> ProductOf(const Case& c, std::string* why) {
  const auto refuse = [&](const char* text) { return *why = text, std::nullopt; };
  const CaseOp& matmul = c.ops[0];
  if (matmul.name != "matmul" || matmul.inputs.size() != 2) return refuse("not a plain matmul");
  Product product{.a = matmul.inputs[0], .b = matmul.inputs[1], .c = matmul.outputs[0]};
  for (size_t i = 1; i < c.ops.size(); ++i) {
    const CaseOp& op = c.ops[i];
    const auto tensor = [&](int index) { return c.tensors[static_cast<size_t>(index)]; };
    if (op.inputs[0] != product.c || !tensor(product.c).is_virtual) return refuse("not a chain");
    product.c = op.outputs[0];
    if (op.name == "mul" && IsScalar(tensor(op.inputs[1])) && product.bias < 0) {
      product.scales.push_back(op.inputs[1]);
    } else if (op.name == "add" && product.bias < 0 && product.scales.empty() &&
               oracle::Count(tensor(op.inputs[1]).dims) == tensor(op.inputs[1]).dims.back()) {
      product.bias = op.inputs[1];
      product.epilogue = kEpilogueBias;
    } else if (op.name == "relu_fwd" && product.epilogue == kEpilogueBias) {
      product.epilogue = kEpilogueReluBias;
    } else if (op.name == "gelu_approx_tanh_fwd" && product.epilogue == kEpilogueBias) {
      product.epilogue = kEpilogueGeluBias;
    } else {
      return refuse("cuBLAS has no such epilogue");
    }
  }
  const bool is_fp8 = oracle::Row(c.tensors[static_cast<size_t>(product.a)].dtype).bytes == 1;
  if (!product.scales.empty() && (!is_fp8 || product.scales.size() > 3))
    return refuse("cuBLAS has scales for fp8 alone");
  return product;
}

// Places where a toolkit or Python's packages put it.
std::vector<std::string> Places(const std::string& named, const std::string& near) {
  if (!named.empty()) return {named};
  std::vector<std::string> places;
  const auto folder = std::filesystem::path(near).parent_path();
  const auto package = folder.parent_path().parent_path();  // …/nvidia of …/nvidia/cudnn/lib
  for (const char* soname : {"libcublasLt.so.13", "libcublasLt.so.12"}) {
    for (const char* inside : {"cu13/lib", "cublas/lib"})
      places.push_back((package / inside / soname).string());
    places.push_back((folder / soname).string());
    places.emplace_back(soname);
    glob_t found{};
    if (glob((std::string("/usr/local/cuda*/lib64/") + soname).c_str(), 0, nullptr, &found) == 0)
      places.insert(places.end(), found.gl_pathv, found.gl_pathv + found.gl_pathc);
    globfree(&found);
  }
  return places;
}

std::string Failed(const char* call, int status) {
  return fmt::format("{}: cuBLAS status {}", call, status);
}

}  // namespace

struct Blas::Functions {
  int (*Create)(void**);
  int (*Destroy)(void*);
  size_t (*GetVersion)();
  int (*DescCreate)(void**, int, int);
  int (*DescDestroy)(void*);
  int (*DescSet)(void*, int, const void*, size_t);
  int (*LayoutCreate)(void**, int, uint64_t, uint64_t, int64_t);
  int (*LayoutDestroy)(void*);
  int (*LayoutSet)(void*, int, const void*, size_t);
  int (*PreferenceCreate)(void**);
  int (*PreferenceDestroy)(void*);
  int (*PreferenceSet)(void*, int, const void*, size_t);
  int (*Heuristic)(void*, void*, void*, void*, void*, void*, void*, int, HeuristicResult*, int*);
  int (*Matmul)(void*, void*, const void*, const void*, void*, const void*, void*, const void*,
                const void*, void*, void*, void*, const void*, void*, size_t, void*);
};

// One problem's descriptors. Operand 0 is b, operand 1 is a.
struct Blas::Call {
  explicit Call(const Functions& functions) : lt(functions) {}
  ~Call() {
    if (desc != nullptr) lt.DescDestroy(desc);
    for (void* layout : layouts) {
      if (layout != nullptr) lt.LayoutDestroy(layout);
    }
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  std::string Describe(const Problem& problem, const ProblemMemory& memory, const Product& p);
  std::string MakeLayout(size_t slot, const CaseTensor& tensor, int type, bool* transposed);

  const Functions& lt;
  void* desc = nullptr;
  std::array<void*, 4> layouts{};  // b, a, c as it is read, c as it is written
  const void *first = nullptr, *second = nullptr;
  void* out = nullptr;
  bool is_integer = false;
  std::vector<HeuristicResult> results;
};

// A row-major matrix [R, C] is column-major [C, R]; one with its columns innermost is [R, C]
// transposed.
std::string Blas::Call::MakeLayout(size_t slot, const CaseTensor& tensor, int type,
                                   bool* transposed) {
  const size_t rank = tensor.dims.size();
  int64_t rows = tensor.dims[rank - 2], columns = tensor.dims[rank - 1];
  *transposed = tensor.strides[rank - 1] != 1;
  if (!*transposed) std::swap(rows, columns);
  if (int status = lt.LayoutCreate(&layouts[slot], type, static_cast<uint64_t>(rows),
                                   static_cast<uint64_t>(columns), rows))
    return Failed("cublasLtMatrixLayoutCreate", status);
  const int batches = static_cast<int>(oracle::Count(tensor.dims) / (rows * columns));
  const int64_t stride = rows * columns;
  if (batches == 1) return "";
  lt.LayoutSet(layouts[slot], kLayoutBatchCount, &batches, sizeof(batches));
  lt.LayoutSet(layouts[slot], kLayoutBatchStride, &stride, sizeof(stride));
  return "";
}

std::string Blas::Call::Describe(const Problem& problem, const ProblemMemory& memory,
                                 const Product& p) {
  const auto tensor = [&](int index) -> const CaseTensor& {
    return problem.graph.tensors[static_cast<size_t>(index)];
  };
  const auto a = CudaType(tensor(p.a).dtype), b = CudaType(tensor(p.b).dtype),
             c = CudaType(tensor(p.c).dtype);
  if (!a || !b || !c) return "cuBLAS has no such data type";
  is_integer = tensor(p.a).dtype == DType::kI8;
  const bool tf32 = tensor(p.a).dtype == DType::kF32 && !problem.keeps_f32;
  const int compute = is_integer ? kCompute32I : tf32 ? kComputeTf32 : kCompute32F;
  if (int status = lt.DescCreate(&desc, compute, is_integer ? kR32I : kR32F))
    return Failed("cublasLtMatmulDescCreate", status);
  // fp8 results have no fp8 addend.
  const bool fp8_out = oracle::Row(tensor(p.c).dtype).bytes == 1 && !is_integer;
  bool trans_b = false, trans_a = false, trans_c = false;
  for (const auto& [slot, index, type, transposed] : {std::tuple{0, p.b, *b, &trans_b},
                                                      {1, p.a, *a, &trans_a},
                                                      {2, p.c, fp8_out ? 14 : *c, &trans_c},
                                                      {3, p.c, *c, &trans_c}}) {
    std::string error = MakeLayout(static_cast<size_t>(slot), tensor(index), type, transposed);
    if (!error.empty()) return error;
  }
  if (trans_c) return "c is not row-major";
  const auto set = [&](int attribute, const auto& value) {
    lt.DescSet(desc, attribute, &value, sizeof(value));
  };
  set(kDescTransA, static_cast<int>(trans_b));
  set(kDescTransB, static_cast<int>(trans_a));
  if (p.bias >= 0) {
    set(kDescEpilogue, p.epilogue);
    set(kDescBiasPointer, memory.TensorAt(p.bias));
    set(kDescBiasType, CudaType(tensor(p.bias).dtype).value_or(kR32F));
  }
  constexpr std::array kScales = {kDescScaleA, kDescScaleB, kDescScaleD};
  for (size_t i = 0; i < p.scales.size(); ++i) set(kScales[i], memory.TensorAt(p.scales[i]));
  first = memory.TensorAt(p.b);
  second = memory.TensorAt(p.a);
  out = memory.TensorAt(p.c);
  return "";
}

Blas::Blas() : lt_(std::make_unique<Functions>()) {}

Blas::~Blas() {
  call_.reset();
  if (handle_ != nullptr) lt_->Destroy(handle_);
}

size_t Blas::version() const { return lt_->GetVersion(); }

std::unique_ptr<Blas> Blas::Open(const std::string& named, const std::string& near,
                                 std::string* error) {
  void* library = nullptr;
  std::unique_ptr<Blas> blas(new Blas);
  for (const std::string& place : Places(named, near)) {
    library = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) continue;
    blas->path_ = place;
    break;
  }
  if (library == nullptr) return *error = "libcublasLt was not found", nullptr;
  Functions& f = *blas->lt_;
  const auto slot = [](auto& function) { return reinterpret_cast<void**>(&function); };
  const std::pair<const char*, void**> symbols[] = {
      {"cublasLtCreate", slot(f.Create)},
      {"cublasLtDestroy", slot(f.Destroy)},
      {"cublasLtGetVersion", slot(f.GetVersion)},
      {"cublasLtMatmulDescCreate", slot(f.DescCreate)},
      {"cublasLtMatmulDescDestroy", slot(f.DescDestroy)},
      {"cublasLtMatmulDescSetAttribute", slot(f.DescSet)},
      {"cublasLtMatrixLayoutCreate", slot(f.LayoutCreate)},
      {"cublasLtMatrixLayoutDestroy", slot(f.LayoutDestroy)},
      {"cublasLtMatrixLayoutSetAttribute", slot(f.LayoutSet)},
      {"cublasLtMatmulPreferenceCreate", slot(f.PreferenceCreate)},
      {"cublasLtMatmulPreferenceDestroy", slot(f.PreferenceDestroy)},
      {"cublasLtMatmulPreferenceSetAttribute", slot(f.PreferenceSet)},
      {"cublasLtMatmulAlgoGetHeuristic", slot(f.Heuristic)},
      {"cublasLtMatmul", slot(f.Matmul)}};
  for (const auto& [name, function] : symbols) {
    *function = dlsym(library, name);
    if (*function == nullptr)
      return *error = fmt::format("{} does not export {}", blas->path_, name), nullptr;
  }
  if (int status = f.Create(&blas->handle_)) {
    blas->handle_ = nullptr;
    return *error = Failed("cublasLtCreate", status), nullptr;
  }
  return blas;
}

std::vector<Blas::Algorithm> Blas::Algorithms(const Problem& problem, const ProblemMemory& memory,
                                              void* workspace, size_t workspace_bytes, void* stream,
                                              std::string* refusal) {
  call_.reset();
  const auto product = ProductOf(problem.graph, refusal);
  if (!product) return {};
  call_ = std::make_unique<Call>(*lt_);
  Call& call = *call_;
  *refusal = call.Describe(problem, memory, *product);
  if (!refusal->empty()) return {};
  void* preference = nullptr;
  lt_->PreferenceCreate(&preference);
  lt_->PreferenceSet(preference, kPreferenceWorkspace, &workspace_bytes, sizeof(workspace_bytes));
  constexpr int kMost = 8;
  call.results.resize(kMost);
  int found = 0;
  const int status =
      lt_->Heuristic(handle_, call.desc, call.layouts[0], call.layouts[1], call.layouts[2],
                     call.layouts[3], preference, kMost, call.results.data(), &found);
  lt_->PreferenceDestroy(preference);
  call.results.resize(static_cast<size_t>(status == 0 ? found : 0));
  if (call.results.empty()) *refusal = Failed("cublasLtMatmulAlgoGetHeuristic", status);
  std::vector<Algorithm> algorithms;
  for (size_t i = 0; i < call.results.size(); ++i) {
    const auto launch = [this, &call, i, workspace, workspace_bytes, stream]() -> std::string {
      static constexpr float kOne = 1, kZero = 0;
      static constexpr int kIntOne = 1, kIntZero = 0;
      const void* alpha = call.is_integer ? static_cast<const void*>(&kIntOne) : &kOne;
      const void* beta = call.is_integer ? static_cast<const void*>(&kIntZero) : &kZero;
      const int failed =
          lt_->Matmul(handle_, call.desc, alpha, call.first, call.layouts[0], call.second,
                      call.layouts[1], beta, call.out, call.layouts[2], call.out, call.layouts[3],
                      &call.results[i].algorithm, workspace, workspace_bytes, stream);
      return failed == 0 ? "" : Failed("cublasLtMatmul", failed);
    };
    algorithms.push_back({.label = fmt::format("algorithm {}", i), .launch = launch});
  }
  return algorithms;
}

}  // namespace kiln::bench
