// One event for every hand-over of a loop, and a ring of timing events that are queried late.
#include "hunt.h"

int main() {
    constexpr int ROUNDS = 300, RING = 4;
    cudaStream_t s[3] = {new_stream(), new_stream(), new_stream()};
    float *d = async<float>(N, s[0]), *host = pinned<float>(N);
    cudaEvent_t event = new_event(), ring[RING];
    for (auto &e : ring) CHECK(cudaEventCreate(&e));
    fill(d, N, 0.0f, s[0]);
    for (int i = 0; i < ROUNDS; i++) {
        cudaStream_t from = s[i % 3], to = s[(i + 1) % 3];
        scale(d, d, N, 1, 1, from);
        CHECK(cudaEventRecord(ring[i % RING], from));
        // The same event again and again: the wait stands for the record that it has now.
        CHECK(cudaEventRecord(event, from));
        CHECK(cudaStreamWaitEvent(to, event, 0));
        if (i >= RING && i % 50 == 0) {
            CHECK(cudaEventSynchronize(ring[(i + 1) % RING]));
            float ms;
            CHECK(cudaEventElapsedTime(&ms, ring[(i + 1) % RING], ring[(i + 1) % RING]));
            REQUIRE(ms == 0);
        }
    }
    CHECK(cudaMemcpyAsync(host, d, BYTES, cudaMemcpyDeviceToHost, s[ROUNDS % 3]));
    CHECK(cudaFreeAsync(d, s[ROUNDS % 3]));
    CHECK(cudaStreamSynchronize(s[ROUNDS % 3]));
    expect_all(host, N, float(ROUNDS));
}
