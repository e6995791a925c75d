// What becomes of allocations whose pool or stream goes, and which of these calls wait?
#include "probe.h"

__global__ void set_kernel(int *p, int value) { *p = value; }

int main() {
    warm_up();
    cudaStream_t s = nonblocking_stream();
    cudaMemPoolProps props = {};
    props.allocType = cudaMemAllocationTypePinned;
    props.location = {cudaMemLocationTypeDevice, 0};
    cudaMemPool_t pool;
    CHECK(cudaMemPoolCreate(&pool, &props));
    int *p, *host;
    CHECK(cudaMallocHost((void **)&host, 4096));
    CHECK(cudaMallocFromPoolAsync((void **)&p, 4096, pool, s));
    CHECK(cudaStreamSynchronize(s));
    spin(s);
    ask("does cudaMemPoolDestroy with an allocation outstanding wait for pending work",
        [&] { CHECK(cudaMemPoolDestroy(pool)); });
    set_kernel<<<1, 1, 0, s>>>(p, 42);
    cudaError_t status = cudaMemcpyAsync(host, p, sizeof(int), cudaMemcpyDeviceToHost, s);
    if (status == cudaSuccess) status = cudaStreamSynchronize(s);
    printf("does an allocation still work after its pool was destroyed: %s (%s)\n",
           status == cudaSuccess && *host == 42 ? "yes" : "no", cudaGetErrorName(status));
    returns("cudaFreeAsync of an allocation whose pool was destroyed returns", cudaFreeAsync(p, s));
    CHECK(cudaDeviceSynchronize());

    CHECK(cudaMemPoolCreate(&pool, &props));
    CHECK(cudaMallocFromPoolAsync((void **)&p, 64 << 20, pool, s));
    spin(s);
    CHECK(cudaFreeAsync(p, s));
    ask("does cudaMemPoolTrimTo wait for a pending cudaFreeAsync", [&] { CHECK(cudaMemPoolTrimTo(pool, 0)); });
    CHECK(cudaMallocFromPoolAsync((void **)&p, 64 << 20, pool, s));
    spin(s);
    CHECK(cudaFreeAsync(p, s));
    ask("does cudaMemPoolDestroy wait for a pending cudaFreeAsync", [&] { CHECK(cudaMemPoolDestroy(pool)); });

    spin(s);
    ask("does cudaMallocAsync wait for pending work of its stream", [&] { CHECK(cudaMallocAsync((void **)&p, 256 << 20, s)); });
    spin(s);
    ask("does cudaFreeAsync wait for pending work of its stream", [&] { CHECK(cudaFreeAsync(p, s)); });
    void *q;
    CHECK(cudaMalloc(&q, 1 << 20));
    spin(s);
    ask("does cudaFreeAsync of cudaMalloc memory wait for pending work", [&] { CHECK(cudaFreeAsync(q, s)); });

    cudaStream_t gone = nonblocking_stream();
    CHECK(cudaMallocAsync((void **)&p, 4096, gone));
    spin(gone);
    ask("does cudaStreamDestroy wait for the stream's pending work", [&] { CHECK(cudaStreamDestroy(gone)); });
    returns("cudaFreeAsync on another stream of an allocation whose stream was destroyed returns", cudaFreeAsync(p, s));
    cudaEvent_t event = new_event();
    spin(s);
    CHECK(cudaEventRecord(event, s));
    ask("does cudaEventDestroy wait for a pending record", [&] { CHECK(cudaEventDestroy(event)); });
    return 0;
}
