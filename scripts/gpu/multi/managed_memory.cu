// run: right => none
// run: wrong => SC109
// Managed memory that kernels of both devices work on in turns, ordered by events both ways; the host reads
// it when all is done.
#include "multi.h"

int main(int argc, char **argv) {
    bool right = said(argc, argv, 1, "right");
    need_two_devices();
    for (int device = 0; device < 2; device++) {
        int concurrent = 0;
        CHECK(cudaDeviceGetAttribute(&concurrent, cudaDevAttrConcurrentManagedAccess, device));
        if (!concurrent) skip("no concurrent use of managed memory");
    }
    on(1);
    cudaStream_t s1 = new_stream();
    on(0);
    cudaStream_t s0 = new_stream();
    float *m;
    CHECK(cudaMallocManaged((void **)&m, BYTES));
    fill(m, N, 0.0f, s0);
    float expected = 0;
    for (int round = 1; round <= (right ? 5 : 1); round++) {
        on(0);
        busy(s0);
        scale(m, m, N, 1, 1, s0);
        on(1);
        across_or_lapse(right, 0, s0, s1);
        scale(m, m, N, 2, 0, s1);
        across(1, s1, s0);
        expected = (expected + 1) * 2;
    }
    settle();
    expect_all(m, N, expected);
    CHECK(cudaFree(m));
}
