/* Prints the version that the library of this program says it is, which must be that of its
 * headers. */
#include <cudnn.h>
#include <stdio.h>

int main(void) {
  printf("%zu\n", cudnnGetVersion());
  return cudnnGetVersion() != CUDNN_VERSION;
}
