/* Finds cudart with dlopen(RTLD_LOCAL) and dlsym; nothing is linked. */
#include "cuda.h"

int main(void) {
    if (dlsym(RTLD_DEFAULT, "cudaMalloc")) return 1; /* no cudart is loaded yet */
    void *library = dlopen("libcudart.so.13", RTLD_LAZY | RTLD_LOCAL);
    if (!library) return 2;
    if (dlsym(library, "cudaMemcpy2D") || !dlerror()) return 3;
    cudaError_t (*make)(cudaStream_t *, unsigned) = dlsym(library, "cudaStreamCreateWithFlags");
    cudaError_t (*allocate)(void **, size_t, cudaStream_t) = dlsym(library, "cudaMallocAsync");
    cudaError_t (*release)(void *, cudaStream_t) = dlsym(library, "cudaFreeAsync");
    cudaStream_t one, two;
    void *pointer;
    if (make(&one, 1) || make(&two, 1) || allocate(&pointer, 256, one)) return 4;
    if (release(pointer, two)) return 5; /* SC104 */
    puts("loaded");
    return 0;
}
