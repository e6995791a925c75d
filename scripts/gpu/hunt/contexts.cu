// nvcc: -lcuda -Xcompiler -pthread
// Contexts of the driver API: a thread each with a context of its own, then a result handed from one
// context to the other by an event; contexts destroyed when their work is done.
#include "hunt.h"
#include <cuda.h>
#include <thread>

static CUcontext new_context() {
    CUcontext context;
#if CUDA_VERSION >= 13000
    CHECK(cuCtxCreate(&context, nullptr, 0, 0));
#else
    CHECK(cuCtxCreate(&context, 0, 0));
#endif
    return context;
}

static double alone(int id) {
    CUcontext context = new_context();
    CUstream s, t;
    CHECK(cuStreamCreate(&s, CU_STREAM_DEFAULT));
    CHECK(cuStreamCreate(&t, CU_STREAM_NON_BLOCKING));
    CUdeviceptr p, q;
    float *host;
    CHECK(cuMemAlloc(&p, BYTES));
    CHECK(cuMemAllocAsync(&q, BYTES, t));
    CHECK(cuMemAllocHost((void **)&host, BYTES));
    for (int round = 0; round < 10; round++) {
        fill((float *)p, N, float(id), s);
        // This context's default stream: after s, not after t or any other context's work.
        scale((float *)p, (float *)p, N, 2, 0, 0);
        join(0, t);
        scale((const float *)p, (float *)q, N, 1, 1, t);
        CHECK(cuMemcpyDtoHAsync(host, q, BYTES, t));
        CHECK(cuCtxSynchronize());
        REQUIRE(host[0] == 2.0f * id + 1);
    }
    double got = host[N - 1];
    CHECK(cuMemFreeAsync(q, t));
    CHECK(cuStreamSynchronize(t));
    CHECK(cuMemFree(p));
    CHECK(cuMemFreeHost(host));
    CHECK(cuStreamDestroy(s));
    CHECK(cuStreamDestroy(t));
    CHECK(cuCtxDestroy(context));
    return got;
}

int main() {
    CHECK(cuInit(0));
    double got[2];
    std::thread other([&] { got[1] = alone(2); });
    got[0] = alone(1);
    other.join();
    printf("alone %.1f %.1f\n", got[0], got[1]);

    CUcontext one = new_context(), two = new_context();
    CUdeviceptr p, q;
    CUevent done, taken;
    CUstream s, t;
    float *host;
    // t, q and taken are of context two; s, p and done of context one.
    CHECK(cuStreamCreate(&t, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc(&q, BYTES));
    CHECK(cuEventCreate(&taken, CU_EVENT_DISABLE_TIMING));
    CHECK(cuCtxSetCurrent(one));
    CHECK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&done, CU_EVENT_DISABLE_TIMING));
    CHECK(cuMemAlloc(&p, BYTES));
    CHECK(cuMemHostAlloc((void **)&host, BYTES, CU_MEMHOSTALLOC_PORTABLE));
    for (int round = 0; round < 10; round++) {
        CHECK(cuCtxSetCurrent(one));
        if (round) CHECK(cuStreamWaitEvent(s, taken, 0));
        fill((float *)p, N, float(round), s);
        CHECK(cuEventRecord(done, s));
        CHECK(cuCtxPushCurrent(two));
        CHECK(cuStreamWaitEvent(t, done, 0));
        CHECK(cuMemcpyPeerAsync(q, two, p, one, BYTES, t));
        CHECK(cuMemcpyDtoHAsync(host, q, BYTES, t));
        CHECK(cuEventRecord(taken, t));
        CUcontext popped;
        CHECK(cuCtxPopCurrent(&popped));
    }
    CHECK(cuEventSynchronize(taken));
    expect_all(host, N, 9.0f);
    CHECK(cuMemFree(p));
    CHECK(cuMemFreeHost(host));
    CHECK(cuCtxSetCurrent(two));
    CHECK(cuMemFree(q));
    CHECK(cuCtxDestroy(two));
    CHECK(cuCtxDestroy(one));
}
