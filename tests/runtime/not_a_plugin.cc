// Plug-ins that cannot be used, for device_select_test: one without the symbol, one whose device
// cannot be made.
#include <cstdio>

#ifdef KILN_TEST_REFUSE
extern "C" __attribute__((visibility("default"))) void* KilnCpuDeviceCreate(char* error,
                                                                            size_t size) {
  std::snprintf(error, size, "this processor has no %s", "abacus");
  return nullptr;
}
#else
extern "C" __attribute__((visibility("default"))) int KilnIsNoPlugin() { return 1; }
#endif
