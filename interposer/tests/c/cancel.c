/* A thread is cancelled inside a hooked call; later calls are still seen. */
#include "cuda.h"

static void *wait_forever(void *stream) {
    cudaStreamSynchronize(stream);
    return NULL;
}
int main(void) {
    pthread_t thread;
    void *result;
    cudaStream_t stream = new_stream();
    memset(stream, 0, sizeof(pthread_t));
    pthread_create(&thread, NULL, wait_forever, stream);
    usleep(50000);
    pthread_cancel(thread);
    pthread_join(thread, &result);
    if (result != PTHREAD_CANCELED) return 1;
    race();
    puts("went on");
    return 0;
}
