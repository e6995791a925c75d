/* CUDA calls before main and in an exit handler. */
#include "cuda.h"

__attribute__((constructor)) static void early(void) { race(); }
static void late(void) {
    void *pointer;
    if (cudaMalloc(&pointer, 64) == 0) cudaFree(pointer);
}
int main(void) {
    atexit(late);
    puts("main");
    return 0;
}
