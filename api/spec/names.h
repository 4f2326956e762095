// Names of enumeration constants for messages, and which values are legal.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "api/spec/cudnn_types.h"

namespace kiln::api {

// "CUDNN_ATTR_TENSOR_DIMENSIONS", or the number where it has no name.
std::string NameOf(cudnnBackendAttributeName_t value);
std::string NameOf(cudnnBackendAttributeType_t value);
std::string NameOf(cudnnBackendDescriptorType_t value);
std::string NameOf(cudnnDataType_t value);
std::string NameOf(cudnnPointwiseMode_t value);
std::string NameOf(cudnnReduceTensorOp_t value);
std::string NameOf(cudnnBackendKnobType_t value);
std::string NameOf(cudnnBackendHeurMode_t value);

// Names for numbers that came from a client and may be no constant.
std::string AttributeName(int value);
std::string AttributeTypeName(int value);
std::string DescriptorTypeName(int value);

struct EnumName {
  int value;
  std::string_view name;
};

// Every attribute of generation 9, ascending by value; tests compare the rows of descriptors with
// it.
std::span<const EnumName> AllAttributeNames();

// True if a constant of the enumeration has this value.
template <class E>
bool IsLegal(int value);

}  // namespace kiln::api
