/* Two devices: whose event, stream and context is whose; peers; copies between them; each device's legacy stream. */
#include "check.h"

typedef struct { void *address; size_t pitch, width, height; } pitched_t;
typedef struct { size_t width, height, depth; } extent_t;
typedef struct { void *array; size_t position[3]; pitched_t pitched; int device; } peer_side_t;
typedef struct { peer_side_t source, target; extent_t extent; } peer_copy_t;
typedef struct { location_t location; int flags; } access_t;

int cudaDeviceCanAccessPeer(int *, int, int), cudaDeviceEnablePeerAccess(int, unsigned), cudaDeviceDisablePeerAccess(int);
int cudaMemcpyPeer(void *, int, const void *, int, size_t), cudaMemcpyPeerAsync(void *, int, const void *, int, size_t, stream_t);
int cudaMemcpy3DPeer(const peer_copy_t *), cudaMemcpy3DPeerAsync(const peer_copy_t *, stream_t);
int cudaDeviceGetDefaultMemPool(void **, int), cudaMemPoolSetAccess(void *, const access_t *, size_t);
int cudaMemPoolGetAccess(int *, void *, const location_t *);
int cudaStreamGetDevice(stream_t, int *), cudaStreamGetId(stream_t, u64 *);
int cudaMallocAsync(void **, size_t, stream_t), cudaFreeAsync(void *, stream_t), cudaInitDevice(int, unsigned, unsigned);
int cuCtxGetCurrent(context_t *);
int cuStreamWaitValue32_v2(stream_t, u64, unsigned, unsigned), cuStreamWriteValue32_v2(stream_t, u64, unsigned, unsigned);

static void *other_thread(void *seen) {
  OK(cudaGetDevice(seen));
  return NULL;
}

static void choices(void) {
  int device = 7, seen[2];
  context_t context[2];
  pthread_t thread;
  OK(cudaInitDevice(1, 0, 0));
  OK(cudaSetDevice(0));
  OK(cuCtxGetCurrent(&context[0]));
  OK(cudaSetDevice(1));
  OK(cuCtxGetCurrent(&context[1]));
  CHECK(context[0] && context[1] && context[0] != context[1]);
  OK(cudaGetDevice(&device));
  CHECK(device == 1);
  pthread_create(&thread, NULL, other_thread, &seen[0]); /* each thread begins with device 0 */
  pthread_join(thread, NULL);
  CHECK(seen[0] == 0);
  IS(cudaSetDevice(2), 101);
  OK(cudaGetDevice(&device));
  CHECK(device == 1);
  OK(cudaSetDevice(0));
}

static void events(void) {
  stream_t s0 = new_stream();
  event_t e0 = new_event();
  char *p0 = on_device(4), *seen = pinned(4);
  OK(cudaSetDevice(1));
  stream_t s1 = new_stream();
  unsigned *gate = pinned(4);
  int device;
  OK(cudaStreamGetDevice(s1, &device));
  CHECK(device == 1);
  OK(cuStreamWaitValue32_v2(s0, (u64)gate, 1, 1));
  OK(cudaMemsetAsync(p0, 'a', 4, s0));
  OK(cudaEventRecord(e0, s0));
  IS(cudaEventRecord(e0, s1), 400); /* refused, and the record before it stands */
  OK(cudaStreamWaitEvent(s1, e0, 0));
  OK(cudaMemcpyAsync(seen, p0, 4, D2H, s1));
  IS(cudaEventQuery(e0), 600);
  *gate = 1;
  OK(cudaStreamSynchronize(s1));
  CHECK(!memcmp(seen, "aaaa", 4));
  OK(cudaSetDevice(0));
  OK(cudaEventQuery(e0));
}

/* The current device's work is waited for, and no other's. */
static void synchronize_one(void) {
  volatile unsigned *gate = pinned(4);
  stream_t s0 = new_stream();
  OK(cuStreamWaitValue32_v2(s0, (u64)gate, 1, 1));
  OK(cudaSetDevice(1));
  char *p = on_device(4);
  OK(cudaMemset(p, 1, 4));
  OK(cudaDeviceSynchronize());
  OK(cudaFree(p));
  IS(cudaStreamQuery(s0), 600);
  *gate = 1;
  OK(cudaSetDevice(0));
  OK(cudaDeviceSynchronize());
}

static void legacy_streams(void) {
  u64 zero, one;
  OK(cudaStreamGetId(NULL, &zero));
  OK(cudaSetDevice(1));
  OK(cudaStreamGetId(NULL, &one));
  CHECK(zero != one);
  IS(cudaMemcpyPeer(NULL, 0, NULL, 5, 0), 101);
  OK(cudaSetDevice(0));
}

static void peers(void) {
  int can;
  OK(cudaDeviceCanAccessPeer(&can, 0, 1));
  CHECK(can == 1);
  OK(cudaDeviceEnablePeerAccess(1, 0));
  IS(cudaDeviceEnablePeerAccess(1, 0), 704);
  OK(cudaDeviceDisablePeerAccess(1));
  IS(cudaDeviceDisablePeerAccess(1), 705);
  cudaGetLastError();
  char *p0 = on_device(64), back[64] = "";
  OK(cudaSetDevice(1));
  char *p1 = on_device(64);
  stream_t s1 = new_stream();
  OK(cudaSetDevice(0));
  OK(cudaMemset(p0, 'x', 64));
  OK(cudaDeviceSynchronize());
  OK(cudaMemcpyPeer(p1, 1, p0, 0, 8));
  OK(cudaMemcpyPeerAsync(p1 + 8, 1, p0, 0, 8, s1));
  OK(cudaStreamSynchronize(s1));
  peer_copy_t copy = {{NULL, {0, 0, 0}, {p0, 8, 8, 2}, 0}, {NULL, {1, 1, 1}, {p1, 4, 4, 4}, 1}, {2, 2, 2}};
  OK(cudaMemcpy3DPeer(&copy));
  OK(cudaMemcpy3DPeerAsync(&copy, s1));
  OK(cudaStreamSynchronize(s1));
  OK(cudaMemcpy(back, p1, 64, D2H));
  CHECK(!memcmp(back, "xxxxxxxxxxxxxxxx", 16));
  CHECK(!memcmp(back + 16 + 4 + 1, "xx", 2) && back[16 + 4] != 'x' && !memcmp(back + 32 + 8 + 1, "xx", 2));
}

static void pool_access(void) {
  void *pool;
  int flags = 9;
  location_t here = {1, 0}, there = {1, 1};
  access_t allow = {there, 3}, never = {there, 0}, own = {here, 0};
  OK(cudaDeviceGetDefaultMemPool(&pool, 0));
  OK(cudaMemPoolGetAccess(&flags, pool, &here));
  CHECK(flags == 3);
  OK(cudaMemPoolGetAccess(&flags, pool, &there));
  CHECK(flags == 0);
  OK(cudaMemPoolSetAccess(pool, &allow, 1));
  OK(cudaMemPoolGetAccess(&flags, pool, &there));
  CHECK(flags == 3);
  OK(cudaMemPoolSetAccess(pool, &never, 1));
  OK(cudaMemPoolGetAccess(&flags, pool, &there));
  CHECK(flags == 0);
  IS(cudaMemPoolSetAccess(pool, &own, 1), 1);
}

int main(void) {
  choices();
  events();
  synchronize_one();
  legacy_streams();
  peers();
  pool_access();
  return 0;
}
