#pragma once
// The pointer as a kernel has it after griddepcontrol.wait, of an origin that compilers do not
// know. Through its own parameters a kernel reads what it never writes by ld.global.nc, as if
// nobody else wrote it either, and ptxas moves such loads in front of the wait. These are plain
// loads.
template <class T>
__device__ __forceinline__ T* after_wait(T* p) {
  unsigned char* bytes = (unsigned char*)(p);  // NVRTC 13.0 asks __isGlobal of no struct's address
  asm volatile("" : "+l"(bytes)::"memory");
  __builtin_assume(__isGlobal(bytes));
  return (T*)(bytes);
}
