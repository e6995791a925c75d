/* What dlerror says around look-ups, and two cudarts in one program that outlive their handles. */
#include "cuda.h"

typedef cudaError_t (*allocate_t)(void **, size_t);

static int count(void *handle) {
    int (*allocations)(void) = (int (*)(void))dlsym(handle, "standin_allocations");
    return allocations ? allocations() : -1;
}
int main(int argc, char **argv) {
    void *pointer, *handles[8];
    allocate_t allocate[8];
    for (int i = 1; i < argc; i++) {
        handles[i] = dlopen(argv[i], RTLD_LAZY | RTLD_LOCAL);
        if (!handles[i]) return 1;
        dlerror();
        allocate[i] = (allocate_t)dlsym(handles[i], "cudaMalloc");
        if (!allocate[i] || dlerror()) return 2;
    }
    /* A text that is waiting survives a first call. */
    if (dlopen("./no-such-library.so", RTLD_LAZY)) return 3;
    for (int i = 1; i < argc; i++) {
        for (int j = 0; j < i; j++) {
            if (allocate[i](&pointer, 64)) return 4;
        }
    }
    const char *text = dlerror();
    if (!text || !strstr(text, "no-such-library")) return 5;
    for (int i = 1; i < argc; i++) printf("%d ", count(handles[i]));
    /* A function that no cudart has: no pointer, and a text that says so. */
    if (dlsym(RTLD_DEFAULT, "cuMemAlloc_v2") || !dlerror()) return 6;
    if (dlerror()) return 7;
    for (int i = 1; i < argc; i++) dlclose(handles[i]);
    if (argc == 2 && allocate[1](&pointer, 64)) return 8;
    puts("looked up");
    return 0;
}
