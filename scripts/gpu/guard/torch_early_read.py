"""A result comes back with non_blocking=True. `early` reads the tensor at once, and `good` when it has
waited for the device."""

import sys

import torch


def main() -> None:
    numbers = torch.arange(1 << 18, dtype=torch.float32, device="cuda")
    torch.cuda.synchronize()
    torch.cuda._sleep(100_000_000)
    host = (numbers * 2).to("cpu", non_blocking=True)
    values = host.numpy()
    if sys.argv[1] == "good":
        torch.cuda.synchronize()
    first = values[7]  # too early
    torch.cuda.synchronize()
    if sys.argv[1] == "good":
        assert first == 14, first
    print(f"sum {values.sum(dtype='float64'):.0f}")


if __name__ == "__main__":
    main()
