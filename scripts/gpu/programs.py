"""The programs that gpu-check runs, and what each must come to."""

import collections
import dataclasses
from pathlib import Path

from runs import refuse

BUILDS = {
    "static": ["-cudart", "static"],
    "shared": ["-cudart", "shared"],
    "ptds": ["-cudart", "static", "-default-stream", "per-thread"],
}
ASYNC_BACKEND = {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}


@dataclasses.dataclass
class Real:
    """A program that was not written for this check."""

    name: str
    command: list
    env: dict
    # It must get at least one of these and nothing else; empty: none.
    expect: tuple = ()
    # Warnings that are true of it: it does copy pageable memory.
    also: tuple = ()


REAL = [
    Real("torch side stream, no wait", ["torch_side_stream.py", "bad"], ASYNC_BACKEND,
         ("SC101", "SC105", "SC109")),
    Real("torch side stream, waits", ["torch_side_stream.py", "good"], ASYNC_BACKEND),
    Real("torch training, caching allocator", ["torch_training.py"], {}, also=("SC201",)),
    Real("torch training, cudaMallocAsync", ["torch_training.py"], ASYNC_BACKEND, also=("SC201",)),
    Real("torch libraries on streams, caching allocator", ["torch_streams.py"], {}),
    Real("torch libraries on streams, cudaMallocAsync", ["torch_streams.py"], ASYNC_BACKEND),
    Real("jax loop", ["jax_loop.py"], {}, also=("SC201",)),
    Real("cupy MemoryAsyncPool", ["cupy_async_pool.py"], {}),
    Real("triton kernel", ["triton_add.py"], {}),
    Real("torch graph, training", ["torch_graph.py", "train"], {}, also=("SC201",)),
    Real("torch graph, training, cudaMallocAsync", ["torch_graph.py", "train"], ASYNC_BACKEND, also=("SC201",)),
    Real("torch graph, inference", ["torch_graph.py", "infer"], {}, also=("SC201",)),
    Real("torch graph, inference, cudaMallocAsync", ["torch_graph.py", "infer"], ASYNC_BACKEND, also=("SC201",)),
    Real("torch graph, its input freed, cudaMallocAsync", ["torch_graph.py", "freed"], ASYNC_BACKEND,
         ("SC110",)),
    Real("torch.compile, reduce-overhead", ["torch_reduce_overhead.py"], {}, also=("SC201",)),
    Real("jax command buffers", ["jax_command_buffers.py"], {}, also=("SC201",)),
    Real("cupy graph", ["cupy_graph.py"], {}),
]


@dataclasses.dataclass
class Fixture:
    name: str
    source: Path
    litmus: str = "-"
    expect: list = dataclasses.field(default_factory=list)
    ptds_expect: list = None
    needs: str = ""
    level: str = ""
    guard: str = ""

    def env(self):
        found = {"STREAMCHECK_LEVEL": self.level, "STREAMCHECK_GUARD": self.guard}
        return {name: value for name, value in found.items() if value}

    def expected(self, build):
        return self.ptds_expect if build == "ptds" and self.ptds_expect is not None else self.expect


def codes_of(text):
    return [] if text.strip() == "none" else sorted(text.split())


def read_fixture(source):
    fixture = Fixture(source.stem, source)
    seen = False
    for line in source.read_text().splitlines():
        if not line.startswith("// "):
            break
        key, found, value = line[3:].partition(": ")
        if found and key == "litmus":
            fixture.litmus = value.strip()
        elif found and key == "expect":
            fixture.expect, seen = codes_of(value), True
        elif found and key == "ptds-expect":
            fixture.ptds_expect = codes_of(value)
        elif found and key in ("needs", "level", "guard"):
            setattr(fixture, key, value.strip())
    if not seen:
        refuse(f"{source}: no `// expect:` line")
    return fixture


@dataclasses.dataclass
class Hunted:
    """A correct program. Its first lines are comments that say how to build and run it:

        nvcc: -lcublas          arguments for nvcc
        run: pool KEY=VALUE     a run with these arguments and environment; one line for each run
        warn: SC201             warnings that are true of it; they need not come

    It prints what it computed and exits 0, or 77 with a line on stderr where the machine lacks
    something it needs.
    """

    name: str
    source: Path
    argv: list
    env: dict
    warn: tuple


def header(source):
    """{key: [the words of each such line]} of the comments that a program begins with."""
    found = collections.defaultdict(list)
    for line in source.read_text().splitlines():
        if not line.startswith(("//", "# ")):
            break
        key, colon, value = line.lstrip("/# ").partition(": ")
        if colon:
            found[key].append(value.split())
    return found


def nvcc_words(source):
    """What a hunted program or a probe adds to nvcc's arguments."""
    return sum(header(source)["nvcc"], [])


def read_hunt(source):
    """The runs of a program of the hunt."""
    said = header(source)
    warn = tuple(sum(said["warn"], []))
    for words in said["run"] or [[]]:
        yield Hunted(" ".join([source.stem, *(word.rpartition("=")[2] for word in words)]), source,
                     [word for word in words if "=" not in word],
                     dict(word.split("=", 1) for word in words if "=" in word), warn)
