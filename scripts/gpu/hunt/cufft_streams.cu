// nvcc: -lcufft
// run: malloc
// run: async
// A transform forth and back on each of three streams: plans with their own work areas, and one plan
// whose work area is the caller's.
#include "libraries.h"
#include <cmath>
#include <cufft.h>

__global__ void wave(cufftComplex *out, int n, int frequency) {
    EACH(i, n) {
        float angle = 6.2831853f * float((long long)i * frequency % n) / n;
        out[i] = make_float2(cosf(angle), sinf(angle));
    }
}

int main(int argc, char **argv) {
    Memory memory(argc, argv);
    constexpr int LENGTH = 1 << 16, STREAMS = 3;
    cufftComplex *host = pinned<cufftComplex>(LENGTH * STREAMS);
    cudaStream_t s[STREAMS];
    for (auto &stream : s) stream = new_stream();
    double total = 0;
    for (int round = 0; round < 5; round++) {
        cufftHandle plans[STREAMS];
        cufftComplex *data[STREAMS], *spectrum[STREAMS];
        void *area = nullptr;
        for (int i = 0; i < STREAMS; i++) {
            if (i == 0) {
                size_t bytes = 0;
                CHECK(cufftCreate(&plans[i]));
                CHECK(cufftSetAutoAllocation(plans[i], 0));
                CHECK(cufftMakePlan1d(plans[i], LENGTH, CUFFT_C2C, 1, &bytes));
                area = memory.get<char>(bytes, s[i]);
                CHECK(cufftSetWorkArea(plans[i], area));
            } else {
                CHECK(cufftPlan1d(&plans[i], LENGTH, CUFFT_C2C, 1));
            }
            CHECK(cufftSetStream(plans[i], s[i]));
            data[i] = memory.get<cufftComplex>(LENGTH, s[i]);
            spectrum[i] = memory.get<cufftComplex>(LENGTH, s[i]);
            wave<<<64, 256, 0, s[i]>>>(data[i], LENGTH, 100 + i);
            CHECK(cufftExecC2C(plans[i], data[i], spectrum[i], CUFFT_FORWARD));
            CHECK(cudaMemcpyAsync(host + i * LENGTH, spectrum[i], LENGTH * sizeof(cufftComplex), cudaMemcpyDeviceToHost, s[i]));
            CHECK(cufftExecC2C(plans[i], spectrum[i], data[i], CUFFT_INVERSE));
        }
        for (int i = 0; i < STREAMS; i++) {
            CHECK(cudaStreamSynchronize(s[i]));
            float peak = host[i * LENGTH + 100 + i].x / LENGTH;
            REQUIRE(std::fabs(peak - 1) < 1e-3f);
            total += std::round(peak * 100);
            CHECK(cufftDestroy(plans[i]));
            memory.put(data[i], s[i]);
            memory.put(spectrum[i], s[i]);
        }
        memory.put(area, s[0]);
    }
    printf("total %.0f\n", total);
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaFreeHost(host));
}
