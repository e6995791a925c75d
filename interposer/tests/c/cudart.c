/* A stand-in libcudart.so.13 with no driver beneath it: what the tests' programs need and no
 * more. Streams and events are counted blocks of memory; a pool hands the newest freed block of a
 * size out again. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int cudaError_t;
typedef void *cudaStream_t;
typedef void *cudaEvent_t;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static __thread cudaError_t last;

static cudaError_t result(cudaError_t status) {
    if (status) last = status;
    return status;
}

cudaError_t cudaGetLastError(void) {
    cudaError_t was = last;
    last = 0;
    return was;
}
cudaError_t cudaPeekAtLastError(void) { return last; }
cudaError_t cudaGetDevice(int *device) { *device = 0; return 0; }
cudaError_t cudaSetDevice(int device) { return result(device ? 101 : 0); }
cudaError_t cudaDeviceSynchronize(void) { return 0; }

/* The handle that was destroyed last is given out first. */
static void *spare;
/* What another thread does before a destroy returns to its caller. */
void (*standin_meanwhile)(void);
static void *meanwhile(void *nothing) { standin_meanwhile(); return nothing; }

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
    (void)flags;
    pthread_mutex_lock(&lock);
    *stream = spare ? spare : malloc(64);
    spare = NULL;
    pthread_mutex_unlock(&lock);
    return 0;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    pthread_mutex_lock(&lock);
    free(spare);
    spare = stream;
    pthread_mutex_unlock(&lock);
    if (standin_meanwhile) {
        pthread_t thread;
        pthread_create(&thread, NULL, meanwhile, NULL);
        pthread_join(thread, NULL);
    }
    return 0;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    (void)stream;
    /* For the test that cancels a waiting thread. */
    if (getenv("STANDIN_WAITS_FOREVER") && pthread_self() != *(pthread_t *)stream) pause();
    return 0;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) { (void)stream; return result(600); }

cudaError_t cudaEventCreate(cudaEvent_t *event) { *event = malloc(32); return 0; }
cudaError_t cudaEventDestroy(cudaEvent_t event) { free(event); return 0; }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) { (void)event; (void)stream; return 0; }
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
    (void)stream; (void)event; (void)flags;
    return 0;
}

static int allocations;
/* How many allocations this very library made: a process may hold two of them. */
int standin_allocations(void) { return allocations; }

cudaError_t cudaMalloc(void **out, size_t size) {
    allocations++;
    if (size > (1ul << 40)) return result(2);
    *out = malloc(size);
    errno = 0;
    return 0;
}
cudaError_t cudaMallocAsync(void **out, size_t size, cudaStream_t stream) { (void)stream; *out = malloc(size); return 0; }
/* Each of them lies where the newest freed block lay. */
static void *freed;
cudaError_t cudaFree(void *pointer) { freed = pointer; free(pointer); return 0; }
struct ipc_handle { char reserved[64]; };
cudaError_t cudaIpcOpenMemHandle(void **out, struct ipc_handle handle, unsigned flags) {
    *out = freed;
    return result(handle.reserved[63] == 'h' && flags == 1 ? 0 : 1);
}
cudaError_t cudaIpcCloseMemHandle(void *pointer) { (void)pointer; return 0; }
cudaError_t cudaIpcGetEventHandle(struct ipc_handle *handle, cudaEvent_t event) { (void)handle; (void)event; return 0; }
cudaError_t cudaIpcOpenEventHandle(cudaEvent_t *event, struct ipc_handle handle) {
    *event = malloc(32);
    return result(handle.reserved[63] == 'h' ? 0 : 1);
}
cudaError_t cudaMemPoolImportPointer(void **out, void *pool, void *data) { (void)pool; (void)data; *out = freed; return 0; }
cudaError_t cudaExternalMemoryGetMappedBuffer(void **out, void *memory, const void *buffer) {
    (void)memory; (void)buffer;
    *out = freed;
    return 0;
}
cudaError_t cudaFreeAsync(void *pointer, cudaStream_t stream) { (void)stream; (void)pointer; return 0; }
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind, cudaStream_t stream) {
    (void)kind; (void)stream;
    memcpy(to, from, bytes);
    return 0;
}

