// Many kernels on as many streams, all joined by events to the last stream, which sums up.
#include "hunt.h"

__global__ void clock_block(long long *out, int ms) {
    unsigned long long start, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    do {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now - start < ms * 1000000ULL);
    *out = ms;
}

__global__ void sum_kernel(long long *clocks, int n) {
    __shared__ long long shared[32];
    long long mine = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) mine += clocks[i];
    shared[threadIdx.x] = mine;
    __syncthreads();
    for (int i = 16; i > 0; i /= 2) {
        if (threadIdx.x < i) shared[threadIdx.x] += shared[threadIdx.x + i];
        __syncthreads();
    }
    clocks[0] = shared[0];
}

int main() {
    constexpr int KERNELS = 8, STREAMS = KERNELS + 1;
    long long *host = pinned<long long>(1), *d = device<long long>(KERNELS);
    cudaStream_t streams[STREAMS];
    for (auto &s : streams) CHECK(cudaStreamCreate(&s));
    cudaEvent_t done[KERNELS], start, stop;
    for (auto &event : done) event = new_event();
    CHECK(cudaEventCreate(&start));
    CHECK(cudaEventCreate(&stop));

    CHECK(cudaEventRecord(start, 0));
    for (int i = 0; i < KERNELS; i++) {
        clock_block<<<1, 1, 0, streams[i]>>>(d + i, 5);
        CHECK(cudaEventRecord(done[i], streams[i]));
        CHECK(cudaStreamWaitEvent(streams[STREAMS - 1], done[i], 0));
    }
    sum_kernel<<<1, 32, 0, streams[STREAMS - 1]>>>(d, KERNELS);
    CHECK(cudaMemcpyAsync(host, d, sizeof(long long), cudaMemcpyDeviceToHost, streams[STREAMS - 1]));
    CHECK(cudaEventRecord(stop, 0));
    CHECK(cudaEventSynchronize(stop));
    expect_all(host, 1, 5LL * KERNELS);

    for (auto s : streams) CHECK(cudaStreamDestroy(s));
    for (auto event : done) CHECK(cudaEventDestroy(event));
    CHECK(cudaEventDestroy(start));
    CHECK(cudaEventDestroy(stop));
    CHECK(cudaFreeHost(host));
    CHECK(cudaFree(d));
}
