// nvcc: -lcuda
// Waits for a value in memory, and the attribute that makes copies synchronous.
#include "probe.h"
#include <cuda.h>

int main() {
    warm_up();
    cudaStream_t s = nonblocking_stream(), t = nonblocking_stream();
    unsigned *flags, *mapped;
    CHECK(cudaMalloc((void **)&flags, 4096));
    CHECK(cudaMemset(flags, 0, 4096));
    CHECK(cudaMallocHost((void **)&mapped, 4096));
    *mapped = 0;
    CHECK(cudaDeviceSynchronize());
    CUdeviceptr flag = (CUdeviceptr)flags;

    spin(s);
    DRIVER(cuStreamWriteValue32(s, flag, 1, 0));
    DRIVER(cuStreamWaitValue32(t, flag, 1, CU_STREAM_WAIT_VALUE_GEQ));
    ask_held("does a wait for a value hold up its stream until the write before it, behind work, is done", t);
    DRIVER(cuStreamWaitValue32(t, flag + 4, 1, CU_STREAM_WAIT_VALUE_GEQ));
    touch(t);
    spin(s);
    DRIVER(cuStreamWriteValue32(s, flag + 4, 1, 0));
    ask("does it until a write that is submitted after the wait", [&] { CHECK(cudaStreamSynchronize(t)); });
    spin(s);
    DRIVER(cuStreamWriteValue32(s, flag + 4, 2, 0));
    DRIVER(cuStreamWaitValue32(t, flag + 4, 1, CU_STREAM_WAIT_VALUE_GEQ));
    ask_held("does it where an earlier write satisfies it already", t);
    spin(s);
    CHECK(cudaMemsetAsync(flags + 2, 1, 4, s));
    DRIVER(cuStreamWaitValue32(t, flag + 8, 1, CU_STREAM_WAIT_VALUE_GEQ));
    ask_held("does a memset satisfy it, behind work", t);
    CUdeviceptr host_flag;
    CHECK(cudaHostGetDevicePointer((void **)&host_flag, mapped, 0));
    DRIVER(cuStreamWaitValue32(t, host_flag, 1, CU_STREAM_WAIT_VALUE_GEQ));
    touch(t);
    cudaError_t before = cudaStreamQuery(t);
    (void)cudaGetLastError();
    *(volatile unsigned *)mapped = 1;
    cudaError_t after = cudaStreamSynchronize(t);
    printf("does a store by the CPU satisfy it: %s (before %s, then %s)\n",
           before == cudaErrorNotReady && after == cudaSuccess ? "yes" : "no", cudaGetErrorName(before), cudaGetErrorName(after));

    spin(cudaStreamLegacy);
    ask("does cuStreamWriteValue32 on the legacy stream wait in the call",
        [&] { DRIVER(cuStreamWriteValue32(CU_STREAM_LEGACY, flag + 12, 1, 0)); });
    cudaStream_t blocking = blocking_stream(), second = blocking_stream();
    spin(blocking);
    DRIVER(cuStreamWriteValue32(CU_STREAM_LEGACY, flag + 12, 2, 0));
    ask_held("is cuStreamWriteValue32 on the legacy stream a barrier for blocking streams", second);

    // Synchronous memory operations, by the attribute of one allocation.
    char *plain, *marked;
    constexpr size_t BYTES = 1 << 20;
    CHECK(cudaMalloc((void **)&plain, BYTES));
    CHECK(cudaMalloc((void **)&marked, BYTES));
    unsigned on = 1;
    DRIVER(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, (CUdeviceptr)marked));
    for (char *p : {plain, marked}) {
        const bool set = p == marked;
        spin(cudaStreamLegacy);
        ask(set ? "with sync-memops, does cudaMemset wait for legacy's work" : "without sync-memops, does cudaMemset",
            [&] { CHECK(cudaMemset(p, 0, BYTES)); });
        spin(cudaStreamLegacy);
        ask(set ? "with sync-memops, does cudaMemcpy D2D" : "without sync-memops, does cudaMemcpy D2D",
            [&] { CHECK(cudaMemcpy(p, p + BYTES / 2, BYTES / 2, cudaMemcpyDeviceToDevice)); });
        spin(s);
        ask(set ? "with sync-memops, does cudaMemsetAsync wait for its stream's work" : "without sync-memops, does cudaMemsetAsync",
            [&] { CHECK(cudaMemsetAsync(p, 0, BYTES, s)); });
    }
    return 0;
}
