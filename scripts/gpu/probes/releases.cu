// Which calls that release memory wait for work that uses it?
#include "probe.h"

constexpr size_t BYTES = 1 << 20;

static void ask(const char *question, cudaStream_t stream, cudaError_t (*release)(void *), void *p) {
    double ms = milliseconds([&] { CHECK(release(p)); });
    cudaError_t after = cudaStreamQuery(stream);
    (void)cudaGetLastError(); // "not ready" counts as an error
    printf("%s: %s (%.2f ms; the stream is then %s)\n", question, ms > SPIN_MS / 2 ? "yes" : "no", ms,
           after == cudaSuccess ? "done" : "still busy");
    CHECK(cudaDeviceSynchronize());
}

int main() {
    warm_up();
    cudaStream_t stream = nonblocking_stream();
    void *device, *other, *host;
    CHECK(cudaMalloc(&device, BYTES));

    CHECK(cudaMallocHost(&host, BYTES));
    spin(stream);
    CHECK(cudaMemcpyAsync(device, host, BYTES, cudaMemcpyHostToDevice, stream));
    ask("does cudaFreeHost wait for a pending copy from the memory", stream, cudaFreeHost, host);

    CHECK(cudaMallocHost(&host, BYTES));
    spin(stream);
    ask("does cudaFreeHost wait for pending work that does not use the memory", stream, cudaFreeHost, host);

    host = malloc(BYTES);
    memset(host, 0, BYTES);
    CHECK(cudaHostRegister(host, BYTES, cudaHostRegisterDefault));
    spin(stream);
    CHECK(cudaMemcpyAsync(device, host, BYTES, cudaMemcpyHostToDevice, stream));
    ask("does cudaHostUnregister wait for a pending copy from the memory", stream, cudaHostUnregister, host);

    CHECK(cudaHostRegister(host, BYTES, cudaHostRegisterDefault));
    spin(stream);
    ask("does cudaHostUnregister wait for pending work that does not use the memory", stream, cudaHostUnregister, host);

    CHECK(cudaMalloc(&other, BYTES));
    spin(stream);
    ask("does cudaFree of cudaMalloc memory wait for pending work", stream, cudaFree, other);

    CHECK(cudaMallocAsync(&other, BYTES, stream));
    spin(stream);
    ask("does cudaFree of cudaMallocAsync memory wait for pending work", stream, cudaFree, other);

    spin(stream);
    double ms = milliseconds([&] { CHECK(cudaMalloc(&other, 64 << 20)); });
    report("does cudaMalloc wait for pending work", ms);
    CHECK(cudaDeviceSynchronize());

    spin(stream);
    ms = milliseconds([&] { CHECK(cudaMallocHost(&host, 64 << 20)); });
    report("does cudaMallocHost wait for pending work", ms);
    CHECK(cudaDeviceSynchronize());
    return 0;
}
