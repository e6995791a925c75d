# run: TORCHINDUCTOR_COMPILE_THREADS=1
"""A compiled function in a loop, on the current stream and on a second one."""

import sys

import torch


def function(x, w):
    return torch.nn.functional.gelu(x * w + 1).sum(dim=-1, keepdim=True) * x


def main() -> None:
    torch.manual_seed(0)
    x, w = torch.randn(1024, 512, device="cuda"), torch.randn(512, device="cuda")
    expected = function(x, w)
    try:
        compiled = torch.compile(function)
        compiled(x, w)
    except Exception as error:
        print(f"torch.compile does not work here: {str(error).splitlines()[0]}", file=sys.stderr)
        sys.exit(77)
    side = torch.cuda.Stream()
    host = torch.empty(2, dtype=torch.float64).pin_memory()
    y = compiled(x, w)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        z = x
        for _ in range(10):
            z = compiled(z, w).clamp(-1, 1)
        host[0:1].copy_(z.double().sum().reshape(1), non_blocking=True)
    host[1:2].copy_((y - expected).abs().max().double().reshape(1), non_blocking=True)
    torch.cuda.synchronize()
    assert host[1].item() < 0.5, host
    print(f"checksum {host[0].item():.0f}")


main()
