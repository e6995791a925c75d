"""CuPy with its stream-ordered pool, two streams and the event between them: nothing to find."""

import cupy
import cupyx


def main() -> None:
    cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc)
    host = cupyx.empty_pinned((1,), dtype=cupy.float64)
    first = cupy.cuda.Stream(non_blocking=True)
    second = cupy.cuda.Stream(non_blocking=True)

    with first:
        a = cupy.arange(1 << 20, dtype=cupy.float64)
        b = a * 2
        ready = first.record()
    second.wait_event(ready)
    with second:
        total = (b + 1).sum(keepdims=True)
        total.get(stream=second, out=host)
    second.synchronize()
    print(f"checksum {host[0]:.1f}")
    with first:
        del a, b
    with second:
        del total
    first.synchronize()
    second.synchronize()


if __name__ == "__main__":
    main()
