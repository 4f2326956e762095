// A program that calls MIOpen, as docs/porting.md builds one.
#include <kiln/miopen.h>

int main() {
  miopenHandle_t handle;
  return miopenCreate(&handle) != miopenStatusSuccess ||
         miopenDestroy(handle) != miopenStatusSuccess;
}
