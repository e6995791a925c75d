// nvcc: -lcublas
// run: malloc
// run: async
// Matrix products on three streams: a handle for each with a workspace of its own, then one handle that
// is moved from stream to stream; scalars on the host and on the device.
#include "libraries.h"
#include <cublas_v2.h>

int main(int argc, char **argv) {
    Memory memory(argc, argv);
    constexpr int M = 512, SIZE = M * M, STREAMS = 3;
    constexpr size_t WORKSPACE = 32 << 20;
    cudaStream_t s[STREAMS];
    cublasHandle_t handles[STREAMS];
    float *a, *b, *c[STREAMS], *host = pinned<float>(SIZE * STREAMS);
    void *workspace[STREAMS];
    for (int i = 0; i < STREAMS; i++) {
        s[i] = new_stream();
        CHECK(cublasCreate(&handles[i]));
        CHECK(cublasSetStream(handles[i], s[i]));
        workspace[i] = memory.get<char>(WORKSPACE, s[i]);
        CHECK(cublasSetWorkspace(handles[i], workspace[i], WORKSPACE));
        c[i] = memory.get<float>(SIZE, s[i]);
    }
    a = memory.get<float>(SIZE, s[0]);
    b = memory.get<float>(SIZE, s[0]);
    fill(a, SIZE, 1.0f, s[0]);
    fill(b, SIZE, 2.0f, s[0]);
    for (int i = 1; i < STREAMS; i++) join(s[0], s[i]);
    float one = 1, zero = 0;
    for (int round = 0; round < 10; round++)
        for (int i = 0; i < STREAMS; i++) {
            CHECK(cublasSgemm(handles[i], CUBLAS_OP_N, CUBLAS_OP_T, M, M, M, &one, a, M, b, M, &zero, c[i], M));
            float half = 0.5f;
            CHECK(cublasSscal(handles[i], SIZE, &half, c[i], 1));
        }
    // Results and scalars that stay on the device.
    for (int i = 0; i < STREAMS; i++) {
        float *scalar = memory.get<float>(1, s[i]);
        CHECK(cublasSetPointerMode(handles[i], CUBLAS_POINTER_MODE_DEVICE));
        CHECK(cublasSdot(handles[i], M, c[i], 1, c[i], 1, scalar));
        CHECK(cublasSscal(handles[i], SIZE, scalar, c[i], 1));
        CHECK(cublasSetPointerMode(handles[i], CUBLAS_POINTER_MODE_HOST));
        CHECK(cudaMemcpyAsync(host + i * SIZE, c[i], SIZE * sizeof(float), cudaMemcpyDeviceToHost, s[i]));
        memory.put(scalar, s[i]);
    }
    for (auto stream : s) CHECK(cudaStreamSynchronize(stream));
    // Each element is 512 * 1 * 2 / 2 = 512; times 512 * 512 * 512 = 2^36.
    for (int i = 0; i < STREAMS; i++) expect_all(host + i * SIZE, SIZE, 68719476736.0f);

    // One handle without a workspace of the caller's, moved on by events.
    cublasHandle_t shared;
    CHECK(cublasCreate(&shared));
    for (int i = 0; i < STREAMS; i++) {
        if (i) join(s[i - 1], s[i]);
        CHECK(cublasSetStream(shared, s[i]));
        CHECK(cublasSgemm(shared, CUBLAS_OP_N, CUBLAS_OP_N, M, M, M, &one, a, M, b, M, &zero, c[0], M));
    }
    CHECK(cudaMemcpyAsync(host, c[0], SIZE * sizeof(float), cudaMemcpyDeviceToHost, s[STREAMS - 1]));
    CHECK(cudaStreamSynchronize(s[STREAMS - 1]));
    expect_all(host, SIZE, 1024.0f);
    CHECK(cublasDestroy(shared));
    for (int i = 1; i < STREAMS; i++) join(s[i], s[0]);
    memory.put(a, s[0]);
    memory.put(b, s[0]);
    for (int i = 0; i < STREAMS; i++) {
        CHECK(cublasDestroy(handles[i]));
        memory.put(c[i], s[0]);
        memory.put(workspace[i], s[0]);
    }
    CHECK(cudaDeviceSynchronize());
}
