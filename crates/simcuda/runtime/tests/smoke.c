/* A program of many parts, run by smoke.rs over the simulated stack: `smoke PART`. Each part checks what it sees and
 * exits 1 with a line on stderr at the first surprise. It needs none of NVIDIA's headers. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef unsigned long long u64;
typedef struct { unsigned x, y, z; } dim3;
typedef void *stream_t, *event_t, *pool_t;
typedef struct { int type, device; void *device_pointer, *host_pointer; } attributes_t;
enum { H2H, H2D, D2H, D2D, DEFAULT };
enum { NON_BLOCKING = 1 };

int cudaMalloc(void **, size_t), cudaFree(void *), cudaMallocHost(void **, size_t), cudaFreeHost(void *);
int cudaMallocManaged(void **, size_t, unsigned), cudaHostRegister(void *, size_t, unsigned), cudaHostUnregister(void *);
int cudaMallocAsync(void **, size_t, stream_t), cudaFreeAsync(void *, stream_t);
int cudaMemcpy(void *, const void *, size_t, int), cudaMemcpyAsync(void *, const void *, size_t, int, stream_t);
int cudaMemcpy2D(void *, size_t, const void *, size_t, size_t, size_t, int);
int cudaMemset(void *, int, size_t), cudaMemsetAsync(void *, int, size_t, stream_t);
int cudaStreamCreate(stream_t *), cudaStreamCreateWithFlags(stream_t *, unsigned), cudaStreamDestroy(stream_t);
int cudaStreamSynchronize(stream_t), cudaStreamQuery(stream_t), cudaStreamWaitEvent(stream_t, event_t, unsigned);
int cudaStreamSynchronize_ptsz(stream_t), cudaMemsetAsync_ptsz(void *, int, size_t, stream_t);
int cudaStreamGetId(stream_t, u64 *), cudaStreamGetId_ptsz(stream_t, u64 *), cudaStreamBeginCapture(stream_t, int);
int cudaEventCreate(event_t *), cudaEventDestroy(event_t), cudaEventRecord(event_t, stream_t);
int cudaEventQuery(event_t), cudaEventSynchronize(event_t), cudaEventElapsedTime(float *, event_t, event_t);
int cudaDeviceSynchronize(void), cudaDeviceReset(void), cudaGetDeviceCount(int *), cudaSetDevice(int), cudaGetDevice(int *);
int cudaGetLastError(void), cudaPeekAtLastError(void), cudaMemGetInfo(size_t *, size_t *);
int cudaPointerGetAttributes(attributes_t *, const void *), cudaLaunchHostFunc(stream_t, void (*)(void *), void *);
int cudaLaunchKernel(const void *, dim3, dim3, void **, size_t, stream_t);
int cudaFuncGetParamInfo(const void *, size_t, size_t *, size_t *), cudaGetDeviceProperties(void *, int);
int cudaGetDriverEntryPointByVersion(const char *, void **, unsigned, u64, int *);
int cudaDeviceGetDefaultMemPool(pool_t *, int), cudaMemPoolSetAttribute(pool_t, int, void *);
int cudaMemPoolGetAttribute(pool_t, int, void *), cudaMemPoolTrimTo(pool_t, size_t);
int cudaRuntimeGetVersion(int *), cudaDriverGetVersion(int *);
const char *cudaGetErrorName(int), *cudaGetErrorString(int);
void **__cudaRegisterFatBinary(void *);
void __cudaRegisterFatBinaryEnd(void **), __cudaUnregisterFatBinary(void **);
void __cudaRegisterFunction(void **, const char *, char *, const char *, int, void *, void *, void *, void *, int *);

#define CHECK(condition)                                                              \
  do {                                                                                \
    if (!(condition)) {                                                               \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);         \
      exit(1);                                                                        \
    }                                                                                 \
  } while (0)
#define OK(call) is(call, 0, #call, __LINE__)
#define IS(call, code) is(call, code, #call, __LINE__)

static void is(int got, int want, const char *call, int line) {
  if (got != want) {
    fprintf(stderr, "smoke.c:%d: %s: got %d (%s), want %d\n", line, call, got, cudaGetErrorName(got), want);
    exit(1);
  }
}

/* What nvcc's host code does, for kernels without device code. */
static struct { int magic, version; const void *data; void *file; } wrapper = {0x466243b1, 1, NULL, NULL};
static void **binary;
static void add(int *a, const int *b, int n) { (void)a, (void)b, (void)n; }
static void opaque(int *a) { (void)a; }

