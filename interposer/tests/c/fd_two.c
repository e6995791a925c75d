/* A file of the program's own gets the number of standard error, in the way that the first argument says. */
#include "cuda.h"
#include <fcntl.h>
#include <sys/stat.h>

static int own(const char *name) {
    close(2);
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
    return fd == 2 && write(fd, "mine", 4) == 4;
}

/* A further descriptor of the file that standard error is; unless `any`, one that outlives exec or is a low number. */
static int further(int any) {
    struct stat two, other;
    fstat(2, &two);
    for (int fd = 3; fd < 4096; fd++) {
        if (fstat(fd, &other) || other.st_dev != two.st_dev || other.st_ino != two.st_ino) continue;
        if (any || fd < 64 || !(fcntl(fd, F_GETFD) & FD_CLOEXEC)) return fd;
    }
    return 0;
}

int main(int argc, char **argv) {
    const char *how = argv[1], *name = argv[2];
    if (argc != 3) return 1;
    if (!strcmp(how, "seen")) {
        if (further(1)) return 2;
        new_stream();
        if (further(0)) return 3;
        puts(further(1) ? "two" : "one");
        /* Without it, there is still the first. */
        for (int fd = 3; fd < 4096; fd++) close(fd);
        race();
        return 0;
    }
    if (!strcmp(how, "kept")) {
        int kept = dup(2), file = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
        if (dup2(file, 2) != 2 || write(2, "mine", 4) != 4) return 5;
        race();
        close(kept);
    } else {
        if (strcmp(how, "early")) new_stream();
        if (!own(name)) return 6;
        race();
        pid_t child = fork();
        if (child == 0) {
            race();
            return 0;
        }
        int status;
        waitpid(child, &status, 0);
        printf("child ended with %d\n", WEXITSTATUS(status));
    }
    return 0;
}
