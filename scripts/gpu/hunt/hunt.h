// What the hunted programs share. Each is correct by CUDA's documented rules, checks what it
// computed and prints it.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>
#include <vector>

#define CHECK(call)                                                                              \
    do {                                                                                         \
        auto check_status_ = (call);                                                             \
        if (int(check_status_) != 0) {                                                           \
            fprintf(stderr, "%s:%d: %s: error %d\n", __FILE__, __LINE__, #call,                  \
                    int(check_status_));                                                         \
            exit(3);                                                                             \
        }                                                                                        \
    } while (0)

// The machine cannot run the program.
[[noreturn]] inline void skip(const char *why) {
    fprintf(stderr, "%s\n", why);
    exit(77);
}

// The result is what it must be, or the program fails.
#define REQUIRE(condition)                                                                       \
    do {                                                                                         \
        if (!(condition)) {                                                                      \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);              \
            exit(4);                                                                             \
        }                                                                                        \
    } while (0)

constexpr int N = 1 << 20;
constexpr size_t BYTES = N * sizeof(float);

#define EACH(i, n)                                                                               \
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < (n); i += gridDim.x * blockDim.x)

template <typename T> __global__ void fill_kernel(T *out, int n, T value) {
    EACH(i, n) out[i] = value;
}

// out = in * scale + shift; in and out may be the same.
__global__ void scale_kernel(const float *in, float *out, int n, float scale, float shift) {
    EACH(i, n) out[i] = in[i] * scale + shift;
}

__global__ void add_kernel(const float *a, const float *b, float *out, int n) {
    EACH(i, n) out[i] = a[i] + b[i];
}

__global__ void accumulate_kernel(float *sum, const float *in, int n) {
    EACH(i, n) sum[i] += in[i];
}

// Keeps a stream busy for about `ms` milliseconds, so that the host runs ahead.
__global__ void busy_kernel(int ms) {
    unsigned long long start, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    do {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now - start < ms * 1000000ULL);
}

template <typename T> void fill(T *out, int n, T value, cudaStream_t s) {
    fill_kernel<<<64, 256, 0, s>>>(out, n, value);
    CHECK(cudaGetLastError());
}

inline void scale(const float *in, float *out, int n, float factor, float shift, cudaStream_t s) {
    scale_kernel<<<64, 256, 0, s>>>(in, out, n, factor, shift);
    CHECK(cudaGetLastError());
}

inline void add(const float *a, const float *b, float *out, int n, cudaStream_t s) {
    add_kernel<<<64, 256, 0, s>>>(a, b, out, n);
    CHECK(cudaGetLastError());
}

inline void accumulate(float *sum, const float *in, int n, cudaStream_t s) {
    accumulate_kernel<<<64, 256, 0, s>>>(sum, in, n);
    CHECK(cudaGetLastError());
}

inline void busy(cudaStream_t s, int ms = 5) {
    busy_kernel<<<1, 1, 0, s>>>(ms);
    CHECK(cudaGetLastError());
}

// A stream that takes no part in the legacy default stream's ordering.
inline cudaStream_t new_stream() {
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
}

inline cudaStream_t new_blocking_stream() {
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    return stream;
}

inline cudaEvent_t new_event() {
    cudaEvent_t event;
    CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    return event;
}

// Later work of `to` comes after the work that `from` has now.
inline void join(cudaStream_t from, cudaStream_t to) {
    cudaEvent_t event = new_event();
    CHECK(cudaEventRecord(event, from));
    CHECK(cudaStreamWaitEvent(to, event, 0));
    CHECK(cudaEventDestroy(event));
}

template <typename T> T *device(size_t count) {
    void *p;
    CHECK(cudaMalloc(&p, count * sizeof(T)));
    return static_cast<T *>(p);
}

template <typename T> T *pinned(size_t count) {
    void *p;
    CHECK(cudaMallocHost(&p, count * sizeof(T)));
    return static_cast<T *>(p);
}

template <typename T> T *async(size_t count, cudaStream_t s) {
    void *p;
    CHECK(cudaMallocAsync(&p, count * sizeof(T), s));
    return static_cast<T *>(p);
}

// Every element is `value`; prints their sum.
template <typename T> void expect_all(const T *host, size_t n, T value) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        if (host[i] != value) {
            fprintf(stderr, "element %zu is %g, not %g\n", i, double(host[i]), double(value));
            exit(4);
        }
        sum += double(host[i]);
    }
    printf("checksum %.1f\n", sum);
}
