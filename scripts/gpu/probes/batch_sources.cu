// When does a batch copy read its source? The source is overwritten as soon as the call returns, while
// a kernel holds up the stream.
#include "probe.h"

int main() {
    warm_up();
#if CUDART_VERSION < 13000
    printf("batch copies: not asked before CUDA 13\n");
#else
    cudaStream_t s = nonblocking_stream();
    struct {
        const char *name;
        cudaMemcpySrcAccessOrder order;
    } orders[] = {{"stream", cudaMemcpySrcAccessOrderStream},
                  {"during-call", cudaMemcpySrcAccessOrderDuringApiCall},
                  {"any", cudaMemcpySrcAccessOrderAny}};
    for (size_t bytes : {size_t(4) << 10, size_t(1) << 20, size_t(8) << 20}) {
        char *device, *pinned, *plain = (char *)malloc(bytes), *back = (char *)malloc(bytes);
        CHECK(cudaMalloc((void **)&device, bytes));
        CHECK(cudaMallocHost((void **)&pinned, bytes));
        for (char *source : {plain, pinned})
            for (auto &order : orders) {
                cudaMemcpyAttributes attributes = {};
                attributes.srcAccessOrder = order.order;
                memset(source, 1, bytes);
                CHECK(cudaMemset(device, 0, bytes));
                CHECK(cudaDeviceSynchronize());
                spin(s);
                void *dst = device;
                const void *src = source;
                size_t first = 0;
                cudaError_t status;
                double ms = milliseconds([&] {
                    status = cudaMemcpyBatchAsync(&dst, &src, &bytes, 1, &attributes, &first, 1, s);
                });
                memset(source, 2, bytes);
                (void)cudaGetLastError();
                CHECK(cudaStreamSynchronize(s));
                CHECK(cudaMemcpy(back, device, bytes, cudaMemcpyDeviceToHost));
                printf("cudaMemcpyBatchAsync, source order %s, %s, %zu KB: %s (%s, call took %.2f ms)\n", order.name,
                       source == plain ? "pageable" : "pinned", bytes >> 10,
                       back[0] == 1 && back[bytes - 1] == 1   ? "read before the call returned"
                       : back[0] == 2 && back[bytes - 1] == 2 ? "read after the call returned"
                                                              : "read partly before and partly after, or not at all",
                       cudaGetErrorName(status), ms);
            }
        CHECK(cudaFree(device));
        CHECK(cudaFreeHost(pinned));
        free(plain);
        free(back);
    }
#endif
    return 0;
}
