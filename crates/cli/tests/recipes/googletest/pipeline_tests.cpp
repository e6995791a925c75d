// Two tests, of which the second uses memory on a stream that does not wait for its allocation.
#include <gtest/gtest.h>

#include <cstddef>

extern "C" {
int cudaStreamCreateWithFlags(void **stream, unsigned flags);
int cudaMallocAsync(void **memory, std::size_t size, void *stream);
int cudaMemsetAsync(void *memory, int value, std::size_t size, void *stream);
int cudaDeviceSynchronize(void);
}

static void *new_stream()
{
    void *stream = nullptr;
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream, 1), 0);
    return stream;
}

static void fill(void *allocating, void *filling)
{
    void *memory = nullptr;
    ASSERT_EQ(cudaMallocAsync(&memory, 4096, allocating), 0);
    ASSERT_EQ(cudaMemsetAsync(memory, 0, 4096, filling), 0);
    ASSERT_EQ(cudaDeviceSynchronize(), 0);
}

TEST(Pipeline, OneStream)
{
    void *stream = new_stream();
    fill(stream, stream);
}

TEST(Pipeline, TwoStreams)
{
    fill(new_stream(), new_stream());
}
