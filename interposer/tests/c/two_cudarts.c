/* A program with one cudart, and a plugin with another, loaded with RTLD_LOCAL. */
#include "cuda.h"

static int count(const char *library) {
    void *handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
    int (*allocations)(void) = handle ? (int (*)(void))dlsym(handle, "standin_allocations") : NULL;
    return allocations ? allocations() : -1;
}
int main(void) {
    void *pointer;
    if (cudaMalloc(&pointer, 64)) return 1;
    void *plugin = dlopen("./libplugin.so", RTLD_NOW | RTLD_LOCAL);
    int (*work)(void) = plugin ? (int (*)(void))dlsym(plugin, "plugin_work") : NULL;
    if (!work || work()) return 2;
    if (cudaFree(pointer) || cudaMalloc(&pointer, 64) || cudaFree(pointer)) return 3;
    printf("%d and %d\n", count("libcudart.so.13"), count("libcudart.so.12"));
    return 0;
}
