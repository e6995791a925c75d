// A kernel that takes a union by value, of which the part in use is set: the rest still holds a pointer
// to memory that was freed. CUB's transforms pass their iterators like this.
#include "hunt.h"

union Argument {
    float *pointer;
    struct {
        float *base;
        float *end;
    } range;
};

__global__ void through_union(Argument argument, int n) {
    EACH(i, n) argument.pointer[i] = 1;
}

int main() {
    cudaStream_t s = new_stream();
    float *host = pinned<float>(N), *last = device<float>(N);
    for (int round = 0; round < 4; round++) {
        float *old = round % 2 ? async<float>(N, s) : device<float>(N);
        Argument argument;
        argument.range = {old, old + N / 2};
        through_union<<<64, 256, 0, s>>>(argument, N);
        if (round % 2) {
            CHECK(cudaFreeAsync(old, s));
        } else {
            CHECK(cudaStreamSynchronize(s));
            CHECK(cudaFree(old));
        }
        argument.pointer = last;
        through_union<<<64, 256, 0, s>>>(argument, N);
    }
    CHECK(cudaMemcpyAsync(host, last, BYTES, cudaMemcpyDeviceToHost, s));
    CHECK(cudaStreamSynchronize(s));
    expect_all(host, N, 1.0f);
    CHECK(cudaFree(last));
    CHECK(cudaFreeHost(host));
}