__attribute__((constructor)) static void register_all(void) {
  binary = __cudaRegisterFatBinary(&wrapper);
  __cudaRegisterFunction(binary, (const char *)add, (char *)"add", "_Z3addPiPKii", -1, 0, 0, 0, 0, 0);
  __cudaRegisterFunction(binary, (const char *)opaque, (char *)"opaque", "_Z6opaque4ViewPi", -1, 0, 0, 0, 0, 0);
  __cudaRegisterFatBinaryEnd(binary);
}
static void unregister_all(void) { __cudaUnregisterFatBinary(binary); }

static int kernel_threads;
void simcuda_kernel__Z3addPiPKii(void **params, const unsigned *grid, const unsigned *block, unsigned shared) {
  int *a = *(int **)params[0];
  const int *b = *(int **)params[1];
  int n = *(int *)params[2];
  kernel_threads = (int)(grid[0] * block[0]) + (int)shared;
  for (int i = 0; i < n; i++) a[i] += b[i];
}

static void launch_add(int *a, int *b, int n, stream_t s) {
  void *args[] = {&a, &b, &n};
  OK(cudaLaunchKernel((void *)add, (dim3){2, 1, 1}, (dim3){32, 1, 1}, args, 0, s));
}

static void kernels(void) {
  int host[] = {1, 2, 3}, *a, *b;
  OK(cudaMalloc((void **)&a, sizeof host));
  OK(cudaMalloc((void **)&b, sizeof host));
  OK(cudaMemcpy(a, host, sizeof host, H2D));
  OK(cudaMemcpy(b, host, sizeof host, H2D));
  launch_add(a, b, 3, 0);
  OK(cudaMemcpy(host, a, sizeof host, D2H));
  CHECK(host[0] == 2 && host[1] == 4 && host[2] == 6 && kernel_threads == 64);
  size_t offset, size;
  OK(cudaFuncGetParamInfo((void *)add, 2, &offset, &size));
  CHECK(offset == 16 && size == 4);
  IS(cudaFuncGetParamInfo((void *)add, 3, &offset, &size), 1);
  IS(cudaFuncGetParamInfo((void *)opaque, 0, &offset, &size), 801);
  void *args[] = {&a, &b, host};
  OK(cudaLaunchKernel((void *)opaque, (dim3){1, 1, 1}, (dim3){1, 1, 1}, args, 0, 0));
  IS(cudaLaunchKernel((void *)launch_add, (dim3){1, 1, 1}, (dim3){1, 1, 1}, args, 0, 0), 98);
  IS(cudaLaunchKernel((void *)add, (dim3){1, 1, 1}, (dim3){2048, 1, 1}, args, 0, 0), 9);
  IS(cudaPeekAtLastError(), 9);
  IS(cudaGetLastError(), 9);
  OK(cudaGetLastError());
  OK(cudaDeviceReset());
  OK(cudaMalloc((void **)&a, sizeof host));
  OK(cudaMemset(a, 0, sizeof host));
  launch_add(a, a, 3, 0);
  OK(cudaDeviceSynchronize());
}

