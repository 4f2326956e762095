// legacy_calls.h under libFuzzer. The session behind the interface computes nothing
// (null_session.cc), so that memory on the device may be anything.
#include "tests/fuzz/legacy_calls.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  kiln::fuzz::LegacyCalls({data, size}, kiln::fuzz::DeviceMemory::kAny).Run();
  return 0;
}
