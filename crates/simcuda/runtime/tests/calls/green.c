/* Green contexts, as such and as execution contexts: streams of their own, order between whole contexts. */
#include "check.h"

typedef struct { int kind; char internal[92]; unsigned count, least, alignment, rest[7]; void *next; } resource_t;
typedef void *green_t;

int cuGreenCtxCreate(green_t *, void *, int, unsigned), cuGreenCtxDestroy(green_t), cuCtxFromGreenCtx(context_t *, green_t);
int cuGreenCtxStreamCreate(stream_t *, green_t, unsigned, int), cuStreamDestroy_v2(stream_t);
int cuGreenCtxRecordEvent(green_t, event_t), cuGreenCtxWaitEvent(green_t, event_t);
int cuCtxRecordEvent(context_t, event_t), cuCtxWaitEvent(context_t, event_t), cuCtxSynchronize_v2(context_t);
int cuCtxGetCurrent(context_t *), cuCtxSetCurrent(context_t), cuCtxDestroy_v2(context_t), cuCtxSynchronize(void);
int cuStreamGetCtx_v2(stream_t, context_t *, green_t *), cuStreamGetGreenCtx(stream_t, green_t *);
int cuDeviceGetDevResource(int, resource_t *, int), cuDevResourceGenerateDesc(void **, resource_t *, unsigned);
int cuDevSmResourceSplitByCount(resource_t *, unsigned *, const resource_t *, resource_t *, unsigned, unsigned);
int cuStreamWaitValue32_v2(stream_t, u64, unsigned, unsigned);
int cuDevicePrimaryCtxGetState(int, unsigned *, int *), cuDevicePrimaryCtxReset_v2(int);
int cudaGreenCtxCreate(void **, void *, int, unsigned), cudaExecutionCtxDestroy(void *), cudaDeviceGetExecutionCtx(void **, int);
int cudaExecutionCtxStreamCreate(stream_t *, void *, unsigned, int), cudaExecutionCtxSynchronize(void *);
int cudaExecutionCtxRecordEvent(void *, event_t), cudaExecutionCtxWaitEvent(void *, event_t);
int cudaExecutionCtxGetDevice(int *, void *), cudaExecutionCtxGetId(void *, u64 *), cudaDeviceReset(void);
int cudaDeviceGetDevResource(int, resource_t *, int), cudaStreamGetDevice(stream_t, int *);

static volatile unsigned *gate;

static stream_t green_stream(green_t green) {
  stream_t stream;
  OK(cuGreenCtxStreamCreate(&stream, green, NON_BLOCKING, 0));
  return stream;
}

static void hold(stream_t stream) {
  *gate = 0;
  OK(cuStreamWaitValue32_v2(stream, (u64)gate, 1, 1));
}

static void *open_later(void *nothing) {
  usleep(30000);
  *gate = 1;
  return nothing;
}

static void resources(green_t *a, green_t *b) {
  resource_t all, groups[2], rest;
  unsigned count = 2;
  void *descriptor;
  OK(cuDeviceGetDevResource(0, &all, 1));
  CHECK(all.kind == 1 && all.count == 132);
  IS(cuDeviceGetDevResource(0, &all, 1000), 914);
  OK(cuDevSmResourceSplitByCount(groups, &count, &all, &rest, 0, 20));
  CHECK(count == 2 && groups[0].count == 24 && groups[1].count == 24 && rest.count == 84);
  OK(cuDevResourceGenerateDesc(&descriptor, groups, 1));
  OK(cuGreenCtxCreate(a, descriptor, 0, 1));
  OK(cuGreenCtxCreate(b, descriptor, 0, 1));
  IS(cuGreenCtxCreate(b, descriptor, 7, 1), 101);
}

