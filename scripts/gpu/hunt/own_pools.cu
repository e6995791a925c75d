// Pools of the program's own, allocations handed from stream to stream by events, freed on a third
// stream that never used them; pools trimmed, and destroyed when all is done.
#include "hunt.h"

int main() {
    cudaMemPoolProps props = {};
    props.allocType = cudaMemAllocationTypePinned;
    props.location = {cudaMemLocationTypeDevice, 0};
    float *host = pinned<float>(N);
    for (int round = 0; round < 8; round++) {
        cudaMemPool_t pool;
        CHECK(cudaMemPoolCreate(&pool, &props));
        cudaStream_t s[3] = {new_stream(), new_stream(), new_stream()};
        float *p[4];
        for (auto &q : p) {
            CHECK(cudaMallocFromPoolAsync((void **)&q, BYTES, pool, s[0]));
            fill(q, N, 1.0f, s[0]);
        }
        join(s[0], s[1]);
        for (int i = 0; i < 3; i++) accumulate(p[3], p[i], N, s[1]);
        CHECK(cudaMemcpyAsync(host, p[3], BYTES, cudaMemcpyDeviceToHost, s[1]));
        join(s[1], s[2]);
        for (auto q : p) CHECK(cudaFreeAsync(q, s[2]));
        // The pool gives the blocks out again on a stream that has waited for nobody.
        float *again;
        CHECK(cudaMallocFromPoolAsync((void **)&again, BYTES, pool, s[0]));
        fill(again, N, 9.0f, s[0]);
        CHECK(cudaFreeAsync(again, s[0]));
        for (auto stream : s) CHECK(cudaStreamSynchronize(stream));
        CHECK(cudaMemPoolTrimTo(pool, 0));
        for (auto stream : s) CHECK(cudaStreamDestroy(stream));
        CHECK(cudaMemPoolDestroy(pool));
    }
    expect_all(host, N, 4.0f);
}
