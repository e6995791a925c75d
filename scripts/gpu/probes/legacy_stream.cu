// The legacy default stream and the blocking streams around it.
#include "probe.h"

int main() {
    warm_up();
    cudaStream_t blocking = blocking_stream(), other = nonblocking_stream();
    cudaEvent_t event = new_event();

    spin(blocking);
    cudaError_t query = cudaStreamQuery(cudaStreamLegacy);
    (void)cudaGetLastError(); // "not ready" counts as an error
    double ms = milliseconds([&] { CHECK(cudaStreamSynchronize(cudaStreamLegacy)); });
    report("does cudaStreamSynchronize(legacy) wait for a blocking stream that it never waited for", ms);
    printf("cudaStreamQuery(legacy) while only a blocking stream has work pending: %s\n",
           cudaGetErrorName(query));
    CHECK(cudaDeviceSynchronize());

    spin(other);
    ms = milliseconds([&] { CHECK(cudaStreamSynchronize(cudaStreamLegacy)); });
    report("does cudaStreamSynchronize(legacy) wait for a non-blocking stream", ms);
    CHECK(cudaDeviceSynchronize());

    spin(other);
    CHECK(cudaEventRecord(event, other));
    CHECK(cudaStreamWaitEvent(cudaStreamLegacy, event, 0));
    touch(blocking);
    ms = milliseconds([&] { CHECK(cudaStreamSynchronize(blocking)); });
    report("does cudaStreamWaitEvent(legacy) hold up later work of blocking streams", ms);
    CHECK(cudaDeviceSynchronize());

    spin(blocking);
    CHECK(cudaEventRecord(event, cudaStreamLegacy));
    ms = milliseconds([&] { CHECK(cudaEventSynchronize(event)); });
    report("does an event recorded on legacy cover pending work of blocking streams", ms);
    CHECK(cudaDeviceSynchronize());

    spin(blocking);
    CHECK(cudaEventRecord(event, cudaStreamLegacy));
    CHECK(cudaStreamWaitEvent(other, event, 0));
    touch(other);
    ms = milliseconds([&] { CHECK(cudaStreamSynchronize(other)); });
    report("does a stream that waits for that event wait for the blocking stream", ms);
    CHECK(cudaDeviceSynchronize());

    spin(cudaStreamLegacy);
    CHECK(cudaEventRecord(event, blocking));
    ms = milliseconds([&] { CHECK(cudaEventSynchronize(event)); });
    report("does an event recorded on an idle blocking stream wait for legacy's pending work", ms);
    CHECK(cudaDeviceSynchronize());

    spin(blocking);
    cudaStream_t second = blocking_stream();
    void *p;
    CHECK(cudaMallocAsync(&p, 1 << 20, cudaStreamLegacy));
    touch(second);
    ms = milliseconds([&] { CHECK(cudaStreamSynchronize(second)); });
    report("does cudaMallocAsync(legacy) join blocking streams as a kernel would", ms);
    CHECK(cudaDeviceSynchronize());

    spin(blocking);
    CHECK(cudaFreeAsync(p, cudaStreamLegacy));
    touch(second);
    ms = milliseconds([&] { CHECK(cudaStreamSynchronize(second)); });
    report("does cudaFreeAsync(legacy) join blocking streams as a kernel would", ms);
    CHECK(cudaDeviceSynchronize());
    return 0;
}
