/* Managed memory: prefetches, discards and advice, by the calls of CUDA 12 and of CUDA 13. */
#include "check.h"

int cudaMemPrefetchAsync(const void *, size_t, location_t, unsigned, stream_t);
int cudaMemPrefetchBatchAsync(void **, size_t *, size_t, location_t *, size_t *, size_t, u64, stream_t);
int cudaMemDiscardBatchAsync(void **, size_t *, size_t, u64, stream_t);
int cudaMemDiscardAndPrefetchBatchAsync(void **, size_t *, size_t, location_t *, size_t *, size_t, u64, stream_t);
int cudaMemAdvise(const void *, size_t, int, location_t), cudaStreamAttachMemAsync(stream_t, void *, size_t, unsigned);
int cuMemPrefetchAsync(u64, size_t, int, stream_t), cuMemPrefetchAsync_v2(u64, size_t, location_t, unsigned, stream_t);
int cuMemDiscardBatchAsync_ptsz(u64 *, size_t *, size_t, u64, stream_t);
int cuStreamWaitValue32_v2(stream_t, u64, unsigned, unsigned);

int main(void) {
  char *m, *n, *device = on_device(8);
  stream_t s = new_stream();
  volatile unsigned *gate = pinned(4);
  location_t here = {1, 0}, host = {2, 0}, nowhere = {1, 5}, places[] = {here, host};
  OK(cudaMallocManaged((void **)&m, 64, 1));
  OK(cudaMallocManaged((void **)&n, 64, 1));
  memset(m, 'm', 64);
  memset(n, 'n', 64);
  OK(cudaMemAdvise(m, 64, 1, here));
  IS(cudaMemAdvise(m, 64, 9, here), 1);
  IS(cudaMemAdvise(device, 8, 1, here), 1);
  OK(cudaStreamAttachMemAsync(s, m, 0, 4));
  IS(cudaStreamAttachMemAsync(s, m, 0, 3), 1);
  OK(cudaMemPrefetchAsync(m, 64, here, 0, s));
  IS(cudaMemPrefetchAsync(m, 64, nowhere, 0, s), 101);
  IS(cudaMemPrefetchAsync(m, 65, here, 0, s), 1);
  OK(cuMemPrefetchAsync((u64)m, 64, -1, s));
  OK(cuMemPrefetchAsync_v2((u64)m, 64, host, 0, s));
  void *ranges[] = {m, n};
  size_t sizes[] = {64, 32}, firsts[] = {0, 1};
  OK(cudaMemPrefetchBatchAsync(ranges, sizes, 2, places, firsts, 2, 0, s));
  OK(cudaStreamSynchronize(s));
  CHECK(m[0] == 'm' && n[63] == 'n');
  /* Discarded when the stream gets there, and not before. */
  OK(cuStreamWaitValue32_v2(s, (u64)gate, 1, 1));
  OK(cudaMemDiscardBatchAsync(ranges, sizes, 1, 0, s));
  OK(cudaMemDiscardAndPrefetchBatchAsync(ranges + 1, sizes + 1, 1, places, firsts, 1, 0, s));
  IS(cudaStreamQuery(s), 600);
  CHECK(m[0] == 'm' && n[0] == 'n');
  *gate = 1;
  OK(cudaStreamSynchronize(s));
  CHECK(m[0] != 'm' && m[63] != 'm' && n[0] != 'n' && n[32] == 'n');
  /* None of the batches takes the legacy stream, flags, or locations out of order. */
  IS(cudaMemDiscardBatchAsync(ranges, sizes, 2, 0, NULL), 1);
  OK(cuMemDiscardBatchAsync_ptsz((u64 *)ranges, sizes, 2, 0, NULL));
  IS(cudaMemDiscardBatchAsync(ranges, sizes, 2, 1, s), 1);
  firsts[0] = 1;
  IS(cudaMemPrefetchBatchAsync(ranges, sizes, 2, places, firsts, 1, 0, s), 1);
  ranges[1] = device;
  IS(cudaMemDiscardBatchAsync(ranges, sizes, 2, 0, s), 1);
  OK(cudaDeviceSynchronize());
  return 0;
}
