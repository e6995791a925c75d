// Calls to CUDA in a loop, and how long one takes on the host: loops NAME:BATCHES...
//
// A batch is so short that the GPU's queue does not fill up, and is waited for outside of the time
// that is taken; `launch-bound` alone fills the queue and counts the wait. For each loop a line:
//
//   loop NAME median NS min NS checksum VALUE      nanoseconds a call, of all batches
//   loop NAME failed: CALL: WHY
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>
#include <stdexcept>
#include <string>
#include <vector>

using Clock = std::chrono::steady_clock;

static void check(cudaError_t status, const char *call) {
    if (status != cudaSuccess) throw std::runtime_error(std::string(call) + ": " + cudaGetErrorString(status));
}
#define CHECK(call) check((call), #call)

constexpr size_t BYTES = 4096;
constexpr int FEW_KERNELS = 8, MANY_KERNELS = 10000;
constexpr std::chrono::milliseconds WARM_UP(200);

__global__ void fill(double *out, double value) { *out = value; }
__global__ void accumulate(double *sum, const double *a, const double *b, const double *c) { *sum += *a * *b + *c; }

// What the loops work on.
struct Work {
    cudaStream_t stream, other;
    cudaEvent_t event;
    double *sum, *a, *b, *c, *target, *host, *result;

    Work() {
        CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
        CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
        for (double **pointer : {&sum, &a, &b, &c, &target}) CHECK(cudaMalloc(pointer, BYTES));
        for (double **pointer : {&host, &result}) CHECK(cudaMallocHost(pointer, BYTES));
        for (size_t i = 0; i < BYTES / sizeof(double); i++) host[i] = i + 1;
        fill<<<1, 1, 0, stream>>>(a, 2);
        fill<<<1, 1, 0, stream>>>(b, 3);
        fill<<<1, 1, 0, stream>>>(c, 1);
        CHECK(cudaMemsetAsync(target, 0, BYTES, stream));
        // As allocators set it: a synchronization gives no memory back.
        cudaMemPool_t pool;
        unsigned long long keep = ~0ull;
        CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
        CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
        CHECK(cudaGetLastError());
        wait();
    }

    void launch() { accumulate<<<1, 1, 0, stream>>>(sum, a, b, c); }

    void wait() {
        CHECK(cudaStreamSynchronize(stream));
        CHECK(cudaStreamSynchronize(other));
    }

    // The first value of an array on the GPU.
    double value(const double *array) {
        CHECK(cudaMemcpyAsync(result, array, BYTES, cudaMemcpyDeviceToHost, stream));
        CHECK(cudaStreamSynchronize(stream));
        return *result;
    }
};

// Runs `call` in batches and prints how long one takes. With `bound` the time counts that the GPU takes.
template <typename Call>
static void measure(Work &work, const char *name, int batches, int calls, const double *shows, bool bound,
                    Call call) {
    CHECK(cudaMemsetAsync(work.sum, 0, BYTES, work.stream));
    work.wait();
    std::vector<double> each;
    for (int batch = -2; batch < batches; batch++) {  // two to warm up
        auto begin = Clock::now();
        for (int i = 0; i < calls; i++) call();
        if (bound) work.wait();
        std::chrono::duration<double, std::nano> time = Clock::now() - begin;
        if (!bound) work.wait();
        if (batch >= 0) each.push_back(time.count() / calls);
    }
    CHECK(cudaGetLastError());
    std::sort(each.begin(), each.end());
    printf("loop %s median %.1f min %.1f checksum %.0f\n", name, each[each.size() / 2], each[0],
           work.value(shows));
}

static void launch(Work &work, const char *name, int batches) {
    measure(work, name, batches, 500, work.sum, false, [&] { work.launch(); });
}

static void launch_bound(Work &work, const char *name, int batches) {
    measure(work, name, batches, 5000, work.sum, true, [&] { work.launch(); });
}

static void alloc_free(Work &work, const char *name, int batches) {
    measure(work, name, batches, 500, work.a, false, [&] {
        void *memory;
        CHECK(cudaMallocAsync(&memory, 1 << 16, work.stream));
        CHECK(cudaFreeAsync(memory, work.stream));
    });
}

static void record_wait(Work &work, const char *name, int batches) {
    measure(work, name, batches, 250, work.a, false, [&] {
        CHECK(cudaEventRecord(work.event, work.stream));
        CHECK(cudaStreamWaitEvent(work.other, work.event, 0));
    });
}

static void launch_sync(Work &work, const char *name, int batches) {
    measure(work, name, batches, 250, work.sum, false, [&] {
        work.launch();
        CHECK(cudaStreamSynchronize(work.stream));
    });
}

static void copy(Work &work, const char *name, int batches) {
    measure(work, name, batches, 250, work.target, false, [&] {
        CHECK(cudaMemcpyAsync(work.target, work.host, BYTES, cudaMemcpyHostToDevice, work.stream));
    });
}

static void launch_graph(Work &work, const char *name, int batches, int kernels, int calls) {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaStreamBeginCapture(work.stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < kernels; i++) work.launch();
    CHECK(cudaStreamEndCapture(work.stream, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    measure(work, name, batches, calls, work.sum, false, [&] { CHECK(cudaGraphLaunch(exec, work.stream)); });
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
}

static void graph_launch(Work &work, const char *name, int batches) {
    launch_graph(work, name, batches, FEW_KERNELS, 50);
}

static void large_graph_launch(Work &work, const char *name, int batches) {
    launch_graph(work, name, batches, MANY_KERNELS, 4);
}

constexpr struct {
    const char *name;
    void (*run)(Work &, const char *, int);
} LOOPS[] = {
    {"launch", launch},           {"launch-bound", launch_bound}, {"alloc-free", alloc_free},
    {"record-wait", record_wait}, {"launch-sync", launch_sync},   {"copy", copy},
    {"graph-launch", graph_launch}, {"graph-launch-10000", large_graph_launch},
};

static int run(const std::vector<std::string> &words) {
    Work work;
    for (auto end = Clock::now() + WARM_UP; Clock::now() < end; work.wait())
        for (int i = 0; i < 100; i++) work.launch();
    for (const std::string &word : words) {
        size_t colon = word.find(':');
        std::string name = word.substr(0, colon);
        int batches = colon == std::string::npos ? 0 : atoi(word.c_str() + colon + 1);
        auto loop = std::find_if(std::begin(LOOPS), std::end(LOOPS), [&](auto &each) { return name == each.name; });
        if (loop == std::end(LOOPS) || batches < 1) {
            fprintf(stderr, "loops: %s is no NAME:BATCHES\n", word.c_str());
            return 2;
        }
        try {
            loop->run(work, loop->name, batches);
        } catch (const std::exception &error) {
            printf("loop %s failed: %s\n", loop->name, error.what());
        }
        fflush(stdout);  // what comes later may not end
    }
    return 0;
}

int main(int argc, char **argv) {
    try {
        return run({argv + 1, argv + argc});
    } catch (const std::exception &error) {
        fprintf(stderr, "loops: %s\n", error.what());
        return 3;
    }
}
