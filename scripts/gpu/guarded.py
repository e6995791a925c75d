"""gpu-check's part `guard`: runs in guard mode.

The fixtures of the host's side (fixtures/host), built with static cudart and not otherwise prepared; Python
programs, whose results must be the same natively, preloaded and in guard mode; and what guard mode costs
loops that use host memory, natively, preloaded and in guard mode in turns.
"""

import dataclasses
import fnmatch
import sys
from pathlib import Path

import costs
from costs import NATIVE, Sample
from runs import GPU, Outcome, build_all, clean_env, missing, nvcc_arguments, preloaded, start, tail

FOLDER = GPU / "guard"
ON = {"STREAMCHECK_GUARD": "on"}
# The fixtures' builds that run in guard mode.
BUILDS = ("static",)
# Turns of the loops: natively, preloaded and in guard mode.
ROUNDS = 5
MODES = (NATIVE, "off", "on")
LOOPS = {
    "download-page": "4 KiB to pinned memory, wait, read",
    "download-megabyte": "1 MiB to pinned memory, wait, read",
    "upload-page": "fill 4 KiB of pinned memory, to the device, wait",
    "upload-megabyte": "fill 1 MiB of pinned memory, to the device, wait",
    "beside": "write one half of a page while a copy reads the other, wait",
    "managed-megabyte": "kernel writes 1 MiB of managed memory, wait, read",
}


@dataclasses.dataclass
class Program:
    """A Python program under scripts/gpu/guard."""

    name: str
    script: str
    argv: list
    # What it must get in guard mode, and warnings that are true of it in any mode.
    expect: tuple = ()
    also: tuple = ()
    # A comment on the line that the finding must name.
    mark: str = ""


PROGRAMS = [
    Program("torch pinned DataLoader", "torch_pinned_loader.py", ["0"], also=("SC201",)),
    Program("torch pinned DataLoader, 2 workers", "torch_pinned_loader.py", ["2"], also=("SC201",)),
    Program("torch non_blocking, waits", "torch_early_read.py", ["good"]),
    Program("torch non_blocking, reads early", "torch_early_read.py", ["early"], ("SC108",), mark="# too early"),
    Program("cupy pinned ring", "cupy_pinned.py", []),
]


@dataclasses.dataclass
class Row:
    """What became of a program, natively, preloaded and in guard mode."""

    program: Program
    native: str
    off: Outcome
    on: Outcome
    # Why it was not run.
    idle: str = ""
    # What is wrong besides the outcomes' own troubles.
    trouble: str = ""

    def wrong(self):
        if self.idle:
            return False
        program = self.program
        return bool(self.trouble or self.off.trouble or self.on.trouble
                    or set(self.off.codes) - set(program.also)
                    or set(self.on.codes) - set(program.also) != set(program.expect))


class Guard:
    """All that the part found."""

    def __init__(self, fixtures, rows, loops, outcomes):
        self.fixtures, self.rows, self.loops = fixtures, rows, loops
        # Of the loops: (mode, outcome).
        self.outcomes = outcomes

    def __bool__(self):
        return bool(self.fixtures or self.rows or self.loops)

    def faults(self):
        """Lines that say what guard mode, or the tool, did wrong to the loops."""
        found = []
        for mode, outcome in self.outcomes:
            if outcome.codes:
                found.append(f"loops, guard {mode}: {' '.join(outcome.codes)}")
            if outcome.trouble:
                found.append(f"loops, guard {mode}: {outcome.trouble}")
            found += [f"loops, guard {mode}: {line}" for line in outcome.messages]
        for name, samples in self.loops.items():
            found += [f"{name}, guard {mode}: its results differ from the native ones"
                      for mode in costs.differing(samples)]
            if any(s.mode == NATIVE and not s.failed for s in samples):
                found += [f"{name}, guard {s.mode}: {s.failed}" for s in samples if s.mode != NATIVE and s.failed]
        return list(dict.fromkeys(found))

    def cost_table(self):
        """Headings and rows of what a turn of each loop takes."""
        return [["loop", "native", "preloaded", "guard on", "guard on to preloaded"],
                *([LOOPS.get(name, name), *(costs.cell(samples, mode) for mode in MODES),
                   costs.cell(against_off(samples), "on")] for name, samples in self.loops.items())]

    def program_table(self):
        """Headings and rows of what became of the programs."""
        rows = [["program", "expected in guard mode", "got", "preloaded", "result"]]
        for row in self.rows:
            expected = " ".join(row.program.expect) or "none"
            if row.program.also:
                expected += f", {' '.join(row.program.also)}"
            got = "; ".join(filter(None, [row.on.text(), row.trouble]))
            rows.append([row.program.name, expected, *([row.idle, "-", "-"] if row.idle else
                                                       [got, row.off.text(), row.native])])
        return rows


