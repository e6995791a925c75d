// nvcc: -lcusparse
// run: malloc
// run: async
// Sparse matrix times vector on three streams that read the same matrix.
#include "libraries.h"
#include <cusparse.h>

// Row i has 2 at i and 1 at the next column, around the end.
__global__ void build(int *offsets, int *columns, float *values, int n) {
    EACH(i, n) {
        int next = (i + 1) % n, first = i < next ? i : next, last = i < next ? next : i;
        offsets[i] = 2 * i;
        if (i == n - 1) offsets[n] = 2 * n;
        columns[2 * i] = first;
        columns[2 * i + 1] = last;
        values[2 * i] = first == i ? 2 : 1;
        values[2 * i + 1] = last == i ? 2 : 1;
    }
}

int main(int argc, char **argv) {
    Memory memory(argc, argv);
    constexpr int ROWS = 1 << 15, STREAMS = 3;
    cudaStream_t s[STREAMS];
    for (auto &stream : s) stream = new_stream();
    int *offsets = memory.get<int>(ROWS + 1, s[0]), *columns = memory.get<int>(2 * ROWS, s[0]);
    float *values = memory.get<float>(2 * ROWS, s[0]), *host = pinned<float>(ROWS);
    build<<<64, 256, 0, s[0]>>>(offsets, columns, values, ROWS);
    for (int i = 1; i < STREAMS; i++) join(s[0], s[i]);
    float *x[STREAMS], *y[STREAMS];
    for (int i = 0; i < STREAMS; i++) {
        cusparseHandle_t handle;
        CHECK(cusparseCreate(&handle));
        CHECK(cusparseSetStream(handle, s[i]));
        x[i] = memory.get<float>(ROWS, s[i]);
        y[i] = memory.get<float>(ROWS, s[i]);
        fill(x[i], ROWS, float(i + 1), s[i]);
        cusparseSpMatDescr_t matrix;
        CHECK(cusparseCreateCsr(&matrix, ROWS, ROWS, 2 * ROWS, offsets, columns, values, CUSPARSE_INDEX_32I,
                                CUSPARSE_INDEX_32I, CUSPARSE_INDEX_BASE_ZERO, CUDA_R_32F));
        cusparseDnVecDescr_t in, out;
        CHECK(cusparseCreateDnVec(&in, ROWS, x[i], CUDA_R_32F));
        CHECK(cusparseCreateDnVec(&out, ROWS, y[i], CUDA_R_32F));
        float one = 1, zero = 0;
        size_t bytes = 0;
        CHECK(cusparseSpMV_bufferSize(handle, CUSPARSE_OPERATION_NON_TRANSPOSE, &one, matrix, in, &zero, out, CUDA_R_32F,
                                      CUSPARSE_SPMV_CSR_ALG2, &bytes));
        char *buffer = memory.get<char>(bytes, s[i]);
        for (int round = 0; round < 5; round++)
            CHECK(cusparseSpMV(handle, CUSPARSE_OPERATION_NON_TRANSPOSE, &one, matrix, in, &zero, out, CUDA_R_32F,
                               CUSPARSE_SPMV_CSR_ALG2, buffer));
        memory.put(buffer, s[i]);
        CHECK(cusparseDestroySpMat(matrix));
        CHECK(cusparseDestroyDnVec(in));
        CHECK(cusparseDestroyDnVec(out));
        CHECK(cusparseDestroy(handle));
    }
    for (int i = 0; i < STREAMS; i++) {
        CHECK(cudaMemcpyAsync(host, y[i], ROWS * sizeof(float), cudaMemcpyDeviceToHost, s[i]));
        CHECK(cudaStreamSynchronize(s[i]));
        expect_all(host, ROWS, 3.0f * (i + 1));
        memory.put(x[i], s[i]);
        memory.put(y[i], s[i]);
    }
    for (int i = 1; i < STREAMS; i++) join(s[i], s[0]);
    memory.put(offsets, s[0]);
    memory.put(columns, s[0]);
    memory.put(values, s[0]);
    CHECK(cudaDeviceSynchronize());
}
