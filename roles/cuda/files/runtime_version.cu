// Prints the version of the CUDA runtime that it was linked with. Needs no GPU and no driver.
#include <stdio.h>
#include <cuda_runtime.h>

__global__ void kernel(void) {}

int main(void) {
  int version = 0;
  if (cudaRuntimeGetVersion(&version) != cudaSuccess) return 1;
  printf("%d.%d\n", version / 1000, version % 1000 / 10);
  return 0;
}
