"""How a program of the bench takes turns with others: it does as it is told and waits between.

Orders come as arguments, or else as lines on standard input:

    prepare LOOP STEPS   makes a loop ready and runs some steps
    time LOOP STEPS      times a number of steps

Each is answered by a line `bench: ` and a word, which is `ready` once everything is imported, `failed`
with the reason, or `{"median_us": …, "min_us": …, "checksum": "…"}`. A step ends when the GPU is done.
"""

import json
import statistics
import sys
import time

# Steps before the timed ones: the GPU may have slept meanwhile.
WARM_UP = 5


def say(words):
    print("bench:", words, flush=True)


def timed(step, count):
    """Seconds that each of a number of steps takes."""
    times = []
    for _ in range(count):
        begin = time.perf_counter()
        step()
        times.append(time.perf_counter() - begin)
    return times


def obey(loops, steps, order, name, count):
    if order == "prepare":
        steps[name] = loops[name]()
        timed(steps[name][0], int(count))
        return "prepared"
    if order != "time":
        raise ValueError(f"{order} is no order")
    step, checksum = steps[name]
    timed(step, WARM_UP)
    times = timed(step, int(count))
    return json.dumps({"median_us": statistics.median(times) * 1e6, "min_us": min(times) * 1e6,
                       "checksum": checksum()})


def take_turns(loops):
    """Does as it is told. `loops` makes, by name, a function for a step and one for the result so far."""
    steps = {}
    say("ready")
    for order in sys.argv[1:] or sys.stdin:
        try:
            say(obey(loops, steps, *order.split()))
        except Exception as error:  # of any library
            say(f"failed {type(error).__name__}: {' '.join(str(error).split())[:300]}")
