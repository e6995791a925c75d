# run: right => none
# run: right PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync => none
# run: read PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync => SC101|SC105|SC109
# warn: SC201
"""DistributedDataParallel over NCCL, a process for each device: batches come from pinned memory on a
stream of their own, and every step's loss is averaged over the ranks and copied to the host on a side
stream, for a log. `read` leaves out that stream's wait for the all-reduce."""

import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 120


def main() -> None:
    mode = sys.argv[1]
    rank = int(os.environ["RANK"])
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    model = DistributedDataParallel(model.to(device), device_ids=[device.index])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(rank)
    data = torch.randn(8, 128, 256, generator=generator).pin_memory()
    labels = torch.randint(0, 10, (8, 128), generator=generator).pin_memory()
    ahead, log = torch.cuda.Stream(), torch.cuda.Stream()
    history = torch.zeros(STEPS, pin_memory=True)

    def fetch(step: int):
        with torch.cuda.stream(ahead):
            return [part[step % 8].to(device, non_blocking=True) for part in (data, labels)]

    following = fetch(0)
    times = []
    steps = STEPS if mode == "right" else 6
    for step in range(steps):
        torch.cuda.synchronize()
        start = time.perf_counter()
        torch.cuda.current_stream().wait_stream(ahead)
        x, y = following
        for part in (x, y):
            part.record_stream(torch.cuda.current_stream())
        following = fetch(step + 1)
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

        if mode == "read":
            torch.cuda._sleep(50_000_000)  # the all-reduce is pending when it is read
        mean = loss.detach().clone()
        work = dist.all_reduce(mean, op=dist.ReduceOp.AVG, async_op=True)
        with torch.cuda.stream(log):
            if mode == "right":
                work.wait()
            history[step].copy_(mean, non_blocking=True)
        mean.record_stream(log)
        if mode == "read":
            work.wait()
            log.synchronize()
            history[step].copy_(mean, non_blocking=True)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    weights = sum(parameter.detach().double().sum() for parameter in model.parameters())
    both = [torch.zeros_like(weights) for _ in range(2)]
    dist.all_gather(both, weights)
    assert torch.equal(both[0], both[1])
    assert history[:steps].isfinite().all()
    assert mode != "right" or history[-1] < history[0]
    if rank == 0:
        if mode == "right":
            print(f"step {statistics.median(times[20:]) * 1e6:.1f} us")
        print(f"checksum {history.sum().item():.3f} {weights.item():.3f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


main()
