// Events, legacy streams, frees and synchronizing with two devices.
#include "probe.h"

int main() {
    int count = 0;
    CHECK(cudaGetDeviceCount(&count));
    if (count < 2) {
        printf("two devices: not asked, there is one\n");
        return 0;
    }
    cudaStream_t s[2], blocking[2];
    cudaEvent_t event[2];
    void *p[2];
    for (int i = 0; i < 2; i++) {
        CHECK(cudaSetDevice(i));
        warm_up();
        s[i] = nonblocking_stream();
        blocking[i] = blocking_stream();
        event[i] = new_event();
        CHECK(cudaMalloc(&p[i], 1 << 20));
    }
    auto settle = [] {
        for (int i = 0; i < 2; i++) {
            CHECK(cudaSetDevice(i));
            CHECK(cudaDeviceSynchronize());
        }
    };
    CHECK(cudaSetDevice(1));
    returns("cudaEventRecord of device 0's event on a stream of device 1 returns", cudaEventRecord(event[0], s[1]));
    CHECK(cudaSetDevice(0));
    returns("cudaEventRecord of device 0's event on device 0's stream with device 1 current returns",
            (cudaSetDevice(1), cudaEventRecord(event[0], s[0])));
    settle();

    CHECK(cudaSetDevice(0));
    spin(s[0]);
    CHECK(cudaEventRecord(event[0], s[0]));
    CHECK(cudaSetDevice(1));
    CHECK(cudaStreamWaitEvent(s[1], event[0], 0));
    ask_held("does a stream of device 1 that waits for device 0's event wait", s[1]);
    settle();
    CHECK(cudaSetDevice(0));
    spin(s[0]);
    CHECK(cudaSetDevice(1));
    ask("does cudaDeviceSynchronize of device 1 wait for device 0", [] { CHECK(cudaDeviceSynchronize()); });
    settle();
    CHECK(cudaSetDevice(0));
    spin(blocking[0]);
    CHECK(cudaSetDevice(1));
    ask_held("does device 1's legacy stream wait for device 0's blocking stream", cudaStreamLegacy);
    settle();
    CHECK(cudaSetDevice(0));
    spin(s[0]);
    CHECK(cudaSetDevice(1));
    ask("does cudaFree of device 1's memory wait for device 0's work", [&] { CHECK(cudaFree(p[1])); });
    settle();
    CHECK(cudaSetDevice(1));
    CHECK(cudaMalloc(&p[1], 1 << 20));
    CHECK(cudaSetDevice(0));
    spin(s[0]);
    CHECK(cudaSetDevice(1));
    ask("does cudaFree of device 0's memory, with device 1 current, wait for device 0's work", [&] { CHECK(cudaFree(p[0])); });
    settle();
    CHECK(cudaSetDevice(0));
    CHECK(cudaMalloc(&p[0], 1 << 20));
    for (int side = 0; side < 2; side++) {
        CHECK(cudaSetDevice(side));
        spin(s[side]);
        CHECK(cudaSetDevice(0));
        ask(side ? "does cudaMemcpyPeer wait, in the call, for a non-blocking stream of the destination's device"
                 : "does cudaMemcpyPeer wait, in the call, for a non-blocking stream of the source's device",
            [&] { CHECK(cudaMemcpyPeer(p[1], 1, p[0], 0, 1 << 20)); });
        settle();
    }
    CHECK(cudaSetDevice(0));
    spin(s[0]);
    CHECK(cudaMemcpyPeerAsync(p[1], 1, p[0], 0, 1 << 20, s[0]));
    CHECK(cudaSetDevice(1));
    ask_held("is a stream of device 1 held up by cudaMemcpyPeerAsync to it in a stream of device 0", s[1]);
    settle();
    for (int side = 0; side < 2; side++) {
        CHECK(cudaSetDevice(side));
        spin(s[side]);
        CHECK(cudaSetDevice(0));
        CHECK(cudaMemcpyAsync(p[1], p[0], 1 << 20, cudaMemcpyDeviceToDevice, cudaStreamLegacy));
        ask(side ? "is a copy between devices in the NULL stream held up by a non-blocking stream of the destination's device"
                 : "is a copy between devices in the NULL stream held up by a non-blocking stream of the source's device",
            [] { CHECK(cudaStreamSynchronize(cudaStreamLegacy)); });
        settle();
        CHECK(cudaSetDevice(0));
        spin(cudaStreamLegacy);
        CHECK(cudaMemcpyAsync(p[1], p[0], 1 << 20, cudaMemcpyDeviceToDevice, cudaStreamLegacy));
        CHECK(cudaSetDevice(side));
        ask_held(side ? "is a non-blocking stream of the destination's device held up by a pending copy between devices in the NULL stream"
                      : "is a non-blocking stream of the source's device held up by a pending copy between devices in the NULL stream",
                 s[side]);
        settle();
    }
    void *pinned;
    CHECK(cudaMallocHost(&pinned, 1 << 20));
    CHECK(cudaSetDevice(0));
    spin(s[0]);
    CHECK(cudaSetDevice(1));
    ask("does cudaFreeHost with device 1 current wait for device 0's work", [&] { CHECK(cudaFreeHost(pinned)); });
    settle();
    return 0;
}
