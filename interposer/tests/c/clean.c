/* Right use of memory; checks that the library leaves errno and the last error alone. */
#include "cuda.h"

int main(void) {
    cudaStream_t stream = new_stream();
    void *pointer;
    register_fill();
    errno = 77;
    if (cudaMallocAsync(&pointer, 4096, stream)) return 1;
    if (fill(pointer, stream)) return 2;
    if (cudaFreeAsync(pointer, stream)) return 3;
    if (errno != 77) return 4;
    if (cudaStreamQuery(stream) != 600) return 5;
    if (cudaMalloc(&pointer, 1ul << 41) != 2) return 6;
    if (fill(NULL, stream)) return 7;
    if (cudaPeekAtLastError() != 2 || cudaGetLastError() != 2 || cudaGetLastError() != 0) return 8;
    /* The stand-in lacks this one, and it is weak: the answer is an error, not a crash. */
    if (cudaMemcpy2D(NULL, 0, NULL, 0, 0, 0, 0) != 500) return 9;
    puts("clean");
    return 0;
}
