// One array, a stream for each part of it: a kernel and the copy of its result to pinned memory,
// that of cudaHostAlloc and then that of cudaHostRegister. Timing events are on the default stream.
// The kernel's factor is not declared const, and all streams read it, as in NVIDIA's sample. Then every
// kernel gets the array's base and an offset, the usual way to overlap copies with kernels.
#include "hunt.h"

__global__ void init_array(int *data, int *factor, int iterations) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int k = 0; k < iterations; k++) data[i] += *factor;
}

__global__ void work_at(float *a, int offset) {
    int i = offset + threadIdx.x + blockIdx.x * blockDim.x;
    float x = (float)i;
    float s = sinf(x), c = cosf(x);
    a[i] = a[i] + roundf(sqrtf(s * s + c * c));
}

constexpr int STREAMS = 4, PART = N / STREAMS, THREADS = 256;

static void run(int *host, cudaStream_t *streams) {
    int *d = device<int>(N), *factor = device<int>(1), five = 5;
    cudaEvent_t start, stop;
    CHECK(cudaEventCreate(&start));
    CHECK(cudaEventCreate(&stop));
    CHECK(cudaMemcpy(factor, &five, sizeof five, cudaMemcpyHostToDevice));

    // Once without streams, once with.
    CHECK(cudaMemset(d, 0, BYTES));
    CHECK(cudaEventRecord(start, 0));
    init_array<<<N / THREADS, THREADS>>>(d, factor, 2);
    CHECK(cudaMemcpyAsync(host, d, BYTES, cudaMemcpyDeviceToHost, 0));
    CHECK(cudaEventRecord(stop, 0));
    CHECK(cudaEventSynchronize(stop));
    expect_all(host, N, 10);

    CHECK(cudaMemset(d, 0, BYTES));
    CHECK(cudaEventRecord(start, 0));
    for (int rep = 0; rep < 10; rep++) {
        for (int i = 0; i < STREAMS; i++)
            init_array<<<PART / THREADS, THREADS, 0, streams[i]>>>(d + i * PART, factor, 2);
        for (int i = 0; i < STREAMS; i++)
            CHECK(cudaMemcpyAsync(host + i * PART, d + i * PART, BYTES / STREAMS, cudaMemcpyDeviceToHost, streams[i]));
    }
    CHECK(cudaEventRecord(stop, 0));
    CHECK(cudaEventSynchronize(stop));
    float ms;
    CHECK(cudaEventElapsedTime(&ms, start, stop));
    expect_all(host, N, 100);

    CHECK(cudaEventDestroy(start));
    CHECK(cudaEventDestroy(stop));
    CHECK(cudaFree(factor));
    CHECK(cudaFree(d));
}

static void run_at_offsets(float *host, cudaStream_t *streams) {
    float *d = device<float>(N);
    for (int i = 0; i < N; i++) host[i] = 2;
    for (int i = 0; i < STREAMS; i++) {
        int at = i * PART;
        CHECK(cudaMemcpyAsync(d + at, host + at, BYTES / STREAMS, cudaMemcpyHostToDevice, streams[i]));
        work_at<<<PART / THREADS, THREADS, 0, streams[i]>>>(d, at);
        CHECK(cudaMemcpyAsync(host + at, d + at, BYTES / STREAMS, cudaMemcpyDeviceToHost, streams[i]));
    }
    CHECK(cudaDeviceSynchronize());
    expect_all(host, N, 3.0f);
    CHECK(cudaFree(d));
}

int main() {
    cudaStream_t streams[STREAMS];
    for (auto &s : streams) s = new_blocking_stream();
    int *host;
    CHECK(cudaHostAlloc((void **)&host, BYTES, cudaHostAllocDefault));
    run(host, streams);
    run_at_offsets((float *)host, streams);
    CHECK(cudaFreeHost(host));

    host = (int *)aligned_alloc(4096, BYTES);
    CHECK(cudaHostRegister(host, BYTES, cudaHostRegisterMapped));
    run(host, streams);
    CHECK(cudaHostUnregister(host));
    free(host);
    for (auto s : streams) CHECK(cudaStreamDestroy(s));
}
