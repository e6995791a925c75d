/* A fault, and an end while the library or CUDA is at work: a handler that exits during a call that
 * waits, or the main thread while another tells of its finding. */
#include "cuda.h"
#include <signal.h>

static void leave(int signal) { (void)signal; exit(0); }
static void hurry(int signal) { (void)signal; _exit(0); }
static void *tell(void *unused) { race(); return unused; }

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "busy")) {
        pthread_t thread;
        pthread_create(&thread, NULL, tell, NULL);
        usleep(300000);
        return 0;
    }
    race();
    signal(SIGALRM, argc > 1 && !strcmp(argv[1], "hurry") ? hurry : leave);
    alarm(1);
    cudaStreamSynchronize(new_stream());
    return 9;
}
