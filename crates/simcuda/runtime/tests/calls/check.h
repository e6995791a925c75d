/* What the programs here share: the calls that all of them make, and checks that end the program at the first surprise.
 * None needs NVIDIA's headers. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef unsigned long long u64;
typedef void *stream_t, *event_t, *context_t;
typedef struct { int type, id; } location_t;
enum { H2H, H2D, D2H, D2D, DEFAULT };
enum { NON_BLOCKING = 1, NO_TIMING = 2 };
#define LEGACY ((stream_t)1)

int cudaMalloc(void **, size_t), cudaFree(void *), cudaMallocHost(void **, size_t), cudaFreeHost(void *);
int cudaMallocManaged(void **, size_t, unsigned);
int cudaMemcpy(void *, const void *, size_t, int), cudaMemcpyAsync(void *, const void *, size_t, int, stream_t);
int cudaMemset(void *, int, size_t), cudaMemsetAsync(void *, int, size_t, stream_t);
int cudaStreamCreateWithFlags(stream_t *, unsigned), cudaStreamDestroy(stream_t);
int cudaStreamSynchronize(stream_t), cudaStreamQuery(stream_t), cudaStreamWaitEvent(stream_t, event_t, unsigned);
int cudaEventCreateWithFlags(event_t *, unsigned), cudaEventDestroy(event_t), cudaEventRecord(event_t, stream_t);
int cudaEventQuery(event_t), cudaEventSynchronize(event_t);
int cudaDeviceSynchronize(void), cudaSetDevice(int), cudaGetDevice(int *), cudaGetLastError(void);
int cudaLaunchHostFunc(stream_t, void (*)(void *), void *);
const char *cudaGetErrorName(int);

#define CHECK(condition)                                                              \
  do {                                                                                \
    if (!(condition)) {                                                               \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);         \
      exit(1);                                                                        \
    }                                                                                 \
  } while (0)
#define OK(call) is(call, 0, #call, __FILE__, __LINE__)
#define IS(call, code) is(call, code, #call, __FILE__, __LINE__)

static inline void is(int got, int want, const char *call, const char *file, int line) {
  if (got != want) {
    fprintf(stderr, "%s:%d: %s: got %d (%s), want %d\n", file, line, call, got, cudaGetErrorName(got), want);
    exit(1);
  }
}

static inline stream_t new_stream(void) {
  stream_t stream;
  OK(cudaStreamCreateWithFlags(&stream, NON_BLOCKING));
  return stream;
}

static inline event_t new_event(void) {
  event_t event;
  OK(cudaEventCreateWithFlags(&event, NO_TIMING));
  return event;
}

static inline void *on_device(size_t size) {
  void *memory;
  OK(cudaMalloc(&memory, size));
  return memory;
}

static inline void *pinned(size_t size) {
  void *memory;
  OK(cudaMallocHost(&memory, size));
  memset(memory, 0, size);
  return memory;
}
