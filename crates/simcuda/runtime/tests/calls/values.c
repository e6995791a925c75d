/* Stream memory operations: writes, waits with each condition, batches; across streams, and from the host. */
#include "check.h"

int cuStreamWaitValue32_v2(stream_t, u64, unsigned, unsigned), cuStreamWriteValue32_v2(stream_t, u64, unsigned, unsigned);
int cuStreamWaitValue64_v2(stream_t, u64, u64, unsigned), cuStreamWriteValue64_v2(stream_t, u64, u64, unsigned);
int cuStreamWriteValue32_v2_ptsz(stream_t, u64, unsigned, unsigned);
int cuStreamBatchMemOp_v2(stream_t, unsigned, void *, unsigned);
int cudaGetDriverEntryPointByVersion(const char *, void **, unsigned, u64, int *);

enum { GEQ, EQ, AND, NOR };
typedef struct { int operation; u64 address, value; unsigned flags; u64 alias, pad; } op_t;

static void *store_later(void *flag) {
  usleep(30000);
  __atomic_store_n((unsigned *)flag, 5, __ATOMIC_SEQ_CST);
  return NULL;
}

/* A stream waits for another's write; work on third streams goes on. */
static void between_streams(void) {
  stream_t waiting = new_stream(), writing = new_stream();
  unsigned *flag = on_device(8);
  char *data = on_device(4), *seen = pinned(8);
  OK(cudaMemset(flag, 0, 8));
  OK(cudaDeviceSynchronize());
  OK(cuStreamWaitValue32_v2(waiting, (u64)flag, 3, GEQ));
  OK(cudaMemcpyAsync(seen, data, 4, D2H, waiting));
  IS(cudaStreamQuery(waiting), 600);
  OK(cudaMemsetAsync(data, 'a', 4, writing));
  OK(cudaStreamSynchronize(writing));
  IS(cudaStreamQuery(waiting), 600);
  OK(cuStreamWriteValue32_v2(writing, (u64)flag, 4, 0));
  OK(cudaStreamSynchronize(waiting));
  CHECK(!memcmp(seen, "aaaa", 4));
  OK(cuStreamWriteValue64_v2(writing, (u64)flag, 1ULL << 40, 0));
  OK(cuStreamWaitValue64_v2(waiting, (u64)flag, 1ULL << 40, EQ));
  OK(cudaMemcpyAsync(seen, flag, 8, D2H, waiting));
  OK(cudaStreamSynchronize(waiting));
  CHECK(*(u64 *)seen == 1ULL << 40);
  OK(cuStreamWaitValue64_v2(waiting, (u64)flag, 3ULL << 40, AND));
  OK(cuStreamWaitValue64_v2(waiting, (u64)flag, 1, NOR));
  OK(cudaStreamSynchronize(waiting));
}

/* The host waits for a stream that waits for what only another thread stores. */
static void from_the_host(void) {
  stream_t s = new_stream();
  volatile unsigned *flag = pinned(4), *answer = pinned(4);
  pthread_t thread;
  OK(cuStreamWaitValue32_v2(s, (u64)flag, 5, EQ));
  OK(cuStreamWriteValue32_v2(s, (u64)answer, 6, 0));
  pthread_create(&thread, NULL, store_later, (void *)flag);
  OK(cudaStreamSynchronize(s));
  CHECK(*flag == 5 && *answer == 6);
  pthread_join(thread, NULL);
  /* Nobody asks CUDA: the stream gets on all the same. */
  *flag = *answer = 0;
  OK(cuStreamWaitValue32_v2(s, (u64)flag, 7, EQ));
  OK(cuStreamWriteValue32_v2(s, (u64)answer, 8, 0));
  *flag = 7;
  for (int i = 0; *answer != 8; i++) {
    CHECK(i < 5000);
    usleep(1000);
  }
  OK(cuStreamWriteValue32_v2_ptsz(NULL, (u64)answer, 9, 0));
  OK(cudaDeviceSynchronize());
  CHECK(*answer == 9);
}

static void batches(void) {
  stream_t s = new_stream(), other = new_stream();
  unsigned *words = pinned(16);
  op_t ops[] = {{1, (u64)&words[0], 1, EQ, 0, 0}, {2, (u64)&words[1], 2, 0, 0, 0}, {6, 0, 0, 0, 0, 0},
                {5, (u64)&words[2], 3, 0, 0, 0}};
  OK(cuStreamBatchMemOp_v2(s, 4, ops, 0));
  IS(cudaStreamQuery(s), 600);
  CHECK(words[1] == 0);
  OK(cuStreamWriteValue32_v2(other, (u64)words, 1, 0));
  OK(cudaStreamSynchronize(s));
  CHECK(words[0] == 1 && words[1] == 2 && words[2] == 3);
  ops[3].address = (u64)&words[1]; /* not aligned: nothing of the batch happens */
  ops[1].value = 9;
  IS(cuStreamBatchMemOp_v2(s, 4, ops, 0), 1);
  OK(cudaStreamSynchronize(s));
  CHECK(words[1] == 2);
}

int main(void) {
  void *found, *managed;
  unsigned plain = 0;
  int how;
  between_streams();
  from_the_host();
  batches();
  OK(cudaMallocManaged(&managed, 4, 1));
  IS(cuStreamWriteValue32_v2(new_stream(), (u64)managed, 1, 0), 1);
  IS(cuStreamWriteValue32_v2(new_stream(), (u64)&plain, 1, 0), 1);
  IS(cuStreamWaitValue32_v2(new_stream(), (u64)on_device(4), 1, 4), 1);
  OK(cudaGetDriverEntryPointByVersion("cuStreamWaitValue32", &found, 13000, 0, &how));
  CHECK(found == (void *)cuStreamWaitValue32_v2);
  return 0;
}
