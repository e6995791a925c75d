/* Launches a kernel argv[1] times, each with another parameter; then ends as argv[2] says ("return",
 * "kill"), with memory that it never frees. Says how many operations that were. */
#include "cuda.h"
#include <signal.h>
#include <stdint.h>

int main(int argc, char **argv) {
    int launches = argc > 1 ? atoi(argv[1]) : 0;
    uint64_t number = 1;
    cudaStream_t stream = new_stream();
    void *pointer;
    register_fill();
    cudaMallocAsync(&pointer, 1024, stream);
    for (int i = 0; i < launches; i++) {
        number = number * 6364136223846793005u + 1442695040888963407u;
        fill((void *)(uintptr_t)(number >> 17 | 1), stream);
    }
    printf("%d\n", launches + 2);
    fflush(stdout);
    if (argc > 2 && !strcmp(argv[2], "kill")) kill(getpid(), SIGKILL);
    if (argc > 2 && !strcmp(argv[2], "race")) race();
    return 0;
}
