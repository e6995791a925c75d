// run: access right => none
// run: access use => SC101
// run: access free => SC103
// run: copy right => none
// run: copy use => SC101
// Memory of a pool of device 0 is used on device 1 and freed there, on a stream that waits for its last use
// on device 0. cudaMemPoolSetAccess lets kernels of device 1 use it; `copy` leaves that out, and reads it by
// a copy instead. `use` does not wait for the allocation, `free` not for the last use.
#include "multi.h"

int main(int argc, char **argv) {
    bool access = said(argc, argv, 1, "access"), use = said(argc, argv, 2, "use"), free = said(argc, argv, 2, "free");
    need_peers();
    on(0);
    cudaMemPoolProps props = {};
    props.allocType = cudaMemAllocationTypePinned;
    props.location = {cudaMemLocationTypeDevice, 0};
    cudaMemPool_t pool;
    CHECK(cudaMemPoolCreate(&pool, &props));
    cudaMemLocation peer = {cudaMemLocationTypeDevice, 1};
    if (access) {
        cudaMemAccessDesc both = {peer, cudaMemAccessFlagsProtReadWrite};
        CHECK(cudaMemPoolSetAccess(pool, &both, 1));
    }
    cudaStream_t s0 = new_stream();
    on(1);
    cudaStream_t s1 = new_stream();
    float *q = device<float>(N), *host = pinned<float>(N);
    on(0);
    float *p;
    CHECK(cudaMallocFromPoolAsync((void **)&p, BYTES, pool, s0));
    if (!use) fill(p, N, 1.0f, s0);
    on(1);
    across_or_lapse(!use, 0, s0, s1);
    if (access && use) fill(p, N, 1.0f, s1);
    if (access) {
        scale(p, q, N, 2, 0, s1);
    } else {
        cudaError_t status = cudaMemcpyPeerAsync(q, 1, p, 0, BYTES, s1);
        if (status != cudaSuccess) {
            fprintf(stderr, "copies from a pool without access fail: %s\n", cudaGetErrorName(status));
            return 77;
        }
    }
    CHECK(cudaMemcpyAsync(host, q, BYTES, cudaMemcpyDeviceToHost, s1));
    CHECK(cudaStreamSynchronize(s1));
    // What the block held before its first use is anybody's guess.
    if (access || !use) expect_all(host, N, access ? 2.0f : 1.0f);

    // The last use is on device 0.
    on(0);
    busy(s0);
    scale(p, p, N, 2, 0, s0);
    on(1);
    across_or_lapse(!free, 0, s0, s1);
    cudaError_t status = cudaFreeAsync(p, s1);
    if (status != cudaSuccess) {
        fprintf(stderr, "frees on another device's stream fail: %s\n", cudaGetErrorName(status));
        return 77;
    }
    settle();
    CHECK(cudaMemPoolDestroy(pool));
    CHECK(cudaFree(q));
    CHECK(cudaFreeHost(host));
    printf("freed\n");
}
