# warn: SC201
# run: XLA_PYTHON_CLIENT_ALLOCATOR=default
# run: XLA_PYTHON_CLIENT_ALLOCATOR=platform
# run: XLA_PYTHON_CLIENT_ALLOCATOR=cuda_async
"""A JAX loop that is fed by device_put, with donated state and results read back late."""

import functools
import os

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
import jax
import jax.numpy as jnp
import numpy


@functools.partial(jax.jit, donate_argnums=0)
def step(state, batch):
    grad = jax.grad(lambda w: jnp.mean((jnp.tanh(batch @ w) - 0.5) ** 2))(state)
    return state - 0.1 * grad, jnp.sum(batch)


def main() -> None:
    rng = numpy.random.default_rng(0)
    batches = [rng.random((256, 128), dtype=numpy.float32) for _ in range(30)]
    state = jax.device_put(numpy.full((128, 32), 0.01, dtype=numpy.float32))
    following = jax.device_put(batches[0])
    sums = []
    for i in range(len(batches)):
        batch = following
        if i + 1 < len(batches):
            following = jax.device_put(batches[i + 1])
        state, total = step(state, batch)
        sums.append(total)
    print(f"sums {sum(float(s) for s in sums):.0f} state {float(jnp.abs(state).mean()):.3f}")


main()
