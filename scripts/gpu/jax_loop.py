"""A compiled JAX loop with donated and fresh buffers."""

import os

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
import jax
import jax.numpy as jnp


@jax.jit
def step(x, w):
    return jnp.tanh(x @ w) + x


def main() -> None:
    key = jax.random.PRNGKey(0)
    x = jax.random.normal(key, (256, 256))
    w = jax.random.normal(key, (256, 256)) * 0.01
    for _ in range(50):
        x = step(x, w)
    print(f"checksum {float(x.sum()):.1f}")


main()
