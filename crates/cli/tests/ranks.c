/* A rank of a distributed job: a fault that all ranks make, one of its own, and the end that the
 * first argument names. */
#include "fixture.h"
#include <signal.h>
#include <stdlib.h>
#include <string.h>

int main(int count, char **words)
{
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    cudaStream_t first = new_stream(), second = new_stream();
    float *block;
    if (count != 2 || !rank)
        return 2;
    CHECK(cudaMallocAsync((void **)&block, 4096, first));
    LAUNCH(fill, second, block, 4, 1.f);
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMallocAsync((void **)&block, 4096, first));
    switch (*rank) {
    case '0': LAUNCH(slow_fill, second, block, 4, 1.f, 1); break;
    case '1': LAUNCH(slow_fill, second, block, 4, 1.f, 1); break;
    case '2': LAUNCH(slow_fill, second, block, 4, 1.f, 1); break;
    case '3': LAUNCH(slow_fill, second, block, 4, 1.f, 1); break;
    }
    if (!strcmp(words[1], "killed"))
        raise(SIGKILL);
    if (!strcmp(words[1], "aborts"))
        abort();
    if (!strcmp(words[1], "crashes"))
        raise(SIGSEGV);
    return 0;
}
