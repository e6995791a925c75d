"""gpu-check's part `bench`: what the tool costs, as ratios to native runs beside it.

Loops of CUDA calls (bench/loops.cu), natively, preloaded and under compute-sanitizer; then steps of
PyTorch, CuPy and JAX programs. All of a kind run in turns, native ones between the others, so that what
drifts hits all; a ratio is to the nearest native runs before and after. One thing runs at a time: only
what builds and imports does so together. Past the budget no further run starts.
"""

import dataclasses
import fnmatch
import json
import os
import queue
import re
import shutil
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

from programs import ASYNC_BACKEND
from runs import (GPU, build_all, clean_env, end_group, judged, missing, preload_env, run_folder, start,
                  static_cudart, tail)

BENCH = GPU / "bench"
NATIVE = "native"
# Warnings that may be true of the programs: they copy pageable memory and use the default stream.
ALSO = {"SC201", "SC202"}
# Turns of the loops: natively and with each kind of stacks.
LOOP_ROUNDS = 4
# Within a turn of a program: natively and with each kind of stacks.
STEP_ROUNDS = 3
STEP_MODES = (NATIVE, "caller", "full")
LOOP_MODES = (NATIVE, "none", "caller", "full")
# Seconds kept back to end everything and write it down.
RESERVE = 8
# Seconds for a Python program to end.
ENDING_LIMIT = 20
# Seconds for a run or a timing, for all imports, and for PyTorch under compute-sanitizer, which may never end.
RUN_LIMIT, IMPORTS_LIMIT, SANITIZED_STEPS_LIMIT = 30, 75, 40
# Seconds after which loops that failed under compute-sanitizer are left at that.
SANITIZED_LOOPS_LIMIT = 40


@dataclasses.dataclass
class Loop:
    """A loop of loops.cu, and its batches: without and under compute-sanitizer."""

    name: str
    title: str
    batches: int = 60
    sanitized: int = 6


LOOPS = [
    Loop("launch", "launch, 4 pointers"),
    Loop("launch-bound", "launch, GPU's queue full", 10, 2),
    Loop("alloc-free", "cudaMallocAsync + cudaFreeAsync"),
    Loop("record-wait", "cudaEventRecord + cudaStreamWaitEvent"),
    Loop("launch-sync", "launch + cudaStreamSynchronize"),
    Loop("copy", "cudaMemcpyAsync, pinned 4 KiB to device"),
    Loop("graph-launch", "cudaGraphLaunch, 8 kernels"),
    Loop("graph-launch-10000", "cudaGraphLaunch, 10,000 kernels", 12, 1),
]


@dataclasses.dataclass
class Program:
    """A Python program of bench/ and the loops in it: name, title, steps to time."""

    name: str
    script: str
    loops: list
    env: dict = dataclasses.field(default_factory=dict)


PROGRAMS = [
    Program("torch-async", "torch_steps.py", [
        ("train", "PyTorch training step, cudaMallocAsync", 150),
        ("infer", "PyTorch transformer inference, cudaMallocAsync", 150)], ASYNC_BACKEND),
    Program("torch", "torch_steps.py", [
        ("train", "PyTorch training step, default allocator", 150),
        ("infer", "PyTorch transformer inference, default allocator", 150)]),
    Program("cupy", "cupy_steps.py", [
        ("pool", "CuPy loop, default pool", 1000), ("async", "CuPy loop, MemoryAsyncPool", 1000)]),
    Program("jax", "jax_steps.py", [("step", "JAX loop, default allocator", 600)]),
    Program("jax-async", "jax_steps.py", [("step", "JAX loop, cuda_async allocator", 600)],
            {"XLA_PYTHON_CLIENT_ALLOCATOR": "cuda_async"}),
]

# What comes when: the most wanted first. A number is a turn of a program, with processes of its own.
ORDER = [
    ("loops", None), ("torch-async", 0), ("torch", 0), ("sanitized loops", 0), ("torch-async", 1), ("torch", 1),
    ("cupy", 0), ("jax", 0), ("sanitized loops", 1), ("jax-async", 0), ("sanitized steps", 0), ("torch-async", 2),
    ("cupy", 1), ("jax", 1),
]


class Failed(Exception):
    """Why a run, or one row of it, has no time."""


@dataclasses.dataclass
class Sample:
    """A row's time in one run."""

    mode: str
    median_ns: float = None
    min_ns: float = None
    checksum: str = ""
    # How many times the process had run the row before; None: its result compares with no other's.
    position: int = 0
    failed: str = ""


