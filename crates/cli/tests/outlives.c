/* A background process: a fault, then, once the file "over" is there, another; "ended" at last. */
#include "fixture.h"
#include <unistd.h>

static void fault(cudaStream_t first, cudaStream_t second)
{
    float *block;
    CHECK(cudaMallocAsync((void **)&block, 4096, first));
    LAUNCH(fill, second, block, 4, 1.f);
}

static void mark(const char *name) { fclose(fopen(name, "w")); }

int main(void)
{
    cudaStream_t first = new_stream(), second = new_stream();
    fault(first, second);
    mark("ready");
    while (access("over", F_OK) != 0)
        usleep(10000);
    fault(second, first);
    mark("ended");
    return 0;
}
