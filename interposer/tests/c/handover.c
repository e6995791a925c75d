/* Threads hand memory on in a ring, each with a stream of its own that waits for the event of the
 * one before, while others keep the tool busy: nothing to find, unless the order is lost in which
 * the calls return. */
#include "cuda.h"
#include <sched.h>

cudaError_t cudaEventCreate(cudaEvent_t *);
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t);
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned);

enum { RING = 4, TURNS = 200 };
static int turn, stop;
static void *pointer;
static cudaEvent_t events[RING];

static void check(cudaError_t status) {
    if (status) abort();
}
static void *hand_on(void *argument) {
    const int own = (int)(long)argument;
    cudaStream_t stream = new_stream();
    for (int i = own; i < RING * TURNS; i += RING) {
        while (__atomic_load_n(&turn, __ATOMIC_ACQUIRE) != i) sched_yield();
        if (i) check(cudaStreamWaitEvent(stream, events[(i - 1) % RING], 0));
        /* Every tenth has the memory made anew. */
        if (i % 10 == 0) {
            if (i) check(cudaFreeAsync(pointer, stream));
            check(cudaMallocAsync(&pointer, 64, stream));
        }
        check(fill(pointer, stream));
        check(cudaEventRecord(events[own], stream));
        __atomic_store_n(&turn, i + 1, __ATOMIC_RELEASE);
    }
    return NULL;
}
static void *be_busy(void *argument) {
    cudaStream_t stream = new_stream();
    void *own;
    check(cudaMallocAsync(&own, 64, stream));
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) check(fill(own, stream));
    return argument;
}
int main(void) {
    pthread_t ring[RING], busy[4];
    register_fill();
    for (int i = 0; i < RING; i++) check(cudaEventCreate(&events[i]));
    for (int i = 0; i < 4; i++) pthread_create(&busy[i], NULL, be_busy, NULL);
    for (long i = 0; i < RING; i++) pthread_create(&ring[i], NULL, hand_on, (void *)i);
    for (int i = 0; i < RING; i++) pthread_join(ring[i], NULL);
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < 4; i++) pthread_join(busy[i], NULL);
    puts("handed on");
    return 0;
}
