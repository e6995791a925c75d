/* Small programs against the driver; the first argument says which. */
#include "cuda.h"
#include <stdint.h>

struct context;
int cuCtxCreate_v2(struct context **, unsigned, int);
int cuCtxDestroy_v2(struct context *);
int cuCtxSetCurrent(struct context *);
int cuStreamCreate(void **, unsigned);
int cuStreamWaitValue32_v2(void *, uint64_t, unsigned, unsigned);
int cuMemAllocAsync(uint64_t *, size_t, void *);
int cuMemMap(uint64_t, size_t, size_t, uint64_t, uint64_t);
int cuMemUnmap(uint64_t, size_t);
int cuMemsetD8Async(uint64_t, unsigned char, size_t, void *);
int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
int cuMemAlloc_v2(uint64_t *, size_t);
int cuMemFree_v2(uint64_t);
struct ipc_handle { char reserved[64]; };
int cuIpcOpenMemHandle_v2(uint64_t *, struct ipc_handle, unsigned);
int cuMemcpyAsync(uint64_t, uint64_t, size_t, void *);
int cuPointerSetAttribute(const void *, int, uint64_t);
int cuMemsetD8_v2(uint64_t, unsigned char, size_t);
extern int standin_parameters;

static void launch(void *stream, uint64_t *first, uint64_t *second) {
    static int function;
    void *parameters[] = {first, second};
    cuLaunchKernel(&function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL);
}

int main(int count, char **arguments) {
    const char *name = count > 1 ? arguments[1] : "";
    struct context *first, *second;
    void *one, *two;
    uint64_t pointer, other;
    cuCtxCreate_v2(&second, 0, 1);
    cuCtxCreate_v2(&first, 0, 0);
    cuStreamCreate(&one, 1);
    cuMemAllocAsync(&pointer, 1024, one);
    if (!strcmp(name, "wait-value")) {
        cuStreamCreate(&two, 1);
        cuStreamWaitValue32_v2(two, 0x1000000, 1, 0);
        cuMemsetD8Async(pointer, 0, 1024, two);
    } else if (!strcmp(name, "context")) {
        cuCtxSetCurrent(second);
        cuStreamCreate(&two, 1);
        cuCtxDestroy_v2(first);
        /* The end of the first context waited for all of its device's work. */
        cuMemsetD8Async(pointer, 0, 1024, two);
    } else if (!strcmp(name, "kernels")) {
        launch(one, &pointer, NULL);
        cuCtxDestroy_v2(second);
        /* Another kernel has the handle now, and it takes two pointers. */
        standin_parameters = 2;
        cuStreamCreate(&two, 1);
        cuMemAllocAsync(&other, 1024, two);
        launch(one, &pointer, &other);
    } else if (!strcmp(name, "unmap") || !strcmp(name, "failed-unmap")) {
        uint64_t base = 0x700000000;
        cuMemMap(base, 1 << 16, 0, 1, 0);
        cuMemMap(base + (1 << 16), 1 << 16, 0, 2, 0);
        int status = cuMemUnmap(base, (2 << 16) + !strcmp(name, "failed-unmap"));
        if (status != !strcmp(name, "failed-unmap")) return 1;
        cuMemsetD8Async(base + (1 << 16), 0, 16, one);
    } else if (!strcmp(name, "inferred")) {
        cuMemcpyAsync(pointer, (uint64_t)(uintptr_t)malloc(1024), 1024, one);
    } else if (strstr(name, "attribute")) {
        /* A fill of device memory waits only where the attribute says so: anywhere in its allocation. */
        unsigned on = 1, off = 0;
        cuMemAlloc_v2(&other, 1024);
        if (strcmp(name, "no-attribute")) cuPointerSetAttribute(&on, 6, other + 8);
        if (!strcmp(name, "attribute-off")) cuPointerSetAttribute(&off, 6, other + 8);
        if (!strcmp(name, "attribute-freed")) {
            uint64_t freed = other;
            cuMemFree_v2(other);
            free((void *)(uintptr_t)other);
            cuMemAlloc_v2(&other, 1024);
            if (other != freed) return 4;
        }
        cuMemsetD8_v2(other + 64, 0, 64);
        cuMemsetD8Async(other + 64, 0, 64, one);
    } else if (strstr(name, "import")) {
        struct ipc_handle handle = {.reserved[63] = 'h'};
        cuMemAlloc_v2(&other, 1024);
        cuMemFree_v2(other);
        if (strcmp(name, "not-imported") && cuIpcOpenMemHandle_v2(&other, handle, 1)) return 3;
        cuMemsetD8Async(other + 512, 0, 512, one);
        if (!strcmp(name, "race-in-import")) {
            cuStreamCreate(&two, 1);
            cuMemsetD8Async(other + 512, 0, 512, two);
        }
    } else {
        return 2;
    }
    puts(name);
    return 0;
}
