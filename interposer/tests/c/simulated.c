/* Small programs over the simulated libraries, one for each kind of call; the first argument says which. Each is right, but
 * for those named after a mistake. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef unsigned long long u64;
typedef void *stream_t, *event_t;
typedef struct { int type, id; } location_t;
typedef struct { int order; location_t source, target; unsigned flags; } attributes_t;
typedef struct { int kind; void *place; size_t numbers[3]; } operand_t;
typedef struct { operand_t source, target; size_t extent[3]; int order; unsigned flags; } operation_t;
typedef struct { void *address; size_t pitch, width, height; } pitched_t;
typedef struct { size_t width, height, depth; } extent_t;
typedef struct { void *array; size_t position[3]; pitched_t pitched; } side_t;
typedef struct { side_t source, target; extent_t extent; int kind; } volume_t;
typedef struct { int bits[4], kind; } channels_t;
typedef struct { unsigned operation; u64 address, value; unsigned flags; u64 rest[2]; } value_t;
typedef struct { int allocation, handles; location_t location; void *security; size_t most; unsigned char reserved[64]; } pool_t;
enum { H2D = 1, D2H, D2D, DEFAULT };
enum { STREAM = 1, DURING_CALL, ANY };

int cudaMalloc(void **, size_t), cudaFree(void *), cudaMallocHost(void **, size_t), cudaFreeHost(void *);
int cudaMallocManaged(void **, size_t, unsigned), cudaMallocAsync(void **, size_t, stream_t), cudaFreeAsync(void *, stream_t);
int cudaMemset(void *, int, size_t), cudaMemsetAsync(void *, int, size_t, stream_t);
int cudaMemset2DAsync(void *, size_t, int, size_t, size_t, stream_t);
int cudaMemset3DAsync(pitched_t, int, extent_t, stream_t), cudaMemcpy3DAsync(const volume_t *, stream_t);
int cudaStreamCreateWithFlags(stream_t *, unsigned), cudaStreamSynchronize(stream_t);
int cudaEventElapsedTime(float *, event_t, event_t);
int cudaEventCreate(event_t *), cudaEventRecord(event_t, stream_t), cudaStreamWaitEvent(stream_t, event_t, unsigned);
int cudaMemcpyBatchAsync(void *const *, const void *const *, const size_t *, size_t, attributes_t *, size_t *, size_t, stream_t);
int cudaMemcpy3DBatchAsync(size_t, operation_t *, u64, stream_t);
int cudaMemcpyWithAttributesAsync(void *, const void *, size_t, attributes_t *, stream_t);
int cudaMemcpyPeer(void *, int, const void *, int, size_t), cudaMemcpyPeerAsync(void *, int, const void *, int, size_t, stream_t);
int cudaMallocArray(void **, const channels_t *, size_t, size_t, unsigned), cudaFreeArray(void *);
int cudaMemcpy2DToArray(void *, size_t, size_t, const void *, size_t, size_t, size_t, int);
int cudaMemPrefetchAsync(const void *, size_t, location_t, unsigned, stream_t);
int cudaMemDiscardBatchAsync(void **, size_t *, size_t, u64, stream_t);
int cudaStreamAttachMemAsync(stream_t, void *, size_t, unsigned);
int cudaMemPoolCreate(void **, const pool_t *), cudaMemPoolDestroy(void *);
int cudaMallocFromPoolAsync(void **, size_t, void *, stream_t);
int cudaSetDevice(int), cudaDeviceReset(void), cudaDeviceSynchronize(void), cudaSetDeviceFlags(unsigned);
int cuStreamWaitValue32_v2(stream_t, u64, unsigned, unsigned), cuStreamWriteValue32_v2(stream_t, u64, unsigned, unsigned);
int cuStreamWaitValue64_v2(stream_t, u64, u64, unsigned), cuStreamWriteValue64_v2(stream_t, u64, u64, unsigned);
int cuStreamBatchMemOp_v2(stream_t, unsigned, value_t *, unsigned);
int cuCtxSynchronize(void), cuCtxSynchronize_v2(void *);
int cuGreenCtxCreate(void **, void *, int, unsigned), cuGreenCtxDestroy(void *), cuCtxFromGreenCtx(void **, void *);
int cuGreenCtxStreamCreate(stream_t *, void *, unsigned, int), cuGreenCtxRecordEvent(void *, event_t), cuGreenCtxWaitEvent(void *, event_t);
int cuCtxGetCurrent(void **), cuCtxRecordEvent(void *, event_t), cuCtxWaitEvent(void *, event_t);
int cuDeviceGetDevResource(int, void *, int), cuDevResourceGenerateDesc(void **, void *, unsigned);
int cudaGreenCtxCreate(void **, void *, int, unsigned), cudaExecutionCtxDestroy(void *), cudaDeviceGetExecutionCtx(void **, int);
int cudaExecutionCtxStreamCreate(stream_t *, void *, unsigned, int), cudaExecutionCtxSynchronize(void *);
int cudaExecutionCtxRecordEvent(void *, event_t), cudaExecutionCtxWaitEvent(void *, event_t);
typedef struct { int kind, handle[5]; unsigned flags, reserved[16]; } description_t;
typedef struct { u64 value; unsigned rest[16], flags, reserved[16]; } signal_t;
int cudaImportExternalSemaphore(void **, const description_t *), cudaDestroyExternalSemaphore(void *);
int cudaSignalExternalSemaphoresAsync(void *const *, const signal_t *, unsigned, stream_t);
int cudaWaitExternalSemaphoresAsync(void *const *, const signal_t *, unsigned, stream_t);

#define OK(call)                                                  \
  do {                                                            \
    int status = (call);                                          \
    if (status) {                                                 \
      fprintf(stderr, "line %d: %s: %d\n", __LINE__, #call, status); \
      exit(1);                                                    \
    }                                                             \
  } while (0)

static stream_t new_stream(void) {
  stream_t stream;
  OK(cudaStreamCreateWithFlags(&stream, 1));
  return stream;
}
static stream_t one, two;
static int is(const char *name, const char *wanted) { return !strcmp(name, wanted); }
static char *device(size_t size) {
  void *memory;
  OK(cudaMalloc(&memory, size));
  return memory;
}
static char *pinned(size_t size) {
  void *memory;
  OK(cudaMallocHost(&memory, size));
  memset(memory, 0, size);
  return memory;
}
static void fill(void *memory, size_t size, stream_t stream) { OK(cudaMemsetAsync(memory, 1, size, stream)); }

/* The second stream uses what the first allocated once it has seen the value. */
static void values(const char *name) {
  u64 flag = (u64)pinned(64);
  void *memory;
  if (is(name, "values-too-early")) OK(cuStreamWriteValue32_v2(one, flag, 1, 0));
  OK(cudaMallocAsync(&memory, 1024, one));
  fill(memory, 1024, one);
  if (is(name, "values")) {
    OK(cuStreamWriteValue32_v2(one, flag, 5, 0));
    OK(cuStreamWaitValue32_v2(two, flag, 4, 0 | 1 << 30));
  } else if (is(name, "values-64")) {
    OK(cuStreamWriteValue64_v2(one, flag, 1ull << 40, 0));
    OK(cuStreamWaitValue64_v2(two, flag, 1ull << 40, 1));
  } else if (is(name, "values-batch")) {
    value_t write[] = {{.operation = 3}, {2, flag, 7, 0, {0}}, {5, flag + 8, 9, 0, {0}}};
    value_t wait[] = {{1, flag, 2, 2, {0}}, {4, flag + 8, 9, 0, {0}}};
    OK(cuStreamBatchMemOp_v2(one, 3, write, 0));
    OK(cuStreamBatchMemOp_v2(two, 2, wait, 0));
  } else {
    OK(cuStreamWaitValue32_v2(two, flag, 1, 1));
  }
  fill(memory, 1024, two);
}

