// The table of host symbols, the thread's scratch buffer, and the search of libmvec.
#include "runtime/cpu/host_symbols.h"

#include <dlfcn.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string>

#include "codegen/llvm/math.h"
#include "ir/base/check.h"

namespace kiln::runtime {
namespace {

constexpr size_t kScratchAlignment = 64;

// Grows and is never returned before its thread ends. A thread is inside one kernel at a time.
struct Scratch {
  ~Scratch() { std::free(memory); }
  void* memory = nullptr;
  int64_t bytes = 0;
};

void* ThreadScratch(int64_t bytes) {
  thread_local Scratch scratch;
  if (bytes > scratch.bytes) {
    std::free(scratch.memory);
    const size_t rounded = (static_cast<size_t>(bytes) + kScratchAlignment - 1) /
                           kScratchAlignment * kScratchAlignment;
    scratch.memory = std::aligned_alloc(kScratchAlignment, rounded);
    scratch.bytes = static_cast<int64_t>(rounded);
    // There is no way to report from inside a kernel, and going on would write through null.
    if (!scratch.memory) std::abort();
  }
  return scratch.memory;
}

template <class F>
void* Address(F* function) {
  return reinterpret_cast<void*>(function);
}

// Both precisions of a libm function, by the types of its C overloads.
#define KILN_LIBM_1(name) \
  {#name "f", Address<float(float)>(&::name##f)}, { #name, Address<double(double)>(&::name) }
#define KILN_LIBM_2(name)                                  \
  {#name "f", Address<float(float, float)>(&::name##f)}, { \
    #name, Address<double(double, double)>(&::name)        \
  }

const HostSymbol kHostSymbols[] = {
    KILN_LIBM_2(fmod),
    KILN_LIBM_2(pow),
    KILN_LIBM_2(atan2),
    KILN_LIBM_2(fmin),
    KILN_LIBM_2(fmax),
    KILN_LIBM_1(exp),
    KILN_LIBM_1(exp2),
    KILN_LIBM_1(exp10),
    KILN_LIBM_1(expm1),
    KILN_LIBM_1(log),
    KILN_LIBM_1(log2),
    KILN_LIBM_1(log10),
    KILN_LIBM_1(log1p),
    KILN_LIBM_1(sin),
    KILN_LIBM_1(cos),
    KILN_LIBM_1(tan),
    KILN_LIBM_1(tanh),
    KILN_LIBM_1(erf),
    KILN_LIBM_1(sqrt),
    KILN_LIBM_1(cbrt),
    KILN_LIBM_1(floor),
    KILN_LIBM_1(ceil),
    KILN_LIBM_1(trunc),
    KILN_LIBM_1(rint),
    KILN_LIBM_1(nearbyint),
    KILN_LIBM_1(round),
    KILN_LIBM_1(roundeven),
    KILN_LIBM_1(fabs),
    {"fmaf", Address<float(float, float, float)>(&::fmaf)},
    {"fma", Address<double(double, double, double)>(&::fma)},
    {"ldexpf", Address<float(float, int)>(&::ldexpf)},
    {"ldexp", Address<double(double, int)>(&::ldexp)},
    {"sincosf", Address<void(float, float*, float*)>(&::sincosf)},
    {"sincos", Address<void(double, double*, double*)>(&::sincos)},
    {"memcpy", Address<void*(void*, const void*, size_t)>(&::memcpy)},
    {"memmove", Address<void*(void*, const void*, size_t)>(&::memmove)},
    {"memset", Address<void*(void*, int, size_t)>(&::memset)},
    {"bcmp", Address<int(const void*, const void*, size_t)>(&::bcmp)},
    {llvm_codegen::kScratchSymbol, Address(&ThreadScratch)},
};

#undef KILN_LIBM_1
#undef KILN_LIBM_2

}  // namespace

std::span<const HostSymbol> HostSymbols() { return kHostSymbols; }

VectorMath FindVectorMath(bool avx2, bool avx512f) {
  VectorMath found;
#if defined(__x86_64__)
  // Never closed: generated code calls into it until the process ends.
  void* library = dlopen("libmvec.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) return found;
  struct Isa {
    char letter;  // of the vector function ABI
    int bytes;
    bool present;
  };
  const Isa isas[] = {{'b', 16, true}, {'d', 32, avx2}, {'e', 64, avx512f}};
  const auto look_up = [&](const Isa& isa, const char* scalar, int lanes, int arity) {
    const std::string name = std::string("_ZGV") + isa.letter + "N" + std::to_string(lanes) +
                             std::string(arity, 'v') + "_" + scalar;
    void* address = dlsym(library, name.c_str());
    if (!address) return;
    found.functions.push_back({.scalar = scalar, .vector = name, .lanes = lanes});
    found.addresses.push_back(address);
  };
  for (const llvm_codegen::MathFunction& math : llvm_codegen::MathFunctions()) {
    for (const Isa& isa : isas) {
      if (!isa.present) continue;
      look_up(isa, math.f32, isa.bytes / 4, math.arity);
      look_up(isa, math.f64, isa.bytes / 8, math.arity);
    }
  }
#else
  static_cast<void>(avx2), static_cast<void>(avx512f);
#endif
  return found;
}

}  // namespace kiln::runtime
