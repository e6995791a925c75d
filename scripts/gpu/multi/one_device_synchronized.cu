// run: right => none
// run: wrong => SC109
// run: free right => none
// run: free wrong => SC103
// cudaDeviceSynchronize waits for the current device alone: with device 1 current, work of device 0 is as
// unordered as before, for a copy on another stream as for the free of pool memory.
#include "multi.h"

int main(int argc, char **argv) {
    bool free = said(argc, argv, 1, "free"), right = said(argc, argv, free ? 2 : 1, "right");
    need_two_devices();
    on(1);
    cudaStream_t s1 = new_stream();
    float *q = device<float>(N);
    on(0);
    cudaStream_t s0 = new_stream(), t0 = new_stream();
    float *p = free ? async<float>(N, s0) : device<float>(N), *host = pinned<float>(N);
    busy(s0);
    fill(p, N, 1.0f, s0);
    if (free) CHECK(cudaMemcpyAsync(host, p, BYTES, cudaMemcpyDeviceToHost, s0));
    on(1);
    fill(q, N, 2.0f, s1);
    if (right) on(0);
    else lapse();
    CHECK(cudaDeviceSynchronize());
    on(0);
    if (free) CHECK(cudaFree(p));
    else CHECK(cudaMemcpyAsync(host, p, BYTES, cudaMemcpyDeviceToHost, t0));
    settle();
    expect_all(host, N, 1.0f);
    if (!free) CHECK(cudaFree(p));
    CHECK(cudaFree(q));
    CHECK(cudaFreeHost(host));
}
