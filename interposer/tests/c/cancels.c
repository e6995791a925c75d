/* A thread that is to be cancelled makes so many calls that a trace of them fills blocks; it ends
 * where it says, as no CUDA call of the stand-in is a place for that, and later calls are still
 * seen. */
#include "cuda.h"

static void *work(void *stream) {
    char *memory;
    if (cudaMallocAsync((void **)&memory, 1 << 20, stream)) abort();
    pthread_cancel(pthread_self());
    for (unsigned i = 0; i < 200000; i++) fill(memory + i * 2654435761u % (1 << 20), stream);
    /* Printing is such a place, too. */
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    puts("made all calls");
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
    pthread_testcancel();
    return NULL;
}
int main(void) {
    pthread_t thread;
    void *result;
    register_fill();
    pthread_create(&thread, NULL, work, new_stream());
    pthread_join(thread, &result);
    if (result != PTHREAD_CANCELED) return 1;
    race();
    puts("went on");
    return 0;
}
