/* A library that wraps C library functions the usual way, next in line. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

static int calls;

int puts(const char *text) {
    static int (*next)(const char *);
    if (!next) next = (int (*)(const char *))dlsym(RTLD_NEXT, "puts");
    calls++;
    return next(text);
}
void *calloc(size_t count, size_t size) {
    static void *(*next)(size_t, size_t);
    static char early[4096];
    static size_t used;
    static int looking;
    if (!next) {
        if (looking) {
            void *piece = early + used;
            used += (count * size + 15) & ~(size_t)15;
            return piece;
        }
        looking = 1;
        next = (void *(*)(size_t, size_t))dlsym(RTLD_NEXT, "calloc");
        looking = 0;
    }
    return next(count, size);
}
/* And one of CUDA's. */
int cudaMalloc(void **memory, size_t size) {
    static int (*next)(void **, size_t);
    if (!next) next = (int (*)(void **, size_t))dlsym(RTLD_NEXT, "cudaMalloc");
    calls++;
    return next(memory, size);
}
int wrapped_calls(void) { return calls; }
