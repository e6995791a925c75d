"""A compiled JAX loop whose steps XLA turns into command buffers, which are graphs."""

import os

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
os.environ["XLA_FLAGS"] = (os.environ.get("XLA_FLAGS", "")
                           + " --xla_gpu_graph_min_graph_size=1"
                           + " --xla_gpu_enable_command_buffer=FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL,CUDNN")
import jax
import jax.numpy as jnp

jax.config.update("jax_default_matmul_precision", "highest")


@jax.jit
def step(x, w):
    for _ in range(4):
        x = jnp.tanh(x @ w) / 2 + jnp.sin(x).mean(axis=0)
    return x


def main() -> None:
    key = jax.random.PRNGKey(0)
    x = jax.random.normal(key, (256, 256))
    w = jax.random.normal(key, (256, 256)) * 0.01
    for _ in range(50):
        x = step(x, w)
    print(f"checksum {float(x.sum()):.1f}")


main()
