"""PyTorch work captured in a graph and replayed: `train` and `infer` are correct; `freed` lets a
tensor go that the captured work reads, makes others of its size, and replays.

With PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync the tensor that goes is freed at once, and its
memory handed out again.
"""

import gc
import sys

import torch
from torch import nn


def warmed_up(work):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(side)


def train() -> float:
    model = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 10)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, capturable=True)
    x = torch.zeros(64, 128, device="cuda")
    y = torch.zeros(64, dtype=torch.long, device="cuda")
    inputs = torch.randn(30, 64, 128).pin_memory()
    labels = torch.randint(0, 10, (30, 64)).pin_memory()

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    warmed_up(step)
    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        loss = step()
    total = 0.0
    for batch, label in zip(inputs, labels):
        x.copy_(batch, non_blocking=True)
        y.copy_(label, non_blocking=True)
        graph.replay()
        total += loss.item()
    return total


def infer() -> float:
    """Two graphs that share a memory pool, replayed one after the other."""
    model = nn.Sequential(nn.Linear(128, 256), nn.GELU(), nn.Linear(256, 128)).cuda().eval()
    x = torch.zeros(64, 128, device="cuda")
    total = torch.zeros((), dtype=torch.float64, device="cuda")
    with torch.no_grad():
        warmed_up(lambda: model(x))
        first, second = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        with torch.cuda.graph(first):
            hidden = model(x)
        with torch.cuda.graph(second, pool=first.pool()):
            out = model(hidden)
        for seed in range(50):
            x.fill_(seed / 50)
            first.replay()
            second.replay()
            total += out.double().sum()
    return total.item()


def freed() -> float:
    x = torch.ones(1 << 20, device="cuda")
    y = torch.zeros(1 << 20, device="cuda")
    warmed_up(lambda: torch.add(x, 1, out=y))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        torch.add(x, 1, out=y)
    del x
    gc.collect()
    others = [torch.full((1 << 20,), 5.0, device="cuda") for _ in range(2)]
    graph.replay()
    torch.cuda.synchronize()
    # What it comes to is no one's to say.
    del others
    return 0.0


def main() -> None:
    torch.manual_seed(0)
    print(f"checksum {globals()[sys.argv[1]]():.2f}")


if __name__ == "__main__":
    main()
