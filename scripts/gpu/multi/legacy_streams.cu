// run: right => none
// run: wrong => SC109
// warn: SC202
// Each device has a legacy default stream, which joins the blocking streams of its own device and no other's:
// from one device to the other only an event leads.
#include "multi.h"

int main(int argc, char **argv) {
    bool right = said(argc, argv, 1, "right");
    enable_peers();
    cudaStream_t b0 = new_blocking_stream();
    float *p = device<float>(N);
    on(1);
    cudaStream_t b1 = new_blocking_stream();
    float *q = device<float>(N), *host = pinned<float>(N);
    on(0);
    busy(b0);
    fill(p, N, 1.0f, b0);
    scale(p, p, N, 2, 0, cudaStreamLegacy);
    on(1);
    across_or_lapse(right, 0, cudaStreamLegacy, cudaStreamLegacy);
    scale(p, q, N, 2, 0, b1);
    CHECK(cudaMemcpyAsync(host, q, BYTES, cudaMemcpyDeviceToHost, cudaStreamLegacy));
    CHECK(cudaStreamSynchronize(cudaStreamLegacy));
    expect_all(host, N, 4.0f);
    settle();
    CHECK(cudaFree(p));
    CHECK(cudaFree(q));
    CHECK(cudaFreeHost(host));
}
