/* Pools of the program's own: attributes, destruction before the last free, and which pool is current. */
#include "check.h"

typedef struct { int kind, handles; location_t location; void *security; size_t max; char rest[56]; } props_t;
typedef void *pool_t;

int cudaMemPoolCreate(pool_t *, const props_t *), cudaMemPoolDestroy(pool_t), cudaMemPoolTrimTo(pool_t, size_t);
int cudaMemPoolGetAttribute(pool_t, int, void *), cudaMemPoolSetAttribute(pool_t, int, void *);
int cudaMallocFromPoolAsync(void **, size_t, pool_t, stream_t), cudaMallocAsync(void **, size_t, stream_t);
int cudaFreeAsync(void *, stream_t), cudaMemGetInfo(size_t *, size_t *);
int cudaDeviceGetMemPool(pool_t *, int), cudaDeviceSetMemPool(int, pool_t), cudaDeviceGetDefaultMemPool(pool_t *, int);
int cudaMemGetDefaultMemPool(pool_t *, location_t *, int), cudaMemGetMemPool(pool_t *, location_t *, int);
int cudaMemSetMemPool(location_t *, int, pool_t);
enum { THRESHOLD = 4, RESERVED = 5, USED = 7, USED_HIGH = 8 };

static u64 attribute(pool_t pool, int which) {
  u64 value;
  OK(cudaMemPoolGetAttribute(pool, which, &value));
  return value;
}

static size_t free_memory(void) {
  size_t free, total;
  OK(cudaMemGetInfo(&free, &total));
  return free;
}

int main(void) {
  props_t props = {1, 0, {1, 0}, NULL, 0, {0}};
  pool_t pool, found, first;
  stream_t s = new_stream();
  char *p, *q, *seen = pinned(4);
  size_t before = free_memory();
  OK(cudaMemPoolCreate(&pool, &props));
  u64 keep = ~0ULL, zero = 0, one = 1;
  OK(cudaMemPoolSetAttribute(pool, THRESHOLD, &keep));
  CHECK(attribute(pool, THRESHOLD) == keep);
  OK(cudaMallocFromPoolAsync((void **)&p, 1000, pool, s));
  OK(cudaMallocFromPoolAsync((void **)&q, 1000, pool, s));
  CHECK(attribute(pool, RESERVED) == 2048 && attribute(pool, USED) == 2048);
  OK(cudaFreeAsync(q, s));
  OK(cudaStreamSynchronize(s));
  CHECK(attribute(pool, RESERVED) == 2048 && attribute(pool, USED) == 1024 && attribute(pool, USED_HIGH) == 2048);
  OK(cudaMemPoolSetAttribute(pool, USED_HIGH, &zero));
  CHECK(attribute(pool, USED_HIGH) == 1024);
  IS(cudaMemPoolSetAttribute(pool, USED_HIGH, &one), 1);
  OK(cudaMemPoolTrimTo(pool, 0));
  CHECK(attribute(pool, RESERVED) == 1024);
  /* Destroyed while an allocation lives: it stays good, and its memory goes with it. */
  OK(cudaMemPoolDestroy(pool));
  IS(cudaMemPoolDestroy(pool), 1);
  IS(cudaMallocFromPoolAsync((void **)&q, 8, pool, s), 1);
  OK(cudaMemsetAsync(p, 'p', 4, s));
  OK(cudaMemcpyAsync(seen, p, 4, D2H, s));
  OK(cudaStreamSynchronize(s));
  CHECK(!memcmp(seen, "pppp", 4) && free_memory() == before - 1024);
  OK(cudaFreeAsync(p, s));
  OK(cudaStreamSynchronize(s));
  CHECK(free_memory() == before);
  /* The current pool is what cudaMallocAsync takes; a destroyed one gives way to the default one. */
  location_t here = {1, 0}, there = {1, 1}, host = {2, 0};
  OK(cudaDeviceGetDefaultMemPool(&first, 0));
  OK(cudaMemGetDefaultMemPool(&found, &here, 1));
  CHECK(found == first);
  OK(cudaMemPoolCreate(&pool, &props));
  OK(cudaMemSetMemPool(&here, 1, pool));
  IS(cudaMemSetMemPool(&there, 1, pool), 1);
  IS(cudaMemGetMemPool(&found, &host, 1), 801);
  OK(cudaMemGetMemPool(&found, &here, 1));
  CHECK(found == pool);
  OK(cudaMallocAsync((void **)&p, 8, s));
  CHECK(attribute(pool, USED) == 512 && attribute(first, USED) == 0);
  OK(cudaFreeAsync(p, s));
  OK(cudaMemPoolDestroy(pool));
  OK(cudaDeviceGetMemPool(&found, 0));
  CHECK(found == first);
  OK(cudaDeviceSetMemPool(0, first));
  IS(cudaMemPoolDestroy(first), 1);
  return 0;
}