def ratios(samples):
    """{mode: ratios to the mean of the nearest native runs before and after} of samples in order of time."""
    native = [(at, s.median_ns) for at, s in enumerate(samples) if s.mode == NATIVE and not s.failed]
    found = {}
    for at, sample in enumerate(samples):
        if sample.mode == NATIVE or sample.failed or not native:
            continue
        before = [time for place, time in native if place < at][-1:]
        after = [time for place, time in native if place > at][:1]
        found.setdefault(sample.mode, []).append(sample.median_ns / statistics.mean(before + after))
    return found


def native_time(samples):
    """The median of the native runs in ns, or None."""
    times = [s.median_ns for s in samples if s.mode == NATIVE and not s.failed]
    return statistics.median(times) if times else None


def differing(samples):
    """Modes whose results differ from the native ones, as far as those agree."""
    native = {}
    for sample in samples:
        if sample.mode == NATIVE and not sample.failed:
            native.setdefault(sample.position, set()).add(sample.checksum)
    return sorted({s.mode for s in samples if s.mode != NATIVE and not s.failed
                   and len(native.get(s.position, ())) == 1 and s.checksum not in native[s.position]})


def duration(ns):
    return f"{ns:,.0f} ns" if ns < 1e5 else f"{ns / 1e3:,.0f} µs"


def cell(samples, mode):
    """What a table says of a mode: the median ratio and its range, or the beginning of why there is none."""
    if mode == NATIVE:
        time = native_time(samples)
        if time is not None:
            return duration(time)
    found = ratios(samples).get(mode)
    if found:
        middle = f"{statistics.median(found):.2f}"
        return middle if len(found) == 1 else f"{middle} ({min(found):.2f}–{max(found):.2f})"
    why = [s.failed for s in samples if s.mode == mode and s.failed]
    if not why or mode != NATIVE and native_time(samples) is None:
        return "-"  # in the latter case the native cell says why
    return f"n/a: {why[0][:36]}"


def reasons(rows):
    """Lines that say in full why runs have no time, each reason once for all the rows and modes that it is true of."""
    modes_of = {}  # {reason: {row: modes}}
    for row, samples in rows.items():
        for sample in samples:
            if sample.failed:
                modes_of.setdefault(sample.failed, {}).setdefault(row, {})[sample.mode] = True
    lines = []
    for why, found in modes_of.items():
        alike = {}  # {modes: rows}
        for row, modes in found.items():
            alike.setdefault(", ".join(modes), []).append(row)
        lines += [f"{', '.join(rows)} ({modes}): {why[:400]}" for modes, rows in alike.items()]
    return lines


def read_loops(stdout):
    """{loop: sample without a mode} of what loops.cu printed."""
    found = {}
    for line in stdout.splitlines():
        timed = re.match(r"loop (\S+) median ([\d.]+) min ([\d.]+) checksum (\S+)$", line)
        if timed:
            found[timed[1]] = Sample("", float(timed[2]), float(timed[3]), timed[4])
        failed = re.match(r"loop (\S+) failed: (.*)$", line)
        if failed:
            found[failed[1]] = Sample("", failed=failed[2])
    return found


def complaint(log):
    """Why compute-sanitizer ended, by its log."""
    errors = re.findall(r"Error: (.*)", log)
    return " ".join(errors or tail(log, 2))


