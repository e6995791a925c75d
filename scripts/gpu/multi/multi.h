// What the programs for two devices share. A right one is correct by CUDA's documented rules; a wrong one
// lacks an edge. Both check what they computed: where the edge is missing the host lets time pass instead,
// which makes the result right in practice and orders nothing.
#pragma once

#include "../hunt/hunt.h"
#include <unistd.h>
#ifdef SIMULATED
#include "simulated.h"
#endif

inline void on(int device) { CHECK(cudaSetDevice(device)); }

inline void need_two_devices() {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count < 2) skip("one GPU");
}

inline void need_peers() {
    need_two_devices();
    for (int device = 0; device < 2; device++) {
        int able = 0;
        CHECK(cudaDeviceCanAccessPeer(&able, device, 1 - device));
        if (!able) skip("the devices cannot reach each other's memory");
    }
}

// Kernels of each device may use the other's cudaMalloc memory.
inline void enable_peers() {
    need_peers();
    for (int device = 0; device < 2; device++) {
        on(device);
        CHECK(cudaDeviceEnablePeerAccess(1 - device, 0));
    }
    on(0);
}

// Long enough for what is pending to end.
inline void lapse() { usleep(300 * 1000); }

// Later work of `to`, of the current device, comes after the work that `from`, of the device `device`, has
// now. The handle of a legacy stream means that of the device that is current in the call.
inline void across(int device, cudaStream_t from, cudaStream_t to) {
    int current;
    CHECK(cudaGetDevice(&current));
    on(device);
    cudaEvent_t event = new_event();
    CHECK(cudaEventRecord(event, from));
    on(current);
    CHECK(cudaStreamWaitEvent(to, event, 0));
    CHECK(cudaEventDestroy(event));
}

// The edge of `across`, or time.
inline void across_or_lapse(bool wait, int device, cudaStream_t from, cudaStream_t to) {
    if (wait) across(device, from, to);
    else lapse();
}

// Nothing is pending; device 0 is current.
inline void settle() {
    for (int device = 1; device >= 0; device--) {
        on(device);
        CHECK(cudaDeviceSynchronize());
    }
}

// The n-th argument.
inline bool said(int argc, char **argv, int n, const char *word) { return argc > n && !strcmp(argv[n], word); }
