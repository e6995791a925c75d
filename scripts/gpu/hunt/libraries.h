// What the programs with libraries share: three rounds of a library's work, each on a stream of its own
// with memory from cudaMalloc or from cudaMallocAsync.
#pragma once

#include "hunt.h"

// Memory as the program's run says: stream-ordered, or of the device.
struct Memory {
    bool ordered;

    explicit Memory(int argc, char **argv) : ordered(argc > 1 && !strcmp(argv[1], "async")) {}

    template <typename T> T *get(size_t count, cudaStream_t s) const {
        if (!count) count = 1;
        return ordered ? async<T>(count, s) : device<T>(count);
    }

    // The work with it may still be pending in `s`, and in no other stream.
    void put(void *p, cudaStream_t s) const {
        if (ordered) {
            CHECK(cudaFreeAsync(p, s));
        } else {
            CHECK(cudaStreamSynchronize(s));
            CHECK(cudaFree(p));
        }
    }
};
