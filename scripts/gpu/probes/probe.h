// What every probe shares. A probe asks CUDA itself how it behaves, with no tool loaded, and
// prints one line per question: `question: answer (evidence)`.
#pragma once

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>

#define CHECK(call)                                                                              \
    do {                                                                                         \
        cudaError_t check_status_ = (call);                                                      \
        if (check_status_ != cudaSuccess) {                                                      \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call,                        \
                    cudaGetErrorString(check_status_));                                          \
            exit(3);                                                                             \
        }                                                                                        \
    } while (0)

// The same for the driver API.
#define DRIVER(call)                                                                             \
    do {                                                                                         \
        int check_status_ = int(call);                                                           \
        if (check_status_ != 0) {                                                                \
            fprintf(stderr, "%s:%d: %s: error %d\n", __FILE__, __LINE__, #call, check_status_);  \
            exit(3);                                                                             \
        }                                                                                        \
    } while (0)

// How long the work takes that a call may or may not wait for.
constexpr unsigned long long SPIN_MS = 200;

__global__ void spin_kernel(unsigned long long nanoseconds) {
    unsigned long long start, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    do {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now - start < nanoseconds);
}

__global__ void touch_kernel() {}

inline void spin(cudaStream_t stream) {
    spin_kernel<<<1, 1, 0, stream>>>(SPIN_MS * 1000000ULL);
    CHECK(cudaGetLastError());
}

inline void touch(cudaStream_t stream) {
    touch_kernel<<<1, 1, 0, stream>>>();
    CHECK(cudaGetLastError());
}

inline cudaStream_t blocking_stream() {
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamDefault));
    return stream;
}

inline cudaStream_t nonblocking_stream() {
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
}

inline cudaEvent_t new_event() {
    cudaEvent_t event;
    CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    return event;
}

// Loads the kernels and makes the context, so that no first-use cost is taken for a wait.
inline void warm_up() {
    spin_kernel<<<1, 1>>>(1);
    touch(0);
    CHECK(cudaDeviceSynchronize());
}

template <typename Call> double milliseconds(Call call) {
    auto start = std::chrono::steady_clock::now();
    call();
    std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - start;
    return taken.count();
}

// Whether a call that took `ms` waited for a spin.
inline void report(const char *question, double ms) {
    printf("%s: %s (%.2f ms)\n", question, ms > SPIN_MS / 2 ? "yes" : "no", ms);
}

// Whether `call` waits for the work that is pending; lets that end.
template <typename Call> void ask(const char *question, Call call) {
    report(question, milliseconds(call));
    CHECK(cudaDeviceSynchronize());
}

// Whether work that `stream` gets now waits for what is pending elsewhere; lets that end.
inline void ask_held(const char *question, cudaStream_t stream) {
    touch(stream);
    ask(question, [&] { CHECK(cudaStreamSynchronize(stream)); });
}

// What a call returns, and that no error stays behind.
inline void returns(const char *question, int status) {
    printf("%s: %s\n", question, cudaGetErrorName(cudaError_t(status)));
    (void)cudaGetLastError();
}
