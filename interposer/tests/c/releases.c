/* Host memory that goes while a copy may be using it; the first argument says how. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

typedef void *stream_t;
typedef struct { int type, id; } location_t;
typedef struct { int order; location_t source, target; unsigned flags; } attributes_t;
enum { STREAM = 1, DURING_CALL };

int cudaMalloc(void **, size_t), cudaStreamCreateWithFlags(stream_t *, unsigned), cudaStreamSynchronize(stream_t);
int cudaHostRegister(void *, size_t, unsigned), cudaHostUnregister(void *), cudaDeviceSynchronize(void);
int cudaMemcpyBatchAsync(void *const *, const void *const *, const size_t *, size_t, attributes_t *, size_t *, size_t, stream_t);
int cudaLaunchHostFunc(stream_t, void (*)(void *), void *);
int cudaMemcpyAsync(void *, const void *, size_t, int, stream_t), cudaMemsetAsync(void *, int, size_t, stream_t);

#define OK(call)                                                     \
  do {                                                               \
    int status = (call);                                             \
    if (status) {                                                    \
      fprintf(stderr, "line %d: %s: %d\n", __LINE__, #call, status); \
      exit(1);                                                       \
    }                                                                \
  } while (0)

enum { SIZE = 1 << 16 };
static stream_t stream;
static void *memory;

static void batch(const void *source, int order) {
  attributes_t attributes = {.order = order};
  size_t size = 64, first = 0;
  OK(cudaMemcpyBatchAsync(&memory, &source, &size, 1, &attributes, &first, 1, stream));
}

static void *map(size_t size) {
  void *map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memset(map, 1, size);
  return map;
}

__attribute__((noinline)) static void from_a_local(int order) {
  char local[256];
  memset(local, 1, sizeof local);
  batch(local, order);
}

/* The same, and it waits before it returns. */
__attribute__((noinline)) static void from_a_local_and_wait(void) {
  char local[256];
  memset(local, 1, sizeof local);
  batch(local, STREAM);
  OK(cudaStreamSynchronize(stream));
}

__attribute__((noinline)) static void nested(char *local) { batch(local, STREAM); }

/* It lives in a frame further up. */
__attribute__((noinline)) static void from_a_callers(void) {
  char local[256];
  memset(local, 1, sizeof local);
  nested(local);
  nested(local + 64);
  OK(cudaStreamSynchronize(stream));
}

__attribute__((noinline)) static void register_a_local(void) {
  char local[4096];
  memset(local, 1, sizeof local);
  OK(cudaHostRegister(local, sizeof local, 0));
  OK(cudaMemcpyAsync(memory, local, sizeof local, 1, stream));
}

__attribute__((noinline)) static void register_a_local_in_order(void) {
  char local[4096];
  memset(local, 1, sizeof local);
  OK(cudaHostRegister(local, sizeof local, 0));
  OK(cudaMemcpyAsync(memory, local, sizeof local, 1, stream));
  OK(cudaStreamSynchronize(stream));
  OK(cudaHostUnregister(local));
}

/* As deep as a static cudart, whose own frames lie where the local did. */
__attribute__((noinline)) static void synchronize_far_below(void) {
  char deep[4096];
  memset(deep, 1, sizeof deep);
  OK(cudaStreamSynchronize(stream));
  __asm__ volatile("" : : "r"(deep) : "memory");
}

static void give_back(void *host) { free(host); }

