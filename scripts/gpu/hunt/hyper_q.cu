// Chains of kernels on 32 blocking streams, then a sum on the default stream, which waits for them.
#include "hunt.h"

__global__ void first_link(float *out, int ms) {
    unsigned long long start, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    do {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now - start < ms * 1000000ULL);
    *out = 1;
}

__global__ void second_link(float *out) { *out += 1; }

__global__ void sum_kernel(float *values, int n) {
    float sum = 0;
    for (int i = 0; i < n; i++) sum += values[i];
    *values = sum;
}

int main() {
    constexpr int STREAMS = 32;
    float *d = device<float>(STREAMS), *host = pinned<float>(1);
    std::vector<cudaStream_t> streams(STREAMS);
    for (auto &s : streams) CHECK(cudaStreamCreate(&s));
    for (int i = 0; i < STREAMS; i++) {
        first_link<<<1, 1, 0, streams[i]>>>(d + i, 2);
        second_link<<<1, 1, 0, streams[i]>>>(d + i);
    }
    sum_kernel<<<1, 1>>>(d, STREAMS);
    CHECK(cudaMemcpy(host, d, sizeof(float), cudaMemcpyDeviceToHost));
    expect_all(host, 1, 2.0f * STREAMS);
    for (auto s : streams) CHECK(cudaStreamDestroy(s));
    CHECK(cudaFree(d));
    CHECK(cudaFreeHost(host));
}
