// What do wrong frees return?
#include "probe.h"

static void say(const char *what, cudaError_t status) {
    printf("%s returns %s\n", what, cudaGetErrorName(status));
    (void)cudaGetLastError();
}

int main() {
    warm_up();
    cudaStream_t stream = nonblocking_stream();
    char *p, *pinned, *plain = (char *)malloc(1 << 20);
    constexpr size_t BYTES = 1 << 20;

    CHECK(cudaMallocHost((void **)&pinned, BYTES));

    CHECK(cudaMallocAsync((void **)&p, BYTES, stream));
    say("cudaFreeAsync of an interior pointer of cudaMallocAsync memory", cudaFreeAsync(p + 4096, stream));
    say("cudaFree of an interior pointer of cudaMallocAsync memory", cudaFree(p + 4096));
    say("cudaFreeHost of cudaMallocAsync memory", cudaFreeHost(p));
    say("cudaFreeAsync (the first)", cudaFreeAsync(p, stream));
    say("cudaFreeAsync again, before the stream is synchronized", cudaFreeAsync(p, stream));
    say("cudaFree after cudaFreeAsync, before the stream is synchronized", cudaFree(p));
    CHECK(cudaStreamSynchronize(stream));
    say("cudaFreeAsync again, after the stream is synchronized", cudaFreeAsync(p, stream));

    say("cudaFreeAsync of malloc'ed memory", cudaFreeAsync(plain, stream));
    say("cudaFreeAsync of pinned memory", cudaFreeAsync(pinned, stream));
    say("cudaFree of malloc'ed memory", cudaFree(plain));
    say("cudaFree of pinned memory", cudaFree(pinned));
    say("cudaFreeHost of malloc'ed memory", cudaFreeHost(plain));
    say("cudaHostUnregister of pinned memory", cudaHostUnregister(pinned));

    CHECK(cudaMalloc((void **)&p, BYTES));
    say("cudaFree of an interior pointer of cudaMalloc memory", cudaFree(p + 4096));
    say("cudaFreeAsync of an interior pointer of cudaMalloc memory", cudaFreeAsync(p + 4096, stream));
    say("cudaFreeHost of cudaMalloc memory", cudaFreeHost(p));
    say("cudaFreeAsync of cudaMalloc memory", cudaFreeAsync(p, stream));
    CHECK(cudaStreamSynchronize(stream));
    say("cudaFree of cudaMalloc memory that cudaFreeAsync freed", cudaFree(p));

    say("cudaDeviceSynchronize after all that", cudaDeviceSynchronize());
    return 0;
}
