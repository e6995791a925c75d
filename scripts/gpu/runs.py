"""How gpu-check builds a program, runs it natively and under the preload, and reads its reports."""

import concurrent.futures
import dataclasses
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
GPU = ROOT / "scripts" / "gpu"
# The default of the option exit-code.
GATE_FAILED = 66
# What a program exits with that cannot run on this machine.
SKIPPED = 77


@dataclasses.dataclass
class Outcome:
    """What a run under the preload came to."""

    codes: list
    levels: set
    trouble: str = ""
    messages: list = dataclasses.field(default_factory=list)
    stdout: str = ""
    operations: int = 0
    blind: str = ""

    def text(self):
        codes = " ".join(self.codes) or "none"
        return f"{codes}; {self.trouble}" if self.trouble else codes


def refuse(message):
    print(f"gpu-check: {message}", file=sys.stderr)
    sys.exit(2)


def find_nvcc():
    named = os.environ.get("STREAMCHECK_NVCC")
    if named:
        return named
    found = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    if not os.access(found, os.X_OK):
        refuse("no nvcc: put it on PATH or name it with STREAMCHECK_NVCC")
    return found


def find_cudart(nvcc):
    """The folder of the toolkit's shared cudart."""
    toolkit = Path(nvcc).resolve().parent.parent
    for folder in ("lib64", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib", "lib"):
        if glob.glob(str(toolkit / folder / "libcudart.so*")):
            return toolkit / folder
    return None


def clean_env(extra=None):
    env = {k: v for k, v in os.environ.items()
           if not k.startswith("STREAMCHECK_") and k != "LD_PRELOAD"}
    env.update(extra or {})
    return env


def start(command, env, cwd, timeout):
    """Runs a command; (exit code or None past the time limit, stdout, stderr). No process of it stays."""
    try:
        child = subprocess.Popen([str(word) for word in command], env=env, cwd=cwd, text=True, errors="replace",
                                 stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                 start_new_session=True)
    except OSError as error:
        return 127, "", f"{command[0]}: {error.strerror}"
    try:
        stdout, stderr = child.communicate(timeout=timeout)
        return child.returncode, stdout, stderr
    except subprocess.TimeoutExpired:
        end_group(child)
        try:
            return None, *child.communicate(timeout=5)
        except subprocess.TimeoutExpired:  # somebody out of the group holds the pipes
            return None, "", ""
    finally:
        end_group(child)


def end_group(child):
    """Ends a process that has a session of its own, and all of that session."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            # Behind the name: state, parent, group, session.
            session = int((folder / "stat").read_text().rpartition(")")[2].split()[3])
            if session == child.pid:
                os.kill(int(folder.name), signal.SIGKILL)
        except (OSError, ValueError, IndexError):
            pass  # it has ended meanwhile, or is somebody else's


def tail(text, lines=6):
    return "\n".join(line for line in text.splitlines() if line.strip()).splitlines()[-lines:]


def place(event):
    """Where a finding's event was called, as far as debug info tells: `use at pool.cu:12 < pool.cu:40`."""
    frames = [f"{Path(frame['file']).name}:{frame['line']}" for frame in event["stack"] if frame.get("file")]
    return f"{event['role']} at {' < '.join(frames[:3])}" if frames else ""


def read_report(outcome, report):
    """Adds what a report says to an outcome."""
    outcome.operations += report["summary"]["operations"]
    for finding in report["findings"]:
        if finding["suppressed"]:
            continue
        outcome.codes.append(finding["rule"])
        outcome.levels.add(finding["level"])
        places = "; ".join(filter(None, map(place, finding["events"])))
        outcome.messages.append(f"{finding['rule']} ×{finding['count']}: {finding['message']} ({places})")
    spots = [f"{spot['kind']} ×{spot['count']}"
             for spot in report["summary"].get("blind_spots", []) if spot["count"]]
    outcome.blind = ", ".join(filter(None, [outcome.blind, *spots]))


def run_folder(args, label):
    """An empty folder for a run: what it writes, and its reports."""
    folder = Path(args.build_dir) / "runs" / label
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def preload_env(args, env, folder):
    """The environment of a run under the preload that reports to a folder."""
    return clean_env({**env, "LD_PRELOAD": str(args.preload),
                      "STREAMCHECK_JSON": str(folder / "report.%p.json")})


def preloaded(args, command, env, label):
    """Runs a command under the preload and reads the reports of all its processes."""
    folder = run_folder(args, label)
    code, stdout, stderr = start(command, preload_env(args, env, folder), folder, args.timeout)
    (folder / "stderr").write_text(stderr)
    return judged(folder, code, stdout, stderr, args.timeout)


def judged(folder, code, stdout, stderr, timeout):
    """What a run under the preload came to, by its exit code and the reports in its folder."""
    outcome = Outcome([], set(), stdout=stdout)
    for path in sorted(folder.glob("report.*json*")):
        try:
            report = json.loads(path.read_text())
            read_report(outcome, report)
        except (OSError, ValueError, KeyError, TypeError) as error:
            outcome.trouble = f"bad report {path.name}: {error!r}"
    outcome.codes.sort()
    must_end = GATE_FAILED if "error" in outcome.levels else 0
    if code is None:
        outcome.trouble = f"still running after {timeout} s"
    elif code != must_end:
        outcome.trouble = f"exit {code}, not {must_end}"
    elif outcome.operations == 0 and not outcome.trouble:
        outcome.trouble = "no operation was seen"
    if outcome.trouble:
        outcome.messages += [f"stderr: {line}" for line in tail(stderr)]
    return outcome


def build_all(args, nvcc, jobs):
    """Runs nvcc for each (output, arguments) at once; {output: message} of those that failed."""
    def build(job):
        output, arguments = job
        output.parent.mkdir(parents=True, exist_ok=True)
        code, out, err = start([nvcc, *arguments, "-o", output], clean_env(), ROOT, 600)
        return output, None if code == 0 else "\n".join(tail(out + err)) or f"nvcc exit {code}"

    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        return {output: message for output, message in pool.map(build, jobs) if message}


def missing(message, code=None):
    """`not run: …` if a build or a run failed for want of something on this machine, else None."""
    for pattern in (r"fatal error: (\S+): No such file", r"cannot find (-l\S+?):? ",
                    r"cannot find (-l\S+)", r"No module named '([\w.]+)'"):
        found = re.search(pattern, message)
        if found and code != 0:
            return f"not run: no {found[1]}"
    if code == SKIPPED:
        return f"not run: {' '.join(tail(message, 1))}"
    return None


def static_cudart(args):
    """nvcc's arguments for the architecture and static cudart, its default; over a simulated CUDA for its own."""
    if not args.simulate:
        return [f"-arch={args.arch}", "-cudart", "static"]
    # With no GPU to ask, that of an H200.
    arch = "sm_90" if args.arch == "native" else args.arch
    return [f"-arch={arch}", "-cudart", "none", args.simulate / "sim-static/libcudart.a",
            *(word for option in ("--exclude-libs=ALL", "--gc-sections", "--strip-debug")
              for word in ("-Xlinker", option)), "-lpthread", "-ldl", "-lm", "-lgcc_s"]


def nvcc_arguments(args, nvcc, source, extra):
    if args.simulate:
        # A simulated cudart comes behind what calls it.
        return ["-g", *(word for word in extra if word not in ("-cudart", "static")), "-Xcompiler", "-rdynamic",
                source, *static_cudart(args)]
    arguments = ["-g", f"-arch={args.arch}", *extra, "-Xcompiler", "-rdynamic"]
    cudart = find_cudart(nvcc)
    if cudart and "shared" in extra:
        arguments += ["-L", cudart, "-Xlinker", "-rpath", "-Xlinker", cudart]
    return [*arguments, source]


def gpus():
    """How many GPUs there are."""
    _, listed, _ = start(["nvidia-smi", "-L"], clean_env(), ROOT, 60)
    return sum(line.startswith("GPU ") for line in listed.splitlines())


def native_arch():
    """nvcc's -arch for the first GPU. Unlike `native` it embeds the PTX too, as an ordinary build does."""
    code, listed, _ = start(["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"],
                            clean_env(), ROOT, 60)
    lines = listed.split()
    return f"sm_{lines[0].replace('.', '')}" if code == 0 and lines else "native"


def machine(nvcc):
    """What it ran on, as (name, value) pairs."""
    _, smi, _ = start(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"],
                      clean_env(), ROOT, 60)
    _, version, _ = start([nvcc, "--version"], clean_env(), ROOT, 60)
    release = [line for line in version.splitlines() if "release" in line]
    name, _, driver = (smi.splitlines() or ["unknown"])[0].partition(", ")
    return [("GPU", name), ("driver", driver or "unknown"),
            ("nvcc", release[0].split("release ")[-1] if release else "unknown")]
