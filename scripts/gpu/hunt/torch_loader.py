# warn: SC201
# run: PYTORCH_CUDA_ALLOC_CONF=backend:native
# run: PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync
# run: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
"""Training with a DataLoader of pinned batches, copied without blocking; a second stream that
evaluates a frozen copy of the model, with record_stream and events."""

import copy

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(2048, 128), torch.randint(0, 10, (2048,)))
    loader = DataLoader(data, batch_size=128, pin_memory=True, num_workers=2, shuffle=False)
    model = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.LayerNorm(256), nn.Linear(256, 10)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    scaler = torch.amp.GradScaler("cuda")
    side = torch.cuda.Stream()
    scores = torch.zeros(3, dtype=torch.float64).pin_memory()
    losses = torch.zeros((), dtype=torch.float64, device="cuda")
    for epoch in range(3):
        for x, y in loader:
            x, y = x.cuda(non_blocking=True), y.cuda(non_blocking=True)
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cuda", dtype=torch.float16):
                loss = nn.functional.cross_entropy(model(x), y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            losses += loss.detach()
        frozen = copy.deepcopy(model).eval()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side), torch.no_grad():
            for tensor in (x, y, *frozen.parameters()):
                tensor.record_stream(side)
            hits = (frozen(x).argmax(1) == y).double().sum()
            scores[epoch : epoch + 1].copy_(hits.reshape(1), non_blocking=True)
            done = side.record_event()
        del frozen, x, y
    done.synchronize()
    assert 0 <= scores.sum().item() <= 3 * 128
    print(f"loss {losses.item() / 48:.2f}")


if __name__ == "__main__":
    main()
