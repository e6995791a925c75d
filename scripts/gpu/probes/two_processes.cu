// Does closing another process's memory wait for work, and what does its owner's free wait for?
#include "probe.h"
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static void put(int socket) {
    if (write(socket, "x", 1) != 1) exit(5);
}

static void take(int socket) {
    char byte;
    if (read(socket, &byte, 1) != 1) exit(5);
}

static void importer(int socket) {
    cudaIpcMemHandle_t handle;
    if (read(socket, &handle, sizeof handle) != sizeof handle) exit(5);
    warm_up();
    cudaStream_t s = nonblocking_stream();
    void *p;
    CHECK(cudaIpcOpenMemHandle(&p, handle, cudaIpcMemLazyEnablePeerAccess));
    spin(s);
    ask("does cudaIpcCloseMemHandle wait for pending work", [&] { CHECK(cudaIpcCloseMemHandle(p)); });
    CHECK(cudaIpcOpenMemHandle(&p, handle, cudaIpcMemLazyEnablePeerAccess));
    spin(s);
    put(socket);
    take(socket);
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaIpcCloseMemHandle(p));
    fflush(stdout);
    _exit(0);
}

int main() {
    int sockets[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0) return 5;
    pid_t child = fork(); // before any call to CUDA
    if (child == 0) {
        close(sockets[0]);
        importer(sockets[1]);
    }
    close(sockets[1]);
    warm_up();
    void *p;
    cudaIpcMemHandle_t handle;
    CHECK(cudaMalloc(&p, 4 << 20));
    CHECK(cudaIpcGetMemHandle(&handle, p));
    if (write(sockets[0], &handle, sizeof handle) != sizeof handle) return 5;
    take(sockets[0]);
    ask("does cudaFree of exported memory wait for the importer's work", [&] { CHECK(cudaFree(p)); });
    put(sockets[0]);
    int status = -1;
    waitpid(child, &status, 0);
    return status == 0 ? 0 : 6;
}
