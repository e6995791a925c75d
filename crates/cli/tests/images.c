/* One process, several programs: the first uses memory on a stream that nothing orders after
   its allocation, and runs this file again. With "quiet" the second makes no CUDA call, with
   "clean" it makes faultless ones. */
#include "fixture.h"
#include <string.h>
#include <unistd.h>

int main(int count, char **words)
{
    if (count == 2 && strcmp(words[1], "quiet") == 0)
        return 0;
    cudaStream_t first = new_stream(), second = new_stream();
    float *block;
    CHECK(cudaMallocAsync((void **)&block, 4096, first));
    if (count == 2 || getenv("FIRST")) {
        LAUNCH(fill, first, block, 4, 1.f);
        CHECK(cudaStreamSynchronize(first));
        if (count == 2)
            return 0;
    } else {
        LAUNCH(fill, second, block, 4, 1.f);
    }
    execl("/proc/self/exe", words[0], getenv("SECOND"), (char *)NULL);
    return 1;
}
