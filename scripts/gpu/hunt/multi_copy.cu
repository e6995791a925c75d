// Double buffering: while one buffer is worked on, the other is copied in and out. Events order the
// use of a buffer, the host waits for a buffer's event before it touches its pinned memory.
#include "hunt.h"

int main() {
    constexpr int BUFFERS = 4, ROUNDS = 40, COUNT = 1 << 18;
    float *in[BUFFERS], *out[BUFFERS], *d_in[BUFFERS], *d_out[BUFFERS];
    cudaStream_t streams[BUFFERS];
    cudaEvent_t done[BUFFERS];
    for (int i = 0; i < BUFFERS; i++) {
        CHECK(cudaHostAlloc((void **)&in[i], COUNT * sizeof(float), cudaHostAllocDefault));
        CHECK(cudaHostAlloc((void **)&out[i], COUNT * sizeof(float), cudaHostAllocDefault));
        d_in[i] = device<float>(COUNT);
        d_out[i] = device<float>(COUNT);
        for (int k = 0; k < COUNT; k++) in[i][k] = 1;
        streams[i] = new_stream();
        done[i] = new_event();
        CHECK(cudaEventRecord(done[i], streams[i]));
        CHECK(cudaMemcpyAsync(d_in[i], in[i], COUNT * sizeof(float), cudaMemcpyHostToDevice, streams[i]));
    }
    CHECK(cudaDeviceSynchronize());
    double total = 0;
    for (int round = 0, now = 0; round < ROUNDS; round++) {
        int next = (round + 1) % BUFFERS;
        CHECK(cudaEventSynchronize(done[next]));
        if (round + 1 >= BUFFERS) total += out[next][7];
        // The work of this buffer, its result's way out, and the next buffer's way in.
        scale(d_in[now], d_out[now], COUNT, 2, 1, streams[now]);
        CHECK(cudaMemcpyAsync(d_in[next], in[next], COUNT * sizeof(float), cudaMemcpyHostToDevice, streams[next]));
        CHECK(cudaMemcpyAsync(out[now], d_out[now], COUNT * sizeof(float), cudaMemcpyDeviceToHost, streams[now]));
        CHECK(cudaEventRecord(done[now], streams[now]));
        now = next;
    }
    CHECK(cudaDeviceSynchronize());
    for (int i = 0; i < BUFFERS; i++) {
        expect_all(out[i], COUNT, 3.0f);
        CHECK(cudaFreeHost(in[i]));
        CHECK(cudaFreeHost(out[i]));
        CHECK(cudaFree(d_in[i]));
        CHECK(cudaFree(d_out[i]));
        CHECK(cudaStreamDestroy(streams[i]));
        CHECK(cudaEventDestroy(done[i]));
    }
    printf("total %.1f\n", total);
}
