/* One SC101, then an end of the kind that the first argument names with the status that the second
 * gives. */
#include "cuda.h"
#include <signal.h>

static void said(void) { printf("atexit\n"); }

int main(int argc, char **argv) {
    int status = argc > 2 ? atoi(argv[2]) : 0;
    atexit(said);
    race();
    printf("after the race\n");
    if (argc > 1 && !strcmp(argv[1], "_exit")) { fflush(stdout); _exit(status); }
    if (argc > 1 && !strcmp(argv[1], "quick_exit")) { fflush(stdout); quick_exit(status); }
    if (argc > 1 && !strcmp(argv[1], "kill")) { fflush(stdout); raise(9); }
    return status;
}
