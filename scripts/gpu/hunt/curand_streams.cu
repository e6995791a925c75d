// nvcc: -lcurand
// run: malloc
// run: async
// A generator for each of three streams, whose numbers a kernel adds up; one generator moved on by events.
#include "libraries.h"
#include <curand.h>

__global__ void sum_kernel(const float *in, int n, double *out) {
    double sum = 0;
    EACH(i, n) sum += in[i];
    atomicAdd(out, sum);
}

int main(int argc, char **argv) {
    Memory memory(argc, argv);
    constexpr int STREAMS = 3;
    cudaStream_t s[STREAMS];
    curandGenerator_t generators[STREAMS];
    double *host = pinned<double>(STREAMS + 1);
    for (int i = 0; i < STREAMS; i++) {
        s[i] = new_stream();
        CHECK(curandCreateGenerator(&generators[i], CURAND_RNG_PSEUDO_PHILOX4_32_10));
        CHECK(curandSetPseudoRandomGeneratorSeed(generators[i], 1234 + i));
        CHECK(curandSetStream(generators[i], s[i]));
    }
    for (int round = 0; round < 5; round++)
        for (int i = 0; i < STREAMS; i++) {
            float *p = memory.get<float>(N, s[i]);
            double *sum = memory.get<double>(1, s[i]);
            CHECK(cudaMemsetAsync(sum, 0, sizeof(double), s[i]));
            CHECK(curandGenerateUniform(generators[i], p, N));
            sum_kernel<<<64, 256, 0, s[i]>>>(p, N, sum);
            CHECK(cudaMemcpyAsync(host + i, sum, sizeof(double), cudaMemcpyDeviceToHost, s[i]));
            memory.put(p, s[i]);
            memory.put(sum, s[i]);
        }
    for (int i = 0; i < STREAMS; i++) {
        CHECK(cudaStreamSynchronize(s[i]));
        REQUIRE(host[i] > 0.49 * N && host[i] < 0.51 * N);
        printf("mean %.4f\n", host[i] / N);
    }
    // XORWOW keeps its state in device memory.
    curandGenerator_t shared;
    CHECK(curandCreateGenerator(&shared, CURAND_RNG_PSEUDO_XORWOW));
    CHECK(curandSetPseudoRandomGeneratorSeed(shared, 99));
    float *p = memory.get<float>(N, s[0]);
    double *sum = memory.get<double>(1, s[0]);
    CHECK(cudaMemsetAsync(sum, 0, sizeof(double), s[0]));
    for (int i = 0; i < STREAMS; i++) {
        if (i) join(s[i - 1], s[i]);
        CHECK(curandSetStream(shared, s[i]));
        CHECK(curandGenerateUniform(shared, p, N));
        sum_kernel<<<64, 256, 0, s[i]>>>(p, N, sum);
    }
    CHECK(cudaMemcpyAsync(host + STREAMS, sum, sizeof(double), cudaMemcpyDeviceToHost, s[STREAMS - 1]));
    memory.put(p, s[STREAMS - 1]);
    memory.put(sum, s[STREAMS - 1]);
    CHECK(cudaDeviceSynchronize());
    REQUIRE(host[STREAMS] > 0.49 * N * STREAMS && host[STREAMS] < 0.51 * N * STREAMS);
    printf("mean %.4f\n", host[STREAMS] / N / STREAMS);
    for (auto generator : generators) CHECK(curandDestroyGenerator(generator));
    CHECK(curandDestroyGenerator(shared));
}
