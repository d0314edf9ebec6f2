// Prints the version of the CUDA runtime that it was linked with. Needs no GPU and no driver.
#include <stdio.h>
#include <cuda_runtime.h>

__global__ void kernel(void) {}

int main(void) {
  int version = 0;
  cudaError_t status = cudaRuntimeGetVersion(&version);
#if defined(CUDART_VERSION) && CUDART_VERSION < 12000
  // Before CUDA 12 the library works only where there is a GPU. Here it only has to be found and loaded.
  if (status != cudaSuccess) version = CUDART_VERSION, status = cudaSuccess;
#endif
  if (status != cudaSuccess) return 1;
  printf("%d.%d\n", version / 1000, version % 1000 / 10);
  return 0;
}
