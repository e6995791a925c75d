/* Small programs whose order is right although part of it is hard to see, and some with one
 * mistake that must be found all the same. The first argument says which. */
#include "cuda.h"
#include <stdint.h>

cudaError_t cudaStreamDestroy(cudaStream_t);
cudaError_t cudaEventCreate(cudaEvent_t *);
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned);
cudaError_t cudaMemcpyAsync(void *, const void *, size_t, int, cudaStream_t);
cudaError_t cudaMemcpy2DFromArray(void *, size_t, const void *, size_t, size_t, size_t, size_t, int);
cudaError_t cudaWaitExternalSemaphoresAsync(const void *, const void *, unsigned, cudaStream_t);
cudaError_t cudaStreamBeginCapture(cudaStream_t, int);
cudaError_t cudaStreamEndCapture(cudaStream_t, void **);
cudaError_t cudaGraphLaunch(void *, cudaStream_t);
extern int standin_asked;
cudaError_t cudaHostRegister(void *, size_t, unsigned);
cudaError_t cudaHostUnregister(void *);
cudaError_t cudaLaunchKernelExC(const void *, const void *, void **);
void __cudaUnregisterFatBinary(void **);
struct ipc_handle { char reserved[64]; };
struct buffer { unsigned long long offset, size; unsigned flags, reserved[16]; };
cudaError_t cudaIpcOpenMemHandle(void **, struct ipc_handle, unsigned);
cudaError_t cudaIpcCloseMemHandle(void *);
cudaError_t cudaIpcGetEventHandle(struct ipc_handle *, cudaEvent_t);
cudaError_t cudaIpcOpenEventHandle(cudaEvent_t *, struct ipc_handle);
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t);
cudaError_t cudaEventDestroy(cudaEvent_t);
cudaError_t cudaMemPoolImportPointer(void **, void *, void *);
cudaError_t cudaExternalMemoryGetMappedBuffer(void **, void *, const struct buffer *);
extern void (*standin_meanwhile)(void);
extern int standin_parameters;

struct attribute { unsigned id, padding; uint64_t value[8]; };
struct config { unsigned grid[3], block[3]; size_t shared; cudaStream_t stream; struct attribute *attributes; unsigned count; };

static void *pointer;
static cudaStream_t one, two, again;
static int is(const char *name, const char *wanted) { return !strcmp(name, wanted); }
static cudaStream_t blocking(void) {
    cudaStream_t stream;
    cudaStreamCreateWithFlags(&stream, 0);
    return stream;
}
static void launch(cudaStream_t stream, unsigned id, uint64_t value) {
    struct attribute attribute = {.id = id, .value = {value}};
    struct config config = {{1, 1, 1}, {1, 1, 1}, 0, stream, &attribute, 1};
    void *arguments[] = {&pointer};
    cudaLaunchKernelExC(&config, (const void *)fill_stub, arguments);
}
static void reuse(void) {
    again = new_stream();
    cudaMallocAsync(&pointer, 1024, again);
}
static void function(void *data) { (void)data; }
static void next(void *data) { (void)data; fill(pointer, two); }

