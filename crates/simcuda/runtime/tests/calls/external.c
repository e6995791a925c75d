/* External semaphores between streams of this process, external memory, and the handles that are for other processes. */
#include "check.h"
#include <sys/mman.h>

typedef struct { int kind; union { int fd; void *pair[2]; } handle; unsigned flags, reserved[16]; } description_t;
typedef struct { u64 value; unsigned rest[16], flags, reserved[16]; } params_t;
typedef struct { char bytes[64]; } handle_t;
typedef void *semaphore_t;
enum { OPAQUE_FD = 1, D3D12_FENCE = 4, TIMELINE_FD = 9, INTERPROCESS = 4 };

int cudaImportExternalSemaphore(semaphore_t *, const description_t *), cudaDestroyExternalSemaphore(semaphore_t);
int cudaSignalExternalSemaphoresAsync(const semaphore_t *, const params_t *, unsigned, stream_t);
int cudaWaitExternalSemaphoresAsync(const semaphore_t *, const params_t *, unsigned, stream_t);
int cudaIpcGetEventHandle(handle_t *, event_t), cudaIpcOpenEventHandle(event_t *, handle_t);
int cudaIpcGetMemHandle(handle_t *, void *), cudaIpcOpenMemHandle(void **, handle_t, unsigned), cudaIpcCloseMemHandle(void *);

static semaphore_t import(int kind) {
  semaphore_t semaphore;
  description_t description = {.kind = kind, .handle = {.fd = -1}};
  OK(cudaImportExternalSemaphore(&semaphore, &description));
  return semaphore;
}

static void semaphores(int kind) {
  stream_t waiting = new_stream(), signalling = new_stream();
  semaphore_t both[] = {import(kind), import(kind)};
  params_t up[] = {{.value = 5}, {.value = 1}}, down[] = {{.value = 4}, {.value = 1}};
  char *p = on_device(4), *seen = pinned(4);
  OK(cudaWaitExternalSemaphoresAsync(both, down, 2, waiting));
  OK(cudaMemcpyAsync(seen, p, 4, D2H, waiting));
  OK(cudaMemsetAsync(p, 's', 4, signalling));
  OK(cudaSignalExternalSemaphoresAsync(&both[0], &up[0], 1, signalling));
  OK(cudaStreamSynchronize(signalling));
  for (int i = 0; i < 5; i++) IS(cudaStreamQuery(waiting), 600); /* one of the two is missing */
  OK(cudaSignalExternalSemaphoresAsync(&both[1], &up[1], 1, signalling));
  OK(cudaStreamSynchronize(waiting));
  CHECK(!memcmp(seen, "ssss", 4));
  /* A timeline keeps its value; without one, the signal is used up. */
  OK(cudaWaitExternalSemaphoresAsync(both, down, 1, waiting));
  if (kind == OPAQUE_FD) {
    for (int i = 0; i < 5; i++) IS(cudaStreamQuery(waiting), 600);
    OK(cudaSignalExternalSemaphoresAsync(both, up, 1, signalling));
  }
  OK(cudaDeviceSynchronize());
  OK(cudaDestroyExternalSemaphore(both[0]));
  IS(cudaDestroyExternalSemaphore(both[0]), 400);
  IS(cudaSignalExternalSemaphoresAsync(both, up, 2, signalling), 400);
}

typedef struct { int kind; union { int fd; void *pair[2]; } handle; u64 size; unsigned flags, reserved[16]; } memory_t;
typedef struct { u64 offset, size; unsigned flags, reserved[16]; } buffer_t;
int cudaImportExternalMemory(void **, const memory_t *), cudaDestroyExternalMemory(void *);
int cudaExternalMemoryGetMappedBuffer(void **, void *, const buffer_t *);

/* A descriptor's memory is device memory, and the other side sees what is written there. */
static void memory(void) {
  int fd = memfd_create("shared", 0), kept = dup(fd);
  CHECK(fd >= 0 && ftruncate(fd, 8192) == 0);
  memory_t description = {.kind = OPAQUE_FD, .handle = {.fd = fd}, .size = 8192};
  void *import, *none;
  char *p, seen[4] = "";
  OK(cudaImportExternalMemory(&import, &description));
  OK(cudaExternalMemoryGetMappedBuffer((void **)&p, import, &(buffer_t){.offset = 5000, .size = 100}));
  IS(cudaExternalMemoryGetMappedBuffer(&none, import, &(buffer_t){.offset = 8000, .size = 200}), 1);
  OK(cudaDestroyExternalMemory(import)); /* the mapping stays */
  IS(cudaDestroyExternalMemory(import), 400);
  OK(cudaMemset(p, 'm', 100));
  IS(cudaMemset(p, 'm', 101), 1);
  OK(cudaDeviceSynchronize());
  CHECK(pread(kept, seen, 4, 5096) == 4 && !memcmp(seen, "mmmm", 4));
  OK(cudaFree(p));
  IS(cudaFree(p), 1);
  description.handle.fd = kept;
  description.size = 10000; /* more than there is */
  IS(cudaImportExternalMemory(&import, &description), 1);
}

static void handles(void) {
  handle_t handle;
  event_t event, opened;
  void *memory = on_device(8), *mapped;
  IS(cudaIpcGetEventHandle(&handle, new_event()), 801);
  IS(cudaEventCreateWithFlags(&event, INTERPROCESS), 1);
  OK(cudaEventCreateWithFlags(&event, INTERPROCESS | NO_TIMING));
  OK(cudaIpcGetEventHandle(&handle, event));
  IS(cudaIpcOpenEventHandle(&opened, handle), 201);
  IS(cudaIpcOpenMemHandle(&mapped, handle, 1), 1);
  OK(cudaIpcGetMemHandle(&handle, memory));
  IS(cudaIpcOpenMemHandle(&mapped, handle, 1), 201);
  IS(cudaIpcGetMemHandle(&handle, pinned(8)), 1);
  IS(cudaIpcCloseMemHandle(memory), 1);
}

int main(void) {
  semaphore_t semaphore;
  description_t fence = {.kind = D3D12_FENCE}, unknown = {.kind = 99};
  semaphores(OPAQUE_FD);
  semaphores(TIMELINE_FD);
  IS(cudaImportExternalSemaphore(&semaphore, &fence), 801);
  IS(cudaImportExternalSemaphore(&semaphore, &unknown), 1);
  handles();
  memory();
  return 0;
}
