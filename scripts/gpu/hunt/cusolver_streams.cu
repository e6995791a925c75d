// nvcc: -lcusolver
// run: malloc
// run: async
// A factorization and a solution on each of three streams, with a workspace for each.
#include "libraries.h"
#include <cmath>
#include <cusolverDn.h>

// 4 on the diagonal, 1 beside it; b is the sum of each row, so that x is all ones.
__global__ void build(float *a, float *b, int n) {
    EACH(i, n) {
        for (int k = 0; k < n; k++) a[i + k * n] = i == k ? 4 : abs(i - k) == 1 ? 1 : 0;
        b[i] = 4 + (i > 0) + (i < n - 1);
    }
}

int main(int argc, char **argv) {
    Memory memory(argc, argv);
    constexpr int SIZE = 256, STREAMS = 3;
    cudaStream_t s[STREAMS];
    cusolverDnHandle_t handles[STREAMS];
    float *a[STREAMS], *b[STREAMS], *work[STREAMS], *host = pinned<float>(SIZE * STREAMS);
    int *info[STREAMS], *pivots[STREAMS], *status = pinned<int>(STREAMS);
    for (int i = 0; i < STREAMS; i++) {
        s[i] = new_stream();
        CHECK(cusolverDnCreate(&handles[i]));
        CHECK(cusolverDnSetStream(handles[i], s[i]));
        a[i] = memory.get<float>(SIZE * SIZE, s[i]);
        b[i] = memory.get<float>(SIZE, s[i]);
        info[i] = memory.get<int>(1, s[i]);
        pivots[i] = memory.get<int>(SIZE, s[i]);
        int count = 0;
        CHECK(cusolverDnSgetrf_bufferSize(handles[i], SIZE, SIZE, a[i], SIZE, &count));
        work[i] = memory.get<float>(count, s[i]);
        build<<<4, 64, 0, s[i]>>>(a[i], b[i], SIZE);
        CHECK(cusolverDnSgetrf(handles[i], SIZE, SIZE, a[i], SIZE, work[i], pivots[i], info[i]));
        CHECK(cusolverDnSgetrs(handles[i], CUBLAS_OP_N, SIZE, 1, a[i], SIZE, pivots[i], b[i], SIZE, info[i]));
        CHECK(cudaMemcpyAsync(host + i * SIZE, b[i], SIZE * sizeof(float), cudaMemcpyDeviceToHost, s[i]));
        CHECK(cudaMemcpyAsync(status + i, info[i], sizeof(int), cudaMemcpyDeviceToHost, s[i]));
        memory.put(work[i], s[i]);
    }
    for (int i = 0; i < STREAMS; i++) {
        CHECK(cudaStreamSynchronize(s[i]));
        REQUIRE(status[i] == 0);
        double sum = 0;
        for (int k = 0; k < SIZE; k++) {
            REQUIRE(std::fabs(host[i * SIZE + k] - 1) < 1e-4f);
            sum += host[i * SIZE + k];
        }
        printf("solution %.1f\n", sum);
        CHECK(cusolverDnDestroy(handles[i]));
        for (void *p : {(void *)a[i], (void *)b[i], (void *)info[i], (void *)pivots[i]}) memory.put(p, s[i]);
    }
    CHECK(cudaDeviceSynchronize());
}
