// The call log writes what the API log says of a call beside its name: each argument by name, type
// and value, in the form of cuDNN's CUDNN_LOGLEVEL_DBG=3,
//
//   tensorDesc: type=cudnnTensorDescriptor_t; val=0x55d0a8c3f1c0;
//   dataType: type=cudnnDataType_t; val=CUDNN_DATA_FLOAT (0);
//   dimA: type=int; val=[2,3,4,5];
//   x: location=dev; addr=0x7f2c40000000;
//
// so that the call can be made again. The names, the types and what each argument is come from
// api/spec (arguments.inc), for every exported function; nothing is written by hand for one.
//
// Memory of the client's is read by the kernel (process_vm_readv), which refuses where nothing is
// mapped: a pointer that is wrong is printed as an address, and the call itself says what is wrong.
// Places for results are never read before the call.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kiln::api {

enum class Form : uint8_t {
  kValue,    // a number or an enumeration
  kObject,   // an object that the call changes or destroys: its address
  kRead,     // an object that the call reads: its address and what it holds
  kMade,     // the place for an object that the call makes, or for as many as another argument says
  kHost,     // memory of the host for results, or of unknown size: its address
  kDevice,   // memory of the device: its address
  kArray,    // as many elements as another argument says
  kDims,     // the same, at most CUDNN_DIM_MAX
  kFactor,   // alpha or beta, of the type that the tensor's type is scaled by
  kElement,  // one element of the type of another argument
  kElements,  // of a backend attribute that is set
  kFilled,    // of one that is read: its address, and the descriptors that the call is to fill
};

// A scalar says how a number's bytes are read.
enum class Scalar : uint8_t { kInt32, kUint32, kInt64, kUint64, kFloat, kDouble, kEnum, kPointer };

struct Parameter {
  std::string_view name, type;
  Form form;
  Scalar scalar;  // of the value, or of an element
  int8_t at;      // the argument that says how many elements, or of what type; -1: none
  int8_t add;     // to that number
};

// The parameters of an exported function; nothing where there is no such function.
std::optional<std::vector<Parameter>> ParametersOf(std::string_view function);

// A line for each argument, each with a newline before it. `values` holds the arguments' bytes in
// their order, each in the low bytes of its number.
std::string ArgumentLines(std::string_view function, std::span<const uint64_t> values);
// Lines for the objects that a call which succeeded has made; empty where it makes none.
std::string MadeLines(std::string_view function, std::span<const uint64_t> values);

}  // namespace kiln::api
