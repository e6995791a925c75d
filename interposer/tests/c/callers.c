/* Two functions take turns in calling a third from frames of the same size: with the same stack
 * pointer, and the same return address. One of them is wrong once: SC101. */
#include "cuda.h"

__attribute__((noinline)) static void use(void *pointer, cudaStream_t stream) {
    fill(pointer, stream);
    __asm__ volatile("" ::: "memory");
}
__attribute__((noinline)) static void right(void *pointer, cudaStream_t stream) {
    use(pointer, stream);
    __asm__ volatile("" ::: "memory");
}
__attribute__((noinline)) static void wrong(void *pointer, cudaStream_t stream) {
    use(pointer, stream);
    __asm__ volatile("" ::: "memory");
}

int main(void) {
    cudaStream_t one = new_stream(), two = new_stream();
    void *pointer;
    register_fill();
    cudaMallocAsync(&pointer, 64, one);
    for (int i = 0; i < 100; i++) {
        wrong(pointer, one);
        right(pointer, one);
    }
    wrong(pointer, two);
    right(pointer, one);
    return 0;
}
