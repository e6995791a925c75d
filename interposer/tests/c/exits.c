/* A fault, and an end that comes in an awkward way or at an awkward time: a handler that exits during
 * a call that waits, the main thread while another tells of its finding or waits in a call, a crash. */
#include "cuda.h"
#include <signal.h>

static void leave(int signal) { (void)signal; exit(0); }
static void hurry(int signal) { (void)signal; _exit(0); }
static void *tell(void *unused) { race(); return unused; }
static void give_up(void) { abort(); }
static void *block(void *unused) { cudaStreamSynchronize(new_stream()); return unused; }
static void *end(void *unused) { (void)unused; exit(0); }
static void crash(const char *how) {
    pthread_t thread;
    if (!strcmp(how, "segv")) *(volatile int *)8 = 1;
    if (!strcmp(how, "abort")) abort();
    if (!strcmp(how, "kill")) kill(getpid(), SIGKILL);
    if (!strcmp(how, "terminate")) kill(getpid(), SIGTERM);
    if (!strcmp(how, "_exit")) _exit(0);
    if (!strcmp(how, "_Exit")) _Exit(0);
    if (!strcmp(how, "quick_exit")) quick_exit(0);
    if (!strcmp(how, "late_abort")) { atexit(give_up); exit(0); }
    if (!strcmp(how, "blocked")) {
        pthread_create(&thread, NULL, block, NULL);
        usleep(100000);
        exit(0);
    }
    if (!strcmp(how, "thread")) {
        pthread_create(&thread, NULL, end, NULL);
        cudaStreamSynchronize(new_stream());
    }
}

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "busy")) {
        pthread_t thread;
        pthread_create(&thread, NULL, tell, NULL);
        usleep(300000);
        return 0;
    }
    race();
    if (argc > 1) crash(argv[1]);
    signal(SIGALRM, argc > 1 && !strcmp(argv[1], "hurry") ? hurry : leave);
    alarm(1);
    cudaStreamSynchronize(new_stream());
    return 9;
}
