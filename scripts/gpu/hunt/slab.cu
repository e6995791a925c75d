// run: malloc
// run: async
// An allocator of the program's own: blocks of one slab, given out to streams and taken back with an
// event, which the next user's stream waits for. The slab is cudaMalloc memory, then a stream-ordered one.
#include "hunt.h"

constexpr int BLOCKS = 16, COUNT = 1 << 14;

struct Block {
    float *data;
    cudaEvent_t free_after;
    cudaStream_t last;
};

int main(int argc, char **argv) {
    bool ordered = argc > 1 && !strcmp(argv[1], "async");
    cudaStream_t s[4];
    for (auto &stream : s) stream = new_stream();
    float *slab = ordered ? async<float>(BLOCKS * COUNT, s[0]) : device<float>(BLOCKS * COUNT);
    for (int i = 1; i < 4; i++) join(s[0], s[i]);
    Block blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) blocks[i] = {slab + i * COUNT, new_event(), nullptr};
    float *host = pinned<float>(4 * COUNT);
    for (int i = 0; i < 400; i++) {
        cudaStream_t stream = s[i % 4];
        Block &in = blocks[(i * 2) % BLOCKS], &out = blocks[(i * 2 + 1) % BLOCKS];
        for (Block *block : {&in, &out})
            if (block->last && block->last != stream) CHECK(cudaStreamWaitEvent(stream, block->free_after, 0));
        fill(in.data, COUNT, float(i), stream);
        scale(in.data, out.data, COUNT, 2, 1, stream);
        CHECK(cudaMemcpyAsync(host + (i % 4) * COUNT, out.data, COUNT * sizeof(float), cudaMemcpyDeviceToHost, stream));
        for (Block *block : {&in, &out}) {
            CHECK(cudaEventRecord(block->free_after, stream));
            block->last = stream;
        }
    }
    for (int i = 1; i < 4; i++) join(s[i], s[0]);
    if (ordered) CHECK(cudaFreeAsync(slab, s[0]));
    CHECK(cudaStreamSynchronize(s[0]));
    for (int i = 0; i < 4; i++) expect_all(host + i * COUNT, COUNT, 2.0f * (396 + i) + 1);
    if (!ordered) CHECK(cudaFree(slab));
    CHECK(cudaFreeHost(host));
}
