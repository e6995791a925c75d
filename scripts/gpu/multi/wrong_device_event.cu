// run: right => none
// run: earlier => SC109
// run: never => SC109 SC112
// run: pool => SC101 SC112
// An event of device 0 cannot be recorded on a stream of device 1: the call fails and counts for nothing.
// What was recorded of the event before, if anything, stands, and the wait orders nothing that matters.
#include "multi.h"

int main(int argc, char **argv) {
    bool right = said(argc, argv, 1, "right"), pool = said(argc, argv, 1, "pool");
    need_two_devices();
    on(0);
    cudaStream_t s0 = new_stream();
    float *other = device<float>(N);
    cudaEvent_t event;
    if (!right) event = new_event();
    fill(other, N, 3.0f, s0);
    if (said(argc, argv, 1, "earlier")) CHECK(cudaEventRecord(event, s0));
    on(1);
    if (right) event = new_event();
    cudaStream_t s1 = new_stream(), s2 = new_stream();
    float *p = pool ? async<float>(N, s1) : device<float>(N), *host = pinned<float>(N);
    if (!pool) fill(p, N, 1.0f, s1);
    cudaError_t status = cudaEventRecord(event, s1);
    REQUIRE((status == cudaSuccess) == right);
    (void)cudaGetLastError();
    if (!right) lapse();
    CHECK(cudaStreamWaitEvent(s2, event, 0));
    if (pool) fill(p, N, 2.0f, s2);
    else scale(p, p, N, 2, 0, s2);
    CHECK(cudaMemcpyAsync(host, p, BYTES, cudaMemcpyDeviceToHost, s2));
    CHECK(cudaStreamSynchronize(s2));
    expect_all(host, N, 2.0f);
    settle();
    on(1);
    if (pool) CHECK(cudaFreeAsync(p, s2));
    else CHECK(cudaFree(p));
    settle();
    CHECK(cudaFree(other));
    CHECK(cudaFreeHost(host));
}
