"""CuPy with its caching pool and with the stream-ordered one."""

import cupy
import cupyx
from turns import take_turns


def loop(pool):
    """Kernels, a product and arrays that come and go, all of them from `pool`."""
    def make():
        memory = pool()
        source = cupyx.empty_pinned((64, 64), dtype=cupy.float64)
        source[...] = 0.5
        result = cupyx.empty_pinned((64, 64), dtype=cupy.float64)
        stream = cupy.cuda.Stream(non_blocking=True)
        with cupy.cuda.using_allocator(memory.malloc), stream:
            state = cupy.full((64, 64), 0.25, dtype=cupy.float64)

        def step():
            nonlocal state
            with cupy.cuda.using_allocator(memory.malloc), stream:
                batch = cupy.empty((64, 64), dtype=cupy.float64)
                batch.set(source, stream=stream)
                product = state @ batch
                state = cupy.tanh(product * 0.03 + batch) * 0.5
                state.get(stream=stream, out=result)
                del batch, product
            stream.synchronize()

        return step, lambda: f"{abs(result).sum():.6f}"

    return make


if __name__ == "__main__":
    take_turns({"pool": loop(cupy.cuda.MemoryPool), "async": loop(cupy.cuda.MemoryAsyncPool)})