def check_guard(args, nvcc, check_fixtures):
    """Runs all of it; `check_fixtures` gives the rows of a folder's fixtures in some builds."""
    return Guard(check_fixtures(args, nvcc, "fixtures/host", BUILDS),
                 [run_program(args, program) for program in PROGRAMS
                  if fnmatch.fnmatch(program.script.partition(".")[0], args.only)],
                 *(run_loops(args, nvcc) if fnmatch.fnmatch("round_trips", args.only) else ({}, [])))


def run_program(args, program):
    command = [sys.executable, FOLDER / program.script, *program.argv]
    label = "guard/" + program.name.replace(" ", "-").replace(",", "")
    code, native, stderr = start(command, clean_env(), args.build_dir, args.timeout)
    row = Row(program, native.strip(), Outcome([], set()), Outcome([], set()))
    row.idle = missing(stderr, code) or ""
    if row.idle:
        return row
    if code != 0:
        row.trouble = f"natively: {'no end' if code is None else f'exit {code}'}"
        row.on.messages = [f"native stderr: {line}" for line in tail(stderr)]
        return row
    row.off = preloaded(args, command, {}, label + "-off")
    row.on = preloaded(args, command, ON, label + "-on")
    row.trouble = "; ".join(filter(None, [
        *(f"printed {outcome.stdout.strip()!r} with guard {mode}, natively {row.native!r}"
          for mode, outcome in (("off", row.off), ("on", row.on)) if outcome.stdout != native),
        unnamed(FOLDER / program.script, program.mark, row.on) if program.mark else ""]))
    return row


def unnamed(script, mark, outcome):
    """Says so if no error of an outcome names the line of a script that holds a mark."""
    lines = [number for number, line in enumerate(script.read_text().splitlines(), 1) if mark in line]
    place = f"{script.name}:{lines[0]}"
    named = any(message.startswith("SC108") and place in message for message in outcome.messages)
    return "" if named else f"no SC108 names {place}"


def against_off(samples):
    """The runs in guard mode, and those out of it in the native ones' place."""
    return [dataclasses.replace(sample, mode=NATIVE if sample.mode == "off" else sample.mode)
            for sample in samples if sample.mode != NATIVE]


def run_loops(args, nvcc):
    """({loop: samples in order of time}, (mode, outcome) of the preloaded runs)."""
    program = Path(args.build_dir) / "guard" / "round_trips"
    source = FOLDER / "round_trips.cu"
    failed = build_all(args, nvcc, [(program, nvcc_arguments(args, nvcc, source, ["-O2", "-std=c++17"]))])
    if program in failed:
        return {}, [(mode, Outcome([], set(), trouble="not built", messages=failed[program].splitlines()))
                    for mode in MODES[-1:]]
    loops, outcomes = {name: [] for name in LOOPS}, []
    # A last native run, so that each other one has a native one after it.
    for turn, mode in enumerate([*MODES * ROUNDS, NATIVE]):
        if mode == NATIVE:
            code, stdout, stderr = start([program], clean_env(), args.build_dir, args.timeout)
            why = "" if code == 0 else f"exit {code}: {' '.join(tail(stderr, 1))}"
        else:
            outcome = preloaded(args, [program], ON if mode == "on" else {}, f"guard/loops-{turn}-{mode}")
            outcomes.append((mode, outcome))
            stdout, why = outcome.stdout, outcome.trouble
        add_samples(loops, mode, stdout, why)
    return loops, outcomes


def add_samples(loops, mode, stdout, why):
    """Adds a run's times to those of each loop; `why` it has none."""
    found = costs.read_loops(stdout)
    for name, samples in loops.items():
        sample = found.get(name, Sample("", failed=why or "not run"))
        sample.mode = mode
        samples.append(sample)
