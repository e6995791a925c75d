// Programmatic dependent launches: the second kernel starts early and waits for the first inside.
#include "hunt.h"

__global__ void primary(float *out, int n, float value) {
#if __CUDA_ARCH__ >= 900
    cudaTriggerProgrammaticLaunchCompletion();
#endif
    EACH(i, n) out[i] = value;
}

__global__ void secondary(const float *in, float *out, int n) {
#if __CUDA_ARCH__ >= 900
    cudaGridDependencySynchronize();
#endif
    EACH(i, n) out[i] += in[i];
}

int main() {
    cudaDeviceProp properties;
    CHECK(cudaGetDeviceProperties(&properties, 0));
    if (properties.major < 9) skip("no programmatic dependent launch");
    cudaStream_t s = new_stream();
    float *a = async<float>(N, s), *b = async<float>(N, s), *host = pinned<float>(N);
    CHECK(cudaMemsetAsync(b, 0, BYTES, s));
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(64);
    config.blockDim = dim3(256);
    config.stream = s;
    config.attrs = &attribute;
    config.numAttrs = 1;
    for (int i = 0; i < 20; i++) {
        primary<<<64, 256, 0, s>>>(a, N, float(i));
        CHECK(cudaLaunchKernelEx(&config, secondary, (const float *)a, b, N));
    }
    CHECK(cudaMemcpyAsync(host, b, BYTES, cudaMemcpyDeviceToHost, s));
    CHECK(cudaFreeAsync(a, s));
    CHECK(cudaFreeAsync(b, s));
    CHECK(cudaStreamSynchronize(s));
    expect_all(host, N, 190.0f);
}
