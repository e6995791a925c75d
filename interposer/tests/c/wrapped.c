#include "cuda.h"

int main(void) {
    int (*calls)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "wrapped_calls");
    void *memory = calloc(4, 4);
    puts("wrapped");
    free(memory);
    return calls && calls() == 1 ? 0 : 1;
}
