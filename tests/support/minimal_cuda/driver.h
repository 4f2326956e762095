// Questions that a test asks of the driver of driver.cc, by dlsym.
#pragma once

extern "C" {
// The functions that were called and are not permitted, since it was last asked; empty is right.
const char* MinimalCudaViolations();
// The launches since it was last asked.
long MinimalCudaLaunches();
}
