// Copy engine in, compute, copy engine out: a stream each, events in both directions that are
// recorded again in every round, two buffers.
#include "hunt.h"

int main() {
    constexpr int ROUNDS = 64, COUNT = 1 << 16;
    float *in = pinned<float>(ROUNDS * COUNT), *out = pinned<float>(ROUNDS * COUNT);
    for (int i = 0; i < ROUNDS * COUNT; i++) in[i] = 4;
    cudaStream_t up = new_stream(), work = new_stream(), down = new_stream();
    float *d_in[2], *d_out[2];
    cudaEvent_t filled[2], worked[2], drained[2];
    for (int i = 0; i < 2; i++) {
        d_in[i] = async<float>(COUNT, work);
        d_out[i] = async<float>(COUNT, work);
        filled[i] = new_event();
        worked[i] = new_event();
        drained[i] = new_event();
    }
    join(work, up);
    for (int round = 0; round < ROUNDS; round++) {
        int b = round % 2;
        if (round >= 2) CHECK(cudaStreamWaitEvent(up, worked[b], 0));
        CHECK(cudaMemcpyAsync(d_in[b], in + round * COUNT, COUNT * sizeof(float), cudaMemcpyHostToDevice, up));
        CHECK(cudaEventRecord(filled[b], up));
        CHECK(cudaStreamWaitEvent(work, filled[b], 0));
        if (round >= 2) CHECK(cudaStreamWaitEvent(work, drained[b], 0));
        scale(d_in[b], d_out[b], COUNT, 0.5f, 1, work);
        CHECK(cudaEventRecord(worked[b], work));
        CHECK(cudaStreamWaitEvent(down, worked[b], 0));
        CHECK(cudaMemcpyAsync(out + round * COUNT, d_out[b], COUNT * sizeof(float), cudaMemcpyDeviceToHost, down));
        CHECK(cudaEventRecord(drained[b], down));
    }
    for (int i = 0; i < 2; i++) {
        CHECK(cudaStreamWaitEvent(down, worked[i], 0));
        CHECK(cudaFreeAsync(d_in[i], down));
        CHECK(cudaFreeAsync(d_out[i], down));
    }
    CHECK(cudaStreamSynchronize(down));
    expect_all(out, size_t(ROUNDS) * COUNT, 3.0f);
    CHECK(cudaFreeHost(in));
    CHECK(cudaFreeHost(out));
}
