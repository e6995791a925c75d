// A captured fork and join with stream-ordered memory inside, launched many times on two streams in
// turn, and beside it a graph built node by node.
#include "hunt.h"

int main() {
    cudaStream_t s = new_stream(), side = new_stream(), launch[2] = {new_stream(), new_stream()};
    float *d = device<float>(N), *host = pinned<float>(N);
    CHECK(cudaMemset(d, 0, BYTES));
    CHECK(cudaDeviceSynchronize());

    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    float *one = async<float>(N, s);
    fill(one, N, 1.0f, s);
    join(s, side);
    float *two = async<float>(N, side);
    fill(two, N, 2.0f, side);
    scale(one, one, N, 1, 0, s);
    join(side, s);
    accumulate(d, one, N, s);
    accumulate(d, two, N, s);
    CHECK(cudaFreeAsync(one, s));
    CHECK(cudaFreeAsync(two, s));
    CHECK(cudaMemcpyAsync(host, d, BYTES, cudaMemcpyDeviceToHost, s));
    CHECK(cudaStreamEndCapture(s, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 50; i++) {
        CHECK(cudaGraphLaunch(exec, launch[i % 2]));
        // What follows in the stream comes after the launch.
        if (i % 10 == 9) scale(d, d, N, 1, 0, launch[i % 2]);
        join(launch[i % 2], launch[(i + 1) % 2]);
    }
    CHECK(cudaStreamSynchronize(launch[0]));
    expect_all(host, N, 150.0f);
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));

    CHECK(cudaGraphCreate(&graph, 0));
    cudaGraphNode_t clear, copy;
    cudaMemsetParams fill_with = {};
    fill_with.dst = d;
    fill_with.elementSize = 4;
    fill_with.width = N;
    fill_with.height = 1;
    CHECK(cudaGraphAddMemsetNode(&clear, graph, nullptr, 0, &fill_with));
    CHECK(cudaGraphAddMemcpyNode1D(&copy, graph, &clear, 1, host, d, BYTES, cudaMemcpyDeviceToHost));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphLaunch(exec, s));
    CHECK(cudaStreamSynchronize(s));
    expect_all(host, N, 0.0f);
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaFree(d));
    CHECK(cudaFreeHost(host));
}
