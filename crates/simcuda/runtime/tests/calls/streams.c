/* What a stream says of itself: attributes, identity, context and device. */
#include "check.h"

typedef union { int word; char bytes[64]; } value_t;
int cudaStreamGetAttribute(stream_t, int, value_t *), cudaStreamSetAttribute(stream_t, int, const value_t *);
int cudaStreamCopyAttributes(stream_t, stream_t), cudaStreamGetId(stream_t, u64 *), cudaStreamGetDevice(stream_t, int *);
int cudaStreamGetPriority(stream_t, int *), cudaStreamGetFlags(stream_t, unsigned *);
int cuStreamGetCtx_v2(stream_t, context_t *, void **), cuStreamGetId(stream_t, u64 *), cuCtxGetCurrent(context_t *);
int cuStreamGetCtx(stream_t, context_t *), cudaGetDriverEntryPointByVersion(const char *, void **, unsigned, u64, int *);
enum { SYNC_POLICY = 3, PRIORITY = 8 };

int main(void) {
  stream_t a = new_stream(), b = new_stream();
  value_t value = {.word = 9}, two = {.word = 2}, urgent = {.word = -3};
  OK(cudaStreamGetAttribute(a, SYNC_POLICY, &value));
  CHECK(value.word == 1);
  OK(cudaStreamSetAttribute(a, SYNC_POLICY, &two));
  OK(cudaStreamCopyAttributes(b, a));
  OK(cudaStreamGetAttribute(b, SYNC_POLICY, &value));
  CHECK(value.word == 2);
  OK(cudaStreamSetAttribute(a, PRIORITY, &urgent));
  int priority, device;
  OK(cudaStreamGetPriority(a, &priority));
  CHECK(priority == -3);
  IS(cudaStreamSetAttribute(a, 2, &two), 1);
  IS(cudaStreamCopyAttributes(b, &device), 400);
  u64 id, same;
  unsigned flags;
  OK(cudaStreamGetId(a, &id));
  OK(cuStreamGetId(a, &same));
  CHECK(id == same);
  OK(cudaStreamGetFlags(a, &flags));
  CHECK(flags == NON_BLOCKING);
  OK(cudaStreamGetDevice(a, &device));
  CHECK(device == 0);
  context_t current, context;
  void *green = &green;
  OK(cuCtxGetCurrent(&current));
  OK(cuStreamGetCtx_v2(a, &context, &green));
  CHECK(context == current && !green);
  OK(cuStreamGetCtx(a, &context));
  CHECK(context == current);
  OK(cudaStreamDestroy(a));
  IS(cudaStreamGetAttribute(a, SYNC_POLICY, &value), 400);
  a = new_stream(); /* the same handle, and another stream */
  OK(cudaStreamGetAttribute(a, SYNC_POLICY, &value));
  CHECK(value.word == 1);
  return 0;
}
