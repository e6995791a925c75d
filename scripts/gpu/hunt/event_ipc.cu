// Two processes take turns on one cudaMalloc block, ordered by two interprocess events; the importer
// closes the block before the exporter frees it.
#include "hunt.h"
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

struct Handles {
    cudaIpcMemHandle_t memory;
    cudaIpcEventHandle_t mine, yours;
};

static void put(int socket) { REQUIRE(write(socket, "x", 1) == 1); }

static void take(int socket) {
    char byte;
    if (read(socket, &byte, 1) != 1) exit(5);
}

constexpr int ROUNDS = 10;

static int importer(int socket) {
    Handles handles;
    if (read(socket, &handles, sizeof handles) != sizeof handles) exit(5);
    float *shared;
    cudaEvent_t theirs, ours;
    CHECK(cudaIpcOpenMemHandle((void **)&shared, handles.memory, cudaIpcMemLazyEnablePeerAccess));
    CHECK(cudaIpcOpenEventHandle(&theirs, handles.mine));
    CHECK(cudaIpcOpenEventHandle(&ours, handles.yours));
    cudaStream_t s = new_stream();
    for (int i = 0; i < ROUNDS; i++) {
        take(socket); // their event is recorded
        CHECK(cudaStreamWaitEvent(s, theirs, 0));
        scale(shared, shared, N, 2, 0, s);
        CHECK(cudaEventRecord(ours, s));
        put(socket);
    }
    CHECK(cudaStreamSynchronize(s));
    CHECK(cudaIpcCloseMemHandle(shared));
    CHECK(cudaEventDestroy(theirs));
    CHECK(cudaEventDestroy(ours));
    return 0;
}

int main() {
    int sockets[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
    pid_t child = fork(); // before any call to CUDA
    if (child == 0) {
        close(sockets[0]);
        return importer(sockets[1]);
    }
    close(sockets[1]);
    float *p = device<float>(N), *host = pinned<float>(N);
    cudaEvent_t mine, yours;
    CHECK(cudaEventCreateWithFlags(&mine, cudaEventDisableTiming | cudaEventInterprocess));
    CHECK(cudaEventCreateWithFlags(&yours, cudaEventDisableTiming | cudaEventInterprocess));
    cudaStream_t s = new_stream();
    fill(p, N, 1.0f, s);
    Handles handles;
    if (cudaIpcGetMemHandle(&handles.memory, p) != cudaSuccess) skip("no interprocess memory");
    CHECK(cudaIpcGetEventHandle(&handles.mine, mine));
    CHECK(cudaIpcGetEventHandle(&handles.yours, yours));
    REQUIRE(write(sockets[0], &handles, sizeof handles) == sizeof handles);
    for (int i = 0; i < ROUNDS; i++) {
        scale(p, p, N, 1, 1, s);
        CHECK(cudaEventRecord(mine, s));
        put(sockets[0]);
        take(sockets[0]); // the other event is recorded
        CHECK(cudaStreamWaitEvent(s, yours, 0));
    }
    CHECK(cudaMemcpyAsync(host, p, BYTES, cudaMemcpyDeviceToHost, s));
    CHECK(cudaStreamSynchronize(s));
    expect_all(host, N, 3070.0f); // x -> 2 (x + 1), from 1, ten times
    int status = -1;
    REQUIRE(waitpid(child, &status, 0) == child);
    REQUIRE(status == 0);
    CHECK(cudaFree(p));
}