int main(int count, char **arguments) {
    const char *name = count > 1 ? arguments[1] : "";
    one = new_stream();
    two = new_stream();
    register_fill();
    if (is(name, "semaphore")) {
        cudaMallocAsync(&pointer, 1024, one);
        fill(pointer, one);
        /* Another process signals it. */
        void *semaphores[] = {&pointer};
        uint64_t parameters[18] = {1};
        cudaWaitExternalSemaphoresAsync(semaphores, parameters, 1, two);
        fill(pointer, two);
    } else if (is(name, "array")) {
        char host[16];
        cudaStream_t stream = blocking();
        cudaMallocAsync(&pointer, 1024, stream);
        fill(pointer, stream);
        /* The legacy stream waits for the blocking one, and the host for the copy. */
        cudaMemcpy2DFromArray(host, 16, host, 0, 0, 16, 1, 2);
        fill(pointer, two);
    } else if (is(name, "graph")) {
        cudaStream_t stream = blocking(), other = blocking();
        cudaMallocAsync(&pointer, 1024, stream);
        fill(pointer, stream);
        cudaGraphLaunch(&pointer, 0);
        fill(pointer, other);
    } else if (is(name, "completion")) {
        cudaEvent_t event;
        cudaEventCreate(&event);
        cudaMallocAsync(&pointer, 1024, one);
        launch(one, 12, (uint64_t)(uintptr_t)event);
        cudaStreamWaitEvent(two, event, 0);
        fill(pointer, two);
    } else if (is(name, "early") || is(name, "not-early")) {
        cudaMallocAsync(&pointer, 1024, one);
        launch(one, 6, is(name, "early"));
    } else if (is(name, "capture")) {
        void *graph;
        char buffer[64] = "";
        cudaMallocAsync(&pointer, 1024, two);
        cudaStreamBeginCapture(one, 0);
        if (cudaStreamEndCapture(two, &graph) != 903) return 1;
        /* Still captured: it does not run now. */
        fill(pointer, one);
        cudaMemcpyAsync(pointer, buffer, sizeof buffer, 1, one);
        if (cudaStreamEndCapture(one, &graph)) return 2;
        if (standin_asked) return 6;
        /* From here on, all runs. */
        if (count > 2) fill(pointer, one);
    } else if (is(name, "unregister") || is(name, "halves")) {
        char *block = malloc(1 << 16);
        memset(block, 'x', 1 << 16);
        cudaHostRegister(block, 1 << 15, 0);
        cudaHostRegister(block + (1 << 15), 1 << 15, 0);
        cudaMallocAsync(&pointer, 1024, one);
        int second = is(name, "halves");
        cudaMemcpyAsync(pointer, block + (second << 15), 1024, 1, one);
        if (!second && cudaHostUnregister(block) != 999) return 3;
        free(block);
    } else if (is(name, "halves-reversed")) {
        char *block = malloc(1 << 16);
        cudaHostRegister(block, 1 << 15, 0);
        cudaHostRegister(block + (1 << 15), 1 << 15, 0);
        cudaMallocAsync(&pointer, 1024, one);
        cudaMemcpyAsync(pointer, block, 1024, 1, one);
        free(block);
    } else if (is(name, "reuse")) {
        standin_meanwhile = reuse;
        cudaStreamDestroy(one);
        if (again != one) return 4;
        fill(pointer, one);
    } else if (is(name, "host-function")) {
        if (cudaLaunchHostFunc(one, function, NULL) != 801) return 5;
    } else if (is(name, "at-once") || is(name, "race-at-once")) {
        cudaMallocAsync(&pointer, 1024, one);
        fill(pointer, one);
        if (is(name, "at-once")) {
            if (cudaLaunchHostFunc(one, function, NULL)) return 8;
            /* The function told the host that the stream's work is done. */
            fill(pointer, two);
        } else if (cudaLaunchHostFunc(two, next, NULL)) {
            return 8;
        }
    } else if (is(name, "inferred")) {
        /* What the host's memory is, only the runtime can say. The last argument's first letter
         * asks for its answer. */
        char *host = malloc(1024);
        *host = arguments[2][0];
        cudaMalloc(&pointer, 1024);
        if (host[0] == 'p') cudaStreamQuery(one);
        cudaMemcpyAsync(pointer, host, 1024, 4, one);
        if (cudaGetLastError() != (host[0] == 'p' ? 600 : 0)) return 9;
    } else if (is(name, "import")) {
        void *memory = NULL;
        struct ipc_handle handle = {.reserved[63] = 'h'};
        struct buffer buffer = {.size = 1024};
        cudaMalloc(&pointer, 1024);
        cudaFree(pointer);
        if (is(arguments[2], "ipc") && cudaIpcOpenMemHandle(&memory, handle, 1)) return 10;
        if (is(arguments[2], "pool")) cudaMemPoolImportPointer(&memory, NULL, NULL);
        if (is(arguments[2], "buffer")) cudaExternalMemoryGetMappedBuffer(&memory, NULL, &buffer);
        /* What comes to lie there next is another's. */
        if (count > 3) fill(memory, two);
        if (count > 3 && is(arguments[3], "closed")) cudaIpcCloseMemHandle(memory);
        fill(memory ? memory : pointer, one);
    } else if (is(name, "shared-event") || is(name, "event") || is(name, "opened-event")) {
        struct ipc_handle handle = {.reserved[63] = 'h'};
        cudaEvent_t event;
        if (is(name, "opened-event") ? cudaIpcOpenEventHandle(&event, handle) : cudaEventCreate(&event)) return 11;
        if (is(name, "shared-event")) cudaIpcGetEventHandle(&handle, event);
        /* Another process may record it anew, once it knows of the allocation. */
        if (!is(name, "opened-event")) cudaEventRecord(event, one);
        cudaMallocAsync(&pointer, 1024, one);
        cudaStreamWaitEvent(two, event, 0);
        fill(pointer, two);
        cudaEventDestroy(event);
    } else if (is(name, "pending-error")) {
        cudaMallocAsync(&pointer, 1024, one);
        /* A kernel that only the runtime can describe, first while an error is pending. */
        __cudaRegisterFunction(NULL, (const char *)function, "", "unmangled", -1, NULL, NULL, NULL, NULL, NULL);
        void *list[] = {&pointer};
        struct dim3 size = {1, 1, 1};
        cudaStreamQuery(one);
        cudaLaunchKernel((const void *)function, size, size, list, 0, one);
        if (cudaGetLastError() != 600) return 6;
        cudaLaunchKernel((const void *)function, size, size, list, 0, two);
    } else if (is(name, "another-module") || is(name, "another-kernel")) {
        void *other, *list[] = {&pointer, &other};
        struct dim3 size = {1, 1, 1};
        cudaMallocAsync(&pointer, 1024, one);
        cudaMallocAsync(&other, 1024, two);
        cudaLaunchKernel((const void *)function, size, size, list, 0, one);
        if (is(name, "another-module")) __cudaUnregisterFatBinary(NULL);
        else __cudaRegisterFunction(NULL, (const char *)function, "", "unmangled", -1, NULL, NULL, NULL, NULL, NULL);
        /* Another kernel has the address now, and it takes two pointers. */
        standin_parameters = 2;
        cudaLaunchKernel((const void *)function, size, size, list, 0, one);
    } else {
        return 7;
    }
    puts(name);
    return 0;
}
