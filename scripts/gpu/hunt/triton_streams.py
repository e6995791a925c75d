# run: PYTORCH_CUDA_ALLOC_CONF=backend:native
# run: PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync
"""Triton kernels on two streams, the second after the first by an event; a row-wise softmax between."""

import torch
import triton
import triton.language as tl


@triton.jit
def scale_kernel(x, out, n, factor, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * factor, mask=at < n)


@triton.jit
def softmax_kernel(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    values = tl.load(x + row * columns + at, mask=at < columns, other=-float("inf"))
    values = tl.exp(values - tl.max(values, axis=0))
    tl.store(out + row * columns + at, values / tl.sum(values, axis=0), mask=at < columns)


def main() -> None:
    rows, columns = 512, 1000
    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    host = torch.empty(10, dtype=torch.float64).pin_memory()
    for turn in range(10):
        with torch.cuda.stream(first):
            x = torch.arange(rows * columns, device="cuda", dtype=torch.float32).view(rows, columns) % 17
            y = torch.empty_like(x)
            scale_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), 0.1, BLOCK=1024)
            ready = first.record_event()
        second.wait_event(ready)
        with torch.cuda.stream(second):
            z = torch.empty_like(y)
            softmax_kernel[(rows,)](y, z, columns, BLOCK=1024)
            y.record_stream(second)
            host[turn : turn + 1].copy_(z.double().sum().reshape(1), non_blocking=True)
    torch.cuda.synchronize()
    assert (abs(host - rows) < 0.1).all(), host
    print(f"checksum {host.sum().item():.1f}")


main()
