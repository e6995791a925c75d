// Kernels on mapped pinned memory, allocated and registered; the host reads after a synchronize.
#include "hunt.h"

static void run(float *a, float *b, float *c) {
    float *d_a, *d_b, *d_c;
    CHECK(cudaHostGetDevicePointer((void **)&d_a, a, 0));
    CHECK(cudaHostGetDevicePointer((void **)&d_b, b, 0));
    CHECK(cudaHostGetDevicePointer((void **)&d_c, c, 0));
    for (int i = 0; i < N; i++) a[i] = 1, b[i] = 2;
    add(d_a, d_b, d_c, N, 0);
    CHECK(cudaDeviceSynchronize());
    expect_all(c, N, 3.0f);

    // On two streams: both read a, each writes its own.
    cudaStream_t s = new_stream(), t = new_stream();
    scale(d_a, d_b, N, 5, 0, s);
    scale(d_a, d_c, N, 7, 0, t);
    CHECK(cudaStreamSynchronize(s));
    expect_all(b, N, 5.0f);
    CHECK(cudaStreamSynchronize(t));
    expect_all(c, N, 7.0f);
    CHECK(cudaStreamDestroy(s));
    CHECK(cudaStreamDestroy(t));
}

int main() {
    float *p[3];
    for (auto &q : p) CHECK(cudaHostAlloc((void **)&q, BYTES, cudaHostAllocMapped | cudaHostAllocPortable));
    run(p[0], p[1], p[2]);
    for (auto q : p) CHECK(cudaFreeHost(q));
    for (auto &q : p) {
        q = (float *)aligned_alloc(4096, BYTES);
        CHECK(cudaHostRegister(q, BYTES, cudaHostRegisterMapped));
    }
    run(p[0], p[1], p[2]);
    for (auto q : p) {
        CHECK(cudaHostUnregister(q));
        free(q);
    }
}
