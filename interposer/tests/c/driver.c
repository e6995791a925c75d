/* A stand-in libcuda.so.1: contexts, mappings and launches that do nothing. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

struct context { int device; };
static __thread struct context *current;
/* How many pointers each kernel takes. */
int standin_parameters = 1;

int cuCtxCreate_v2(struct context **out, unsigned flags, int device) {
    (void)flags;
    *out = malloc(sizeof **out);
    (*out)->device = device;
    current = *out;
    return 0;
}
int cuCtxDestroy_v2(struct context *context) {
    if (context == current) current = NULL;
    free(context);
    return 0;
}
int cuCtxSetCurrent(struct context *context) { current = context; return 0; }
int cuCtxGetCurrent(struct context **out) { *out = current; return 0; }
int cuCtxGetDevice(int *device) { *device = current->device; return 0; }
int cuStreamCreate(void **out, unsigned flags) { (void)flags; *out = malloc(64); return 0; }
int cuStreamWaitValue32_v2(void *stream, uint64_t address, unsigned value, unsigned flags) {
    (void)stream; (void)address; (void)value; (void)flags;
    return 0;
}
int cuMemAllocAsync(uint64_t *out, size_t size, void *stream) {
    (void)stream;
    *out = (uint64_t)(uintptr_t)malloc(size);
    return 0;
}
int cuMemMap(uint64_t address, size_t size, size_t offset, uint64_t handle, uint64_t flags) {
    (void)address; (void)size; (void)offset; (void)handle; (void)flags;
    return 0;
}
/* Fails for ranges of an odd size. */
int cuMemUnmap(uint64_t address, size_t size) { (void)address; return size & 1; }
int cuMemsetD8Async(uint64_t address, unsigned char value, size_t count, void *stream) {
    (void)address; (void)value; (void)count; (void)stream;
    return 0;
}
int cuLaunchKernel(void *function, unsigned a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned f, unsigned shared, void *stream, void **parameters, void **extra) {
    (void)function; (void)a; (void)b; (void)c; (void)d; (void)e; (void)f; (void)shared; (void)stream; (void)parameters; (void)extra;
    return 0;
}
int cuFuncGetParamInfo(void *function, size_t index, size_t *offset, size_t *size) {
    (void)function;
    if (index >= (size_t)standin_parameters) return 1;
    *offset = index * 8;
    *size = 8;
    return 0;
}

static uint64_t allocation;
int cuMemAlloc_v2(uint64_t *out, size_t size) { *out = allocation = (uint64_t)(uintptr_t)malloc(size); return 0; }
int cuMemFree_v2(uint64_t address) { (void)address; return 0; }
/* Knows one allocation of 1024 bytes, and no host memory. */
static int known(uint64_t address) { return address - allocation < 1024; }
int cuMemGetAddressRange_v2(uint64_t *base, size_t *size, uint64_t address) {
    *base = allocation;
    *size = 1024;
    return !known(address);
}
int cuPointerGetAttribute(unsigned *kind, int which, uint64_t address) { (void)which; *kind = 2; return !known(address); }
int cuPointerSetAttribute(const void *value, int which, uint64_t address) { (void)value; (void)which; (void)address; return 0; }
int cuMemsetD8_v2(uint64_t address, unsigned char value, size_t count) { (void)address; (void)value; (void)count; return 0; }
struct ipc_handle { char reserved[64]; };
int cuIpcOpenMemHandle_v2(uint64_t *out, struct ipc_handle handle, unsigned flags) {
    *out = allocation;
    return handle.reserved[63] != 'h' || flags != 1;
}
int cuMemcpyAsync(uint64_t to, uint64_t from, size_t count, void *stream) {
    (void)to; (void)from; (void)count; (void)stream;
    return 0;
}
