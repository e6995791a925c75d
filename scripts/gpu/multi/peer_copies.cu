// run: peer right => none
// run: peer source => SC109
// run: peer destination => SC109
// run: default right => none
// run: default source => SC109
// run: default destination => SC109
// run: blocking right => none
// run: null right => none
// run: null_async right => none
// run: blocking unordered => SC109 SC109
// run: null unordered => SC109 SC109
// A copy from device 0 to device 1 between a kernel that writes its source and one that reads its
// destination. In a stream of its own it has to be ordered with both, and `source` and `destination` leave
// that out. cudaMemcpyPeer, and any copy between devices in the NULL stream, comes after earlier and before
// later work of both devices (CUDA programming guide, "Peer-to-Peer Memory Copy"), so nothing else orders
// those; but non-blocking streams take no part, which `unordered` overlooks.
#include "multi.h"

int main(int argc, char **argv) {
    bool peer = said(argc, argv, 1, "peer"), by_default = said(argc, argv, 1, "default");
    bool blocking = said(argc, argv, 1, "blocking"), null = said(argc, argv, 1, "null");
    bool streamed = peer || by_default, right = said(argc, argv, 2, "right");
    bool blocks = !streamed && right;
    enable_peers();
    cudaStream_t writer = blocks ? new_blocking_stream() : new_stream();
    float *p = device<float>(N);
    on(1);
    cudaStream_t copier = new_stream(), reader = blocks ? new_blocking_stream() : new_stream();
    float *q = device<float>(N), *r = device<float>(N), *host = pinned<float>(N);
    CHECK(cudaMemset(q, 0, BYTES));
    CHECK(cudaDeviceSynchronize());
    for (int round = 1; round <= (right ? 5 : 1); round++) {
        on(0);
        busy(writer, 20);
        fill(p, N, float(round), writer);
        if (streamed) {
            on(1);
            across_or_lapse(!said(argc, argv, 2, "source"), 0, writer, copier);
            if (peer) CHECK(cudaMemcpyPeerAsync(q, 1, p, 0, BYTES, copier));
            else CHECK(cudaMemcpyAsync(q, p, BYTES, cudaMemcpyDefault, copier));
            across_or_lapse(!said(argc, argv, 2, "destination"), 1, copier, reader);
        } else if (blocking) {
            CHECK(cudaMemcpyPeer(q, 1, p, 0, BYTES));
        } else if (null) {
            CHECK(cudaMemcpy(q, p, BYTES, cudaMemcpyDeviceToDevice));
        } else {
            CHECK(cudaMemcpyPeerAsync(q, 1, p, 0, BYTES, 0));
        }
        on(1);
        scale(q, r, N, 2, 0, reader);
        CHECK(cudaMemcpyAsync(host, r, BYTES, cudaMemcpyDeviceToHost, reader));
        CHECK(cudaStreamSynchronize(reader));
        if (right) expect_all(host, N, 2.0f * round);
        // The next round's writers come after this one's readers: the host waited for them all.
        CHECK(cudaStreamSynchronize(copier));
        on(0);
        CHECK(cudaDeviceSynchronize());
    }
    settle();
    CHECK(cudaFree(p));
    CHECK(cudaFree(q));
    CHECK(cudaFree(r));
    CHECK(cudaFreeHost(host));
}
