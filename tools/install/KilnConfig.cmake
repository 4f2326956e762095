# find_package(Kiln): Kiln's libraries as targets.
#
#   Kiln::cudnn          the cuDNN interface, libcudnn.so.@GENERATION@ with its headers
#   Kiln::cudnn_PART     a library of cuDNN's packages that stands beside it: @PARTS@
#   Kiln::miopen         kiln/miopen.h over the interface of cuDNN 9, where this tree has its headers
#   Kiln_KILN            the tool, as a path
#
# Paths follow from where this file lies, so that the tree may be moved.
get_filename_component(Kiln_PREFIX "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
set(Kiln_CUDNN_VERSION "@CUDNN_VERSION@")
set(Kiln_CUDNN_PARTS @PARTS@)
set(Kiln_INCLUDE_DIR "${Kiln_PREFIX}/include")
set(Kiln_LIBRARY_DIR "${Kiln_PREFIX}/lib")
set(Kiln_KILN "${Kiln_PREFIX}/bin/kiln")

# A shared library of this tree: target, file, SONAME.
function(_kiln_import target file)
  if(TARGET ${target})
    return()
  endif()
  if(NOT EXISTS "${Kiln_LIBRARY_DIR}/${file}")
    set(Kiln_FOUND FALSE PARENT_SCOPE)
    set(Kiln_NOT_FOUND_MESSAGE "${Kiln_LIBRARY_DIR}/${file} does not exist" PARENT_SCOPE)
    return()
  endif()
  add_library(${target} SHARED IMPORTED)
  set_target_properties(${target} PROPERTIES
    IMPORTED_LOCATION "${Kiln_LIBRARY_DIR}/${file}"
    IMPORTED_SONAME "${file}"
    INTERFACE_INCLUDE_DIRECTORIES "${Kiln_INCLUDE_DIR}")
endfunction()

_kiln_import(Kiln::cudnn libcudnn.so.@GENERATION@)
foreach(part IN LISTS Kiln_CUDNN_PARTS)
  _kiln_import(Kiln::cudnn_${part} libcudnn_${part}.so.@GENERATION@)
  if(TARGET Kiln::cudnn_${part})
    set_property(TARGET Kiln::cudnn_${part} PROPERTY INTERFACE_LINK_LIBRARIES Kiln::cudnn)
  endif()
endforeach()
if(EXISTS "${Kiln_LIBRARY_DIR}/libkiln_miopen.so")
  _kiln_import(Kiln::miopen libkiln_miopen.so.1)
  if(TARGET Kiln::miopen)
    set_property(TARGET Kiln::miopen PROPERTY INTERFACE_LINK_LIBRARIES Kiln::cudnn)
  endif()
endif()