/* One capture at a time, and how often anything was asked in one. */
static cudaStream_t capturing;
int standin_asked;
static void asked(void) { standin_asked += capturing != NULL; }

struct attributes { int type, device; void *device_address, *host_address; long reserved[8]; };
/* Fails for memory whose first byte is 'f', says that it is a device's for 'd' and host memory that
 * was never registered for the rest. */
cudaError_t cudaPointerGetAttributes(struct attributes *attributes, const void *pointer) {
    const char first = *(const char *)pointer;
    asked();
    if (first == 'f') return result(1);
    *attributes = (struct attributes){.type = first == 'd' ? 2 : 0};
    return 0;
}

/* Fails for memory whose first byte is 'x'. */
cudaError_t cudaHostRegister(void *pointer, size_t size, unsigned flags) { (void)pointer; (void)size; (void)flags; return 0; }
cudaError_t cudaHostUnregister(void *pointer) { return result(*(char *)pointer == 'x' ? 999 : 0); }

cudaError_t cudaMemcpy2DFromArray(void *to, size_t pitch, const void *array, size_t x, size_t y, size_t width, size_t height, int kind) {
    (void)to; (void)pitch; (void)array; (void)x; (void)y; (void)width; (void)height; (void)kind;
    return 0;
}
cudaError_t cudaWaitExternalSemaphoresAsync(const void *semaphores, const void *parameters, unsigned count, cudaStream_t stream) {
    (void)semaphores; (void)parameters; (void)count; (void)stream;
    return 0;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, int mode) { (void)mode; capturing = stream; return 0; }
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, int *state) {
    asked();
    *state = stream == capturing;
    return 0;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, void **graph) {
    if (stream != capturing) return result(903);
    capturing = NULL;
    *graph = &capturing;
    return 0;
}
cudaError_t cudaGraphLaunch(void *graph, cudaStream_t stream) { (void)graph; (void)stream; return 0; }

/* How many pointers each kernel takes. */
int standin_parameters = 1;
#ifndef BEFORE_12_4
cudaError_t cudaFuncGetParamInfo(const void *kernel, size_t index, size_t *offset, size_t *size) {
    (void)kernel;
    asked();
    if (index >= (size_t)standin_parameters) return result(1);
    *offset = index * 8;
    *size = 8;
    return 0;
}
#endif
cudaError_t cudaLaunchKernelExC(const void *config, const void *kernel, void **arguments) {
    (void)config; (void)arguments;
    return result(kernel ? 0 : 98);
}

struct dim3 { unsigned x, y, z; };
cudaError_t cudaLaunchKernel(const void *kernel, struct dim3 grid, struct dim3 block, void **arguments, size_t shared, cudaStream_t stream) {
    (void)grid; (void)block; (void)arguments; (void)shared; (void)stream;
    return result(kernel ? 0 : 98);
}

void __cudaRegisterFunction(void **image, const char *host, char *device, const char *name, int limit, void *tid, void *bid, void *block, void *grid, int *warp) {
    (void)image; (void)host; (void)device; (void)name; (void)limit; (void)tid; (void)bid; (void)block; (void)grid; (void)warp;
}

/* All modules have the same handle. */
void **__cudaRegisterFatBinary(void *wrapper) { (void)wrapper; return NULL; }
void __cudaUnregisterFatBinary(void **image) { (void)image; }

struct job { void (*function)(void *); void *data; };
static void *run(void *argument) {
    struct job job = *(struct job *)argument;
    free(argument);
    job.function(job.data);
    return NULL;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, void (*function)(void *), void *data) {
    (void)stream;
    if (!function) return result(1);
    /* For the test of a submission that fails. */
    if (getenv("STANDIN_REFUSES_HOST_FUNCTIONS")) return result(801);
    /* For the test of one that runs in the call. */
    if (getenv("STANDIN_RUNS_HOST_FUNCTIONS_AT_ONCE")) {
        function(data);
        return 0;
    }
    struct job *job = malloc(sizeof *job);
    *job = (struct job){function, data};
    pthread_t thread;
    pthread_mutex_lock(&lock);
    pthread_create(&thread, NULL, run, job);
    pthread_mutex_unlock(&lock);
    pthread_join(thread, NULL);
    return 0;
}