class Worker:
    """A Python program that takes turns (bench/turns.py)."""

    def __init__(self, args, program, mode, turn):
        self.program, self.mode, self.turn = program, mode, turn
        self.lost = ""  # why it takes no more turns
        self.without = {}  # {loop: why it cannot run it}
        self.done = {}  # {loop: how often it ran it}
        self.folder = run_folder(args, f"bench/{program.name}-{turn}-{mode}")
        env = {**program.env, "PYTHONDONTWRITEBYTECODE": "1"}
        env = clean_env(env) if mode == NATIVE else \
            preload_env(args, {**env, "STREAMCHECK_STACKS": mode}, self.folder)
        with open(self.folder / "stderr", "w") as stderr:
            self.child = subprocess.Popen(
                [sys.executable, str(BENCH / program.script)], env=env, cwd=self.folder, text=True, errors="replace",
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, start_new_session=True)
        self.lines = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.child.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def stderr(self):
        return (self.folder / "stderr").read_text(errors="replace")

    def order(self, words):
        try:
            self.child.stdin.write(words + "\n")
            self.child.stdin.flush()
        except OSError:
            pass  # it ended, as its silence tells

    def answer(self, timeout):
        """The next line that is meant for the bench. Past the time limit, or if there is none, it is lost."""
        end = time.monotonic() + timeout
        try:
            while True:  # libraries print too
                line = self.lines.get(timeout=max(0.0, end - time.monotonic()))
                if line is None:
                    code = self.child.wait(timeout=5)
                    why = " ".join(tail(self.stderr(), 1))
                    self.lose(missing(self.stderr(), code) or f"exit {code}: {why}")
                if line.startswith("bench: failed "):
                    raise Failed(line[len("bench: failed "):].strip())
                if line.startswith("bench: "):
                    return line[len("bench: "):].strip()
        except (queue.Empty, subprocess.TimeoutExpired):
            self.lose(f"no answer within {timeout:.0f} s")

    def lose(self, why):
        self.lost = self.lost or why
        self.kill()
        raise Failed(self.lost)

    def time(self, loop, steps, timeout):
        """A sample of a loop."""
        why = self.lost or self.without.get(loop)
        if why:
            return Sample(self.mode, failed=why)
        self.order(f"time {loop} {steps}")
        try:
            answer = json.loads(self.answer(timeout))
            position = self.done[loop] = self.done.get(loop, -1) + 1
            return Sample(self.mode, answer["median_us"] * 1e3, answer["min_us"] * 1e3, answer["checksum"], position)
        except (Failed, ValueError, KeyError, TypeError) as error:
            self.without[loop] = str(error) or repr(error)
            return Sample(self.mode, failed=self.without[loop])

    def dismiss(self):
        """No more orders."""
        try:
            self.child.stdin.close()
        except OSError:
            pass  # it ended before

    def end(self, timeout):
        """Lets it end, and says what it came to if it ran under the preload."""
        if not self.lost:
            self.dismiss()
            try:
                code = self.child.wait(timeout)
            except subprocess.TimeoutExpired:
                code = None
                self.kill()
            if self.mode != NATIVE:
                return judged(self.folder, code, "", self.stderr(), timeout)
        return None

    def kill(self):
        self.dismiss()
        end_group(self.child)
        try:
            self.child.wait(timeout=5)
        except subprocess.TimeoutExpired:
            pass


@dataclasses.dataclass
class Sanitizer:
    """compute-sanitizer, by where it lies and its version."""

    path: Path
    version: str

    def mode(self, races):
        return f"sanitizer {self.version} {races}"

    def command(self, races, log, command):
        return [self.path, "--tool", "memcheck", "--track-stream-ordered-races", races,
                "--target-processes", "application-only", "--print-limit", "5", "--log-file", log, *command]


def sanitizer_at(path):
    """The one at a path, a file or a folder with it in it; None if there is none that starts."""
    path = Path(path).resolve()
    for file in (path, path / "compute-sanitizer", path / "compute-sanitizer/compute-sanitizer"):
        if file.is_file():
            _, out, _ = start([file, "--version"], clean_env(), "/", 30)
            version = re.search(r"Version (\d+\.\d+)", out)
            return Sanitizer(file, version[1]) if version else None
    return None


