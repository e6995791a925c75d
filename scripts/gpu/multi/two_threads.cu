// nvcc: -Xcompiler -pthread
// run: right => none
// run: wrong => SC109
// Two host threads drive a device each and send each other a stream-ordered buffer every round: one event
// says that the inbox is full, one that it was read. `wrong` does not wait for the first.
#include "multi.h"
#include <condition_variable>
#include <mutex>
#include <thread>

// Where both threads meet.
class Meeting {
    std::mutex mutex;
    std::condition_variable changed;
    int here = 0, number = 0;

  public:
    void come() {
        std::unique_lock<std::mutex> lock(mutex);
        int mine = number;
        if (++here == 2) {
            here = 0, number++;
            changed.notify_all();
        } else {
            changed.wait(lock, [&] { return number != mine; });
        }
    }
};

int main(int argc, char **argv) {
    bool right = said(argc, argv, 1, "right");
    int rounds = right ? 20 : 1;
    enable_peers();
    cudaStream_t s[2];
    cudaEvent_t sent[2], read[2];
    float *inbox[2], *sum[2], *host[2];
    for (int i = 0; i < 2; i++) {
        on(i);
        cudaMemPool_t pool;
        CHECK(cudaDeviceGetDefaultMemPool(&pool, i));
        cudaMemAccessDesc access = {{cudaMemLocationTypeDevice, 1 - i}, cudaMemAccessFlagsProtReadWrite};
        CHECK(cudaMemPoolSetAccess(pool, &access, 1));
        s[i] = new_stream(), sent[i] = new_event(), read[i] = new_event();
        inbox[i] = device<float>(N), sum[i] = device<float>(N), host[i] = pinned<float>(N);
        fill(sum[i], N, 0.0f, s[i]);
        CHECK(cudaEventRecord(read[i], s[i]));
    }
    settle();
    Meeting meeting;
    auto drive = [&](int i) {
        on(i);
        for (int round = 1; round <= rounds; round++) {
            float *mine = async<float>(N, s[i]);
            busy(s[i], 1);
            fill(mine, N, float(round + i), s[i]);
            CHECK(cudaStreamWaitEvent(s[i], read[1 - i], 0));
            CHECK(cudaMemcpyPeerAsync(inbox[1 - i], 1 - i, mine, i, BYTES, s[i]));
            CHECK(cudaEventRecord(sent[i], s[i]));
            CHECK(cudaFreeAsync(mine, s[i]));
            meeting.come(); // both have sent
            if (right) CHECK(cudaStreamWaitEvent(s[i], sent[1 - i], 0));
            else lapse();
            accumulate(sum[i], inbox[i], N, s[i]);
            CHECK(cudaEventRecord(read[i], s[i]));
            meeting.come(); // both will read
        }
        CHECK(cudaMemcpyAsync(host[i], sum[i], BYTES, cudaMemcpyDeviceToHost, s[i]));
        CHECK(cudaStreamSynchronize(s[i]));
    };
    std::thread other(drive, 1);
    drive(0);
    other.join();
    for (int i = 0; i < 2; i++) expect_all(host[i], N, float(rounds * (rounds + 1) / 2 + rounds * (1 - i)));
    settle();
    for (int i = 0; i < 2; i++) {
        CHECK(cudaFree(inbox[i]));
        CHECK(cudaFree(sum[i]));
        CHECK(cudaFreeHost(host[i]));
    }
}
