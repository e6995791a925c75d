"""A PyTorch training loop over a DataLoader of pinned batches, copied without blocking; each step's loss
comes to a pinned array and is read one step later, when its event has come. The argument: the loader's
worker processes."""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

STEPS_AN_EPOCH = 16


def main() -> None:
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(STEPS_AN_EPOCH * 128, 256), torch.randint(0, 10, (STEPS_AN_EPOCH * 128,)))
    loader = DataLoader(data, batch_size=128, pin_memory=True, num_workers=int(sys.argv[1]))
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = torch.zeros(3 * STEPS_AN_EPOCH, pin_memory=True)
    before = None
    total = 0.0
    step = 0
    for _ in range(3):
        for x, y in loader:
            x, y = x.cuda(non_blocking=True), y.cuda(non_blocking=True)
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            losses[step : step + 1].copy_(loss.detach().reshape(1), non_blocking=True)
            if before is not None:
                before.synchronize()
                total += losses[step - 1].item()
            before = torch.cuda.current_stream().record_event()
            step += 1
    before.synchronize()
    total += losses[step - 1].item()
    assert abs(losses.sum().item() - total) < 1e-2
    print(f"loss {total / step:.3f}")


if __name__ == "__main__":
    main()
