/* Closes every descriptor that is not its own, gets one of the numbers for a file that it keeps,
 * and then makes enough calls to fill any trace's window. */
#include "cuda.h"
#include <fcntl.h>
#include <sys/stat.h>

int main(int argc, char **argv) {
    struct stat facts;
    char kept[5] = {0};
    cudaStream_t stream = new_stream();
    void *pointer;
    register_fill();
    cudaMallocAsync(&pointer, 1024, stream);
    for (int fd = 3; fd < 256; fd++) close(fd);
    int own[16];
    for (int i = 0; i < 16; i++) own[i] = open(argv[argc - 1], O_RDWR | O_CREAT, 0600);
    if (write(own[0], "mine", 4) != 4) return 1;
    for (int i = 0; i < 400000; i++) fill(pointer, stream);
    for (int i = 0; i < 16; i++) {
        if (fstat(own[i], &facts) || facts.st_size != 4) return 2;
    }
    if (pread(own[0], kept, 4, 0) != 4 || strcmp(kept, "mine")) return 3;
    puts("kept");
    return 0;
}