int main(int count, char **arguments) {
  const char *name = count > 1 ? arguments[1] : "";
  int waits = strstr(name, "waited") != NULL;
#define IS(wanted) (!strncmp(name, wanted, strlen(wanted)))
  OK(cudaStreamCreateWithFlags(&stream, 1));
  OK(cudaMalloc(&memory, SIZE));
  if (IS("delete")) {
    /* C++'s operators, as any program that is linked to its library has them. */
    void *library = dlopen("libstdc++.so.6", RTLD_NOW);
    void *(*new)(size_t) = (void *(*)(size_t))dlsym(library, "_Znwm");
    void (*delete)(void *) = (void (*)(void *))dlsym(library, "_ZdlPv");
    void *host = new(SIZE);
    batch(host, STREAM);
    if (waits) OK(cudaStreamSynchronize(stream));
    delete(host);
  } else if (IS("moved")) {
    char *host = map(SIZE);
    batch(host, STREAM);
    if (waits) OK(cudaStreamSynchronize(stream));
    if (mremap(host, SIZE, 4 * SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, map(8 * SIZE)) == MAP_FAILED) return 3;
  } else if (IS("refused")) {
    char *host = map(SIZE);
    batch(host, STREAM);
    if (mremap(host + 1, SIZE, 2 * SIZE, MREMAP_MAYMOVE) != MAP_FAILED) return 3;
    OK(cudaStreamSynchronize(stream));
  } else if (IS("cut-off")) {
    char *host = map(SIZE);
    batch(host + SIZE / 2, STREAM);
    if (waits) OK(cudaStreamSynchronize(stream));
    if (mremap(host, SIZE, SIZE / 2, 0) != host) return 3;
  } else if (IS("kept")) {
    char *host = map(SIZE);
    batch(host, STREAM);
    if (mremap(host, SIZE, SIZE / 2, 0) != host) return 3;
    OK(cudaStreamSynchronize(stream));
  } else if (IS("placed-over")) {
    char *host = map(SIZE), *other = map(SIZE);
    OK(cudaHostRegister(host, SIZE, 0));
    OK(cudaMemcpyAsync(memory, host, SIZE, 1, stream));
    if (waits) OK(cudaStreamSynchronize(stream));
    if (mremap(other, SIZE, SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, host) != host) return 3;
  } else if (IS("local-during-call")) {
    from_a_local(DURING_CALL);
    OK(cudaStreamSynchronize(stream));
  } else if (IS("local-waited")) {
    from_a_local_and_wait();
    OK(cudaStreamSynchronize(stream));
  } else if (IS("local-of-a-caller")) {
    from_a_callers();
    OK(cudaStreamSynchronize(stream));
  } else if (IS("local-far-below")) {
    from_a_local(STREAM);
    synchronize_far_below();
  } else if (IS("local-registered-waited")) {
    register_a_local_in_order();
    OK(cudaStreamSynchronize(stream));
  } else if (IS("local-registered")) {
    register_a_local();
    OK(cudaStreamSynchronize(stream));
  } else if (IS("local")) {
    from_a_local(STREAM);
    OK(cudaStreamSynchronize(stream));
  } else if (IS("pageable")) {
    char *host = map(SIZE);
    OK(cudaMemcpyAsync(host, memory, SIZE, 2, stream));
    if (waits) OK(cudaStreamSynchronize(stream));
    /* Another mapping takes its place. */
    if (mremap(map(SIZE), SIZE, SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, host) != host) return 3;
  } else if (IS("callback-too-early")) {
    /* It frees what is copied behind it. */
    void *host = malloc(SIZE);
    OK(cudaLaunchHostFunc(stream, give_back, host));
    batch(host, STREAM);
    OK(cudaStreamSynchronize(stream));
  } else if (IS("callback")) {
    void *host = malloc(SIZE);
    batch(host, STREAM);
    OK(cudaLaunchHostFunc(stream, give_back, host));
    OK(cudaStreamSynchronize(stream));
  } else if (IS("fill")) {
    char *host = map(SIZE);
    OK(cudaHostRegister(host, SIZE, 0));
    OK(cudaMemsetAsync(host, 1, SIZE, stream));
    if (waits) OK(cudaStreamSynchronize(stream));
    /* Another mapping takes its place. */
    if (mremap(map(SIZE), SIZE, SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, host) != host) return 3;
  } else {
    return 2;
  }
  puts(name);
  return 0;
}
