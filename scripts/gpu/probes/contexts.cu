// nvcc: -lcuda
// Contexts and green contexts: what does a synchronize cover, what do destroys and a reset wait for?
#include "probe.h"
#include <cuda.h>

static CUcontext new_context() {
    CUcontext context;
#if CUDA_VERSION >= 13000
    DRIVER(cuCtxCreate(&context, nullptr, 0, 0));
#else
    DRIVER(cuCtxCreate(&context, 0, 0));
#endif
    return context;
}

// Taking a context apart takes time of its own, so its pending work takes longer than a spin.
constexpr unsigned long long LONG_MS = 1500;

static void long_spin(cudaStream_t stream) {
    spin_kernel<<<1, 1, 0, stream>>>(LONG_MS * 1000000ULL);
    CHECK(cudaGetLastError());
}

static void report_long(const char *question, double ms) {
    printf("%s: %s (%.2f ms of %llu)\n", question, ms > LONG_MS * 0.8 ? "yes" : "no", ms, LONG_MS);
}

static const char *name(CUresult status) {
    const char *text = "unknown";
    cuGetErrorName(status, &text);
    return text;
}

int main() {
    warm_up();
    CUcontext primary, second;
    DRIVER(cuCtxGetCurrent(&primary));
    cudaStream_t in_primary = nonblocking_stream();
    cudaEvent_t of_primary = new_event();
    second = new_context();
    warm_up();
    cudaStream_t in_second = nonblocking_stream();
    cudaEvent_t of_second = new_event();

    auto use = [](CUcontext context) { DRIVER(cuCtxSetCurrent(context)); };
    // Each context's work ends before the next question.
    auto settle = [&] {
        for (CUcontext context : {primary, second}) {
            use(context);
            DRIVER(cuCtxSynchronize());
        }
    };

    use(second);
    spin(in_second);
    use(primary);
    double ms = milliseconds([&] { DRIVER(cuCtxSynchronize()); });
    report("does cuCtxSynchronize of the primary context wait for another context's stream", ms);
    settle();
    use(second);
    spin(in_second);
    use(primary);
    ms = milliseconds([&] { CHECK(cudaDeviceSynchronize()); });
    report("does cudaDeviceSynchronize with the primary context current wait for another context's stream", ms);
    settle();
    use(primary);
    spin(in_primary);
    use(second);
    ms = milliseconds([&] { CHECK(cudaDeviceSynchronize()); });
    report("does cudaDeviceSynchronize with another context current wait for the primary context's stream", ms);
    settle();

    use(primary);
    spin(cudaStreamLegacy);
    use(second);
    touch(cudaStreamLegacy);
    ms = milliseconds([&] { CHECK(cudaStreamSynchronize(cudaStreamLegacy)); });
    report("does a context's legacy stream wait for another context's legacy stream", ms);
    settle();

    void *p;
    use(primary);
    CHECK(cudaMalloc(&p, 1 << 20));
    use(second);
    spin(in_second);
    use(primary);
    ms = milliseconds([&] { CHECK(cudaFree(p)); });
    report("does cudaFree wait for another context's stream", ms);
    settle();

    // Events between contexts.
    use(second);
    printf("cuEventRecord of the primary context's event on another context's stream: %s\n",
           name(cuEventRecord(of_primary, in_second)));
    use(primary);
    printf("cuEventRecord of an event on its own context's stream with another context current: %s\n",
           name(cuEventRecord(of_second, in_second)));
    settle();
    use(primary);
    spin(in_primary);
    DRIVER(cuEventRecord(of_primary, in_primary));
    use(second);
    printf("cuStreamWaitEvent on another context's event: %s\n", name(cuStreamWaitEvent(in_second, of_primary, 0)));
    touch(in_second);
    ms = milliseconds([&] { CHECK(cudaStreamSynchronize(in_second)); });
    report("does that hold up the stream", ms);
    settle();

    use(second);
    long_spin(in_second);
    report_long("does cuCtxDestroy wait for the context's pending work", milliseconds([&] { DRIVER(cuCtxDestroy(second)); }));
    use(primary);
    CHECK(cudaDeviceSynchronize());

    CUdevResource all, part[1], rest;
    unsigned groups = 1;
    if (cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM) == CUDA_SUCCESS &&
        cuDevSmResourceSplitByCount(part, &groups, &all, &rest, 0, 16) == CUDA_SUCCESS) {
        CUdevResourceDesc description;
        CUgreenCtx green;
        CUcontext as_context;
        CUstream in_green;
        DRIVER(cuDevResourceGenerateDesc(&description, part, 1));
        DRIVER(cuGreenCtxCreate(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
        DRIVER(cuGreenCtxStreamCreate(&in_green, green, CU_STREAM_NON_BLOCKING, 0));
        DRIVER(cuCtxFromGreenCtx(&as_context, green));
        spin(in_green);
        ask("does cuCtxSynchronize of the primary context wait for a green context's stream", [&] { DRIVER(cuCtxSynchronize()); });
        spin(in_green);
        ask("does cudaDeviceSynchronize wait for a green context's stream", [&] { CHECK(cudaDeviceSynchronize()); });
        spin(in_primary);
        use(as_context);
        ms = milliseconds([&] { DRIVER(cuCtxSynchronize()); });
        report("does cuCtxSynchronize of a green context wait for the primary context's stream", ms);
        use(primary);
        CHECK(cudaDeviceSynchronize());
        spin(in_green);
        ask_held("does the legacy stream wait for a green context's stream", cudaStreamLegacy);
        spin(in_green);
        DRIVER(cuGreenCtxRecordEvent(green, of_primary));
        ask("does an event of cuGreenCtxRecordEvent cover the green context's streams", [&] { CHECK(cudaEventSynchronize(of_primary)); });
        spin(in_primary);
        DRIVER(cuGreenCtxRecordEvent(green, of_primary));
        ask("does it cover the primary context's streams", [&] { CHECK(cudaEventSynchronize(of_primary)); });
        spin(in_primary);
        DRIVER(cuEventRecord(of_primary, in_primary));
        DRIVER(cuGreenCtxWaitEvent(green, of_primary));
        ask_held("does cuGreenCtxWaitEvent hold up the green context's streams", in_green);
        spin(in_green);
        ms = milliseconds([&] { DRIVER(cuStreamDestroy(in_green)); });
        report("does cuStreamDestroy of a green context's stream wait", ms);
        spin(in_primary);
        ask("does cuGreenCtxDestroy wait for pending work of the primary context", [&] { DRIVER(cuGreenCtxDestroy(green)); });
    } else {
        printf("green contexts: not to be had here\n");
    }

    long_spin(in_primary);
    report_long("does cudaDeviceReset wait for pending work", milliseconds([] { CHECK(cudaDeviceReset()); }));
    return 0;
}
