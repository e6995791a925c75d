/* Names its streams as NVTX's headers do: the tool that NVTX_INJECTION64_PATH names puts its functions into a table. */
#include "cuda.h"
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <wchar.h>

typedef void (*function_t)(void);
static void (*narrow)(cudaStream_t, const char *);
static void (*wide)(cudaStream_t, const wchar_t *);
static function_t *runtime[] = {NULL, NULL, NULL, (function_t *)&narrow, (function_t *)&wide, NULL, NULL, NULL};
static int functions(int module, function_t ***table, unsigned *count) {
    if (module != 4) return 0;
    *table = runtime;
    *count = 7;
    return 1;
}
static struct { size_t size; int (*functions)(int, function_t ***, unsigned *); } callbacks = {sizeof callbacks, functions};
static const void *table(uint32_t which) { return which == 1 ? &callbacks : NULL; }

int main(void) {
    const char *path = getenv("NVTX_INJECTION64_PATH");
    void *tool = path ? dlopen(path, RTLD_LAZY) : NULL;
    int (*attach)(const void *(*)(uint32_t)) = tool ? (int (*)(const void *(*)(uint32_t)))dlsym(tool, "InitializeInjectionNvtx2") : NULL;
    int attached = attach && attach(table);
    cudaStream_t one = new_stream(), two = new_stream();
    void *pointer;
    if (narrow) narrow(one, "copies");
    if (wide) wide(two, L"kernels \u00b5");
    cudaMallocAsync(&pointer, 64, one);
    register_fill();
    fill(pointer, two);
    printf("%s\n", attached ? "attached" : "alone");
    return 0;
}
