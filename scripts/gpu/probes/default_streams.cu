// nvcc: -Xcompiler -pthread
// Per-thread default streams beside the legacy one, and which operations on the legacy stream are
// barriers for blocking streams.
#include "probe.h"
#include <atomic>
#include <thread>

static std::atomic<bool> ran;

static void CUDART_CB nothing(void *) { ran = true; }
static void CUDART_CB also_nothing(cudaStream_t, cudaError_t, void *) {}

// Is an operation on the legacy stream between two blocking streams' work a barrier?
template <typename Operation> static void ask_barrier(const char *what, Operation operation) {
    static cudaStream_t first = blocking_stream(), second = blocking_stream();
    char question[256];
    snprintf(question, sizeof question, "is %s on the legacy stream a barrier for blocking streams", what);
    spin(first);
    operation();
    ask_held(question, second);
}

int main() {
    warm_up();
    touch(cudaStreamPerThread);
    CHECK(cudaDeviceSynchronize());
    cudaStream_t blocking = blocking_stream(), other = nonblocking_stream();

    spin(cudaStreamLegacy);
    ask_held("does a per-thread stream wait for the legacy stream", cudaStreamPerThread);
    spin(cudaStreamPerThread);
    ask_held("does the legacy stream wait for a per-thread stream", cudaStreamLegacy);
    spin(blocking);
    ask_held("does a per-thread stream wait for a blocking stream", cudaStreamPerThread);
    spin(other);
    ask_held("does a per-thread stream wait for a non-blocking stream", cudaStreamPerThread);
    auto in_thread = [](auto call) { std::thread(call).join(); };
    in_thread([] { touch(cudaStreamPerThread); CHECK(cudaDeviceSynchronize()); });
    spin(cudaStreamPerThread);
    double ms = 0;
    in_thread([&] {
        touch(cudaStreamPerThread);
        ms = milliseconds([] { CHECK(cudaStreamSynchronize(cudaStreamPerThread)); });
    });
    report("does a thread's per-thread stream wait for another thread's", ms);
    CHECK(cudaDeviceSynchronize());
    spin(cudaStreamPerThread);
    in_thread([&] { ms = milliseconds([] { touch(cudaStreamLegacy); CHECK(cudaStreamSynchronize(cudaStreamLegacy)); }); });
    report("does the legacy stream in one thread wait for another thread's per-thread stream", ms);
    CHECK(cudaDeviceSynchronize());
    in_thread([] { spin(cudaStreamPerThread); });
    ask("does cudaDeviceSynchronize wait for the per-thread stream of a thread that has ended", [] { CHECK(cudaDeviceSynchronize()); });
    in_thread([] { spin(cudaStreamPerThread); });
    ask_held("does the legacy stream wait for the per-thread stream of a thread that has ended", cudaStreamLegacy);

    cudaEvent_t event = new_event(), complete = new_event();
    CHECK(cudaEventRecord(complete, other));
    CHECK(cudaDeviceSynchronize());
    void *device, *pinned;
    CHECK(cudaMalloc(&device, 4096));
    CHECK(cudaMallocHost(&pinned, 4096));
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaGraphNode_t node;
    CHECK(cudaGraphCreate(&graph, 0));
    CHECK(cudaGraphAddEmptyNode(&node, graph, nullptr, 0));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    ask_barrier("a kernel", [] { touch(cudaStreamLegacy); });
    ask_barrier("cudaMemsetAsync", [&] { CHECK(cudaMemsetAsync(device, 0, 4096, cudaStreamLegacy)); });
    ask_barrier("cudaMemcpyAsync from pinned memory", [&] { CHECK(cudaMemcpyAsync(device, pinned, 4096, cudaMemcpyHostToDevice, cudaStreamLegacy)); });
    ask_barrier("cudaLaunchHostFunc", [] { CHECK(cudaLaunchHostFunc(cudaStreamLegacy, nothing, nullptr)); });
    ran = false;
    spin(blocking);
    CHECK(cudaLaunchHostFunc(cudaStreamLegacy, nothing, nullptr));
    std::this_thread::sleep_for(std::chrono::milliseconds(SPIN_MS / 4));
    printf("does a host function on the legacy stream wait for a blocking stream: %s\n", ran ? "no" : "yes");
    CHECK(cudaDeviceSynchronize());
    ask_barrier("cudaStreamAddCallback", [] { CHECK(cudaStreamAddCallback(cudaStreamLegacy, also_nothing, nullptr, 0)); });
    ask_barrier("cudaEventRecord", [&] { CHECK(cudaEventRecord(event, cudaStreamLegacy)); });
    ask_barrier("cudaStreamWaitEvent for a complete event", [&] { CHECK(cudaStreamWaitEvent(cudaStreamLegacy, complete, 0)); });
    ask_barrier("cudaGraphLaunch of an empty node", [&] { CHECK(cudaGraphLaunch(exec, cudaStreamLegacy)); });
    ask_barrier("nothing", [] {});

    void *p;
    ask_barrier("cudaMallocAsync", [&] { CHECK(cudaMallocAsync(&p, 4096, cudaStreamLegacy)); });
    return 0;
}