/* More sources than are watched at a time, which are read in one go, or one after the other. */
static void many_sources(const char *name) {
  enum { COUNT = 1030 };
  static void *targets[COUNT];
  static const void *sources[COUNT];
  static size_t sizes[COUNT], first;
  attributes_t attributes = {.order = STREAM};
  char *memory = device(COUNT);
  for (int i = 0; i < COUNT; i++) {
    targets[i] = memory + i;
    sources[i] = malloc(64);
    sizes[i] = 1;
  }
  int parts = is(name, "many-sources") ? 1 : COUNT / 10;
  for (int i = 0; i < parts; i++) {
    OK(cudaMemcpyBatchAsync(targets + i * (COUNT / parts), sources + i * (COUNT / parts), sizes, COUNT / parts, &attributes, &first, 1, one));
    if (parts > 1) OK(cudaStreamSynchronize(one));
  }
}

/* Pageable memory that a batch writes into, and that is released before it has. */
static void batch_targets(const char *name) {
  char *memory = device(64), *host = malloc(1 << 16);
  attributes_t attributes = {.order = is(name, "batch-targets-during-call") ? DURING_CALL : is(name, "batch-targets-any") ? ANY : STREAM};
  void *targets[] = {host, memory};
  const void *sources[] = {memory + 16, memory + 32};
  size_t sizes[] = {16, 16}, first = 0;
  OK(cudaMemcpyBatchAsync(targets, sources, sizes, 2, &attributes, &first, 1, one));
  if (strstr(name, "side-by-side")) {
    /* The bytes that follow, of which one copy may be pending still. */
    OK(cudaStreamSynchronize(one));
    targets[0] = host + 16;
    OK(cudaMemcpyBatchAsync(targets, sources, sizes, 1, &attributes, &first, 1, one));
  }
  if (strstr(name, "waited")) OK(cudaStreamSynchronize(one));
  if (strstr(name, "resized")) {
    /* It stays where it is, and is in use still. */
    char *same = realloc(host, (1 << 16) - 64);
    if (same != host) puts("the block was moved");
    host = same;
  }
  free(host);
}

