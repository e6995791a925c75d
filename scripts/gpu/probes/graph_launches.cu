// What a graph launch comes after, and which graph calls wait.
#include "probe.h"

int main() {
    warm_up();
    cudaStream_t s = nonblocking_stream(), t = nonblocking_stream();
    cudaGraph_t graph;
    cudaGraphExec_t exec, other;
    CHECK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    spin(s);
    CHECK(cudaStreamEndCapture(s, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphInstantiate(&other, graph, 0));
    CHECK(cudaGraphLaunch(exec, s));
    CHECK(cudaGraphLaunch(other, t));
    CHECK(cudaDeviceSynchronize());

    CHECK(cudaGraphLaunch(exec, s));
    ask_held("does a graph launch hold up later work of its stream", s);
    CHECK(cudaGraphLaunch(exec, s));
    ask_held("does it hold up another stream", t);
    double ms = milliseconds([&] {
        CHECK(cudaGraphLaunch(exec, s));
        CHECK(cudaGraphLaunch(exec, t));
        CHECK(cudaDeviceSynchronize());
    });
    printf("do two launches of one executable graph on two streams come one after the other: %s (%.2f ms)\n",
           ms > SPIN_MS * 1.5 ? "yes" : "no", ms);
    ms = milliseconds([&] {
        CHECK(cudaGraphLaunch(exec, s));
        CHECK(cudaGraphLaunch(other, t));
        CHECK(cudaDeviceSynchronize());
    });
    printf("do launches of two executable graphs: %s (%.2f ms)\n", ms > SPIN_MS * 1.5 ? "yes" : "no", ms);
    CHECK(cudaGraphLaunch(exec, s));
    ask("does launching a graph again wait in the call", [&] { CHECK(cudaGraphLaunch(exec, s)); });
    CHECK(cudaGraphLaunch(exec, s));
    ask("does cudaGraphExecDestroy wait for a pending launch", [&] { CHECK(cudaGraphExecDestroy(exec)); });
    return 0;
}
