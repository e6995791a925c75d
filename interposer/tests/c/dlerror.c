/* dlerror in a program that has called free and no realloc: it calls realloc itself, while it
 * holds what a dlsym frees. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(void) {
    void *blocks[64];
    /* Of the size of what dlerror holds, so that it lies among free blocks. */
    for (int i = 0; i < 8; i++) blocks[i] = malloc(24);
    for (int i = 0; i < 8; i++) free(blocks[i]);
    if (dlsym(RTLD_DEFAULT, "no_such_function")) return 1;
    const char *text = dlerror();
    if (!text || !strstr(text, "no_such_function")) return 2;
    for (int i = 0; i < 64; i++) {
        blocks[i] = malloc(24);
        if (!blocks[i]) return 3;
        memset(blocks[i], i, 24);
    }
    for (int i = 0; i < 64; i++) {
        if (*(char *)blocks[i] != i) return 4;
        free(blocks[i]);
    }
    puts("whole");
    return 0;
}
