"""gpu-check's part `multi`: two devices of one machine, and two processes with a device each."""

import concurrent.futures
import dataclasses
import fnmatch
import json
import re
import shutil
import socket
import statistics
import sys
from pathlib import Path

from programs import header, nvcc_words
from runs import (GATE_FAILED, GPU, Outcome, build_all, clean_env, gpus, missing, nvcc_arguments,
                  preloaded, read_report, start, tail)

# Native and preloaded runs that a cost is the ratio of: in turns, so that what drifts hits both.
TURNS = 2


@dataclasses.dataclass
class Multi:
    """A run of a program under scripts/gpu/multi. Its first lines are comments:

        nvcc: -lcuda                    arguments for nvcc
        run: free wrong => SC103        a run with these arguments and environment (KEY=VALUE), and the
                                        rules it must get: exactly these, or `SC101|SC109`, some of these
        warn: SC202                     warnings that are true of it; they need not come

    C++ programs run as one process; Python ones under `streamcheck run -- torchrun`, a process for
    each device. Programs print what they computed, and exit with 77 where the machine lacks something.
    A line `step N us` of a Python program says how long its steps take; it is no result.
    """

    name: str
    source: Path
    argv: list
    env: dict
    expect: str
    warn: tuple
    distributed: bool

    def right(self):
        return self.expect == "none"

    def allows(self, codes):
        codes = set(codes) - set(self.warn) | set(codes) & set(self.expect.split())
        if "|" in self.expect:
            return bool(codes) and codes <= set(self.expect.split("|"))
        return codes == (set() if self.right() else set(self.expect.split()))


@dataclasses.dataclass
class Row:
    program: Multi
    outcome: Outcome
    # "same", "differs", "-" where only the program itself checked, or why it was not run.
    output: str
    ranks: str = "-"
    cost: str = "-"

    def idle(self):
        return self.output.startswith("not run")

    def wrong(self):
        return not self.idle() and bool(
            self.outcome.trouble or not self.program.allows(self.outcome.codes) or self.output == "differs")


def read_multi(source):
    """The runs of a program."""
    said = header(source)
    for words in said["run"]:
        split = words.index("=>")
        words, expect = words[:split], " ".join(words[split + 1:])
        yield Multi(" ".join([source.stem, *(word.rpartition(":")[2] for word in words)]), source,
                    [word for word in words if "=" not in word],
                    dict(word.split("=", 1) for word in words if "=" in word), expect,
                    tuple(sum(said["warn"], [])), source.suffix == ".py")


def results(stdout):
    """What a program computed: all that it printed but the times."""
    return [line for line in stdout.splitlines() if not line.startswith("step ")]


def step_time(stdout):
    """Microseconds for a step, if the program says so."""
    found = re.search(r"^step ([\d.]+) us$", stdout, re.MULTILINE)
    return float(found[1]) if found else None


def ranks_in(value):
    """The ranks that a report names, wherever it does."""
    if isinstance(value, dict):
        own = [value.get("rank"), *(value.get("ranks") or [])]
        return {rank for rank in own if isinstance(rank, int)}.union(*map(ranks_in, value.values()))
    if isinstance(value, list):
        return set().union(*map(ranks_in, value))
    return set()


