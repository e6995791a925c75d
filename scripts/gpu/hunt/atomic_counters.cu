// Two streams update one counter and one histogram by atomics alone, without order among them: additions,
// a maximum and bits, straight to memory and by way of a histogram in shared memory. Both are read after a
// join.
#include "hunt.h"

constexpr int BINS = 64;

__global__ void count_kernel(const int *in, int n, unsigned long long *counter) {
    EACH(i, n) if (in[i] % 3 == 0) atomicAdd(counter, 1ULL);
}

__global__ void extremes_kernel(const int *in, int n, int *largest, unsigned *seen) {
    EACH(i, n) {
        atomicMax(largest, in[i]);
        atomicOr(seen, 1u << (in[i] % 32));
    }
}

__global__ void histogram_kernel(const int *in, int n, unsigned *bins) {
    EACH(i, n) atomicAdd(&bins[in[i] % BINS], 1u);
}

__global__ void shared_histogram_kernel(const int *in, int n, unsigned *bins) {
    __shared__ unsigned mine[BINS];
    for (int b = threadIdx.x; b < BINS; b += blockDim.x) mine[b] = 0;
    __syncthreads();
    EACH(i, n) atomicAdd(&mine[in[i] % BINS], 1u);
    __syncthreads();
    for (int b = threadIdx.x; b < BINS; b += blockDim.x) atomicAdd(&bins[b], mine[b]);
}

struct Results {
    unsigned long long count;
    int largest;
    unsigned seen, bins[BINS];
};

int main() {
    cudaStream_t s[2] = {new_stream(), new_stream()}, reader = new_stream();
    int *host = pinned<int>(N), *in[2];
    Results *results = device<Results>(1), *out = pinned<Results>(1);
    CHECK(cudaMemset(results, 0, sizeof *results));
    for (int i = 0; i < N; i++) host[i] = i % 1000;
    for (int i = 0; i < 2; i++) {
        in[i] = device<int>(N);
        CHECK(cudaMemcpy(in[i], host, BYTES, cudaMemcpyHostToDevice));
    }
    CHECK(cudaDeviceSynchronize());
    constexpr int ROUNDS = 10;
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < 2; i++) {
            count_kernel<<<64, 256, 0, s[i]>>>(in[i], N, &results->count);
            extremes_kernel<<<64, 256, 0, s[i]>>>(in[i], N, &results->largest, &results->seen);
            histogram_kernel<<<64, 256, 0, s[i]>>>(in[i], N, results->bins);
            shared_histogram_kernel<<<64, 256, 0, s[i]>>>(in[i], N, results->bins);
        }
        CHECK(cudaGetLastError());
    }
    for (auto stream : s) join(stream, reader);
    CHECK(cudaMemcpyAsync(out, results, sizeof *out, cudaMemcpyDeviceToHost, reader));
    CHECK(cudaStreamSynchronize(reader));
    unsigned long long third = 0, all = 0, bins[BINS] = {};
    for (int i = 0; i < N; i++) third += host[i] % 3 == 0, bins[host[i] % BINS]++;
    REQUIRE(out->count == third * 2 * ROUNDS);
    REQUIRE(out->largest == 999 && out->seen == ~0u);
    for (int b = 0; b < BINS; b++) {
        REQUIRE(out->bins[b] == bins[b] * 4 * ROUNDS);
        all += out->bins[b] * (unsigned long long)(b + 1);
    }
    printf("counted %llu, histogram %llu\n", out->count, all);
    for (auto p : in) CHECK(cudaFree(p));
    CHECK(cudaFree(results));
    CHECK(cudaFreeHost(host));
    CHECK(cudaFreeHost(out));
}
