/* The few declarations that the tests' programs use. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef int cudaError_t;
typedef void *cudaStream_t;
typedef void *cudaEvent_t;
struct dim3 { unsigned x, y, z; };
cudaError_t cudaGetLastError(void);
cudaError_t cudaPeekAtLastError(void);
cudaError_t cudaDeviceSynchronize(void);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *, unsigned);
cudaError_t cudaStreamSynchronize(cudaStream_t);
cudaError_t cudaStreamQuery(cudaStream_t);
cudaError_t cudaMalloc(void **, size_t);
cudaError_t cudaMallocAsync(void **, size_t, cudaStream_t);
cudaError_t cudaFree(void *);
cudaError_t cudaFreeAsync(void *, cudaStream_t);
cudaError_t cudaLaunchKernel(const void *, struct dim3, struct dim3, void **, size_t, cudaStream_t);
cudaError_t cudaLaunchHostFunc(cudaStream_t, void (*)(void *), void *);
__attribute__((weak)) cudaError_t cudaMemcpy2D(void *, size_t, const void *, size_t, size_t, size_t, int);
void __cudaRegisterFunction(void **, const char *, char *, const char *, int, void *, void *, void *, void *, int *);

/* The host function that stands for the kernel `void fill(float *)`. */
__attribute__((noinline)) static void fill_stub(void) {}
static inline void register_fill(void) {
    __cudaRegisterFunction(NULL, (const char *)fill_stub, "", "_Z4fillPf", -1, NULL, NULL, NULL, NULL, NULL);
}
static inline cudaError_t fill(void *pointer, cudaStream_t stream) {
    void *arguments[] = {&pointer};
    struct dim3 one = {1, 1, 1};
    return cudaLaunchKernel((const void *)fill_stub, one, one, arguments, 0, stream);
}
static inline cudaStream_t new_stream(void) {
    cudaStream_t stream;
    cudaStreamCreateWithFlags(&stream, 1);
    return stream;
}
/* Memory of one stream used on another: SC101. */
static inline void race(void) {
    cudaStream_t one = new_stream(), two = new_stream();
    void *pointer;
    register_fill();
    cudaMallocAsync(&pointer, 1024, one);
    fill(pointer, two);
}