def torchrun(program):
    """The command line of a program with a process for each device."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    beside = Path(sys.executable).with_name("torchrun")
    found = str(beside) if beside.is_file() else shutil.which("torchrun")
    launcher = [found] if found else [sys.executable, "-m", "torch.distributed.run"]
    return [*launcher, "--nproc-per-node", "2", "--master-addr", "127.0.0.1", "--master-port", str(port),
            program.source, *program.argv]


def without_torch(args):
    """Why no distributed program can be run, if so."""
    if not args.command.is_file():
        return f"not run: no {args.command}"
    code, out, err = start([sys.executable, "-c", "import torch, torch.distributed as d\n"
                            "print(torch.cuda.device_count(), d.is_nccl_available())"],
                           clean_env(), args.build_dir, args.timeout)
    if code != 0:
        return missing(err, code) or f"not run: PyTorch does not start: {' '.join(tail(err, 1))}"
    devices, nccl = out.split()[-2:]
    if int(devices) < 2:
        return "not run: one GPU"
    return None if nccl == "True" else "not run: no NCCL"


def run_distributed(args, program):
    """A program that is right: natively and under `streamcheck run`, in turns. One that is wrong: once,
    under it; the program itself checks what it computed."""
    native_results, native_steps, checked_results, checked_steps = [], [], [], []
    for turn in range(TURNS if program.right() else 1):
        if program.right():
            code, native, stderr = start(torchrun(program), clean_env(program.env), args.build_dir, args.timeout)
            if code != 0:
                return Row(program, Outcome(
                    [], set(), trouble=f"natively: {'no end' if code is None else f'exit {code}'}",
                    messages=[f"native stderr: {line}" for line in tail(stderr, 20)]), "-")
            native_results.append(results(native))
            native_steps.append(step_time(native))
        outcome, ranks = checked(args, program, f"multi/{program.name.replace(' ', '-')}-{turn}")
        checked_results.append(results(outcome.stdout))
        checked_steps.append(step_time(outcome.stdout))
        if outcome.trouble or not program.allows(outcome.codes):
            break
    row = Row(program, outcome, "-", " ".join(map(str, sorted(ranks))) or "none")
    if program.right():
        # The launcher may end a process early when another one's gate has failed.
        if not outcome.trouble and ranks != {0, 1}:
            outcome.trouble = "the merged report does not name the ranks"
        same = all(one == native_results[0] for one in native_results + checked_results)
        row.output = "same" if same else "differs"
        if not same:
            outcome.messages.append(f"printed {checked_results}, natively {native_results}")
    if native_steps and all(native_steps + checked_steps):
        native = statistics.mean(native_steps)
        row.cost = f"{statistics.mean(checked_steps) / native:.2f} × {native:.0f} µs"
    return row


def checked(args, program, label):
    """A run under `streamcheck run`, and the ranks that its one report names."""
    folder = Path(args.build_dir) / "runs" / label
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    env = clean_env({**program.env, "STREAMCHECK_LIBRARY": str(args.preload)})
    path = folder / "report.json"
    code, stdout, stderr = start([args.command, "run", "--json", path, "--", *torchrun(program)],
                                 env, folder, args.timeout)
    (folder / "stderr").write_text(stderr)
    outcome, ranks = Outcome([], set(), stdout=stdout), set()
    try:
        report = json.loads(path.read_text())
        read_report(outcome, report)
        ranks = ranks_in(report)
    except (OSError, ValueError, KeyError, TypeError) as error:
        outcome.trouble = f"bad report: {error!r}"
    outcome.codes.sort()
    # Where a process's gate fails, the launcher ends with a code of its own.
    ends = (1, GATE_FAILED) if "error" in outcome.levels else (0,)
    if code is None:
        outcome.trouble = f"still running after {args.timeout} s"
    elif code not in ends:
        outcome.trouble = f"exit {code}, not {' or '.join(map(str, ends))}"
    elif outcome.operations == 0 and not outcome.trouble:
        outcome.trouble = "no operation was seen"
    elif not any(line.startswith("checksum ") for line in results(stdout)):
        outcome.trouble = "no result was printed"
    if outcome.trouble:
        outcome.messages += [f"stderr: {line}" for line in tail(stderr, 20)]
    return outcome, ranks


def run_single(args, program, built, failed):
    """A C++ program, natively and preloaded."""
    if built in failed:
        lack = missing(failed[built])
        return Row(program, Outcome([], set(), trouble="" if lack else "not built",
                                    messages=failed[built].splitlines()), lack or "-")
    command = [built, *program.argv]
    code, native, stderr = start(command, clean_env(program.env), args.build_dir, args.timeout)
    lack = missing(stderr, code)
    if lack:
        return Row(program, Outcome([], set()), lack)
    outcome = preloaded(args, command, program.env, "multi/" + program.name.replace(" ", "-"))
    if code != 0:
        outcome.trouble = f"natively: {'no end' if code is None else f'exit {code}'}"
        outcome.messages += [f"native stderr: {line}" for line in tail(stderr)]
        return Row(program, outcome, "-")
    same = native == outcome.stdout
    if not same:
        outcome.messages.append(f"printed {outcome.stdout.strip()!r}, natively {native.strip()!r}")
    return Row(program, outcome, "same" if same else "differs")


def check_multi(args, nvcc):
    """The rows of the part's table."""
    programs = [program for source in sorted((GPU / "multi").iterdir()) if source.suffix in (".cu", ".py")
                for program in read_multi(source)]
    programs = [p for p in programs if fnmatch.fnmatch(p.name, args.only)]
    if gpus() == 1:
        return [Row(program, Outcome([], set()), "not run: one GPU") for program in programs]
    output = {p.source: Path(args.build_dir) / "multi" / p.source.stem
              for p in programs if not p.distributed}
    failed = build_all(args, nvcc, [
        (built, nvcc_arguments(args, nvcc, source, ["-O1", "-std=c++17", *nvcc_words(source)]))
        for source, built in output.items()])
    lack = without_torch(args) if any(p.distributed for p in programs) else None
    single = [p for p in programs if not p.distributed]
    with concurrent.futures.ThreadPoolExecutor(min(args.jobs, args.parallel_runs)) as pool:
        rows = list(pool.map(lambda p: run_single(args, p, output[p.source], failed), single))
    # One at a time: with others beside it, a run's time says nothing.
    return rows + [Row(p, Outcome([], set()), lack) if lack else run_distributed(args, p)
                   for p in programs if p.distributed]


HEADINGS = ["two GPUs", "expected", "got", "output", "ranks", "cost against native"]


def cells(row):
    """A row of the table."""
    program, outcome = row.program, row.outcome
    expected = program.expect.replace("|", " or ")
    if program.warn:
        expected += f" ({', '.join(program.warn)} is true of it)"
    got = "-" if row.idle() else "; ".join(filter(None, [
        " ".join(sorted(set(outcome.codes))) or "none", outcome.trouble]))
    return [program.name, expected, got, row.output, row.ranks, row.cost]
