"""A PyTorch training loop as people write it: pinned batches copied ahead on a side stream, a small
model, an optimizer. Correct; its losses are the same with the tool and without."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(False)
    data = TensorDataset(torch.randn(2048, 256), torch.randint(0, 10, (2048,)))
    loader = DataLoader(data, batch_size=128, pin_memory=True, num_workers=0)
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    ahead = torch.cuda.Stream()

    def fetch(batch):
        with torch.cuda.stream(ahead):
            return [part.to("cuda", non_blocking=True) for part in batch]

    total = 0.0
    for _ in range(3):
        batches = iter(loader)
        following = fetch(next(batches))
        while following is not None:
            torch.cuda.current_stream().wait_stream(ahead)
            x, y = following
            for part in (x, y):
                part.record_stream(torch.cuda.current_stream())
            batch = next(batches, None)
            following = fetch(batch) if batch is not None else None
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            total += loss.item()
    print(f"checksum {total:.2f}")


main()
