/* Copies with attributes: the source is read during the call, or when the stream gets there. */
#include "check.h"

typedef struct { int order; location_t source, target; unsigned flags; } attributes_t;
typedef struct { int kind; void *place; size_t numbers[3]; } operand_t;
typedef struct { operand_t source, target; size_t extent[3]; int order; unsigned flags; } operation_t;
typedef struct { int bits[4], kind; } channels_t;
enum { STREAM = 1, DURING_CALL = 2, ANY = 3 };

int cudaMemcpyBatchAsync(void *const *, const void *const *, const size_t *, size_t, attributes_t *, size_t *, size_t, stream_t);
int cudaMemcpyBatchAsync_ptsz(void *const *, const void *const *, const size_t *, size_t, attributes_t *, size_t *, size_t, stream_t);
int cudaMemcpy3DBatchAsync(size_t, operation_t *, u64, stream_t);
int cudaMemcpyWithAttributesAsync(void *, const void *, size_t, attributes_t *, stream_t);
int cudaMemcpy3DWithAttributesAsync(operation_t *, u64, stream_t);
int cuMemcpyBatchAsync(u64 *, u64 *, size_t *, size_t, attributes_t *, size_t *, size_t, size_t *, stream_t);
int cuMemcpyBatchAsync_v2(u64 *, u64 *, size_t *, size_t, attributes_t *, size_t *, size_t, stream_t);
int cuMemcpy3DBatchAsync(size_t, operation_t *, size_t *, u64, stream_t);
int cuMemcpy3DBatchAsync_v2(size_t, operation_t *, u64, stream_t);
int cudaGetDriverEntryPointByVersion(const char *, void **, unsigned, u64, int *);
int cudaMallocArray(void **, const channels_t *, size_t, size_t, unsigned);
int cudaMemcpyFromArray(void *, void *, size_t, size_t, size_t, int);
int cuStreamWaitValue32_v2(stream_t, u64, unsigned, unsigned);

/* A stream that holds until the gate is opened. */
static volatile unsigned *gate;
static stream_t held(void) {
  stream_t s = new_stream();
  *gate = 0;
  OK(cuStreamWaitValue32_v2(s, (u64)gate, 1, 1));
  return s;
}
static void open_gate(stream_t s) {
  *gate = 1;
  OK(cudaStreamSynchronize(s));
}

static void linear(void) {
  char *device = on_device(64), back[16], one[] = "one", two[] = "two", three[] = "six";
  void *targets[] = {device, device + 4, device + 8};
  const void *sources[] = {one, two, three};
  size_t sizes[] = {4, 4, 4}, firsts[] = {0, 1, 2};
  attributes_t attributes[] = {{DURING_CALL, {0, 0}, {0, 0}, 0}, {STREAM, {0, 0}, {0, 0}, 0}, {ANY, {0, 0}, {0, 0}, 0}};
  stream_t s = held();
  OK(cudaMemcpyBatchAsync(targets, sources, sizes, 3, attributes, firsts, 3, s));
  memcpy(one, "ONE", 4); /* read already */
  memcpy(two, "TWO", 4); /* not yet */
  open_gate(s);
  OK(cudaMemcpy(back, device, 12, D2H));
  CHECK(!strcmp(back, "one") && !strcmp(back + 4, "TWO") && !strcmp(back + 8, "six"));
  char freed[] = "new"; /* to pageable memory, and nobody waits */
  s = held();
  OK(cudaMemcpyWithAttributesAsync(freed, device, 4, &attributes[1], s));
  CHECK(!strcmp(freed, "new"));
  open_gate(s);
  CHECK(!strcmp(freed, "one"));
  IS(cudaMemcpyBatchAsync(targets, sources, sizes, 3, attributes, firsts, 3, NULL), 1);
  IS(cudaMemcpyBatchAsync(targets, sources, sizes, 3, attributes, firsts, 3, LEGACY), 1);
  OK(cudaMemcpyBatchAsync_ptsz(targets, sources, sizes, 3, attributes, firsts, 3, NULL));
  OK(cudaDeviceSynchronize());
  attributes[2].order = 0;
  IS(cudaMemcpyBatchAsync(targets, sources, sizes, 3, attributes, firsts, 3, s), 1);
  size_t fault = 77;
  IS(cuMemcpyBatchAsync((u64 *)targets, (u64 *)sources, sizes, 3, attributes, firsts, 3, &fault, s), 1);
  CHECK(fault == 2);
  attributes[2].order = ANY;
  firsts[0] = 1;
  IS(cuMemcpyBatchAsync((u64 *)targets, (u64 *)sources, sizes, 3, attributes, firsts, 3, &fault, s), 1);
  CHECK(fault == ~(size_t)0);
  firsts[0] = 0;
  OK(cuMemcpyBatchAsync((u64 *)targets, (u64 *)sources, sizes, 3, attributes, firsts, 3, &fault, s));
  OK(cuMemcpyBatchAsync_v2((u64 *)targets, (u64 *)sources, sizes, 3, attributes, firsts, 3, s));
  OK(cudaDeviceSynchronize());
}

static void boxes(void) {
  char text[] = "abcdefgh", back[9] = "", *device = on_device(16);
  void *array;
  OK(cudaMallocArray(&array, &(channels_t){{8, 8, 0, 0}, 1}, 2, 2, 0));
  operation_t in = {{1, text, {0, 0, 0}}, {2, array, {0, 0, 0}}, {2, 2, 1}, DURING_CALL, 0};
  operation_t out = {{2, array, {1, 0, 0}}, {1, device, {2, 0, 0}}, {1, 2, 1}, STREAM, 0};
  stream_t s = held();
  OK(cudaMemcpy3DWithAttributesAsync(&in, 0, s));
  memset(text, '?', 8);
  OK(cudaMemcpy3DBatchAsync(1, &out, 0, s));
  open_gate(s);
  OK(cudaMemcpyFromArray(back, array, 0, 0, 8, D2H));
  CHECK(!strcmp(back, "abcdefgh"));
  OK(cudaMemcpy(back, device, 6, D2H));
  CHECK(!memcmp(back, "cd", 2) && !memcmp(back + 4, "gh", 2));
  size_t fault = 77;
  operation_t both[] = {in, out};
  both[1].extent[0] = 2; /* past the array's row */
  IS(cuMemcpy3DBatchAsync(2, both, &fault, 0, s), 1);
  CHECK(fault == 1);
  IS(cuMemcpy3DBatchAsync_v2(1, both, 1, s), 1);
  both[1].extent[0] = 0;
  IS(cuMemcpy3DBatchAsync_v2(2, both, 0, s), 1);
}

int main(void) {
  void *found;
  int how;
  gate = pinned(4);
  linear();
  boxes();
  OK(cudaGetDriverEntryPointByVersion("cuMemcpyBatchAsync", &found, 12080, 0, &how));
  CHECK(found == (void *)cuMemcpyBatchAsync);
  OK(cudaGetDriverEntryPointByVersion("cuMemcpyBatchAsync", &found, 13000, 0, &how));
  CHECK(found == (void *)cuMemcpyBatchAsync_v2);
  return 0;
}
