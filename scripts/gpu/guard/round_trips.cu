// What programs do with host memory in a loop, and how long a turn takes on the host. Takes no
// arguments. For each loop a line:
//
//   loop NAME median NS min NS checksum VALUE      nanoseconds a turn, of all batches
//   loop NAME failed: CALL: WHY
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cuda_runtime.h>
#include <stdexcept>
#include <string>
#include <vector>

using Clock = std::chrono::steady_clock;

static void check(cudaError_t status, const char *call) {
    if (status != cudaSuccess) throw std::runtime_error(std::string(call) + ": " + cudaGetErrorString(status));
}
#define CHECK(call) check((call), #call)

constexpr int BATCHES = 40, TURNS = 25, WARM_UP = 50;

__global__ void fill(double *out, int n, double value) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = value;
}

// Buffers of `n` elements and the stream that works on them.
struct Work {
    cudaStream_t stream;
    cudaEvent_t event;
    int n;
    double *device, *pinned, *managed;

    explicit Work(int n) : n(n) {
        CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
        CHECK(cudaMalloc(&device, n * sizeof(double)));
        CHECK(cudaMallocHost(&pinned, n * sizeof(double)));
        CHECK(cudaMallocManaged(&managed, n * sizeof(double)));
        std::fill(pinned, pinned + n, 0.0);
        std::fill(managed, managed + n, 0.0);
    }

    ~Work() {
        cudaFree(managed);
        cudaFreeHost(pinned);
        cudaFree(device);
        cudaEventDestroy(event);
        cudaStreamDestroy(stream);
    }

    void compute(double *out, double value) {
        fill<<<(n + 255) / 256, 256, 0, stream>>>(out, n, value);
        CHECK(cudaGetLastError());
    }

    // A result comes to pinned memory, is waited for and read.
    double download(int turn) {
        compute(device, turn % 7);
        CHECK(cudaMemcpyAsync(pinned, device, n * sizeof(double), cudaMemcpyDeviceToHost, stream));
        CHECK(cudaStreamSynchronize(stream));
        return pinned[0] + pinned[n - 1];
    }

    // Pinned memory is filled, goes up, and is free again when an event has come.
    double upload(int turn) {
        std::fill(pinned, pinned + n, turn % 7);
        CHECK(cudaMemcpyAsync(device, pinned, n * sizeof(double), cudaMemcpyHostToDevice, stream));
        CHECK(cudaEventRecord(event, stream));
        CHECK(cudaEventSynchronize(event));
        return pinned[turn % n];
    }

    // The CPU writes one half of a page while a copy reads the other.
    double beside(int turn) {
        CHECK(cudaMemcpyAsync(device, pinned, n / 2 * sizeof(double), cudaMemcpyHostToDevice, stream));
        pinned[n / 2 + turn % (n / 2)] = turn % 7;
        CHECK(cudaStreamSynchronize(stream));
        return pinned[n / 2 + turn % (n / 2)];
    }

    // A kernel writes managed memory, which the CPU reads when it has waited.
    double shared(int turn) {
        compute(managed, turn % 7);
        CHECK(cudaStreamSynchronize(stream));
        return managed[0] + managed[n - 1];
    }
};

static void time(const char *name, int n, double (Work::*turn)(int)) {
    try {
        Work work(n);
        std::vector<double> batches;
        double sum = 0;
        int turns = 0;
        while (turns < WARM_UP) sum += (work.*turn)(turns++);
        for (int batch = 0; batch < BATCHES; batch++) {
            Clock::time_point began = Clock::now();
            for (int i = 0; i < TURNS; i++) sum += (work.*turn)(turns++);
            batches.push_back(std::chrono::duration<double, std::nano>(Clock::now() - began).count() / TURNS);
        }
        std::sort(batches.begin(), batches.end());
        std::printf("loop %s median %.1f min %.1f checksum %.0f\n", name, batches[BATCHES / 2], batches[0], sum);
    } catch (const std::exception &error) {
        std::printf("loop %s failed: %s\n", name, error.what());
    }
}

int main() {
    constexpr int PAGE = 4096 / sizeof(double), MEGABYTE = 256 * PAGE;
    time("download-page", PAGE, &Work::download);
    time("download-megabyte", MEGABYTE, &Work::download);
    time("upload-page", PAGE, &Work::upload);
    time("upload-megabyte", MEGABYTE, &Work::upload);
    time("beside", PAGE, &Work::beside);
    time("managed-megabyte", MEGABYTE, &Work::shared);
    return 0;
}