static void entry_points(void) {
  void *driver = dlopen("libcuda.so.1", RTLD_NOW), *found;
  int (*first)(const char *, void **, int, u64, int *) = dlsym(driver, "cuGetProcAddress_v2");
  int (*old)(const char *, void **, int, u64) = NULL;
  CHECK(driver && first);
  static const struct { const char *name; int version; u64 flags; const char *export; } cases[] = {
      {"cuMemAllocAsync", 11020, 0, "cuMemAllocAsync"}, {"cuMemAllocAsync", 13000, 2, "cuMemAllocAsync_ptsz"},
      {"cuMemAllocAsync", 13000, 1, "cuMemAllocAsync"}, {"cuMemFree", 13000, 2, "cuMemFree_v2"},
      {"cuMemcpyAsync", 4000, 0, "cuMemcpyAsync"}, {"cuMemcpyAsync", 7000, 2, "cuMemcpyAsync_ptsz"},
      {"cuMemcpyHtoD", 13000, 2, "cuMemcpyHtoD_v2_ptds"}, {"cuCtxSynchronize", 12000, 0, "cuCtxSynchronize"},
      {"cuCtxSynchronize", 13000, 0, "cuCtxSynchronize_v2"}, {"cuGetProcAddress", 11030, 0, "cuGetProcAddress"},
      {"cuGetProcAddress", 12000, 0, "cuGetProcAddress_v2"}, {"cuLaunchKernelEx", 12000, 2, "cuLaunchKernelEx_ptsz"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    OK(first(cases[i].name, &found, cases[i].version, cases[i].flags, NULL));
    CHECK(found && found == dlsym(driver, cases[i].export));
  }
  int how = 0;
  IS(first("cuNoSuchFunction", &found, 13000, 0, &how), 500);
  CHECK(how == 1 && !found);
  IS(first("cuMemAllocAsync", &found, 11000, 0, &how), 500);
  CHECK(how == 2 && !found);
  OK(first("cuGetProcAddress", (void **)&old, 11030, 0, NULL));
  OK(old("cuMemAlloc", &found, 13000, 0));
  CHECK(found == dlsym(driver, "cuMemAlloc_v2"));
  OK(cudaGetDriverEntryPointByVersion("cuStreamSynchronize", &found, 13000, 2, &how));
  CHECK(how == 0 && found == dlsym(driver, "cuStreamSynchronize_ptsz"));
  OK(cudaGetDriverEntryPointByVersion("cuNoSuchFunction", &found, 13000, 0, &how));
  CHECK(how == 1 && !found);
}

/* Exits 10 or 11: whether the copy on the other stream saw what was written before it. */
static void race(int ordered) {
  stream_t s1, s2;
  event_t e;
  int *p, *seen;
  OK(cudaStreamCreateWithFlags(&s1, NON_BLOCKING));
  OK(cudaStreamCreateWithFlags(&s2, NON_BLOCKING));
  OK(cudaEventCreate(&e));
  OK(cudaMalloc((void **)&p, 4));
  OK(cudaMallocHost((void **)&seen, 4));
  OK(cudaMemset(p, 0, 4));
  OK(cudaDeviceSynchronize());
  OK(cudaMemsetAsync(p, 1, 4, s1));
  if (ordered) {
    OK(cudaEventRecord(e, s1));
    OK(cudaStreamWaitEvent(s2, e, 0));
    OK(cudaEventDestroy(e));
  }
  OK(cudaMemcpyAsync(seen, p, 4, D2H, s2));
  OK(cudaStreamSynchronize(s2));
  exit(*seen == 0x01010101 ? 11 : 10);
}

/* As above between a blocking stream and the legacy one, both ways: never wrong. */
static void legacy(void) {
  stream_t s;
  int *p, *seen;
  OK(cudaStreamCreate(&s));
  OK(cudaMalloc((void **)&p, 4));
  OK(cudaMallocHost((void **)&seen, 8));
  for (int i = 0; i < 200; i++) {
    OK(cudaMemsetAsync(p, i, 4, s));
    OK(cudaMemcpyAsync(&seen[0], p, 4, D2H, 0));
    OK(cudaMemsetAsync(p, i + 1, 4, 0));
    OK(cudaMemcpyAsync(&seen[1], p, 4, D2H, s));
    OK(cudaStreamSynchronize(s));
    CHECK((seen[0] & 255) == (i & 255) && (seen[1] & 255) == ((i + 1) & 255));
  }
}

static void pools(void) {
  stream_t s1, s2;
  void *a, *b, *c;
  pool_t pool;
  OK(cudaStreamCreateWithFlags(&s1, NON_BLOCKING));
  OK(cudaStreamCreateWithFlags(&s2, NON_BLOCKING));
  for (int i = 0; i < 10000; i++) {
    OK(cudaMallocAsync(&a, 1000, s1));
    OK(cudaFreeAsync(a, s1));
    OK(cudaMallocAsync(&b, 1000, s1));
    CHECK(a == b);
    OK(cudaFreeAsync(b, s1));
  }
  OK(cudaMallocAsync(&c, 1000, s2));
  CHECK(c == a);
  OK(cudaFree(c));
  IS(cudaFreeAsync(c, s2), 1);
  IS(cudaFree(c), 1);
  OK(cudaDeviceGetDefaultMemPool(&pool, 0));
  int off = 0;
  OK(cudaMemPoolSetAttribute(pool, 2, &off));
  OK(cudaMemPoolSetAttribute(pool, 3, &off));
  OK(cudaMallocAsync(&a, 5000, s1));
  OK(cudaFreeAsync(a, s1));
  OK(cudaMallocAsync(&b, 5000, s2));
  CHECK(a != b);
  u64 keep = ~0ull, reserved = 0, used = 0;
  OK(cudaMemPoolSetAttribute(pool, 4, &keep));
  OK(cudaFreeAsync(b, s2));
  OK(cudaDeviceSynchronize());
  OK(cudaMemPoolGetAttribute(pool, 5, &reserved));
  OK(cudaMemPoolGetAttribute(pool, 7, &used));
  CHECK(reserved >= 10000 && used == 0);
  OK(cudaMemPoolTrimTo(pool, 0));
  OK(cudaMemPoolGetAttribute(pool, 5, &reserved));
  CHECK(reserved == 0);
  OK(cudaMalloc(&a, 4096));
  OK(cudaFree(a));
  OK(cudaMalloc(&b, 4096));
  CHECK(a == b);
  size_t before, after, total;
  OK(cudaMemGetInfo(&before, &total));
  OK(cudaFreeAsync(b, s1));
  OK(cudaStreamSynchronize(s1));
  OK(cudaMemGetInfo(&after, &total));
  CHECK(after == before + 4096);
  IS(cudaMalloc(&a, total + 1), 2);
}

static void errors(void) {
  stream_t s, again;
  event_t e, e2;
  char *pinned, plain[64];
  float ms;
  OK(cudaStreamCreate(&s));
  OK(cudaStreamDestroy(s));
  IS(cudaStreamDestroy(s), 400);
  IS(cudaStreamSynchronize(s), 400);
  OK(cudaStreamCreate(&again));
  CHECK(again == s);
  OK(cudaEventCreate(&e));
  OK(cudaEventDestroy(e));
  IS(cudaEventRecord(e, 0), 400);
  OK(cudaEventCreate(&e2));
  CHECK(e2 == e);
  OK(cudaEventQuery(e2));
  IS(cudaEventElapsedTime(&ms, e2, e2), 400);
  OK(cudaEventRecord(e2, again));
  IS(cudaEventElapsedTime(&ms, e2, e2), 600);
  OK(cudaEventSynchronize(e2));
  OK(cudaEventElapsedTime(&ms, e2, e2));
  OK(cudaMallocHost((void **)&pinned, 64));
  IS(cudaFree(pinned), 1);
  OK(cudaFreeHost(pinned));
  IS(cudaFreeHost(pinned), 1);
  OK(cudaHostRegister(plain, sizeof plain, 0));
  IS(cudaHostRegister(plain + 8, 8, 0), 712);
  OK(cudaHostUnregister(plain));
  IS(cudaHostUnregister(plain), 713);
  IS(cudaMemcpy(plain, plain, 8, 7), 21);
  IS(cudaMemcpy(NULL, plain, 8, H2D), 1);
  IS(cudaSetDevice(7), 101);
  IS(cudaStreamBeginCapture(NULL, 0), 900);
  CHECK(!strcmp(cudaGetErrorName(400), "cudaErrorInvalidResourceHandle"));
  CHECK(!strcmp(cudaGetErrorString(2), "out of memory"));
  attributes_t at;
  OK(cudaPointerGetAttributes(&at, plain));
  CHECK(at.type == 0 && at.device == -2 && !at.device_pointer && at.host_pointer == plain);
  void *m;
  OK(cudaMallocManaged(&m, 8, 1));
  OK(cudaPointerGetAttributes(&at, m));
  CHECK(at.type == 3 && at.device == 0 && at.device_pointer == m && at.host_pointer == m);
  OK(cudaMalloc(&m, 8));
  OK(cudaPointerGetAttributes(&at, m));
  CHECK(at.type == 2 && at.device_pointer == m && !at.host_pointer);
  int version;
  OK(cudaRuntimeGetVersion(&version));
  CHECK(version == 13000);
  OK(cudaDriverGetVersion(&version));
  CHECK(version == 13000);
}

static void copies(void) {
  char host[] = "pageable", back[16] = "", rows[3][4] = {"abc", "def", "ghi"}, *p, *q;
  stream_t s;
  OK(cudaStreamCreateWithFlags(&s, NON_BLOCKING));
  OK(cudaMalloc((void **)&p, 64));
  OK(cudaMalloc((void **)&q, 64));
  OK(cudaMemcpyAsync(p, host, sizeof host, H2D, s));
  memset(host, '?', sizeof host); /* staged: the source may change */
  OK(cudaMemcpyAsync(q, p, sizeof host, DEFAULT, s));
  OK(cudaMemcpyAsync(back, q, sizeof host, D2H, s)); /* pageable: complete on return */
  CHECK(!strcmp(back, "pageable"));
  OK(cudaMemcpy2D(p, 8, rows, 4, 4, 3, H2D));
  OK(cudaMemcpy(back, p + 16, 4, D2H));
  CHECK(!strcmp(back, "ghi"));
  OK(cudaMemset(p, 'x', 5));
  OK(cudaMemcpy(back, p, 6, D2H));
  CHECK(!memcmp(back, "xxxxx", 5) && back[5] != 'x');
  IS(cudaMemcpy(p + 60, host, 8, H2D), 1);
  char *heap = malloc(1 << 20); /* registered, then freed while a copy is pending */
  OK(cudaMalloc((void **)&q, 1 << 20));
  OK(cudaHostRegister(heap, 1 << 20, 0));
  OK(cudaMemcpyAsync(q, heap, 1 << 20, H2D, s));
  free(heap);
  OK(cudaDeviceSynchronize());
}

static void destroyed_streams(void) {
  stream_t s;
  event_t e;
  char *p, *seen;
  OK(cudaMalloc((void **)&p, 4));
  OK(cudaMallocHost((void **)&seen, 4));
  OK(cudaMemset(p, 'a', 4));
  for (int flags = 0; flags <= 1; flags++) {
    *seen = 0;
    OK(cudaStreamCreateWithFlags(&s, flags ? NON_BLOCKING : 0));
    for (int i = 0; i < 10; i++) OK(cudaMemcpyAsync(seen, p, 4, D2H, s));
    OK(cudaStreamDestroy(s));
    OK(cudaDeviceSynchronize());
    CHECK(*seen == 'a');
    *seen = 0;
    OK(cudaStreamCreateWithFlags(&s, flags ? NON_BLOCKING : 0));
    OK(cudaEventCreate(&e));
    OK(cudaMemcpyAsync(seen, p, 4, D2H, s));
    OK(cudaEventRecord(e, s));
    OK(cudaStreamDestroy(s));
    OK(cudaStreamWaitEvent(0, e, 0));
    OK(cudaEventDestroy(e));
    OK(cudaStreamSynchronize(0));
    CHECK(*seen == 'a');
  }
}

static int order[3], calls;
static void note(void *value) { order[calls++] = (int)(size_t)value; }
static void inside(void *code) {
  void *p;
  *(int *)code = cudaMalloc(&p, 8);
}
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static int signalled;
static void signal_thread(void *ignored) {
  (void)ignored;
  pthread_mutex_lock(&mutex);
  signalled = 1;
  pthread_cond_signal(&condition);
  pthread_mutex_unlock(&mutex);
}
static void *caller(void *ignored) {
  void *p;
  for (int i = 0; i < 500; i++) {
    OK(cudaMalloc(&p, 64));
    OK(cudaFree(p));
  }
  return ignored;
}
static void slow(void *ignored) {
  pthread_t thread; /* waits for another thread's calls: no lock may be held here */
  pthread_create(&thread, NULL, caller, ignored);
  usleep(20000);
  pthread_detach(thread);
}

static void host_functions(void) {
  stream_t s;
  int code = 0;
  OK(cudaStreamCreate(&s));
  for (size_t i = 1; i <= 3; i++) OK(cudaLaunchHostFunc(s, note, (void *)i));
  OK(cudaLaunchHostFunc(s, inside, &code));
  OK(cudaStreamSynchronize(s));
  CHECK(calls == 3 && order[0] == 1 && order[1] == 2 && order[2] == 3 && code == 800);
  OK(cudaLaunchHostFunc(s, slow, NULL));
  OK(cudaStreamSynchronize(s));
  /* Nobody asks CUDA: the host function must come all the same. */
  OK(cudaLaunchHostFunc(s, signal_thread, NULL));
  pthread_mutex_lock(&mutex);
  while (!signalled) pthread_cond_wait(&condition, &mutex);
  pthread_mutex_unlock(&mutex);
  OK(cudaDeviceSynchronize());
}

static void polling(void) {
  stream_t s;
  event_t e;
  void *p;
  OK(cudaStreamCreate(&s));
  OK(cudaEventCreate(&e));
  OK(cudaMalloc(&p, 64));
  for (int i = 0; i < 20; i++) OK(cudaMemsetAsync(p, i, 64, s));
  OK(cudaEventRecord(e, s));
  int not_ready = 0, code;
  while ((code = cudaEventQuery(e)) == 600) CHECK(++not_ready < 100);
  OK(code);
  CHECK(not_ready > 0);
  OK(cudaMemsetAsync(p, 1, 64, s));
  while ((code = cudaStreamQuery(s)) == 600) CHECK(++not_ready < 100);
  OK(code);
}

static void two_devices(void) {
  int count, device;
  stream_t s0, s1;
  event_t e0;
  char *p0, *p1, back[4];
  OK(cudaGetDeviceCount(&count));
  CHECK(count == 2);
  OK(cudaStreamCreate(&s0));
  OK(cudaEventCreate(&e0));
  OK(cudaMalloc((void **)&p0, 4));
  OK(cudaSetDevice(1));
  OK(cudaGetDevice(&device));
  CHECK(device == 1);
  OK(cudaStreamCreate(&s1));
  OK(cudaMalloc((void **)&p1, 4));
  IS(cudaEventRecord(e0, s1), 400);
  OK(cudaMemsetAsync(p0, 'a', 4, s0));
  OK(cudaEventRecord(e0, s0));
  OK(cudaStreamWaitEvent(s1, e0, 0));
  OK(cudaMemcpyAsync(p1, p0, 4, DEFAULT, s1));
  OK(cudaStreamSynchronize(s1));
  OK(cudaMemcpy(back, p1, 4, D2H));
  CHECK(!memcmp(back, "aaaa", 4));
  attributes_t at;
  OK(cudaPointerGetAttributes(&at, p1));
  CHECK(at.device == 1);
  OK(cudaDeviceReset());
  IS(cudaStreamSynchronize(s1), 400);
  OK(cudaStreamSynchronize(s0));
  IS(cudaFree(p1), 1);
  OK(cudaFree(p0));
}

static u64 ids[2];
static void *own_stream(void *place) {
  OK(cudaStreamGetId_ptsz(0, (u64 *)place));
  return NULL;
}
static void per_thread(void) {
  u64 legacy, mine, two;
  pthread_t threads[2];
  OK(cudaStreamGetId(0, &legacy));
  OK(cudaStreamGetId_ptsz(0, &mine));
  OK(cudaStreamGetId((stream_t)2, &two));
  CHECK(legacy != mine && mine == two);
  OK(cudaStreamGetId_ptsz((stream_t)1, &two));
  CHECK(two == legacy);
  for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, own_stream, &ids[i]);
  for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
  CHECK(ids[0] != ids[1] && ids[0] != mine && ids[1] != mine && ids[0] != legacy);
  int *p, *seen;
  OK(cudaMalloc((void **)&p, 4));
  OK(cudaMallocHost((void **)&seen, 4));
  OK(cudaMemsetAsync_ptsz(p, 3, 4, 0)); /* an ordinary blocking stream: the legacy stream waits for it */
  OK(cudaMemcpyAsync(seen, p, 4, D2H, 0));
  OK(cudaStreamSynchronize(0));
  CHECK(*seen == 0x03030303);
}

