// run: malloc
// run: async
// CUB's device algorithms in two phases on three streams, with their temporary memory in stream order.
#include "libraries.h"
#include <cub/cub.cuh>

__global__ void descend(int *keys, int *values, int n) {
    EACH(i, n) {
        keys[i] = n - i;
        values[i] = i;
    }
}

int main(int argc, char **argv) {
    Memory memory(argc, argv);
    constexpr int COUNT = 1 << 20, STREAMS = 3;
    cudaStream_t s[STREAMS];
    long long *host = pinned<long long>(STREAMS);
    int *scanned = pinned<int>(STREAMS);
    for (int i = 0; i < STREAMS; i++) {
        s[i] = new_stream();
        int *p[4];
        for (auto &q : p) q = memory.get<int>(COUNT, s[i]);
        long long *sum = memory.get<long long>(1, s[i]);
        descend<<<64, 256, 0, s[i]>>>(p[0], p[1], COUNT);

        auto run = [&](auto algorithm) {
            size_t bytes = 0;
            CHECK(algorithm(nullptr, bytes));
            char *temporary = memory.get<char>(bytes, s[i]);
            CHECK(algorithm(temporary, bytes));
            memory.put(temporary, s[i]);
        };
        for (int round = 0; round < 3; round++) {
            run([&](void *t, size_t &bytes) {
                return cub::DeviceRadixSort::SortPairs(t, bytes, p[0], p[2], p[1], p[3], COUNT, 0, 32, s[i]);
            });
            run([&](void *t, size_t &bytes) { return cub::DeviceScan::ExclusiveSum(t, bytes, p[2], p[1], 1000, s[i]); });
            run([&](void *t, size_t &bytes) { return cub::DeviceReduce::Sum(t, bytes, p[3], sum, COUNT, s[i]); });
            run([&](void *t, size_t &bytes) {
                return cub::DeviceSelect::Unique(t, bytes, p[2], p[3], p[1] + COUNT / 2, COUNT, s[i]);
            });
        }
        CHECK(cudaMemcpyAsync(host + i, sum, sizeof(long long), cudaMemcpyDeviceToHost, s[i]));
        CHECK(cudaMemcpyAsync(scanned + i, p[1] + 999, sizeof(int), cudaMemcpyDeviceToHost, s[i]));
        for (auto q : p) memory.put(q, s[i]);
        memory.put(sum, s[i]);
    }
    for (int i = 0; i < STREAMS; i++) {
        CHECK(cudaStreamSynchronize(s[i]));
        REQUIRE(scanned[i] == 999 * 1000 / 2);
        printf("scan %d\n", scanned[i]);
    }
    CHECK(cudaDeviceSynchronize());
}
