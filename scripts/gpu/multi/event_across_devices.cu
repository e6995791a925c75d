// run: right => none
// run: wrong => SC109
// A kernel of device 1 reads what a kernel of device 0 writes. An event recorded on device 0 and waited for
// on device 1 orders them, and one the other way lets the next round overwrite it.
#include "multi.h"

int main(int argc, char **argv) {
    bool right = said(argc, argv, 1, "right");
    enable_peers();
    cudaStream_t s0 = new_stream();
    cudaEvent_t written = new_event();
    float *p = device<float>(N);
    on(1);
    cudaStream_t s1 = new_stream();
    cudaEvent_t read = new_event();
    float *q = device<float>(N), *host = pinned<float>(N);
    for (int round = 1; round <= (right ? 5 : 1); round++) {
        on(0);
        busy(s0);
        fill(p, N, float(round), s0);
        CHECK(cudaEventRecord(written, s0));
        on(1);
        if (right) CHECK(cudaStreamWaitEvent(s1, written, 0));
        else lapse();
        scale(p, q, N, 2, 0, s1);
        CHECK(cudaEventRecord(read, s1));
        CHECK(cudaStreamWaitEvent(s0, read, 0));
        CHECK(cudaMemcpyAsync(host, q, BYTES, cudaMemcpyDeviceToHost, s1));
        CHECK(cudaStreamSynchronize(s1));
        expect_all(host, N, 2.0f * round);
    }
    settle();
    CHECK(cudaFree(p));
    CHECK(cudaFree(q));
    CHECK(cudaFreeHost(host));
}