static void batches(const char *name) {
  char *memory = device(64), *first = malloc(1 << 16), *second = malloc(1 << 16), *third = pinned(16);
  void *targets[] = {memory, memory + 16, memory + 32};
  const void *sources[] = {first, second, third};
  size_t sizes[] = {16, 8, 4}, indices[] = {0, 1, 2};
  attributes_t attributes[] = {{.order = DURING_CALL}, {.order = STREAM}, {.order = ANY}};
  OK(cudaMemcpyBatchAsync(targets, sources, sizes, 3, attributes, indices, 3, one));
  free(first);
  if (is(name, "batch")) OK(cudaStreamSynchronize(one));
  free(second);
  if (is(name, "batch")) {
    /* One copy, of a source that the other stream has to leave alone until then. */
    char *source = malloc(1 << 16);
    OK(cudaMemcpyWithAttributesAsync(memory, source, 16, &attributes[1], one));
    OK(cudaStreamSynchronize(one));
    free(source);
  }
}

static void volumes(void) {
  /* 4 rows of 8 bytes in each of 3 slices, out of rows of 16 bytes and slices of 6 rows. */
  char *gaps = device(16 * 6 * 3), *dense = pinned(8 * 4 * 3);
  volume_t copy = {{NULL, {0}, {dense, 8, 8, 4}}, {NULL, {4, 1, 0}, {gaps, 16, 16, 6}}, {8, 4, 2}, H2D};
  OK(cudaMemcpy3DAsync(&copy, one));
  /* Whole slices touch. */
  copy = (volume_t){{NULL, {0}, {dense, 8, 8, 4}}, {NULL, {0}, {gaps, 16, 16, 4}}, {8, 4, 3}, H2D};
  OK(cudaMemcpy3DAsync(&copy, one));
  OK(cudaMemset3DAsync((pitched_t){gaps, 16, 16, 6}, 0, (extent_t){8, 4, 2}, one));
  operation_t operation = {{1, dense, {0}}, {1, gaps, {16, 6}}, {8, 1, 3}, STREAM, 0};
  OK(cudaMemcpy3DBatchAsync(1, &operation, 0, one));
  /* The last column is nobody else's. */
  OK(cudaMemset2DAsync(gaps + 12, 16, 1, 4, 18, two));
}

static void arrays(void) {
  void *array;
  channels_t bytes = {{8, 0, 0, 0}, 1}, floats = {{32, 0, 0, 0}, 2};
  char *rows = pinned(64 * 4);
  OK(cudaMallocArray(&array, &bytes, 16, 4, 0));
  OK(cudaMemcpy2DToArray(array, 0, 0, rows, 64, 16, 4, H2D));
  void *wide;
  OK(cudaMallocArray(&wide, &floats, 4, 4, 0));
  /* In elements of the array. */
  volume_t copy = {{NULL, {0}, {rows, 64, 64, 4}}, {wide, {0}, {0}}, {4, 2, 1}, H2D};
  OK(cudaMemcpy3DAsync(&copy, one));
}

