# run: PYTORCH_CUDA_ALLOC_CONF=backend:native
# run: PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync
"""Inference: scaled dot product attention with a growing cache, requests in turn on two streams,
results brought back to pinned memory by events."""

import torch


def main() -> None:
    torch.manual_seed(0)
    streams = [torch.cuda.Stream() for _ in range(2)]
    weights = torch.randn(512, 1536, device="cuda", dtype=torch.float16) * 0.02
    prompts = torch.randn(6, 4, 64, 512).pin_memory()
    results = torch.empty(6, 4, 512).pin_memory()
    ready = torch.cuda.current_stream().record_event()
    done = []
    with torch.inference_mode():
        for request in range(6):
            stream = streams[request % 2]
            stream.wait_event(ready)
            with torch.cuda.stream(stream):
                x = prompts[request].to("cuda", non_blocking=True).half()
                keys = values = None
                for _ in range(8):
                    q, k, v = (x @ weights).view(4, -1, 8, 192).transpose(1, 2).split(64, dim=-1)
                    keys = k if keys is None else torch.cat([keys, k], 2)
                    values = v if values is None else torch.cat([values, v], 2)
                    mixed = torch.nn.functional.scaled_dot_product_attention(q, keys, values)
                    x = mixed.transpose(1, 2).reshape(4, -1, 512)[:, -1:]
                results[request].copy_(x[:, 0].float(), non_blocking=True)
                done.append(stream.record_event())
    total = 0.0
    for request, event in enumerate(done):
        event.synchronize()
        total += results[request].abs().double().mean().item()
    assert torch.isfinite(results).all()
    print(f"mean {total:.3f}")


main()
