// When does the pool hand out a block again whose free is still pending, and what then waits?
#include "probe.h"

constexpr size_t BYTES = 32 << 20;

// Allocates in `t` what was freed in `s` behind a spin; says whether it is the same block and whether
// t's work waits.
static void ask_reuse(const char *how, cudaStream_t s, cudaStream_t t, bool follow_event) {
    static cudaEvent_t event = new_event();
    cudaMemPoolProps props = {};
    props.allocType = cudaMemAllocationTypePinned;
    props.location = {cudaMemLocationTypeDevice, 0};
    cudaMemPool_t pool;
    CHECK(cudaMemPoolCreate(&pool, &props));
    unsigned long long keep = ~0ULL;
    CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
    void *p, *q;
    CHECK(cudaMallocFromPoolAsync(&p, BYTES, pool, s));
    CHECK(cudaDeviceSynchronize());
    spin(s);
    CHECK(cudaFreeAsync(p, s));
    if (follow_event) {
        CHECK(cudaEventRecord(event, s));
        CHECK(cudaStreamWaitEvent(t, event, 0));
    }
    double call = milliseconds([&] { CHECK(cudaMallocFromPoolAsync(&q, BYTES, pool, t)); });
    touch(t);
    double wait = milliseconds([&] { CHECK(cudaStreamSynchronize(t)); });
    printf("a free is pending, then an allocation %s: %s block, the call %s (%.2f ms), the stream's work %s\n", how,
           p == q ? "the same" : "another", call > SPIN_MS / 2 ? "waits" : "does not wait", call,
           wait > SPIN_MS / 2 ? "waits" : "does not wait");
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaFreeAsync(q, t));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemPoolDestroy(pool));
}

int main() {
    warm_up();
    cudaStream_t s = nonblocking_stream(), t = nonblocking_stream();
    ask_reuse("in the same stream", s, s, false);
    ask_reuse("in another stream that waits for an event", s, t, true);
    ask_reuse("in another stream that waits for nothing", s, t, false);
    return 0;
}
