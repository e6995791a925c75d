"""A PyTorch tensor made on the current stream is used on a side stream.

`bad` does not wait; `good` does. Run with PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync, so that
tensors are stream-ordered allocations. The pause makes the result the same in practice: the two
streams are unordered all the same.
"""

import sys
import time

import torch


def main() -> None:
    wait = {"bad": False, "good": True}[sys.argv[1]]
    assert torch.cuda.get_allocator_backend() == "cudaMallocAsync"
    host = torch.empty(1, dtype=torch.float64, pin_memory=True)
    side = torch.cuda.Stream()

    x = torch.ones(1 << 20, dtype=torch.float64, device="cuda")
    time.sleep(0.3)
    if wait:
        side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        y = x * 2
        total = y.sum()
        host[0:1].copy_(total.reshape(1), non_blocking=True)
    torch.cuda.synchronize()
    print(f"checksum {host[0].item():.1f}")


if __name__ == "__main__":
    main()
