// warn: SC201
// Thrust on streams: par and par_nosync with temporary memory from cudaMallocAsync, vectors of such
// memory, and plain vectors on the default stream.
#include "hunt.h"
#include <thrust/device_vector.h>
#include <thrust/execution_policy.h>
#include <thrust/functional.h>
#include <thrust/reduce.h>
#include <thrust/scan.h>
#include <thrust/sequence.h>
#include <thrust/sort.h>
#include <thrust/transform.h>

// Temporary memory of an algorithm, in the stream that the algorithm runs on.
struct AsyncAllocator {
    using value_type = char;
    cudaStream_t stream;

    char *allocate(std::ptrdiff_t bytes) { return async<char>(bytes, stream); }
    void deallocate(char *p, size_t) { CHECK(cudaFreeAsync(p, stream)); }
};

struct Affine {
    __host__ __device__ int operator()(int x) const { return 3 * x + 1; }
};

int main() {
    constexpr int COUNT = 1 << 20, STREAMS = 3;
    cudaStream_t s[STREAMS];
    int *keys[STREAMS], *values[STREAMS], *host = pinned<int>(4 * STREAMS);
    for (int i = 0; i < STREAMS; i++) {
        s[i] = new_stream();
        keys[i] = async<int>(COUNT, s[i]);
        values[i] = async<int>(COUNT, s[i]);
    }
    for (int round = 0; round < 5; round++)
        for (int i = 0; i < STREAMS; i++) {
            AsyncAllocator allocator{s[i]};
            auto policy = thrust::cuda::par_nosync(allocator).on(s[i]);
            thrust::sequence(policy, keys[i], keys[i] + COUNT, COUNT, -1);
            thrust::sequence(policy, values[i], values[i] + COUNT);
            thrust::sort_by_key(policy, keys[i], keys[i] + COUNT, values[i]);
            thrust::transform(policy, keys[i], keys[i] + COUNT, values[i], Affine());
            thrust::inclusive_scan(policy, values[i], values[i] + COUNT, values[i]);
            thrust::sort(policy, keys[i], keys[i] + COUNT, thrust::greater<int>());
            CHECK(cudaMemcpyAsync(host + i * 4, keys[i], 2 * sizeof(int), cudaMemcpyDeviceToHost, s[i]));
            CHECK(cudaMemcpyAsync(host + i * 4 + 2, values[i], 2 * sizeof(int), cudaMemcpyDeviceToHost, s[i]));
        }
    for (int i = 0; i < STREAMS; i++) {
        AsyncAllocator allocator{s[i]};
        long long sum = thrust::reduce(thrust::cuda::par(allocator).on(s[i]), keys[i], keys[i] + COUNT, 0LL);
        REQUIRE(sum == (long long)COUNT * (COUNT + 1) / 2);
        REQUIRE(host[i * 4] == COUNT && host[i * 4 + 1] == COUNT - 1 && host[i * 4 + 2] == 4 && host[i * 4 + 3] == 11);
        printf("sum %lld\n", sum);
        CHECK(cudaFreeAsync(keys[i], s[i]));
        CHECK(cudaFreeAsync(values[i], s[i]));
    }

    thrust::device_vector<int> plain(COUNT);
    thrust::sequence(plain.begin(), plain.end());
    thrust::sort(plain.begin(), plain.end(), thrust::greater<int>());
    thrust::device_vector<int> other = plain;
    plain.clear();
    plain.shrink_to_fit();
    thrust::transform(other.begin(), other.end(), other.begin(), Affine());
    int top = other[0];
    REQUIRE(top == 3 * (COUNT - 1) + 1);
    printf("top %d\n", top);
    for (auto stream : s) CHECK(cudaStreamSynchronize(stream));
}
