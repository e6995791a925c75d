// One array, a stream for each part of it: a kernel and the copy of its result to pinned memory,
// that of cudaHostAlloc and then that of cudaHostRegister. Timing events are on the default stream.
#include "hunt.h"

static void run(float *host) {
    constexpr int STREAMS = 4, PART = N / STREAMS;
    float *d = device<float>(N);
    cudaEvent_t start, stop;
    CHECK(cudaEventCreate(&start));
    CHECK(cudaEventCreate(&stop));
    cudaStream_t streams[STREAMS];
    for (auto &s : streams) s = new_blocking_stream();

    // Once without streams, once with.
    CHECK(cudaEventRecord(start, 0));
    fill(d, N, 1.0f, 0);
    CHECK(cudaMemcpyAsync(host, d, BYTES, cudaMemcpyDeviceToHost, 0));
    CHECK(cudaEventRecord(stop, 0));
    CHECK(cudaEventSynchronize(stop));
    expect_all(host, N, 1.0f);

    CHECK(cudaMemset(d, 0xff, BYTES));
    CHECK(cudaEventRecord(start, 0));
    for (int rep = 0; rep < 10; rep++) {
        for (int i = 0; i < STREAMS; i++) fill(d + i * PART, PART, 2.0f + rep, streams[i]);
        for (int i = 0; i < STREAMS; i++)
            CHECK(cudaMemcpyAsync(host + i * PART, d + i * PART, BYTES / STREAMS, cudaMemcpyDeviceToHost, streams[i]));
    }
    CHECK(cudaEventRecord(stop, 0));
    CHECK(cudaEventSynchronize(stop));
    float ms;
    CHECK(cudaEventElapsedTime(&ms, start, stop));
    expect_all(host, N, 11.0f);

    for (auto s : streams) CHECK(cudaStreamDestroy(s));
    CHECK(cudaEventDestroy(start));
    CHECK(cudaEventDestroy(stop));
    CHECK(cudaFree(d));
}

int main() {
    float *host;
    CHECK(cudaHostAlloc((void **)&host, BYTES, cudaHostAllocDefault));
    run(host);
    CHECK(cudaFreeHost(host));

    host = (float *)aligned_alloc(4096, BYTES);
    CHECK(cudaHostRegister(host, BYTES, cudaHostRegisterMapped));
    run(host);
    CHECK(cudaHostUnregister(host));
    free(host);
}