class Bench:
    """All that was measured, and what there is to say of it."""

    def __init__(self, args, nvcc, began):
        self.args, self.nvcc = args, nvcc
        self.began = began
        self.rows = {loop.name: [] for loop in LOOPS}
        self.titles = {loop.name: loop.title for loop in LOOPS}
        for program in PROGRAMS:
            for loop, title, _ in program.loops:
                self.rows[f"{program.name}/{loop}"] = []
                self.titles[f"{program.name}/{loop}"] = title
        self.sanitizers = []
        self.runs = 0  # of loops.cu
        self.outcomes = []  # (who, mode, outcome), of each preloaded process
        self.stages = []  # (name, seconds)
        self.skipped = []
        self.notes = []
        self.broken = []  # faults of the bench itself
        self.workers = {}
        self.built = ""  # why not, if so
        self.program = Path(args.build_dir) / "bench" / "loops"

    def left(self):
        """Seconds that there are for further runs."""
        return self.began + self.args.budget - time.monotonic() - RESERVE

    def limit(self, most=RUN_LIMIT):
        """Seconds for one run. It may go past the budget: cut short, it would look like a fault."""
        return min(most, self.args.timeout)

    # Builds and imports.

    def prepare(self):
        """Builds the loops and starts all Python programs, at once."""
        begin = time.monotonic()
        wanted = [(name, turn) for name, turn in ORDER if fnmatch.fnmatch(name, self.args.only)]
        for program in PROGRAMS:
            for turn in [turn for name, turn in wanted if name == program.name]:
                self.workers[program.name, turn] = [
                    Worker(self.args, program, mode, turn) for mode in STEP_MODES]
        self.find_sanitizers(wanted)
        if any(name in ("loops", "sanitized loops") for name, _ in wanted):
            failed = build_all(self.args, self.nvcc, [(self.program, self.build_arguments())])
            self.built = " ".join(failed.get(self.program, "").split())
        limit = self.limit(IMPORTS_LIMIT)
        for worker in self.all_workers():
            try:
                worker.answer(max(0.1, begin + limit - time.monotonic()))
            except Failed:
                pass  # its rows say so

    def build_arguments(self):
        return ["-O2", "-g", "-std=c++17", BENCH / "loops.cu", *static_cudart(self.args)]

    def find_sanitizers(self, wanted):
        if not any(name.startswith("sanitized") for name, _ in wanted):
            return
        of_machine = shutil.which("compute-sanitizer") or \
            next(filter(os.path.isfile, [str(Path(self.nvcc).resolve().parent / "compute-sanitizer"),
                                         "/usr/local/cuda/bin/compute-sanitizer"]), None)
        for path in filter(None, [self.args.sanitizer, of_machine]):
            found = sanitizer_at(path)
            if found is None:
                self.notes.append(f"{path}: no compute-sanitizer that starts")
            elif found.version not in [other.version for other in self.sanitizers]:
                self.sanitizers.append(found)
        if not self.sanitizers:
            self.notes.append("no compute-sanitizer was found: nothing ran under it")

    # Loops of calls.

    def run_loops(self, mode, sanitized=False, wrap=lambda words, folder: words):
        """One run of all loops. Those that a run does not come to are tried in one of their own."""
        todo, begin = list(LOOPS), time.monotonic()
        while todo:
            if self.left() < 2:
                self.skipped.append(f"{', '.join(loop.name for loop in todo)}: {mode}")
                return
            self.runs += 1
            folder = run_folder(self.args, f"bench/loops-{self.runs}-{mode.replace(' ', '-')}")
            words = [self.program, *(f"{loop.name}:{loop.sanitized if sanitized else loop.batches}" for loop in todo)]
            preload = mode in LOOP_MODES and mode != NATIVE
            env = preload_env(self.args, {"STREAMCHECK_STACKS": mode}, folder) if preload else clean_env()
            limit = self.limit()
            code, stdout, stderr = start(wrap(words, folder), env, folder, limit)
            (folder / "stderr").write_text(stderr)
            if preload:
                self.outcomes.append(("loops", mode, judged(folder, code, stdout, stderr, limit)))
            found = read_loops(stdout)
            for loop in [loop for loop in todo if loop.name in found]:
                self.rows[loop.name].append(dataclasses.replace(
                    found[loop.name], mode=mode, position=None if sanitized else 0))
            todo = [loop for loop in todo if loop.name not in found]
            if todo:  # the first of them is what it did not come through, or else all of them
                why = f"still running after {limit:.0f} s" if code is None else \
                    f"exit {code}: {' '.join(tail(stderr, 1)) or complaint(self.log(folder))}"
                lost = 1 if found or code is None else len(todo)
                if sanitized and time.monotonic() - begin > SANITIZED_LOOPS_LIMIT:
                    lost = len(todo)
                for loop in todo[:lost]:
                    self.rows[loop.name].append(Sample(mode, failed=why, position=None))
                todo = todo[lost:]
            if sanitized:
                self.count_errors("loops", mode, folder)

    def log(self, folder):
        """What compute-sanitizer wrote."""
        return "\n".join(path.read_text(errors="replace") for path in folder.glob("sanitizer*.log"))

    def count_errors(self, who, mode, folder):
        """Notes how many errors compute-sanitizer found in a program that has none."""
        errors = re.search(r"ERROR SUMMARY: ([1-9]\d*) errors?", self.log(folder))
        if errors:
            self.notes.append(f"{who}, {mode}: it reports {int(errors[1]):,} errors")

    def loops(self, _):
        """The loops natively and with each kind of stacks, in turns."""
        if self.built:
            raise Failed(f"loops.cu is not built: {self.built[:300]}")
        for round_ in range(LOOP_ROUNDS):
            begin = time.monotonic()
            for mode in LOOP_MODES:
                self.run_loops(mode)
            if round_ + 1 < LOOP_ROUNDS and self.left() < 2 * (time.monotonic() - begin):
                self.skipped.append(f"rounds {round_ + 2} to {LOOP_ROUNDS} of the loops")
                break
        self.run_loops(NATIVE)

    def sanitized_loops(self, which):
        """The loops under compute-sanitizer, with and without its tracking of stream order."""
        if self.built or len(self.sanitizers) <= which:
            return
        tool = self.sanitizers[which]
        for races in ("all", "no"):
            self.run_loops(tool.mode(races), True,
                           lambda words, folder: tool.command(races, folder / "sanitizer.log", words))
            self.run_loops(NATIVE)

    # Steps of programs.

    def all_workers(self):
        return [worker for group in self.workers.values() for worker in group]

    def steps(self, program, turn):
        """A turn of a program: natively and with each kind of stacks, each a process of its own."""
        workers = self.workers.pop((program.name, turn))
        try:
            self.take_turns(program, workers)
        finally:
            for worker in workers:
                worker.dismiss()
            for worker in workers:
                outcome = worker.end(ENDING_LIMIT)
                if outcome:
                    self.outcomes.append((program.name, worker.mode, outcome))
                elif worker.lost and worker.mode != NATIVE and not workers[0].lost:
                    self.broken.append(f"{program.name}, {worker.mode}: {worker.lost}")
                worker.kill()

    def take_turns(self, program, workers):
        for loop, _, _ in program.loops:
            asked = [worker for worker in workers if not worker.lost]
            for worker in asked:
                worker.order(f"prepare {loop} 20")
            end = time.monotonic() + self.limit(IMPORTS_LIMIT)
            for worker in asked:
                try:
                    worker.answer(max(0.5, end - time.monotonic()))
                except Failed as error:
                    worker.without[loop] = str(error)
        for loop, _, steps in program.loops:
            row = f"{program.name}/{loop}"
            for worker in [*workers * STEP_ROUNDS, workers[0]]:
                if self.left() < 1:
                    self.skipped.append(f"{row}: the rest of a turn")
                    break
                self.rows[row].append(worker.time(loop, steps, self.limit()))

    def sanitized_steps(self, _):
        """Few steps of training with cudaMallocAsync under the newest compute-sanitizer."""
        if not self.sanitizers:
            return
        tool, program = self.sanitizers[0], PROGRAMS[0]
        folder = run_folder(self.args, "bench/sanitized-steps")
        command = tool.command("all", folder / "sanitizer.log", [
            sys.executable, BENCH / program.script, "prepare train 2", "time train 8"])
        limit = min(self.limit(SANITIZED_STEPS_LIMIT), self.left() + RESERVE / 2)
        code, stdout, stderr = start(command, clean_env({**program.env, "PYTHONDONTWRITEBYTECODE": "1"}), folder, limit)
        (folder / "output").write_text(stdout + stderr)
        answers = [line[len("bench: "):] for line in stdout.splitlines() if line.startswith("bench: ")]
        self.count_errors("training", tool.mode("all"), folder)
        sample = Sample(tool.mode("all"), position=None)
        try:
            answer = json.loads(answers[-1])
            sample.median_ns, sample.min_ns = answer["median_us"] * 1e3, answer["min_us"] * 1e3
        except (IndexError, ValueError, KeyError, TypeError):
            said = f"; it had said {answers[-1]}" if answers else ""
            sample.failed = f"still running after {limit:.0f} s{said}" if code is None else \
                f"exit {code}: {' '.join(tail(stderr, 1)) or complaint(self.log(folder))}{said}"
        self.rows[f"{program.name}/train"].append(sample)

    # All of it.

    def run(self, save):
        by_name = {program.name: program for program in PROGRAMS}
        kinds = {"loops": self.loops, "sanitized loops": self.sanitized_loops, "sanitized steps": self.sanitized_steps}
        # Seconds without which one is not started.
        needs = {"loops": 8, "sanitized loops": 10, "sanitized steps": 15}
        try:
            self.stage("builds and imports", self.prepare)
            save()
            for name, turn in ORDER:
                label = name if turn is None else f"{name} {turn + 1}"
                if not fnmatch.fnmatch(name, self.args.only):
                    continue
                if self.left() < needs.get(name, 10):
                    self.skipped.append(label)
                elif name in kinds:
                    self.stage(label, kinds[name], turn)
                else:
                    self.stage(label, self.steps, by_name[name], turn)
                save()
        finally:
            for worker in self.all_workers():
                worker.kill()
        return self

    def stage(self, label, work, *with_):
        """A part of it that may fail without the others."""
        begin = time.monotonic()
        try:
            work(*with_)
        except Failed as error:
            self.broken.append(f"{label}: {error}")
        except Exception as error:  # whatever it is, the others are worth having
            self.broken.append(f"{label}: {error!r}")
        self.stages.append((label, round(time.monotonic() - begin, 1)))

    # What it came to.

    def faults(self):
        """Lines that say what is wrong: a verdict, a result, a run."""
        lines = []
        for who, mode, outcome in self.outcomes:
            codes = sorted(set(outcome.codes) - ALSO)
            if codes or outcome.trouble:
                lines.append(f"{who}, {mode}: {'; '.join(filter(None, [' '.join(codes), outcome.trouble]))}")
                lines += [f"{who}, {mode}: {message[:300]}" for message in outcome.messages[:4]]
        for row, samples in self.rows.items():
            lines += [f"{row}, {mode}: its results differ from the native ones" for mode in differing(samples)]
        lines += reasons({row: [s for s in samples if s.mode in LOOP_MODES and s.mode != NATIVE]
                          for row, samples in self.rows.items() if native_time(samples) is not None})
        return list(dict.fromkeys(lines + self.broken))

    def verdict(self, who):
        """What all preloaded processes of a program, or of the loops, got."""
        outcomes = [outcome for name, _, outcome in self.outcomes if name == who]
        if not outcomes:
            return "-"
        wrong = sum(bool(outcome.trouble or set(outcome.codes) - ALSO) for outcome in outcomes)
        codes = " ".join(sorted({code for outcome in outcomes for code in outcome.codes})) or "none"
        return f"{codes}, {len(outcomes) - wrong} of {len(outcomes)} runs as allowed"

    def tables(self):
        """The tables: lists of rows of cells, the first the headings."""
        used = [tool.mode(races) for tool in self.sanitizers for races in ("all", "no")]
        calls = [["ns a call, and × native", NATIVE, *LOOP_MODES[1:], *used]]
        for loop in LOOPS:
            samples = self.rows[loop.name]
            if samples:
                calls.append([loop.title, *(cell(samples, mode) for mode in calls[0][1:])])
        steps = [["a step, and × native", NATIVE, *STEP_MODES[1:], *used[:1], "verdict"]]
        for program in PROGRAMS:
            for loop, title, _ in program.loops:
                samples = self.rows[f"{program.name}/{loop}"]
                if samples:
                    steps.append([title, *(cell(samples, mode) for mode in steps[0][1:-1]),
                                  self.verdict(program.name)])
        return [table for table in (calls, steps) if len(table) > 1]

    def remarks(self):
        """Lines beside the tables, of what is not wrong."""
        lines = []
        if self.verdict("loops") != "-":
            lines.append(f"loops preloaded: {self.verdict('loops')}")
        lines += [line for line in reasons(self.rows) if line not in self.faults()]
        for row, samples in self.rows.items():
            if len({s.checksum for s in samples if s.mode == NATIVE and not s.failed and s.position == 0}) > 1:
                lines.append(f"{row}: results differ natively from run to run; not compared")
        lines += self.notes
        if self.skipped:
            lines.append(f"skipped, past the budget of {self.args.budget:.0f} s: {'; '.join(self.skipped)}")
        lines.append("seconds: " + ", ".join(f"{name} {seconds}" for name, seconds in self.stages))
        return lines

    def data(self, about):
        """Everything, for a machine to read."""
        return {
            "about": dict(about), "budget_s": self.args.budget, "stages_s": self.stages,
            "rows": {row: {"title": self.titles[row], "native_ns": native_time(samples), "ratios": ratios(samples),
                           "samples": [dataclasses.asdict(sample) for sample in samples]}
                     for row, samples in self.rows.items() if samples},
            "outcomes": [{"program": who, "mode": mode, "codes": outcome.codes, "trouble": outcome.trouble,
                          "operations": outcome.operations, "blind_spots": outcome.blind}
                         for who, mode, outcome in self.outcomes],
            "faults": self.faults(), "skipped": self.skipped, "remarks": self.remarks(),
        }


def check_bench(args, nvcc, began, save):
    """Everything measured. `save` gets it after each stage: a time limit may end the run."""
    bench = Bench(args, nvcc, began)
    return bench.run(lambda: save(bench))
