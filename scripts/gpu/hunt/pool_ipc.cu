// nvcc: -lcuda
// Two processes share a pool by file descriptor: the exporter makes and fills a block and waits; the
// importer reads it and frees its view; then the exporter frees.
#include "hunt.h"
#include <cstdint>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static void send_fd(int socket, int fd) {
    char byte = 0, control[CMSG_SPACE(sizeof(int))] = {};
    iovec io = {&byte, 1};
    msghdr message = {};
    message.msg_iov = &io;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
    REQUIRE(sendmsg(socket, &message, 0) == 1);
}

static int receive_fd(int socket) {
    char byte, control[CMSG_SPACE(sizeof(int))];
    iovec io = {&byte, 1};
    msghdr message = {};
    message.msg_iov = &io;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    if (recvmsg(socket, &message, 0) != 1) exit(5);
    int fd;
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    return fd;
}

static int importer(int socket) {
    int fd = receive_fd(socket);
    cudaMemPoolPtrExportData exported;
    REQUIRE(read(socket, &exported, sizeof exported) == sizeof exported);
    cudaMemPool_t pool;
    CHECK(cudaMemPoolImportFromShareableHandle(&pool, (void *)(uintptr_t)fd, cudaMemHandleTypePosixFileDescriptor, 0));
    float *shared, *host = pinned<float>(N);
    CHECK(cudaMemPoolImportPointer((void **)&shared, pool, &exported));
    cudaStream_t s = new_stream();
    float *copy = async<float>(N, s);
    scale(shared, copy, N, 2, 0, s);
    CHECK(cudaMemcpyAsync(host, copy, BYTES, cudaMemcpyDeviceToHost, s));
    CHECK(cudaFreeAsync(copy, s));
    CHECK(cudaFreeAsync(shared, s));
    CHECK(cudaStreamSynchronize(s));
    for (int i = 0; i < N; i++) REQUIRE(host[i] == 10);
    CHECK(cudaFreeHost(host));
    CHECK(cudaMemPoolDestroy(pool));
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
    int handle_types = 0;
    CHECK(cudaDeviceGetAttribute(&handle_types, cudaDevAttrMemoryPoolSupportedHandleTypes, 0));
    if (!(handle_types & cudaMemHandleTypePosixFileDescriptor)) skip("no pools with file descriptors");
    cudaMemPoolProps props = {};
    props.allocType = cudaMemAllocationTypePinned;
    props.handleTypes = cudaMemHandleTypePosixFileDescriptor;
    props.location = {cudaMemLocationTypeDevice, 0};
    cudaMemPool_t pool;
    CHECK(cudaMemPoolCreate(&pool, &props));
    int fd = -1;
    CHECK(cudaMemPoolExportToShareableHandle(&fd, pool, cudaMemHandleTypePosixFileDescriptor, 0));
    cudaStream_t s = new_stream();
    float *p;
    CHECK(cudaMallocFromPoolAsync((void **)&p, BYTES, pool, s));
    fill(p, N, 5.0f, s);
    CHECK(cudaStreamSynchronize(s));
    cudaMemPoolPtrExportData exported;
    CHECK(cudaMemPoolExportPointer(&exported, p));
    send_fd(sockets[0], fd);
    REQUIRE(write(sockets[0], &exported, sizeof exported) == sizeof exported);
    int status = -1;
    REQUIRE(waitpid(child, &status, 0) == child);
    REQUIRE(status == 0);
    CHECK(cudaFreeAsync(p, s));
    CHECK(cudaStreamSynchronize(s));
    CHECK(cudaMemPoolDestroy(pool));
    printf("shared %d\n", 10);
}
