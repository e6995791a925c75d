"""Makes the same mistake in many ways: memory is used on another stream than the one it
was allocated on. The lines whose comments say so are what a finding must show."""

import asyncio
import atexit
import ctypes
import os
import sys
import threading
import time

RELEASED = ctypes.CDLL("libcudart.so.13")
HELD = ctypes.PyDLL("libcudart.so.13")
SIZE = ctypes.c_size_t(1024)


def stream(cuda):
    handle = ctypes.c_void_p()
    assert cuda.cudaStreamCreateWithFlags(ctypes.byref(handle), 1) == 0
    return handle


class Buffer:
    def __init__(self, cuda):
        self.cuda = cuda
        self.pointer = ctypes.c_void_p()

    def allocate(self, on):
        assert (
            self.cuda.cudaMallocAsync(  # allocated
                ctypes.byref(self.pointer),
                SIZE,
                on,
            )
            == 0
        )

    def use(self, on, cuda=ctypes.CDLL("libcudart.so.13")):
        self.cuda.cudaMemsetAsync(self.pointer, 0, SIZE, on)  # used


def fault(cuda=RELEASED, stream=stream, Buffer=Buffer):
    first, second = stream(cuda), stream(cuda)
    buffer = Buffer(cuda)
    buffer.allocate(first)  # fault allocates
    buffer.use(second)  # fault uses


def released():
    fault()


def held():
    fault(HELD)


def thread(cuda=RELEASED):
    worker = threading.Thread(target=fault, args=(cuda,))
    worker.start()
    worker.join()


def thread_held():
    thread(HELD)


def generator():
    def steps():
        yield 1
        fault()
        yield 2

    assert list(steps()) == [1, 2]


def coroutine():
    async def inner():
        await asyncio.sleep(0)
        fault()

    async def outer():
        await inner()

    asyncio.run(outer())


def deep():
    def down(levels):
        return down(levels - 1) if levels else fault()

    down(400)


def back():
    """From C to Python again."""
    list(map(lambda _: fault(), [1]))


def two_lines():
    """Two lines that are the same machine code to the CPU."""
    first, second = stream(RELEASED), stream(RELEASED)
    buffer = Buffer(RELEASED)
    buffer.allocate(first)
    for _ in range(50):
        buffer.use(second)  # line one
        buffer.use(second)  # line two


def texts():
    code = "def größe(fault):\n    fault()\n\ndef шаг(fault):\n    größe(fault)\n"
    names = {}
    exec(compile(code, "/nowhere/größe.py", "exec"), names)
    names["шаг"](fault)


def again():
    """Code objects come and go at the same addresses."""
    for number in range(200):
        code = "\n" * number + "def made(stream, memset, pointer, size):\n"
        code += "    memset(pointer, 0, size, stream)\n"
        names = {}
        exec(compile(code, "/nowhere/made.py", "exec"), names)
        first, second = stream(RELEASED), stream(RELEASED)
        buffer = Buffer(RELEASED)
        buffer.allocate(first)
        names["made"](second, RELEASED.cudaMemsetAsync, buffer.pointer, SIZE)
        del names


def traced():
    sys.settrace(lambda *_: None)
    fault()
    sys.settrace(None)


def monitored():
    if hasattr(sys, "monitoring"):
        events = sys.monitoring.events
        sys.monitoring.use_tool_id(1, "test")
        sys.monitoring.register_callback(1, events.LINE, lambda *_: None)
        sys.monitoring.set_events(1, events.LINE | events.CALL)
    fault()


def fork():
    """What was set up before a fork is of no use to the child, so nothing is."""
    child = os.fork()
    if child == 0:
        fault()
        os._exit(0)
    os.waitpid(child, 0)
    RELEASED.cudaFree(None)


def at_exit():
    atexit.register(fault)


class Late:
    def __del__(self, fault=fault):
        fault()


def at_end():
    """When the interpreter takes the modules down."""
    global late
    late = Late()


def left_behind():
    """Threads that the interpreter does not wait for."""

    def work(cuda):
        on = stream(cuda)
        buffer = Buffer(cuda)
        buffer.allocate(on)
        while True:
            buffer.use(on)

    for cuda in (RELEASED, RELEASED, HELD):
        threading.Thread(target=work, args=(cuda,), daemon=True).start()
    time.sleep(0.02)


def within():
    """In an interpreter in the interpreter."""
    try:
        import _interpreters as interpreters
    except ImportError:
        import _xxsubinterpreters as interpreters
    create = interpreters.create
    inner = create("legacy") if sys.version_info >= (3, 13) else create()
    code = f"import sys\nsys.path.insert(0, {os.path.dirname(__file__)!r})\nimport calls\ncalls.fault()\n"
    failed = interpreters.run_string(inner, code)
    assert failed is None, failed
    interpreters.destroy(inner)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
    print(sys.argv[1], flush=True)