static void *hammer(void *ignored) {
  stream_t s;
  int *a, *b, sum[256];
  OK(cudaStreamCreateWithFlags(&s, NON_BLOCKING));
  for (int i = 0; i < 100; i++) {
    OK(cudaMallocAsync((void **)&a, 1024, s));
    OK(cudaMallocAsync((void **)&b, 1024, s));
    OK(cudaMemsetAsync(a, 0, 1024, s));
    OK(cudaMemsetAsync(b, 1, 1024, s));
    launch_add(a, b, 256, s);
    launch_add(a, b, 256, s);
    OK(cudaFreeAsync(b, s));
    OK(cudaMemcpyAsync(sum, a, 1024, D2H, s));
    OK(cudaStreamSynchronize(s));
    CHECK(sum[0] == 0x02020202 && sum[255] == 0x02020202);
    OK(cudaFreeAsync(a, s));
  }
  OK(cudaStreamDestroy(s));
  return ignored;
}
static void threads(void) {
  pthread_t all[6];
  for (int i = 0; i < 6; i++) pthread_create(&all[i], NULL, hammer, NULL);
  for (int i = 0; i < 6; i++) pthread_join(all[i], NULL);
}

static void forks(void) {
  void *p;
  stream_t s;
  int status;
  OK(cudaStreamCreate(&s));
  OK(cudaMallocAsync(&p, 64, s));
  OK(cudaLaunchHostFunc(s, note, NULL));
  pid_t child = fork();
  if (child == 0) exit(7);
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
  child = fork();
  if (child == 0) exit(cudaMalloc(&p, 64));
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 3);
  OK(cudaDeviceSynchronize());
}

