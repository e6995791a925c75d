// nvcc: -Xcompiler -pthread
// Managed memory: tasks attached to a stream each and worked on by the host and the GPU in turn, then
// one array with advice and prefetches both ways.
#include "hunt.h"
#include <thread>

static void tasks(int first, int step, float **data, int count, int n) {
    for (int i = first; i < count; i += step) {
        cudaStream_t s = new_blocking_stream();
        CHECK(cudaStreamAttachMemAsync(s, data[i], 0, cudaMemAttachSingle));
        CHECK(cudaStreamSynchronize(s));
        for (int k = 0; k < n; k++) data[i][k] = float(i);
        scale(data[i], data[i], n, 2, 1, s);
        CHECK(cudaStreamSynchronize(s));
        for (int k = 0; k < n; k++) data[i][k] -= 1;
        CHECK(cudaStreamDestroy(s));
    }
}

int main() {
    constexpr int COUNT = 16, n = 10000;
    float *data[COUNT];
    for (auto &p : data) CHECK(cudaMallocManaged((void **)&p, n * sizeof(float), cudaMemAttachHost));
    std::thread odd(tasks, 1, 2, data, COUNT, n);
    tasks(0, 2, data, COUNT, n);
    odd.join();
    for (int i = 0; i < COUNT; i++) {
        expect_all(data[i], n, 2.0f * i);
        CHECK(cudaFree(data[i]));
    }

    float *a;
    CHECK(cudaMallocManaged((void **)&a, BYTES));
    for (int i = 0; i < N; i++) a[i] = 1;
    cudaStream_t s = new_stream(), other = new_stream();
    cudaMemLocation gpu = {cudaMemLocationTypeDevice, 0}, cpu = {cudaMemLocationTypeHost, 0};
    CHECK(cudaMemAdvise(a, BYTES, cudaMemAdviseSetPreferredLocation, gpu));
    CHECK(cudaMemPrefetchAsync(a, BYTES, gpu, 0, s));
    scale(a, a, N, 3, 0, s);
    join(s, other);
    CHECK(cudaMemPrefetchAsync(a, BYTES, cpu, 0, other));
    CHECK(cudaStreamSynchronize(other));
    expect_all(a, N, 3.0f);
    CHECK(cudaFree(a));
}
