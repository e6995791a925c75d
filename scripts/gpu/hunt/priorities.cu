// A stream of low and one of high priority, each with work of its own, joined by an event.
#include "hunt.h"

int main() {
    int low, high;
    CHECK(cudaDeviceGetStreamPriorityRange(&low, &high));
    cudaStream_t slow, fast;
    CHECK(cudaStreamCreateWithPriority(&slow, cudaStreamNonBlocking, low));
    CHECK(cudaStreamCreateWithPriority(&fast, cudaStreamNonBlocking, high));
    float *a = async<float>(N, slow), *b = async<float>(N, fast), *host = pinned<float>(N);
    fill(a, N, 0.0f, slow);
    fill(b, N, 0.0f, fast);
    for (int i = 0; i < 100; i++) {
        scale(a, a, N, 1, 1, slow);
        if (i % 10 == 0) scale(b, b, N, 1, 1, fast);
    }
    join(slow, fast);
    accumulate(b, a, N, fast);
    CHECK(cudaMemcpyAsync(host, b, BYTES, cudaMemcpyDeviceToHost, fast));
    CHECK(cudaFreeAsync(a, fast));
    CHECK(cudaFreeAsync(b, fast));
    CHECK(cudaStreamSynchronize(fast));
    expect_all(host, N, 110.0f);
    CHECK(cudaStreamDestroy(slow));
    CHECK(cudaStreamDestroy(fast));
}
