"""PyTorch as its users run it, small enough that the host is what a step waits for."""

import torch
from torch import nn
from turns import take_turns


def train():
    """A step of training: a batch from pinned memory, forward, backward, optimizer."""
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(8))).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batches = torch.randn(16, 32, 64).pin_memory()
    goals = torch.randn(16, 32, 64).pin_memory()
    turn, loss = 0, None

    def step():
        nonlocal turn, loss
        x = batches[turn % 16].to("cuda", non_blocking=True)
        y = goals[turn % 16].to("cuda", non_blocking=True)
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        turn += 1
        torch.cuda.synchronize()

    return step, lambda: f"{loss.item():.4f}"


def infer():
    """A small transformer, one sequence at a time."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(128, 4, 256, batch_first=True)
    model = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False).cuda().eval()
    inputs = torch.randn(16, 1, 24, 128).pin_memory()
    result = torch.empty(128).pin_memory()
    turn = 0

    @torch.no_grad()
    def step():
        nonlocal turn
        x = inputs[turn % 16].to("cuda", non_blocking=True)
        result.copy_(model(x)[0, -1], non_blocking=True)
        turn += 1
        torch.cuda.synchronize()

    return step, lambda: f"{result.abs().mean().item():.4f}"


if __name__ == "__main__":
    take_turns({"train": train, "infer": infer})
