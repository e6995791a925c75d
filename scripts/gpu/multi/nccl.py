# run: right => none
# run: right PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync => none
# run: read => SC101|SC109
# run: read PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync => SC101|SC105|SC109
# run: free PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync => SC103
# warn: SC201
"""NCCL collectives by torch.distributed, a process for each device.

A side stream copies what an asynchronous all-reduce makes to the host. `read` leaves out its wait for the
collective; `free` lets go of the tensor while the side stream's copy is pending, without record_stream.
"""

import os
import statistics
import sys
import time

import torch
import torch.distributed as dist

COUNT = 1 << 20
# Some tens of milliseconds: what is submitted meanwhile finds earlier work pending.
CYCLES = 50_000_000


def collectives(rank: int, device: torch.device) -> float:
    """Each kind once, results checked."""
    x = torch.full((COUNT,), rank + 1.0, device=device)
    dist.all_reduce(x)
    assert (x == 3).all()
    works = [torch.full((COUNT,), float(rank + i), device=device) for i in range(4)]
    handles = [dist.all_reduce(part, async_op=True) for part in works]
    for i, (part, handle) in enumerate(zip(works, handles)):
        handle.wait()
        assert (part == 2 * i + 1).all()
    gathered = torch.empty(2 * COUNT, device=device)
    dist.all_gather_into_tensor(gathered, x + rank)
    assert (gathered[:COUNT] == 3).all() and (gathered[COUNT:] == 4).all()
    scattered = torch.empty(COUNT, device=device)
    dist.reduce_scatter_tensor(scattered, gathered)
    assert (scattered == 6 + 2 * rank).all()
    dist.broadcast(scattered, src=1)
    assert (scattered == 8).all()
    other = torch.empty(COUNT, device=device)
    if rank == 0:
        dist.send(x, 1)
        dist.recv(other, 1)
    else:
        dist.recv(other, 0)
        dist.send(x, 0)
    assert (other == 3).all()
    return float(scattered.sum() + other.sum() + gathered.sum())


def reduced_on_side_stream(mode: str, rank: int, device: torch.device) -> float:
    """What the side stream read, and for `read`, whose copy may be early, what a correct one reads."""
    side = torch.cuda.Stream()
    source = torch.full((COUNT,), rank + 1.0).pin_memory()
    host = torch.empty(COUNT, pin_memory=True)
    x = torch.empty(COUNT, device=device)
    torch.cuda._sleep(CYCLES)
    x.copy_(source, non_blocking=True)
    work = dist.all_reduce(x, async_op=True)
    with torch.cuda.stream(side):
        if mode != "read":
            work.wait()
            torch.cuda._sleep(CYCLES)
        host.copy_(x, non_blocking=True)
    if mode == "read":
        work.wait()
        side.synchronize()
        host.copy_(x, non_blocking=True)
    if mode == "right":
        x.record_stream(side)
    del x, work
    side.synchronize()
    torch.cuda.synchronize()
    assert (host == 3).all()
    return float(host.double().sum())


def step_time(device: torch.device) -> float:
    """Median microseconds of an all-reduce between two kernels."""
    x = torch.ones(COUNT, device=device)
    times = []
    for _ in range(300):
        torch.cuda.synchronize()
        start = time.perf_counter()
        x.fill_(1.0)
        dist.all_reduce(x)
        x.mul_(0.5)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    assert (x == 1).all()
    return statistics.median(times[50:]) * 1e6


def main() -> None:
    mode = sys.argv[1]
    rank = int(os.environ["RANK"])
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    total = 0.0
    if mode == "right":
        total += collectives(rank, device)
    else:
        dist.all_reduce(torch.ones(1, device=device))
    torch.cuda.synchronize()
    total += reduced_on_side_stream(mode, rank, device)
    spent = step_time(device) if mode == "right" else None
    if rank == 0:
        if spent:
            print(f"step {spent:.1f} us")
        print(f"checksum {total:.1f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


main()
