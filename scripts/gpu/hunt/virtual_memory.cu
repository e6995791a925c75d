// nvcc: -lcuda
// A buffer that grows in place: one address range, more and more mappings, kernels and copies over
// all of them; unmapped after a synchronize, and the range used again.
#include "hunt.h"
#include <cuda.h>

int main() {
    CHECK(cudaFree(nullptr));
    int supported = 0;
    CHECK(cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0));
    if (!supported) skip("no virtual memory management");
    CUmemAllocationProp prop = {};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    size_t chunk = 0;
    CHECK(cuMemGetAllocationGranularity(&chunk, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
    CUmemAccessDesc access = {prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    constexpr int CHUNKS = 6;
    int per_chunk = int(chunk / sizeof(float));
    CUdeviceptr base;
    CHECK(cuMemAddressReserve(&base, chunk * CHUNKS, 0, 0, 0));
    float *data = (float *)base, *host = pinned<float>(size_t(per_chunk) * CHUNKS);
    cudaStream_t s = new_stream(), t = new_stream();

    for (int round = 0; round < 3; round++) {
        CUmemGenericAllocationHandle handles[CHUNKS];
        for (int i = 0; i < CHUNKS; i++) {
            CHECK(cuMemCreate(&handles[i], chunk, &prop, 0));
            CHECK(cuMemMap(base + i * chunk, chunk, 0, handles[i], 0));
            CHECK(cuMemSetAccess(base + i * chunk, chunk, &access, 1));
            // The mapping keeps the memory.
            CHECK(cuMemRelease(handles[i]));
            fill(data + size_t(i) * per_chunk, per_chunk, 1.0f, s);
            // Over all that there is so far.
            scale(data, data, per_chunk * (i + 1), 1, 1, s);
        }
        join(s, t);
        CHECK(cudaMemcpyAsync(host, data, chunk * CHUNKS, cudaMemcpyDeviceToHost, t));
        CHECK(cudaStreamSynchronize(t));
        // Chunk i was filled with 1 and then raised by 1 in each step from i on.
        for (int i = 0; i < CHUNKS; i++)
            REQUIRE(host[size_t(i) * per_chunk] == 1.0f + CHUNKS - i && host[size_t(i + 1) * per_chunk - 1] == 1.0f + CHUNKS - i);
        // First the last two, then the rest at once.
        CHECK(cuMemUnmap(base + (CHUNKS - 2) * chunk, 2 * chunk));
        CHECK(cuMemUnmap(base, (CHUNKS - 2) * chunk));
    }
    CHECK(cuMemAddressFree(base, chunk * CHUNKS));
    expect_all(host + size_t(CHUNKS - 1) * per_chunk, size_t(per_chunk), 2.0f);
    CHECK(cudaFreeHost(host));
}
