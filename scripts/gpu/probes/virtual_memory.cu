// nvcc: -lcuda
// Which calls of virtual memory management wait for pending work (that does not use the memory)?
#include "probe.h"
#include <cuda.h>

int main() {
    warm_up();
    cudaStream_t s = nonblocking_stream();
    CUmemAllocationProp prop = {};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    CUmemAccessDesc access = {prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    size_t chunk = 0;
    DRIVER(cuMemGetAllocationGranularity(&chunk, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
    CUdeviceptr base;
    CUmemGenericAllocationHandle handle;
    spin(s);
    ask("does cuMemAddressReserve wait", [&] { DRIVER(cuMemAddressReserve(&base, chunk, 0, 0, 0)); });
    spin(s);
    ask("does cuMemCreate wait", [&] { DRIVER(cuMemCreate(&handle, chunk, &prop, 0)); });
    spin(s);
    ask("does cuMemMap wait", [&] { DRIVER(cuMemMap(base, chunk, 0, handle, 0)); });
    spin(s);
    ask("does cuMemSetAccess wait", [&] { DRIVER(cuMemSetAccess(base, chunk, &access, 1)); });
    DRIVER(cuMemsetD8(base, 0, chunk));
    CHECK(cudaDeviceSynchronize());
    // The memory was used, and the pending work does not use it.
    spin(s);
    ask("does cuMemUnmap wait for pending work", [&] { DRIVER(cuMemUnmap(base, chunk)); });
    spin(s);
    ask("does cuMemRelease of unmapped memory wait for pending work", [&] { DRIVER(cuMemRelease(handle)); });
    spin(s);
    ask("does cuMemAddressFree wait for pending work", [&] { DRIVER(cuMemAddressFree(base, chunk)); });
    return 0;
}