static const char ptx[] =
    ".version 8.0\n.target sm_75\n.address_size 64\n.global .align 4 .b8 table[16];\n"
    ".visible .entry _Z3addPiPKii(\n.param .u64 a,\n.param .u64 b,\n.param .u32 n\n)\n{\n ret;\n}\n";

static void driver_api(void) {
  void *lib = dlopen("libcuda.so.1", RTLD_NOW);
  CHECK(lib);
#define GET(name, ...) int (*name)(__VA_ARGS__) = dlsym(lib, #name); CHECK(name)
  GET(cuInit, unsigned);
  GET(cuDevicePrimaryCtxRetain, void **, int);
  GET(cuDevicePrimaryCtxRelease_v2, int);
  GET(cuCtxSetCurrent, void *);
  GET(cuCtxSynchronize, void);
  GET(cuMemAlloc_v2, u64 *, size_t);
  GET(cuMemcpyHtoD_v2, u64, const void *, size_t);
  GET(cuMemcpyDtoH_v2, void *, u64, size_t);
  GET(cuModuleLoadData, void **, const void *);
  GET(cuModuleUnload, void *);
  GET(cuModuleGetFunction, void **, void *, const char *);
  GET(cuModuleGetGlobal_v2, u64 *, size_t *, void *, const char *);
  GET(cuFuncGetParamInfo, void *, size_t, size_t *, size_t *);
  GET(cuLaunchKernel, void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
  GET(cuMemAddressReserve, u64 *, size_t, size_t, u64, u64);
  GET(cuMemAddressFree, u64, size_t);
  GET(cuMemCreate, u64 *, size_t, const void *, u64);
  GET(cuMemRelease, u64);
  GET(cuMemMap, u64, size_t, size_t, u64, u64);
  GET(cuMemSetAccess, u64, size_t, const void *, size_t);
  GET(cuMemUnmap, u64, size_t);
  GET(cuMemsetD8_v2, u64, unsigned char, size_t);
  GET(cuDeviceGetCount, int *);
  void *context, *module, *function;
  u64 a, b, space, memory;
  size_t size, offset;
  int count, host[4] = {1, 2, 3, 4};
  IS(cuDeviceGetCount(&count), 3);
  OK(cuInit(0));
  IS(cuMemAlloc_v2(&a, 16), 201);
  OK(cuDevicePrimaryCtxRetain(&context, 0));
  OK(cuCtxSetCurrent(context));
  OK(cuMemAlloc_v2(&a, 16));
  IS(cuModuleLoadData(&module, "nothing of the kind"), 200);
  OK(cuModuleLoadData(&module, ptx));
  OK(cuModuleGetFunction(&function, module, "_Z3addPiPKii"));
  IS(cuModuleGetFunction(&context, module, "absent"), 500);
  OK(cuModuleGetGlobal_v2(&b, &size, module, "table"));
  CHECK(size == 16);
  OK(cuFuncGetParamInfo(function, 2, &offset, &size));
  CHECK(offset == 16 && size == 4);
  IS(cuFuncGetParamInfo(function, 3, &offset, &size), 1);
  OK(cuMemcpyHtoD_v2(a, host, 16));
  OK(cuMemcpyHtoD_v2(b, host, 16));
  struct { u64 a, b; int n; } packed = {a, b, 4};
  size = sizeof packed;
  void *extra[] = {(void *)1, &packed, (void *)2, &size, NULL};
  OK(cuLaunchKernel(function, 1, 1, 1, 4, 1, 1, 0, NULL, NULL, extra));
  OK(cuMemcpyDtoH_v2(host, a, 16));
  CHECK(host[0] == 2 && host[3] == 8);
  struct { int kind, handles; int where, id; void *security; u64 flags; } prop = {1, 0, 1, 0, NULL, 0};
  struct { int where, id, access; } access = {1, 0, 3};
  size = 2 << 20;
  OK(cuMemAddressReserve(&space, 2 * size, 0, 0, 0));
  OK(cuMemCreate(&memory, size, &prop, 0));
  OK(cuMemMap(space, size, 0, memory, 0));
  IS(cuMemMap(space, size, 0, memory, 0), 1);
  OK(cuMemSetAccess(space, size, &access, 1));
  OK(cuMemMap(space + size, size, 0, memory, 0)); /* the same memory twice */
  OK(cuMemSetAccess(space + size, size, &access, 1));
  OK(cuMemsetD8_v2(space, 5, 16));
  OK(cuMemcpyDtoH_v2(host, space + size, 16));
  CHECK(host[0] == 0x05050505);
  OK(cuMemRelease(memory));
  IS(cuMemRelease(memory), 1);
  IS(cuMemAddressFree(space, 2 * size), 1);
  OK(cuMemUnmap(space, 2 * size));
  IS(cuMemsetD8_v2(space, 5, 16), 1);
  OK(cuMemAddressFree(space, 2 * size));
  OK(cuModuleUnload(module));
  IS(cuModuleUnload(module), 400);
  OK(cuCtxSynchronize());
  OK(cuDevicePrimaryCtxRelease_v2(0));
}

int main(int argc, char **argv) {
  static const struct { const char *name; void (*run)(void); } parts[] = {
      {"kernels", kernels}, {"entry-points", entry_points}, {"legacy", legacy}, {"pools", pools}, {"errors", errors},
      {"copies", copies}, {"host-functions", host_functions}, {"polling", polling}, {"destroyed-streams", destroyed_streams}, {"two-devices", two_devices},
      {"per-thread", per_thread}, {"threads", threads}, {"forks", forks}, {"driver-api", driver_api},
  };
  atexit(unregister_all);
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
    if (argc > 1 && !strcmp(argv[1], parts[i].name)) {
      parts[i].run();
      return 0;
    }
  if (argc > 1 && !strcmp(argv[1], "race")) race(0);
  if (argc > 1 && !strcmp(argv[1], "ordered")) race(1);
  return 2;
}
