"""CuPy work captured from a stream and launched again and again."""

import cupy
import cupyx


def main() -> None:
    host = cupyx.empty_pinned((1,), dtype=cupy.float64)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        a = cupy.arange(1 << 16, dtype=cupy.float64)
        b = cupy.zeros_like(a)
        cupy.add(a, 1, out=b)
        stream.begin_capture()
        cupy.multiply(a, 2, out=b)
        cupy.add(b, 1, out=a)
        graph = stream.end_capture()
        a[...] = 1
        for _ in range(20):
            graph.launch(stream)
        a.sum(keepdims=True).get(stream=stream, out=host)
    stream.synchronize()
    print(f"checksum {host[0]:.1f}")


main()
