// Which further calls wait for work that is pending in a non-blocking stream?
#include "probe.h"

__device__ int symbol[1024];

int main() {
    warm_up();
    constexpr size_t BYTES = 4 << 20;
    cudaStream_t s = nonblocking_stream(), other = nonblocking_stream();
    char *device, *second, *managed, *pinned, *plain = (char *)aligned_alloc(4096, BYTES);
    int value[1024] = {};
    memset(plain, 0, BYTES);
    CHECK(cudaMalloc((void **)&device, BYTES));
    CHECK(cudaMalloc((void **)&second, BYTES));
    CHECK(cudaMallocHost((void **)&pinned, BYTES));

    spin(s);
    ask("does cudaMallocManaged wait for pending work", [&] { CHECK(cudaMallocManaged((void **)&managed, BYTES)); });
    spin(s);
    ask("does cudaFree of managed memory wait for pending work", [&] { CHECK(cudaFree(managed)); });
    cudaArray_t array;
    cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
    spin(s);
    ask("does cudaMallocArray wait for pending work", [&] { CHECK(cudaMallocArray(&array, &format, 1024, 1024, 0)); });
    spin(s);
    ask("does cudaFreeArray wait for pending work", [&] { CHECK(cudaFreeArray(array)); });
    spin(s);
    ask("does cudaHostRegister wait for pending work", [&] { CHECK(cudaHostRegister(plain, BYTES, 0)); });
    CHECK(cudaHostUnregister(plain));
    void *p;
    spin(s);
    ask("does cudaHostAlloc wait for pending work", [&] { CHECK(cudaHostAlloc(&p, BYTES, cudaHostAllocMapped)); });
    spin(s);
    ask("does cudaMalloc of 1 GB wait for pending work", [&] { CHECK(cudaMalloc(&p, size_t(1) << 30)); });
    CHECK(cudaFree(p));
    cudaStream_t made;
    spin(s);
    ask("does cudaStreamCreate wait for pending work", [&] { CHECK(cudaStreamCreate(&made)); });

    // Managed memory.
    cudaMemLocation gpu = {cudaMemLocationTypeDevice, 0}, cpu = {cudaMemLocationTypeHost, 0};
    CHECK(cudaMallocManaged((void **)&managed, BYTES));
    memset(managed, 1, BYTES);
#if CUDART_VERSION >= 13000
    spin(s);
    ask("does cudaMemPrefetchAsync to the device wait for its stream's work",
        [&] { CHECK(cudaMemPrefetchAsync(managed, BYTES, gpu, 0, s)); });
    spin(s);
    ask("does cudaMemPrefetchAsync to the host wait for its stream's work",
        [&] { CHECK(cudaMemPrefetchAsync(managed, BYTES, cpu, 0, s)); });
    spin(s);
    ask("does cudaMemAdvise wait for pending work",
        [&] { CHECK(cudaMemAdvise(managed, BYTES, cudaMemAdviseSetPreferredLocation, gpu)); });
#endif
    spin(s);
    ask("does cudaStreamAttachMemAsync wait for its stream's work",
        [&] { CHECK(cudaStreamAttachMemAsync(s, managed, 0, cudaMemAttachSingle)); });
    CHECK(cudaStreamAttachMemAsync(s, managed, 0, cudaMemAttachGlobal));
    CHECK(cudaDeviceSynchronize());
    spin(cudaStreamLegacy);
    ask("does cudaMemset of managed memory wait for legacy's work", [&] { CHECK(cudaMemset(managed, 0, BYTES)); });

    // Synchronous copies, behind the work of the legacy stream.
    struct {
        const char *question;
        void *dst;
        const void *src;
        size_t bytes;
    } copies[] = {{"does cudaMemcpy D2D wait for legacy's work", second, device, BYTES},
                  {"does cudaMemcpy H2D pinned wait for legacy's work", device, pinned, BYTES},
                  {"does cudaMemcpy H2D pageable, 4 KB, wait for legacy's work", device, plain, 4096},
                  {"does cudaMemcpy H2D pageable, 4 MB, wait for legacy's work", device, plain, BYTES},
                  {"does cudaMemcpy D2H pinned wait for legacy's work", pinned, device, BYTES},
                  {"does cudaMemcpy D2H pageable wait for legacy's work", plain, device, BYTES},
                  {"does cudaMemcpy H2H wait for legacy's work", plain, pinned, BYTES}};
    for (auto &copy : copies) {
        spin(cudaStreamLegacy);
        ask(copy.question, [&] { CHECK(cudaMemcpy(copy.dst, copy.src, copy.bytes, cudaMemcpyDefault)); });
    }
    spin(cudaStreamLegacy);
    ask("does cudaMemcpyToSymbol from pageable memory wait for legacy's work",
        [&] { CHECK(cudaMemcpyToSymbol(symbol, value, sizeof value)); });
    spin(s);
    ask("does cudaMemcpyAsync H2H wait for its stream's work",
        [&] { CHECK(cudaMemcpyAsync(plain, pinned, BYTES, cudaMemcpyHostToHost, s)); });
    spin(s);
    ask("does cudaMemcpyAsync H2H between pinned halves wait for its stream's work",
        [&] { CHECK(cudaMemcpyAsync(pinned, pinned + BYTES / 2, BYTES / 2, cudaMemcpyDefault, s)); });
    spin(s);
    ask("does cudaMemsetAsync of pinned memory wait for its stream's work", [&] { CHECK(cudaMemsetAsync(pinned, 0, BYTES, s)); });

    // Peer copies with one device on both sides: said to be serialized with all work of the device.
    cudaStream_t blocking = blocking_stream();
    spin(s);
    ask("does cudaMemcpyPeer on one device wait, in the call, for a non-blocking stream",
        [&] { CHECK(cudaMemcpyPeer(second, 0, device, 0, BYTES)); });
    spin(blocking);
    ask("does cudaMemcpyPeer on one device wait, in the call, for a blocking stream",
        [&] { CHECK(cudaMemcpyPeer(second, 0, device, 0, BYTES)); });
    spin(s);
    CHECK(cudaMemcpyPeer(second, 0, device, 0, BYTES));
    ask_held("is the legacy stream held up after cudaMemcpyPeer behind a non-blocking stream's work", cudaStreamLegacy);
    spin(cudaStreamLegacy);
    CHECK(cudaMemcpyPeer(second, 0, device, 0, BYTES));
    ask_held("is a non-blocking stream held up by cudaMemcpyPeer that is behind legacy's work", other);
    spin(s);
    CHECK(cudaMemcpyPeerAsync(second, 0, device, 0, BYTES, s));
    ask_held("is another non-blocking stream held up by cudaMemcpyPeerAsync", other);
    return 0;
}
