// Does a programmatic dependent launch start early, and what covers the kernel before it?
#include "probe.h"

struct Times {
    unsigned long long primary_end, secondary_start, follower_start;
};

__device__ unsigned long long now() {
    unsigned long long time;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
    return time;
}

__global__ void primary(Times *times, bool trigger) {
#if __CUDA_ARCH__ >= 900
    if (trigger) cudaTriggerProgrammaticLaunchCompletion();
#endif
    unsigned long long start = now();
    while (now() - start < SPIN_MS * 1000000ULL) {}
    times->primary_end = now();
}

__global__ void secondary(Times *times, bool wait) {
#if __CUDA_ARCH__ >= 900
    if (wait) cudaGridDependencySynchronize();
#endif
    times->secondary_start = now();
}

__global__ void follower(Times *times) { times->follower_start = now(); }

int main() {
    warm_up();
    cudaDeviceProp properties;
    CHECK(cudaGetDeviceProperties(&properties, 0));
    if (properties.major < 9) {
        printf("programmatic dependent launch: not to be had here\n");
        return 0;
    }
    cudaStream_t s = nonblocking_stream(), t = nonblocking_stream();
    cudaEvent_t event = new_event();
    Times *times;
    CHECK(cudaMallocHost((void **)&times, sizeof(Times)));
    primary<<<1, 1, 0, s>>>(times, false);
    secondary<<<1, 1, 0, s>>>(times, false);
    follower<<<1, 1, 0, s>>>(times);
    CHECK(cudaDeviceSynchronize());
    for (int c = 0; c < 8; c++) {
        bool attribute_set = c & 1, trigger = c & 2, wait = c & 4;
        if (!attribute_set && (trigger || wait)) continue;
        cudaLaunchAttribute attribute = {};
        attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attribute.val.programmaticStreamSerializationAllowed = 1;
        cudaLaunchConfig_t config = {};
        config.gridDim = config.blockDim = dim3(1);
        config.stream = s;
        config.attrs = &attribute;
        config.numAttrs = attribute_set;
        *times = {};
        primary<<<1, 1, 0, s>>>(times, trigger);
        CHECK(cudaLaunchKernelEx(&config, secondary, times, wait));
        CHECK(cudaEventRecord(event, s));
        CHECK(cudaStreamWaitEvent(t, event, 0));
        follower<<<1, 1, 0, t>>>(times);
        CHECK(cudaDeviceSynchronize());
        double early = (double(times->primary_end) - double(times->secondary_start)) / 1e6;
        printf("%s, the first kernel %s, the second %s: does the second start before the first ends: %s (%.2f ms)\n",
               attribute_set ? "with programmatic serialization" : "without the attribute",
               trigger ? "triggers" : "does not trigger", wait ? "waits" : "does not wait", early > 0 ? "yes" : "no", early);
        printf("then does an event recorded after the second cover the first: %s\n",
               times->follower_start > times->primary_end ? "yes" : "no");
    }
    return 0;
}
