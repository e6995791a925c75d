/* Forks while other threads make all kinds of calls; every child makes some of its own. */
#include "cuda.h"

static volatile int stop;
static void *work(void *stream) {
    void *pointer;
    while (!stop) {
        register_fill();
        if (cudaMallocAsync(&pointer, 64, stream) || fill(pointer, stream)) abort();
        cudaFreeAsync(pointer, stream);
    }
    return stream;
}
int main(void) {
    pthread_t threads[2];
    void *pointer;
    int status;
    /* The stand-in makes streams under a lock, which a fork in the midst would leave held. */
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, work, new_stream());
    for (int i = 0; i < 40; i++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(20);
            register_fill();
            _exit(cudaMalloc(&pointer, 64) || fill(pointer, new_stream()) || cudaFree(pointer));
        }
        if (waitpid(child, &status, 0) != child || status) return 1;
    }
    stop = 1;
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    puts("forked");
    return 0;
}
