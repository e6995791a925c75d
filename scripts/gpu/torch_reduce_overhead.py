"""A model compiled with mode="reduce-overhead", which replays graphs, in inference and in training."""

import sys

import torch
from torch import nn


def main() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 10)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs = torch.randn(12, 64, 128).pin_memory()
    labels = torch.randint(0, 10, (12, 64)).pin_memory()
    try:
        compiled = torch.compile(model, mode="reduce-overhead")
        with torch.no_grad():
            compiled(inputs[0].cuda())
    except Exception as error:
        print(f"torch.compile does not work here: {str(error).splitlines()[0]}", file=sys.stderr)
        sys.exit(77)
    total = 0.0
    for batch, label in zip(inputs, labels):
        torch.compiler.cudagraph_mark_step_begin()
        x, y = batch.to("cuda", non_blocking=True), label.to("cuda", non_blocking=True)
        loss = nn.functional.cross_entropy(compiled(x), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        total += loss.item()
    with torch.no_grad():
        for batch in inputs:
            torch.compiler.cudagraph_mark_step_begin()
            total += compiled(batch.cuda(non_blocking=True)).float().sum().item()
    print(f"checksum {total:.1f}")


main()
