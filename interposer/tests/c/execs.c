/* Calls CUDA, then runs itself as another program: argv is the function to do it with ("spoiled" and
 * "absent" for programs that cannot be run, "again" for one that is tried several times, "vfork" for a
 * child), then what this image does and what the next one does ("race", "clean" or "quiet"). */
#include "cuda.h"
#include <fcntl.h>
#include <sys/stat.h>

extern char **environ;
#define NUMBERS "1", "2", "3", "4", "5", "6", "7", "8"

static void clean(void) {
    void *pointer;
    cudaStream_t stream = new_stream();
    register_fill();
    cudaMallocAsync(&pointer, 64, stream);
    fill(pointer, stream);
    cudaFreeAsync(pointer, stream);
    cudaStreamSynchronize(stream);
}
static void act(const char *what) {
    if (!strcmp(what, "race")) race();
    if (!strcmp(what, "clean")) clean();
}
/* Tries a program that cannot be run, and prints whether the report was written anew. */
static void try_again(void) {
    struct stat before, after;
    stat(getenv("STREAMCHECK_JSON"), &before);
    execl("./hopeless", "x", (char *)NULL);
    stat(getenv("STREAMCHECK_JSON"), &after);
    printf("%s ", before.st_ino == after.st_ino ? "kept" : "written");
}

int main(int argc, char **argv) {
    if (argc == 11 && !strcmp(argv[1], "second")) {
        act(argv[2]);
        printf("%s, %s, %s\n", argv[1], argv[10], getenv("MARK"));
        return 0;
    }
    const char *how = argv[1], *self = "/proc/self/exe";
    char *list[] = {"execs", "second", argv[3], NUMBERS, NULL};
    char *marked[64] = {"MARK=own"};
    int count = 1;
    for (char **entry = environ; *entry && count < 62; entry++)
        if (strncmp(*entry, "MARK=", 5)) marked[count++] = *entry;
    act(argv[2]);
    if (!strcmp(how, "execve")) execve(self, list, marked);
    if (!strcmp(how, "execv")) execv(self, list);
    if (!strcmp(how, "execvp")) execvp("execs", list);
    if (!strcmp(how, "execvpe")) execvpe("execs", list, marked);
    if (!strcmp(how, "execl")) execl(self, "execs", "second", argv[3], NUMBERS, (char *)NULL);
    if (!strcmp(how, "execle")) execle(self, "execs", "second", argv[3], NUMBERS, (char *)NULL, marked);
    if (!strcmp(how, "execlp")) execlp("execs", "execs", "second", argv[3], NUMBERS, (char *)NULL);
    if (!strcmp(how, "fexecve")) fexecve(open(self, O_RDONLY | O_CLOEXEC), list, marked);
    if (!strcmp(how, "execveat")) execveat(AT_FDCWD, self, list, marked, 0);
    if (!strcmp(how, "vfork")) {
        int status;
        pid_t child = vfork();
        if (child == 0) { execl("/bin/sh", "sh", "-c", "exit 7", (char *)NULL); _exit(1); }
        waitpid(child, &status, 0);
        printf("child ended with %d\n", WEXITSTATUS(status));
    }
    if (!strcmp(how, "absent") || !strcmp(how, "spoiled")) {
        printf("%d", execl(how[0] == 'a' ? "/no/such/program" : "./spoiled", "x", (char *)NULL));
        printf(" %d\n", errno);
    }
    if (!strcmp(how, "again")) {
        try_again();
        try_again();
        try_again();
        clean();
        try_again();
        try_again();
    }
    act(argv[3]);
    return 0;
}
