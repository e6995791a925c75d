// Which copies and fills wait for earlier work?
#include "probe.h"

static void copies(cudaStream_t stream, char *device, char *host, const char *memory, size_t bytes) {
    char question[256];
    for (int down = 0; down < 2; down++) {
        snprintf(question, sizeof question, "does cudaMemcpyAsync %s %s, %zu KB, wait for earlier work of its stream",
                 down ? "D2H" : "H2D", memory, bytes >> 10);
        spin(stream);
        double ms = milliseconds([&] {
            CHECK(cudaMemcpyAsync(down ? host : device, down ? device : host, bytes,
                                  down ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice, stream));
        });
        report(question, ms);
        CHECK(cudaDeviceSynchronize());
    }
}

int main() {
    warm_up();
    constexpr size_t BYTES = 8 << 20;
    cudaStream_t stream = nonblocking_stream(), blocking = blocking_stream();
    char *device, *pinned, *plain = (char *)malloc(BYTES);
    memset(plain, 0, BYTES);
    CHECK(cudaMalloc((void **)&device, BYTES));
    CHECK(cudaMallocHost((void **)&pinned, BYTES));

    for (size_t bytes : {size_t(4) << 10, size_t(64) << 10, size_t(1) << 20, BYTES})
        copies(stream, device, plain, "pageable", bytes);
    copies(stream, device, pinned, "pinned", BYTES);

    spin(cudaStreamLegacy);
    double ms = milliseconds([&] { CHECK(cudaMemset(device, 0, BYTES)); });
    report("does cudaMemset of device memory wait for legacy's earlier work", ms);
    CHECK(cudaDeviceSynchronize());

    spin(blocking);
    ms = milliseconds([&] { CHECK(cudaMemset(device, 0, BYTES)); });
    report("does cudaMemset of device memory wait for a blocking stream's work", ms);
    CHECK(cudaDeviceSynchronize());

    spin(cudaStreamLegacy);
    ms = milliseconds([&] { CHECK(cudaMemset(pinned, 0, BYTES)); });
    report("does cudaMemset of pinned memory wait for legacy's earlier work", ms);
    CHECK(cudaDeviceSynchronize());

    spin(stream);
    ms = milliseconds([&] { CHECK(cudaMemcpy(device, plain, BYTES, cudaMemcpyHostToDevice)); });
    report("does cudaMemcpy H2D pageable wait for a non-blocking stream's work", ms);
    CHECK(cudaDeviceSynchronize());
    return 0;
}
