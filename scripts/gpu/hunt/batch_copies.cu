// warn: SC201
// Copies in one batch call: from pinned memory in stream order, from the host's stack during the call.
#include "hunt.h"

int main() {
#if CUDART_VERSION < 13000
    skip("cudaMemcpyBatchAsync has another signature before CUDA 13");
#else
    constexpr int PARTS = 16, COUNT = 4096;
    cudaStream_t s = new_stream(), t = new_stream();
    float *d = async<float>(PARTS * COUNT, s), *host = pinned<float>(PARTS * COUNT), *back = pinned<float>(PARTS * COUNT);
    void *dsts[PARTS];
    const void *srcs[PARTS];
    size_t sizes[PARTS], first = 0;
    cudaMemcpyAttributes attributes = {};
    double total = 0;
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < PARTS * COUNT; i++) host[i] = float(round);
        for (int i = 0; i < PARTS; i++) {
            dsts[i] = d + i * COUNT;
            srcs[i] = host + i * COUNT;
            sizes[i] = COUNT * sizeof(float);
        }
        attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
        CHECK(cudaMemcpyBatchAsync(dsts, srcs, sizes, PARTS, &attributes, &first, 1, s));
        for (int i = 0; i < PARTS; i++) accumulate(d + i * COUNT, d + i * COUNT, COUNT, s);

        // The source's scope ends with the call.
        {
            float local[4] = {7, 7, 7, 7};
            void *dst = d;
            const void *src = local;
            size_t bytes = sizeof local;
            attributes.srcAccessOrder = cudaMemcpySrcAccessOrderDuringApiCall;
            CHECK(cudaMemcpyBatchAsync(&dst, &src, &bytes, 1, &attributes, &first, 1, s));
        }
        join(s, t);
        for (int i = 0; i < PARTS; i++) {
            dsts[i] = back + i * COUNT;
            srcs[i] = d + i * COUNT;
        }
        // The stream's earlier work writes the source: the order *any* would let the copy read it before.
        attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
        CHECK(cudaMemcpyBatchAsync(dsts, srcs, sizes, PARTS, &attributes, &first, 1, t));
        join(t, s);
        CHECK(cudaStreamSynchronize(t));
        REQUIRE(back[0] == 7 && back[3] == 7 && back[4] == 2.0f * round && back[PARTS * COUNT - 1] == 2.0f * round);
        total += back[PARTS * COUNT - 1];
    }
    printf("total %.1f\n", total);
    CHECK(cudaFreeAsync(d, t));
    CHECK(cudaStreamSynchronize(t));
    CHECK(cudaFreeHost(host));
    CHECK(cudaFreeHost(back));
#endif
}
