# warn: SC201
"""A captured training step that is replayed with new data copied into its fixed inputs."""

import torch
from torch import nn


def main() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.Tanh(), nn.Linear(128, 1)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x, y = torch.zeros(256, 64, device="cuda"), torch.zeros(256, 1, device="cuda")
    inputs = torch.randn(20, 256, 64).pin_memory()

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        loss = step()
    total = torch.zeros((), dtype=torch.float64, device="cuda")
    for batch in inputs:
        x.copy_(batch, non_blocking=True)
        y.copy_(x.sum(1, keepdim=True) * 0.1)
        graph.replay()
        total += loss.detach()
    print(f"loss {total.item():.2f}")


main()
