// nvcc: -default-stream per-thread -Xcompiler -pthread
// run: right => none
// run: wrong => SC109
// run: same_device => SC109
// Two host threads, each with its default stream on a device of its own. The second thread works on what the
// first one made, and its stream has to wait for an event. In `same_device` both are on device 0, where
// their default streams are two all the same.
#include "multi.h"
#include <thread>

int main(int argc, char **argv) {
    bool right = said(argc, argv, 1, "right");
    int second_device = said(argc, argv, 1, "same_device") ? 0 : 1;
    enable_peers();
    float *p = device<float>(N), *host = pinned<float>(N);
    cudaEvent_t ready;
    std::thread first([&] {
        on(0);
        ready = new_event();
        busy(0);
        fill(p, N, 3.0f, 0);
        CHECK(cudaEventRecord(ready, 0));
    });
    first.join();
    std::thread second([&] {
        on(second_device);
        float *q = device<float>(N);
        if (right) CHECK(cudaStreamWaitEvent(0, ready, 0));
        else lapse();
        scale(p, q, N, 2, 0, 0);
        CHECK(cudaMemcpyAsync(host, q, BYTES, cudaMemcpyDeviceToHost, 0));
        CHECK(cudaStreamSynchronize(0));
        CHECK(cudaFree(q));
    });
    second.join();
    expect_all(host, N, 6.0f);
    settle();
    CHECK(cudaFree(p));
    CHECK(cudaFreeHost(host));
}
