/* A host function frees what its stream used before it: right. A failed submission runs nothing. */
#include "cuda.h"

static void *pointer;
static int ran;
static void done(void *data) { ran += *(int *)data; }

int main(void) {
    int seven = 7;
    cudaStream_t one = new_stream(), two = new_stream();
    register_fill();
    cudaMallocAsync(&pointer, 1024, one);
    fill(pointer, one);
    if (cudaLaunchHostFunc(one, done, &seven)) return 1;
    if (ran != 7) return 2;
    if (cudaLaunchHostFunc(one, NULL, NULL) != 1 || ran != 7) return 3;
    /* The function told the host that the stream's work is done. */
    fill(pointer, two);
    puts("ran");
    return 0;
}
