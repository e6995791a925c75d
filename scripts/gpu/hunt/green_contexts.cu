// nvcc: -lcuda
// The GPU's multiprocessors in two green contexts with a stream each, ordered by events of streams and
// of whole green contexts.
#include "hunt.h"
#include <cuda.h>

int main() {
    CHECK(cudaFree(nullptr));
    CUdevResource all, part[1], rest;
    unsigned groups = 1;
    if (cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM) != CUDA_SUCCESS ||
        cuDevSmResourceSplitByCount(part, &groups, &all, &rest, 0, 16) != CUDA_SUCCESS || rest.sm.smCount == 0)
        skip("no green contexts");
    CUdevResource shares[2] = {part[0], rest};
    CUgreenCtx green[2];
    CUstream s[2];
    for (int i = 0; i < 2; i++) {
        CUdevResourceDesc description;
        CHECK(cuDevResourceGenerateDesc(&description, &shares[i], 1));
        CHECK(cuGreenCtxCreate(&green[i], description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
        CHECK(cuGreenCtxStreamCreate(&s[i], green[i], CU_STREAM_NON_BLOCKING, 0));
    }
    float *a = device<float>(N), *b = async<float>(N, s[0]), *host = pinned<float>(N);
    cudaEvent_t event = new_event(), whole = new_event();
    for (int round = 0; round < 10; round++) {
        fill(a, N, 1.0f, s[0]);
        fill(b, N, 2.0f, s[0]);
        CHECK(cudaEventRecord(event, s[0]));
        CHECK(cudaStreamWaitEvent(s[1], event, 0));
        add(a, b, b, N, s[1]);
        CHECK(cuGreenCtxRecordEvent(green[1], whole));
        CHECK(cuGreenCtxWaitEvent(green[0], whole));
        scale(b, b, N, 2, 0, s[0]);
    }
    CHECK(cudaMemcpyAsync(host, b, BYTES, cudaMemcpyDeviceToHost, s[0]));
    CHECK(cudaFreeAsync(b, s[0]));
    CHECK(cudaStreamSynchronize(s[0]));
    expect_all(host, N, 6.0f);
    for (int i = 0; i < 2; i++) {
        CHECK(cuStreamDestroy(s[i]));
        CHECK(cuGreenCtxDestroy(green[i]));
    }
    CHECK(cudaFree(a));
    CHECK(cudaFreeHost(host));
}
