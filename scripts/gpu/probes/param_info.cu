// Can the layout of a kernel's parameters be asked for?
#include "probe.h"
#include <dlfcn.h>

struct Triple {
    long a;
    float *b;
    int c;
};

__global__ void probe_kernel(float *out, struct Triple triple, int n) {
    if (n > 0) out[0] = triple.b[0];
}

static void *symbol(const char *library, const char *name) {
    void *handle = dlopen(library, RTLD_NOW);
    void *found = handle ? dlsym(handle, name) : nullptr;
    printf("%s is exported by %s: %s\n", name, library,
           !handle ? dlerror() : found ? "yes" : "no");
    return found;
}

int main() {
    typedef cudaError_t param_info(const void *, size_t, size_t *, size_t *);
    int runtime = 0, driver = 0;
    CHECK(cudaRuntimeGetVersion(&runtime));
    CHECK(cudaDriverGetVersion(&driver));
    symbol("libcuda.so.1", "cuFuncGetParamInfo");
    auto ask = (param_info *)symbol("libcudart.so.13", "cudaFuncGetParamInfo");
    if (ask) {
        size_t offset, bytes;
        printf("parameters of (float *, 24-byte struct, int), runtime %d, driver %d:", runtime, driver);
        for (size_t i = 0;; i++) {
            cudaError_t status = ask((const void *)probe_kernel, i, &offset, &bytes);
            if (status != cudaSuccess) {
                printf(" then %s\n", cudaGetErrorName(status));
                break;
            }
            printf(" %zu+%zu", offset, bytes);
        }
    }
    return 0;
}
