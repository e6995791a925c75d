// run: pool => none
// run: memory => none
// One process fills memory of device 0, a pool's or its own, and records an interprocess event; the other, a
// program of its own, waits for the event and reads the memory, on device 1 where CUDA lets it. It gives its
// view back before the first process frees.
#include "multi.h"
#include <cstdint>
#include <string>
#include <sys/socket.h>
#include <sys/wait.h>

struct Handles {
    cudaMemPoolPtrExportData pointer;
    cudaIpcMemHandle_t memory;
    cudaIpcEventHandle_t filled;
};

struct Control {
    alignas(cmsghdr) char bytes[CMSG_SPACE(sizeof(int))] = {};
};

static msghdr message_of(iovec &io, Control &control) {
    msghdr message = {};
    message.msg_iov = &io;
    message.msg_iovlen = 1;
    message.msg_control = control.bytes;
    message.msg_controllen = sizeof control.bytes;
    return message;
}

// The handles, and with them a file descriptor.
static void send_handles(int socket, Handles &handles, int fd) {
    iovec io = {&handles, sizeof handles};
    Control control;
    msghdr message = message_of(io, control);
    cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
    REQUIRE(sendmsg(socket, &message, 0) == sizeof handles);
}

static int receive_handles(int socket, Handles &handles) {
    iovec io = {&handles, sizeof handles};
    Control control;
    msghdr message = message_of(io, control);
    if (recvmsg(socket, &message, MSG_WAITALL) != sizeof handles) exit(5);
    int fd;
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    return fd;
}

static int importer(bool pooled, int socket) {
    Handles handles;
    int fd = receive_handles(socket, handles);
    float *shared;
    int reader = 0;
    cudaEvent_t filled;
    cudaMemPool_t pool;
    on(0);
    if (cudaIpcOpenEventHandle(&filled, handles.filled) != cudaSuccess) skip("no interprocess events");
    cudaStream_t s0 = new_stream();
    if (pooled) {
        CHECK(cudaMemPoolImportFromShareableHandle(&pool, (void *)(uintptr_t)fd, cudaMemHandleTypePosixFileDescriptor, 0));
        cudaMemAccessDesc access = {{cudaMemLocationTypeDevice, 1}, cudaMemAccessFlagsProtReadWrite};
        reader = cudaMemPoolSetAccess(pool, &access, 1) == cudaSuccess;
        CHECK(cudaMemPoolImportPointer((void **)&shared, pool, &handles.pointer));
        on(reader);
    } else {
        on(1);
        reader = cudaIpcOpenMemHandle((void **)&shared, handles.memory, cudaIpcMemLazyEnablePeerAccess) == cudaSuccess;
        if (!reader) {
            on(0);
            cudaError_t refused = cudaIpcOpenMemHandle((void **)&shared, handles.memory, cudaIpcMemLazyEnablePeerAccess);
            if (refused != cudaSuccess) skip(cudaGetErrorName(refused));
        }
    }
    (void)cudaGetLastError();
    fprintf(stderr, "the importer reads on device %d\n", reader);
    cudaStream_t s1 = new_stream();
    float *copy = device<float>(N), *host = pinned<float>(N);
    // In a stream of the event's own device: elsewhere the wait for an imported event ends the process (driver 580).
    on(0);
    CHECK(cudaStreamWaitEvent(s0, filled, 0));
    on(reader);
    across(0, s0, s1);
    scale(shared, copy, N, 2, 0, s1);
    CHECK(cudaMemcpyAsync(host, copy, BYTES, cudaMemcpyDeviceToHost, s1));
    if (pooled) {
        across(reader, s1, s0);
        CHECK(cudaFreeAsync(shared, s0));
        CHECK(cudaStreamSynchronize(s0));
        CHECK(cudaMemPoolDestroy(pool));
    } else {
        CHECK(cudaStreamSynchronize(s1));
        CHECK(cudaIpcCloseMemHandle(shared));
    }
    for (int i = 0; i < N; i++) REQUIRE(host[i] == 10);
    CHECK(cudaEventDestroy(filled));
    CHECK(cudaFree(copy));
    CHECK(cudaFreeHost(host));
    return 0;
}

int main(int argc, char **argv) {
    bool pooled = said(argc, argv, 1, "pool");
    if (argc > 2) return importer(pooled, atoi(argv[2]));
    int sockets[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets) == 0);
    pid_t child = fork(); // before any call to CUDA
    if (child == 0) {
        close(sockets[0]);
        execl("/proc/self/exe", argv[0], argv[1], std::to_string(sockets[1]).c_str(), (char *)nullptr);
        _exit(5);
    }
    close(sockets[1]);
    need_peers();
    on(0);
    cudaStream_t s = new_stream();
    cudaEvent_t filled;
    CHECK(cudaEventCreateWithFlags(&filled, cudaEventDisableTiming | cudaEventInterprocess));
    Handles handles = {};
    cudaMemPool_t pool;
    float *p;
    int fd = 0;
    if (pooled) {
        int kinds = 0;
        CHECK(cudaDeviceGetAttribute(&kinds, cudaDevAttrMemoryPoolSupportedHandleTypes, 0));
        if (!(kinds & cudaMemHandleTypePosixFileDescriptor)) skip("no pools with file descriptors");
        cudaMemPoolProps props = {};
        props.allocType = cudaMemAllocationTypePinned;
        props.handleTypes = cudaMemHandleTypePosixFileDescriptor;
        props.location = {cudaMemLocationTypeDevice, 0};
        if (cudaMemPoolCreate(&pool, &props) != cudaSuccess) skip("no pools to share");
        if (cudaMemPoolExportToShareableHandle(&fd, pool, cudaMemHandleTypePosixFileDescriptor, 0) != cudaSuccess)
            skip("no pools to share");
        CHECK(cudaMallocFromPoolAsync((void **)&p, BYTES, pool, s));
    } else {
        p = device<float>(N);
        if (cudaIpcGetMemHandle(&handles.memory, p) != cudaSuccess) skip("no interprocess memory");
    }
    busy(s, 100);
    fill(p, N, 5.0f, s);
    CHECK(cudaEventRecord(filled, s));
    if (pooled) CHECK(cudaMemPoolExportPointer(&handles.pointer, p));
    CHECK(cudaIpcGetEventHandle(&handles.filled, filled));
    send_handles(sockets[0], handles, fd);
    int status = -1;
    REQUIRE(waitpid(child, &status, 0) == child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) return 77;
    if (status != 0) fprintf(stderr, "the importer's status is %#x\n", status);
    REQUIRE(status == 0);
    if (pooled) {
        CHECK(cudaFreeAsync(p, s));
        CHECK(cudaStreamSynchronize(s));
        CHECK(cudaMemPoolDestroy(pool));
    } else {
        CHECK(cudaStreamSynchronize(s));
        CHECK(cudaFree(p));
    }
    printf("shared 10\n");
}
