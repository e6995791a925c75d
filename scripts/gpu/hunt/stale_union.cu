// Kernels that take a union or a padded structure by value, of which the part in use is set: the rest
// still holds a pointer to memory that was freed. CUB's transforms pass their iterators like this.
#include "hunt.h"

union Argument {
    float *pointer;
    struct {
        float *base;
        float *end;
    } range;
};

struct Padded {
    float *pointer;
    int flags;
    float *second; // in use where flags say so
};

__global__ void through_union(Argument argument, int n) {
    EACH(i, n) argument.pointer[i] = 1;
}

__global__ void through_padded(Padded padded, int n) {
    EACH(i, n) {
        padded.pointer[i] += 1;
        if (padded.flags) padded.second[i] += 1;
    }
}

int main() {
    cudaStream_t s = new_stream();
    float *host = pinned<float>(N), *last = device<float>(N);
    for (int round = 0; round < 4; round++) {
        float *old = round % 2 ? async<float>(N, s) : device<float>(N);
        Argument argument;
        argument.range = {old, old + N / 2};
        Padded padded = {old, 1, old};
        through_union<<<64, 256, 0, s>>>(argument, N);
        through_padded<<<64, 256, 0, s>>>(padded, N);
        if (round % 2) {
            CHECK(cudaFreeAsync(old, s));
        } else {
            CHECK(cudaStreamSynchronize(s));
            CHECK(cudaFree(old));
        }
        argument.pointer = last;
        padded.pointer = last;
        padded.flags = 0;
        through_union<<<64, 256, 0, s>>>(argument, N);
        through_padded<<<64, 256, 0, s>>>(padded, N);
    }
    CHECK(cudaMemcpyAsync(host, last, BYTES, cudaMemcpyDeviceToHost, s));
    CHECK(cudaStreamSynchronize(s));
    expect_all(host, N, 2.0f);
    CHECK(cudaFree(last));
    CHECK(cudaFreeHost(host));
}
