// nvcc: -Xcompiler -pthread
// Host functions in stream order post-process results and hand buffers to a thread, which frees them.
// A stream callback does the same in the old way.
#include "hunt.h"
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

struct Job {
    float *host;
    double sum;
};

static std::mutex mutex;
static std::condition_variable ready;
static std::deque<Job *> finished;

static void finish(Job *job) {
    job->sum = 0;
    for (int i = 0; i < 4096; i++) job->sum += job->host[i];
    std::lock_guard<std::mutex> lock(mutex);
    finished.push_back(job);
    ready.notify_one();
}

static void CUDART_CB host_function(void *job) { finish(static_cast<Job *>(job)); }

static void CUDART_CB callback(cudaStream_t, cudaError_t status, void *job) {
    REQUIRE(status == cudaSuccess);
    finish(static_cast<Job *>(job));
}

int main() {
    constexpr int JOBS = 24, STREAMS = 4, COUNT = 4096;
    double total = 0;
    std::thread collector([&] {
        for (int i = 0; i < JOBS; i++) {
            std::unique_lock<std::mutex> lock(mutex);
            ready.wait(lock, [] { return !finished.empty(); });
            Job *job = finished.front();
            finished.pop_front();
            lock.unlock();
            total += job->sum;
            CHECK(cudaFreeHost(job->host));
            delete job;
        }
    });
    cudaStream_t streams[STREAMS];
    float *d[STREAMS];
    for (int i = 0; i < STREAMS; i++) {
        streams[i] = new_stream();
        d[i] = device<float>(COUNT);
    }
    for (int i = 0; i < JOBS; i++) {
        int s = i % STREAMS;
        Job *job = new Job{pinned<float>(COUNT), 0};
        for (int k = 0; k < COUNT; k++) job->host[k] = float(i);
        CHECK(cudaMemcpyAsync(d[s], job->host, COUNT * sizeof(float), cudaMemcpyHostToDevice, streams[s]));
        scale(d[s], d[s], COUNT, 2, 1, streams[s]);
        CHECK(cudaMemcpyAsync(job->host, d[s], COUNT * sizeof(float), cudaMemcpyDeviceToHost, streams[s]));
        if (i % 2) CHECK(cudaLaunchHostFunc(streams[s], host_function, job));
        else CHECK(cudaStreamAddCallback(streams[s], callback, job, 0));
    }
    collector.join();
    for (auto s : streams) CHECK(cudaStreamSynchronize(s));
    REQUIRE(total == double(COUNT) * JOBS * JOBS);
    printf("total %.1f\n", total);
    for (auto p : d) CHECK(cudaFree(p));
}
