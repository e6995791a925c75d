"""Matrix products (cuBLAS), convolutions (cuDNN) and FFTs (cuFFT) on several PyTorch streams, ordered
by events. Correct."""

import torch


def main() -> None:
    torch.manual_seed(0)
    streams = [torch.cuda.Stream() for _ in range(3)]
    a = torch.randn(512, 512, device="cuda")
    image = torch.randn(4, 8, 64, 64, device="cuda")
    filters = torch.randn(16, 8, 3, 3, device="cuda")
    made = torch.cuda.Event()
    made.record()
    results = []
    for step, stream in enumerate(streams):
        stream.wait_event(made)
        with torch.cuda.stream(stream):
            b = a @ a * (step + 1)
            c = torch.nn.functional.conv2d(image, filters).sum()
            d = torch.fft.rfft(b).abs().sum()
            results.append((b.sum(), c, d))
    for stream in streams:
        torch.cuda.current_stream().wait_stream(stream)
    total = sum(sum(part.double() for part in result) for result in results)
    print(f"checksum {total.item():.0f}")


main()