/* The NULL stream's copies order blocking streams. */
static void peers(const char *name) {
  char *here = device(64), *there;
  stream_t first, other;
  OK(cudaStreamCreateWithFlags(&first, 0));
  OK(cudaSetDevice(1));
  there = device(64);
  OK(cudaStreamCreateWithFlags(&other, 0));
  OK(cudaSetDevice(0));
  fill(here, 64, first);
  if (is(name, "peer")) {
    OK(cudaMemcpyPeer(there, 1, here, 0, 64));
  } else {
    OK(cudaMemcpyPeerAsync(there, 1, here, 0, 64, first));
  }
  OK(cudaSetDevice(1));
  fill(there, 64, other);
}

/* The event is the first device's. Recorded on the other it stays as it was. */
static void refused_record(void) {
  event_t event;
  void *memory;
  OK(cudaEventCreate(&event));
  OK(cudaMallocAsync(&memory, 64, one));
  OK(cudaEventRecord(event, one));
  OK(cudaSetDevice(1));
  stream_t other = new_stream();
  if (!cudaEventRecord(event, other)) exit(4);
  OK(cudaSetDevice(0));
  OK(cudaStreamWaitEvent(two, event, 0));
  fill(memory, 64, two);
}

/* The time between two events is known once both are over, and not before. */
static void elapsed(const char *name) {
  event_t start, end;
  float time;
  int status = 600;
  char *memory = device(64);
  OK(cudaEventCreate(&start));
  OK(cudaEventCreate(&end));
  OK(cudaEventRecord(start, one));
  fill(memory, 64, one);
  OK(cudaEventRecord(end, one));
  /* The simulated GPU goes on when nothing is asked for a while. */
  do status = cudaEventElapsedTime(&time, start, end);
  while (status == 600 && is(name, "elapsed") && !usleep(300000));
  if (is(name, "elapsed")) OK(status);
  else if (status != 600) exit(5);
  fill(memory, 64, two);
}

static void managed(const char *name) {
  void *memory;
  size_t size = 4096;
  OK(cudaMallocManaged(&memory, size, 1));
  OK(cudaMemPrefetchAsync(memory, size, (location_t){1, 0}, 0, one));
  OK(cudaStreamAttachMemAsync(one, memory, 0, 1));
  OK(cudaMemDiscardBatchAsync(&memory, &size, 1, 0, one));
  if (is(name, "discard-race")) fill(memory, size, two);
}

static void pools(void) {
  pool_t properties = {.allocation = 1, .location = {1, 0}};
  void *pool, *memory;
  OK(cudaMemPoolCreate(&pool, &properties));
  OK(cudaMallocFromPoolAsync(&memory, 1024, pool, one));
  OK(cudaFreeAsync(memory, one));
  OK(cudaMemPoolDestroy(pool));
  /* The next pool may have its handle. */
  OK(cudaMemPoolCreate(&pool, &properties));
  OK(cudaMallocFromPoolAsync(&memory, 1024, pool, two));
  fill(memory, 1024, two);
  /* Outstanding allocations stay valid. */
  OK(cudaMemPoolDestroy(pool));
  fill(memory, 1024, two);
  OK(cudaFreeAsync(memory, two));
}

