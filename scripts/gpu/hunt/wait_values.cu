// nvcc: -lcuda
// Streams ordered by a flag in memory: the wait submitted after the write, and before it; a barrier of
// three streams by a batch of memory operations. Modules are loaded at the start: a kernel that is loaded
// by its first launch may wait for the device, and so for the wait that it is to end ("Lazy Loading" in
// the CUDA programming guide).
#include "hunt.h"
#include <cuda.h>

int main() {
    setenv("CUDA_MODULE_LOADING", "EAGER", 1); // before the first call to CUDA
    cudaStream_t s[3] = {new_stream(), new_stream(), new_stream()};
    float *host = pinned<float>(N), *d = device<float>(N);
    unsigned *flags = device<unsigned>(16);
    CHECK(cudaMemset(flags, 0, 16 * sizeof(unsigned)));
    CHECK(cudaDeviceSynchronize());
    CUdeviceptr flag = (CUdeviceptr)flags;

    for (unsigned round = 1; round <= 10; round++) {
        // The write first.
        busy(s[0], 1);
        fill(d, N, float(round), s[0]);
        CHECK(cuStreamWriteValue32(s[0], flag, round, CU_STREAM_WRITE_VALUE_DEFAULT));
        CHECK(cuStreamWaitValue32(s[1], flag, round, CU_STREAM_WAIT_VALUE_GEQ));
        // The wait first: before the write, and before the work that the write announces.
        CHECK(cuStreamWaitValue32(s[2], flag + 4, round, CU_STREAM_WAIT_VALUE_GEQ));
        CHECK(cudaMemcpyAsync(host, d, BYTES, cudaMemcpyDeviceToHost, s[2]));
        busy(s[1], 1);
        scale(d, d, N, 2, 0, s[1]);
        CHECK(cuStreamWriteValue32(s[1], flag + 4, round, CU_STREAM_WRITE_VALUE_DEFAULT));
        CHECK(cudaStreamSynchronize(s[2]));
        REQUIRE(host[0] == 2.0f * round && host[N - 1] == 2.0f * round);
    }
    expect_all(host, N, 20.0f);

    // Everybody tells everybody, then waits for everybody.
    float *part[3];
    for (int i = 0; i < 3; i++) {
        part[i] = async<float>(N, s[i]);
        fill(part[i], N, 1.0f, s[i]);
    }
    for (int i = 0; i < 3; i++) {
        CUstreamBatchMemOpParams op[3] = {};
        for (int k = 0; k < 3; k++) {
            bool mine = k == 0;
            op[k].operation = mine ? CU_STREAM_MEM_OP_WRITE_VALUE_32 : CU_STREAM_MEM_OP_WAIT_VALUE_32;
            op[k].writeValue.address = flag + 32 + 4 * ((i + k) % 3);
            op[k].writeValue.value = 1;
            op[k].writeValue.flags = mine ? (unsigned)CU_STREAM_WRITE_VALUE_DEFAULT : (unsigned)CU_STREAM_WAIT_VALUE_GEQ;
        }
        CHECK(cuStreamBatchMemOp(s[i], 3, op, 0));
    }
    add(part[0], part[1], d, N, s[1]);
    accumulate(d, part[2], N, s[1]);
    CHECK(cudaMemcpyAsync(host, d, BYTES, cudaMemcpyDeviceToHost, s[1]));
    for (auto p : part) CHECK(cudaFreeAsync(p, s[1]));
    CHECK(cudaDeviceSynchronize());
    expect_all(host, N, 3.0f);
    CHECK(cudaFree(d));
    CHECK(cudaFree(flags));
    CHECK(cudaFreeHost(host));
}
