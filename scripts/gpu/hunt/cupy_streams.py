# run: pool
# run: async
"""CuPy on three streams: pinned memory pools, the caching pool or the stream-ordered one, events
between the streams, kernels of its own and cuBLAS's."""

import sys

import cupy
import cupyx


def main() -> None:
    if sys.argv[1] == "async":
        cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc)
    else:
        cupy.cuda.set_allocator(cupy.cuda.MemoryPool().malloc)
    cupy.cuda.set_pinned_memory_allocator(cupy.cuda.PinnedMemoryPool().malloc)
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(3)]
    triple = cupy.ElementwiseKernel("float64 x", "float64 y", "y = 3 * x", "triple")
    total = 0.0
    for turn in range(10):
        source = cupyx.empty_pinned((256, 256), dtype=cupy.float64)
        source[...] = turn
        target = cupyx.empty_pinned((256, 256), dtype=cupy.float64)
        first, second, third = streams
        with first:
            a = cupy.empty((256, 256), dtype=cupy.float64)
            a.set(source, stream=first)
            copied = first.record()
        second.wait_event(copied)
        with second:
            b = triple(a)
            c = b @ b
            made = second.record()
        third.wait_event(made)
        with third:
            d = cupy.sqrt(c) + a
            d.get(stream=third, out=target)
        third.synchronize()
        assert (abs(target - (48 * turn + turn)) < 1e-6).all(), target
        total += float(target.sum())
        # Each array dies with its own stream current; all work with it is done.
        with first:
            del a
        with second:
            del b, c
        with third:
            del d
    for stream in streams:
        stream.synchronize()
    print(f"total {total:.1f}")


main()
