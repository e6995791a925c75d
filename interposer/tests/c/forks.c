/* A fault in the parent, and one in a child that it forks. */
#include "cuda.h"

int main(void) {
    int status;
    race();
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        race();
        puts("child");
        exit(0);
    }
    waitpid(child, &status, 0);
    printf("child ended with %d\n", WEXITSTATUS(status));
    /* A child of vfork shares this memory and must not end this run. */
    pid_t shared = vfork();
    if (shared == 0) _exit(3);
    waitpid(shared, &status, 0);
    printf("vfork child ended with %d\n", WEXITSTATUS(status));
    return 0;
}
