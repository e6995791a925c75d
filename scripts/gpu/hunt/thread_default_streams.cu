// nvcc: -default-stream per-thread -Xcompiler -pthread
// Threads with a default stream each. A producer hands buffers to a consumer with an event each; the
// consumer's stream waits for it, and frees the buffer. The threads end one after the other: NVIDIA's driver
// 580 was seen to hang, without the tool too, where one ended while the other worked.
#include "hunt.h"
#include <condition_variable>
#include <deque>
#include <future>
#include <mutex>
#include <thread>

struct Item {
    float *data;
    cudaEvent_t ready;
};

int main() {
    constexpr int ITEMS = 50;
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<Item> queue;
    std::promise<void> consumed, produced;
    std::thread producer([&] {
        for (int i = 0; i < ITEMS; i++) {
            Item item;
            CHECK(cudaMallocAsync((void **)&item.data, BYTES, 0));
            fill(item.data, N, float(i), 0);
            item.ready = new_event();
            CHECK(cudaEventRecord(item.ready, 0));
            std::lock_guard<std::mutex> lock(mutex);
            queue.push_back(item);
            changed.notify_one();
        }
        consumed.get_future().wait();
    });
    float *host = pinned<float>(N);
    double total = 0;
    std::thread consumer([&] {
        float *sum;
        CHECK(cudaMalloc((void **)&sum, BYTES));
        CHECK(cudaMemsetAsync(sum, 0, BYTES, 0));
        for (int i = 0; i < ITEMS; i++) {
            std::unique_lock<std::mutex> lock(mutex);
            changed.wait(lock, [&] { return !queue.empty(); });
            Item item = queue.front();
            queue.pop_front();
            lock.unlock();
            CHECK(cudaStreamWaitEvent(cudaStreamPerThread, item.ready, 0));
            accumulate(sum, item.data, N, 0);
            CHECK(cudaFreeAsync(item.data, cudaStreamPerThread));
            CHECK(cudaEventDestroy(item.ready));
        }
        CHECK(cudaMemcpyAsync(host, sum, BYTES, cudaMemcpyDeviceToHost, 0));
        CHECK(cudaStreamSynchronize(0));
        total = host[17];
        CHECK(cudaFree(sum));
        consumed.set_value();
        produced.get_future().wait();
    });
    producer.join();
    produced.set_value();
    consumer.join();
    REQUIRE(total == ITEMS * (ITEMS - 1) / 2);
    expect_all(host, N, float(total));

    // The legacy stream by its own handle waits for a per-thread stream, and that for it.
    float *d = device<float>(N);
    fill(d, N, 1.0f, 0);
    scale(d, d, N, 2, 0, cudaStreamLegacy);
    scale(d, d, N, 2, 0, 0);
    CHECK(cudaMemcpyAsync(host, d, BYTES, cudaMemcpyDeviceToHost, 0));
    CHECK(cudaStreamSynchronize(0));
    expect_all(host, N, 4.0f);
    CHECK(cudaFree(d));
    CHECK(cudaFreeHost(host));
}
