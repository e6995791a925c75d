/* Cuts the file argv[1] short between calls. With "sent" it gets a SIGBUS after that and handles it,
 * with "fault" it runs into one of its own, with "default" nobody handles it. */
#include "cuda.h"
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>

static char *page;
static void handle(int signal) {
    (void)signal;
    puts("handled");
    fflush(stdout);
    if (page) _exit(3);
}
int main(int argc, char **argv) {
    void *pointer;
    if (argc > 2 && strcmp(argv[2], "default")) signal(SIGBUS, handle);
    cudaMalloc(&pointer, 64);
    if (truncate(argv[1], 0)) return 1;
    for (int i = 0; i < 1000; i++) cudaFree(pointer), cudaMalloc(&pointer, 64);
    cudaFree(pointer);
    puts("went on");
    fflush(stdout);
    if (argc < 3) return 0;
    if (!strcmp(argv[2], "fault")) {
        int file = open("empty", O_RDWR | O_CREAT, 0600);
        page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        *page = 1;
    }
    kill(getpid(), SIGBUS);
    return 4;
}
