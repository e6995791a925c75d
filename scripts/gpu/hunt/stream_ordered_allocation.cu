// run: basic
// run: threshold
// Allocations in stream order, made, used and freed in a loop; with the pool's release threshold set
// it keeps its memory over synchronizations.
#include "hunt.h"

int main(int argc, char **argv) {
    bool threshold = argc > 1 && !strcmp(argv[1], "threshold");
    if (threshold) {
        cudaMemPool_t pool;
        unsigned long long keep = ~0ULL, high = 0;
        CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
        CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
        CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrUsedMemHigh, &high));
    }
    cudaStream_t stream = new_stream();
    float *a = pinned<float>(N), *b = pinned<float>(N), *c = pinned<float>(N);
    for (int i = 0; i < N; i++) a[i] = 1, b[i] = 2;
    for (int round = 0; round < 20; round++) {
        float *d_a = async<float>(N, stream), *d_b = async<float>(N, stream), *d_c = async<float>(N, stream);
        CHECK(cudaMemcpyAsync(d_a, a, BYTES, cudaMemcpyHostToDevice, stream));
        CHECK(cudaMemcpyAsync(d_b, b, BYTES, cudaMemcpyHostToDevice, stream));
        add(d_a, d_b, d_c, N, stream);
        CHECK(cudaFreeAsync(d_a, stream));
        CHECK(cudaFreeAsync(d_b, stream));
        CHECK(cudaMemcpyAsync(c, d_c, BYTES, cudaMemcpyDeviceToHost, stream));
        CHECK(cudaFreeAsync(d_c, stream));
        CHECK(cudaStreamSynchronize(stream));
    }
    expect_all(c, N, 3.0f);
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFreeHost(a));
    CHECK(cudaFreeHost(b));
    CHECK(cudaFreeHost(c));
}
