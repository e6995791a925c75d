"""CuPy with pinned buffers in a ring: the CPU fills one and checks another while a third is on its way, on
two streams with events."""

import cupy
import cupyx

N = 100_000
SLOTS = 3
ROUNDS = 30


def main() -> None:
    up, down = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream(non_blocking=True)
    sources = [cupyx.zeros_pinned((N,), dtype=cupy.float32) for _ in range(SLOTS)]
    results = [cupyx.zeros_pinned((N,), dtype=cupy.float32) for _ in range(SLOTS)]
    with up:
        arrays = [cupy.zeros((N,), dtype=cupy.float32) for _ in range(SLOTS)]
    up.synchronize()
    arrived = [None] * SLOTS
    total = 0.0
    for turn in range(ROUNDS + SLOTS):
        slot = turn % SLOTS
        if arrived[slot] is not None:
            arrived[slot].synchronize()
            assert (results[slot] == 3 * (turn - SLOTS) + 1).all()
            total += float(results[slot].sum(dtype="float64"))
        if turn >= ROUNDS:
            continue
        sources[slot][...] = turn
        with up:
            arrays[slot].set(sources[slot], stream=up)
            cupy.multiply(arrays[slot], 3, out=arrays[slot])
            cupy.add(arrays[slot], 1, out=arrays[slot])
            computed = up.record()
        down.wait_event(computed)
        arrays[slot].get(stream=down, out=results[slot], blocking=False)
        arrived[slot] = down.record()
    print(f"checksum {total:.0f}")


if __name__ == "__main__":
    main()
