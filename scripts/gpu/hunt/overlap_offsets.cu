// An array in parts, a stream for each: every kernel gets the array's base and an offset, and stays
// within its part. The usual way to overlap copies with kernels.
#include "hunt.h"

__global__ void work(float *array, int offset, int n) {
    EACH(i, n) array[offset + i] = array[offset + i] * 2 + 1;
}

int main() {
    constexpr int STREAMS = 4, PART = N / STREAMS;
    float *d = device<float>(N), *host = pinned<float>(N);
    for (int i = 0; i < N; i++) host[i] = 3;
    cudaStream_t s[STREAMS];
    for (auto &stream : s) stream = new_stream();
    for (int i = 0; i < STREAMS; i++) {
        int at = i * PART;
        CHECK(cudaMemcpyAsync(d + at, host + at, PART * sizeof(float), cudaMemcpyHostToDevice, s[i]));
        work<<<64, 256, 0, s[i]>>>(d, at, PART);
        CHECK(cudaMemcpyAsync(host + at, d + at, PART * sizeof(float), cudaMemcpyDeviceToHost, s[i]));
    }
    CHECK(cudaDeviceSynchronize());
    expect_all(host, N, 7.0f);
    CHECK(cudaFree(d));
    CHECK(cudaFreeHost(host));
}
