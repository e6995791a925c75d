// What the kernels do, for a simulated CUDA that runs host functions in their place; built with
// -DSIMULATED and -rdynamic.
#pragma once

#define SIMULATED_KERNEL(name)                                                                   \
    extern "C" void simcuda_kernel_##name(void **p, const unsigned *, const unsigned *, unsigned)

template <typename T> T argument(void *place) { return *static_cast<T *>(place); }

SIMULATED_KERNEL(_Z11fill_kernelIfEvPT_iS0_) {
    for (int i = 0; i < argument<int>(p[1]); i++) argument<float *>(p[0])[i] = argument<float>(p[2]);
}

SIMULATED_KERNEL(_Z12scale_kernelPKfPfiff) {
    for (int i = 0; i < argument<int>(p[2]); i++)
        argument<float *>(p[1])[i] = argument<float *>(p[0])[i] * argument<float>(p[3]) + argument<float>(p[4]);
}

SIMULATED_KERNEL(_Z17accumulate_kernelPfPKfi) {
    for (int i = 0; i < argument<int>(p[2]); i++) argument<float *>(p[0])[i] += argument<float *>(p[1])[i];
}
