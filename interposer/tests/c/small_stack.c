/* A finding on a thread whose stack is as small as that of a fiber. */
#include "cuda.h"

static cudaStream_t other;
static void *pointer;

static void *work(void *argument) {
    (void)argument;
    if (fill(pointer, other)) exit(1);
    return NULL;
}
int main(void) {
    pthread_attr_t small;
    pthread_t thread;
    register_fill();
    cudaStream_t stream = new_stream();
    other = new_stream();
    if (cudaMallocAsync(&pointer, 512, stream)) return 1;
    pthread_attr_init(&small);
    if (pthread_attr_setstacksize(&small, 64 << 10) || pthread_create(&thread, &small, work, NULL)) return 2;
    pthread_join(thread, NULL);
    puts("done");
    return 0;
}