/* Two green contexts; the second's streams use what the first's have written. */
static void green_contexts(const char *name) {
  static u64 resource[64];
  void *description, *first, *second, *context, *primary;
  stream_t from, to, late;
  event_t event;
  char *memory = device(64);
  int runtime = strstr(name, "execution") != NULL;
  OK(cudaEventCreate(&event));
  OK(cuDeviceGetDevResource(0, resource, 1));
  OK(cuDevResourceGenerateDesc(&description, resource, 1));
  if (runtime) {
    OK(cudaGreenCtxCreate(&first, description, 0, 0));
    OK(cudaGreenCtxCreate(&second, description, 0, 0));
    OK(cudaExecutionCtxStreamCreate(&from, first, 1, 0));
    OK(cudaExecutionCtxStreamCreate(&to, second, 1, 0));
    OK(cudaDeviceGetExecutionCtx(&primary, 0));
  } else {
    OK(cuGreenCtxCreate(&first, description, 0, 1));
    OK(cuGreenCtxCreate(&second, description, 0, 1));
    OK(cuGreenCtxStreamCreate(&from, first, 1, 0));
    OK(cuGreenCtxStreamCreate(&to, second, 1, 0));
    OK(cuCtxGetCurrent(&primary));
  }
  fill(memory, 64, from);
  if (is(name, "green-event")) {
    OK(cuGreenCtxRecordEvent(first, event));
    OK(cuGreenCtxWaitEvent(second, event));
    OK(cuGreenCtxStreamCreate(&late, second, 1, 0));
    fill(memory, 64, late);
    OK(cuGreenCtxWaitEvent(first, event));
  } else if (is(name, "green-synchronize")) {
    OK(cuCtxFromGreenCtx(&context, first));
    OK(cuCtxSynchronize_v2(context));
  } else if (is(name, "green-synchronizes-another")) {
    OK(cuCtxFromGreenCtx(&context, second));
    OK(cuCtxSynchronize_v2(context));
  } else if (is(name, "green-primary")) {
    OK(cuCtxRecordEvent(primary, event));
    OK(cuCtxFromGreenCtx(&context, second));
    OK(cuCtxWaitEvent(context, event));
  } else if (is(name, "execution-event")) {
    OK(cudaExecutionCtxRecordEvent(first, event));
    OK(cudaExecutionCtxWaitEvent(second, event));
  } else if (is(name, "execution-primary")) {
    OK(cudaExecutionCtxSynchronize(primary));
  } else if (is(name, "execution-synchronizes-another")) {
    OK(cudaExecutionCtxSynchronize(second));
  }
  if (!is(name, "green-event")) fill(memory, 64, to);
  if (runtime) {
    OK(cudaExecutionCtxDestroy(first));
  } else {
    OK(cuGreenCtxDestroy(first));
  }
}

static void semaphores(const char *name) {
  void *memory, *semaphore;
  int timeline = strstr(name, "timeline") != NULL;
  description_t description = {.kind = timeline ? 9 : 1, .handle = {-1}};
  OK(cudaImportExternalSemaphore(&semaphore, &description));
  signal_t early = {.value = 1}, late = {.value = 2};
  if (is(name, "timeline-too-early")) OK(cudaSignalExternalSemaphoresAsync(&semaphore, &late, 1, one));
  if (is(name, "timeline")) OK(cudaSignalExternalSemaphoresAsync(&semaphore, &early, 1, two));
  OK(cudaMallocAsync(&memory, 64, one));
  if (!is(name, "timeline-too-early")) OK(cudaSignalExternalSemaphoresAsync(&semaphore, &late, 1, one));
  OK(cudaWaitExternalSemaphoresAsync(&semaphore, &late, 1, two));
  fill(memory, 64, two);
  OK(cudaDestroyExternalSemaphore(semaphore));
}

static void flags(const char *name) {
  char *memory = device(64);
  if (is(name, "flags")) OK(cudaSetDeviceFlags(0x80));
  OK(cudaMemset(memory, 0, 64));
  fill(memory, 64, one);
}

int main(int count, char **arguments) {
  const char *name = count > 1 ? arguments[1] : "";
  one = new_stream();
  two = new_stream();
  if (strstr(name, "values")) values(name);
  else if (strstr(name, "many-sources")) many_sources(name);
  else if (strstr(name, "batch-targets")) batch_targets(name);
  else if (strstr(name, "batch")) batches(name);
  else if (is(name, "volumes")) volumes();
  else if (is(name, "arrays")) arrays();
  else if (strstr(name, "peer")) peers(name);
  else if (strstr(name, "elapsed")) elapsed(name);
  else if (is(name, "refused-record")) refused_record();
  else if (strstr(name, "managed") || is(name, "discard-race")) managed(name);
  else if (is(name, "pools")) pools();
  else if (strstr(name, "green") || strstr(name, "execution")) green_contexts(name);
  else if (strstr(name, "semaphore") || strstr(name, "timeline")) semaphores(name);
  else if (strstr(name, "flags")) flags(name);
  else if (is(name, "reset")) {
    device(64);
    OK(cuCtxSynchronize());
    OK(cudaDeviceSynchronize());
    OK(cudaDeviceReset());
  } else if (is(name, "leak")) {
    void *memory;
    OK(cudaMallocAsync(&memory, 64, one));
  } else {
    return 2;
  }
  puts(name);
  return 0;
}
