// Copy, kernel and copy back on the default stream; the CPU counts while it polls an event.
#include "hunt.h"

int main() {
    int *host = pinned<int>(N), *d = device<int>(N);
    memset(host, 0, N * sizeof(int));
    CHECK(cudaMemset(d, 255, N * sizeof(int)));
    cudaEvent_t start, stop;
    CHECK(cudaEventCreate(&start));
    CHECK(cudaEventCreate(&stop));
    CHECK(cudaDeviceSynchronize());

    CHECK(cudaEventRecord(start, 0));
    CHECK(cudaMemcpyAsync(d, host, N * sizeof(int), cudaMemcpyHostToDevice, 0));
    busy(0);
    fill(d, N, 26, 0);
    CHECK(cudaMemcpyAsync(host, d, N * sizeof(int), cudaMemcpyDeviceToHost, 0));
    CHECK(cudaEventRecord(stop, 0));
    unsigned long polls = 0;
    while (cudaEventQuery(stop) == cudaErrorNotReady) polls++;
    (void)cudaGetLastError();
    expect_all(host, N, 26);
    REQUIRE(polls > 0);
    CHECK(cudaEventDestroy(start));
    CHECK(cudaEventDestroy(stop));
    CHECK(cudaFreeHost(host));
    CHECK(cudaFree(d));
}
