/* Eight threads, each with a stream and memory of its own: nothing to find. */
#include "cuda.h"

static void *work(void *argument) {
    cudaStream_t stream = new_stream();
    (void)argument;
    for (int i = 0; i < 500; i++) {
        void *pointer;
        if (cudaMallocAsync(&pointer, 512, stream) || fill(pointer, stream) || cudaFreeAsync(pointer, stream))
            exit(1);
        free(malloc(100));
    }
    return NULL;
}
int main(void) {
    pthread_t threads[8];
    register_fill();
    for (int i = 0; i < 8; i++) pthread_create(&threads[i], NULL, work, NULL);
    for (int i = 0; i < 8; i++) pthread_join(threads[i], NULL);
    puts("done");
    return 0;
}
