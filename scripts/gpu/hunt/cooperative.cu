// A conjugate gradient in one cooperative launch: grid-wide barriers, dot products by atomics.
#include "hunt.h"
#include <cooperative_groups.h>
namespace cg = cooperative_groups;

// Solves A x = b for the tridiagonal A with 4 on the diagonal and -1 beside it.
__global__ void solve(const float *b, float *x, float *r, float *p, float *ap, double *dots, int n, int steps) {
    cg::grid_group grid = cg::this_grid();
    int first = int(grid.thread_rank()), stride = int(grid.size());
    for (int i = first; i < n; i += stride) x[i] = 0, r[i] = p[i] = b[i];
    grid.sync();
    for (int step = 0; step < steps; step++) {
        double *rr = dots + step * 3, *pap = rr + 1, *next = rr + 2, sum_rr = 0, sum_pap = 0;
        for (int i = first; i < n; i += stride) {
            ap[i] = 4 * p[i] - (i ? p[i - 1] : 0) - (i + 1 < n ? p[i + 1] : 0);
            sum_rr += double(r[i]) * r[i];
            sum_pap += double(p[i]) * ap[i];
        }
        atomicAdd(rr, sum_rr);
        atomicAdd(pap, sum_pap);
        grid.sync();
        float alpha = float(*rr / *pap);
        double sum_next = 0;
        for (int i = first; i < n; i += stride) {
            x[i] += alpha * p[i];
            r[i] -= alpha * ap[i];
            sum_next += double(r[i]) * r[i];
        }
        atomicAdd(next, sum_next);
        grid.sync();
        float beta = float(*next / *rr);
        for (int i = first; i < n; i += stride) p[i] = r[i] + beta * p[i];
        grid.sync();
    }
}

int main() {
    int n = 1 << 16, steps = 20, cooperative = 0;
    CHECK(cudaDeviceGetAttribute(&cooperative, cudaDevAttrCooperativeLaunch, 0));
    if (!cooperative) skip("no cooperative launches");
    cudaStream_t s = new_stream();
    std::vector<float> b(n, 2.0f), x(n);
    float *d_b = device<float>(n), *d_x = device<float>(n);
    CHECK(cudaMemcpy(d_b, b.data(), n * sizeof(float), cudaMemcpyHostToDevice));
    CHECK(cudaDeviceSynchronize());
    float *r = async<float>(n, s), *p = async<float>(n, s), *ap = async<float>(n, s);
    double *dots = async<double>(3 * steps, s);
    CHECK(cudaMemsetAsync(dots, 0, 3 * steps * sizeof(double), s));
    void *arguments[] = {&d_b, &d_x, &r, &p, &ap, &dots, &n, &steps};
    CHECK(cudaLaunchCooperativeKernel((void *)solve, dim3(32), dim3(256), arguments, 0, s));
    CHECK(cudaFreeAsync(r, s));
    CHECK(cudaFreeAsync(p, s));
    CHECK(cudaFreeAsync(ap, s));
    CHECK(cudaFreeAsync(dots, s));
    CHECK(cudaStreamSynchronize(s));
    CHECK(cudaMemcpy(x.data(), d_x, n * sizeof(float), cudaMemcpyDeviceToHost));
    // In the middle x = 2 / (4 - 1 - 1).
    REQUIRE(x[n / 2] > 0.999f && x[n / 2] < 1.001f);
    printf("x[n/2] %.3f\n", x[n / 2]);
    CHECK(cudaFree(d_b));
    CHECK(cudaFree(d_x));
}
