/* A plugin that links to a cudart of another version. */
#include <stddef.h>

int cudaMalloc(void **, size_t);
int cudaFree(void *);

int plugin_work(void) {
    void *pointer;
    for (int i = 0; i < 3; i++)
        if (cudaMalloc(&pointer, 128) || cudaFree(pointer)) return 1;
    return 0;
}
