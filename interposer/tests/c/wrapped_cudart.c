#include "cuda.h"

int main(void) {
    int (*calls)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "wrapped_calls");
    void *memory;
    if (cudaMalloc(&memory, 64) || cudaFree(memory)) return 2;
    puts("wrapped");
    return calls && calls() == 2 ? 0 : 1;
}