static void order(green_t a, green_t b) {
  stream_t one = green_stream(a), two = green_stream(a), other = green_stream(b), late;
  context_t ca, cb, primary, context;
  event_t e = new_event(), far;
  green_t green;
  char *p = on_device(8), *seen = pinned(8);
  IS(cuGreenCtxStreamCreate(&late, a, 0, 0), 1);
  OK(cuCtxGetCurrent(&primary));
  OK(cuCtxFromGreenCtx(&ca, a));
  OK(cuCtxFromGreenCtx(&cb, b));
  OK(cuStreamGetCtx_v2(one, &context, &green));
  CHECK(context == primary && green == a);
  OK(cuStreamGetGreenCtx(other, &green));
  CHECK(green == b);
  /* An event of the primary context is good in its green ones. */
  OK(cudaEventRecord(e, one));
  OK(cudaStreamSynchronize(one));
  /* Waiting for one context does not wait for another; for the primary one it waits for all of them. */
  hold(one);
  OK(cudaMemsetAsync(p, 'a', 4, one));
  OK(cuCtxSynchronize_v2(cb));
  OK(cuCtxSetCurrent(cb));
  OK(cuCtxSynchronize());
  OK(cuCtxSetCurrent(primary));
  IS(cudaStreamQuery(one), 600);
  /* All of a's streams, seen from b's: those it has, and one that it gets later. */
  OK(cudaMemsetAsync(p + 4, 'b', 4, two));
  OK(cuGreenCtxRecordEvent(a, e));
  OK(cuGreenCtxWaitEvent(b, e));
  late = green_stream(b);
  OK(cudaMemcpyAsync(seen, p, 4, D2H, other));
  OK(cudaMemcpyAsync(seen + 4, p + 4, 4, D2H, late));
  for (int i = 0; i < 20; i++) IS(cudaStreamQuery(late), 600);
  IS(cudaEventQuery(e), 600);
  pthread_t thread;
  pthread_create(&thread, NULL, open_later, NULL);
  OK(cudaDeviceSynchronize());
  pthread_join(thread, NULL);
  OK(cudaEventQuery(e));
  OK(cudaStreamQuery(late));
  CHECK(!memcmp(seen, "aaaabbbb", 8));
  /* The primary context's event holds its green ones' work too. */
  hold(one);
  OK(cuCtxRecordEvent(primary, e));
  IS(cudaEventQuery(e), 600);
  OK(cuCtxWaitEvent(ca, e));
  OK(cuCtxWaitEvent(ca, new_event())); /* never recorded: no wait */
  *gate = 1;
  OK(cudaEventSynchronize(e));
  OK(cudaSetDevice(1));
  far = new_event();
  OK(cudaSetDevice(0));
  IS(cuGreenCtxRecordEvent(a, far), 400);
  IS(cuCtxDestroy_v2(ca), 201);
  IS(cuCtxSynchronize_v2(a), 201);
  /* A destroyed one's streams finish their work and can only be destroyed. */
  hold(one);
  memset(seen, 0, 8);
  OK(cudaMemcpyAsync(seen, p, 4, D2H, one));
  OK(cuGreenCtxDestroy(a));
  IS(cuGreenCtxDestroy(a), 201);
  IS(cudaStreamQuery(one), 917);
  *gate = 1;
  OK(cudaDeviceSynchronize());
  CHECK(!memcmp(seen, "aaaa", 4));
  OK(cuStreamDestroy_v2(one));
  OK(cuGreenCtxDestroy(b));
  IS(cuCtxSetCurrent(cb), 201);
}

static void executions(void) {
  void *primary, *green;
  stream_t s, t;
  event_t e = new_event();
  int device = 7;
  u64 id[2];
  context_t current;
  OK(cuCtxGetCurrent(&current));
  OK(cudaDeviceGetExecutionCtx(&primary, 0));
  CHECK(primary == current);
  OK(cudaGreenCtxCreate(&green, NULL, 0, 0));
  OK(cudaExecutionCtxGetDevice(&device, green));
  CHECK(device == 0);
  OK(cudaExecutionCtxGetId(green, &id[0]));
  OK(cudaExecutionCtxGetId(primary, &id[1]));
  CHECK(id[0] != id[1]);
  OK(cudaExecutionCtxStreamCreate(&s, green, NON_BLOCKING, 0));
  OK(cudaExecutionCtxStreamCreate(&t, primary, NON_BLOCKING, 0));
  hold(s);
  OK(cudaExecutionCtxRecordEvent(green, e));
  OK(cudaExecutionCtxWaitEvent(primary, e));
  char *p = on_device(4);
  OK(cudaMemsetAsync(p, 1, 4, t));
  IS(cudaStreamQuery(t), 600);
  pthread_t thread;
  pthread_create(&thread, NULL, open_later, NULL);
  OK(cudaExecutionCtxSynchronize(green));
  OK(cudaStreamSynchronize(t));
  pthread_join(thread, NULL);
  OK(cudaExecutionCtxRecordEvent(primary, e));
  OK(cudaExecutionCtxSynchronize(primary));
  OK(cudaExecutionCtxDestroy(green));
  IS(cudaExecutionCtxDestroy(green), 201);
  IS(cudaStreamSynchronize(s), 917);
  OK(cudaStreamDestroy(s));
  /* A reset takes green contexts and their streams with it. */
  OK(cudaGreenCtxCreate(&green, NULL, 0, 0));
  OK(cudaDeviceReset());
  IS(cudaExecutionCtxSynchronize(green), 201);
}

int main(void) {
  green_t a, b;
  gate = pinned(4);
  resources(&a, &b);
  order(a, b);
  executions();
  return 0;
}
