"""The tests need `streamcheck` on the PATH, and a `libcudart.so.13` that the loader finds.

`crates/cli/tests/recipes.rs` runs them over the simulated CUDA; with a GPU, NVIDIA's will do.
"""

import shutil

import pytest

pytest_plugins = ["pytester"]

CUDA = '''
import ctypes

runtime = ctypes.CDLL("libcudart.so.13")


def check(error):
    assert error == 0, error


def stream():
    """A stream that the legacy default stream does not wait for."""
    new = ctypes.c_void_p()
    check(runtime.cudaStreamCreateWithFlags(ctypes.byref(new), 1))
    return new


def allocate(size, stream):
    new = ctypes.c_void_p()
    check(runtime.cudaMallocAsync(ctypes.byref(new), ctypes.c_size_t(size), stream))
    return new


def fill(memory, size, stream):
    check(runtime.cudaMemsetAsync(memory, 0, ctypes.c_size_t(size), stream))


def race():
    """SC101: a stream fills what another stream allocates."""
    fill(allocate(4096, stream()), 4096, stream())


def pageable_copy():
    """SC201: an asynchronous copy from pageable memory."""
    on = stream()
    source = ctypes.create_string_buffer(4096)
    check(
        runtime.cudaMemcpyAsync(allocate(4096, on), source, ctypes.c_size_t(4096), 1, on)
    )
    check(runtime.cudaStreamSynchronize(on))
'''


@pytest.fixture
def run(pytester, monkeypatch):
    """Runs pytest with these options on these test files, in a folder of its own."""
    assert shutil.which("streamcheck"), "streamcheck is not on the PATH"
    pytester.makepyfile(cuda=CUDA)
    monkeypatch.syspath_prepend(pytester.path)
    for name in ("STREAMCHECK_FAIL_ON", "STREAMCHECK_JSON", "PYTEST_ADDOPTS"):
        monkeypatch.delenv(name, raising=False)

    def run(source, *options, before=(), streamcheck=True):
        import sys

        pytester.makepyfile(test_it=source)
        words = [*before, sys.executable, "-m", "pytest", "-rA", "-p", "no:cacheprovider"]
        if streamcheck:
            words.append("--streamcheck")
        return pytester.run(*words, *options)

    return run
