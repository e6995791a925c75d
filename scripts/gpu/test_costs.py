"""The bench without a GPU: its arithmetic, its tables, and programs that take turns.

    python3 -m unittest discover -s scripts/gpu
"""

import argparse
import importlib.machinery
import importlib.util
import json
import os
import sys
import tempfile
import time
import unittest
from pathlib import Path
from unittest import mock

import costs
from costs import Bench, Failed, Program, Sample, Worker
from runs import Outcome, start

HERE = Path(__file__).resolve().parent


def gpu_check():
    loader = importlib.machinery.SourceFileLoader("gpu_check", str(HERE.parent / "gpu-check"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("gpu_check", loader))
    loader.exec_module(module)
    return module


def sequence(*runs):
    return [Sample(mode, time, time, "1") for mode, time in runs]


class Ratios(unittest.TestCase):
    def test_a_run_compares_with_the_native_ones_nearest_to_it(self):
        samples = sequence(("native", 100), ("none", 110), ("full", 150), ("native", 200), ("full", 330),
                           ("native", 400))
        self.assertEqual(costs.ratios(samples), {"none": [110 / 150], "full": [1.0, 1.1]})
        self.assertEqual(costs.native_time(samples), 200)

    def test_one_neighbour_is_enough(self):
        self.assertEqual(costs.ratios(sequence(("native", 100), ("full", 150))), {"full": [1.5]})
        self.assertEqual(costs.ratios(sequence(("full", 150), ("native", 100))), {"full": [1.5]})

    def test_runs_that_failed_have_no_ratio_and_are_no_neighbours(self):
        samples = sequence(("native", 100), ("full", 150), ("native", 900), ("full", 7))
        samples[2].failed = samples[3].failed = "exit 1"
        self.assertEqual(costs.ratios(samples), {"full": [1.5]})

    def test_without_a_native_time_there_is_no_ratio(self):
        self.assertEqual(costs.ratios(sequence(("full", 150))), {})


class Results(unittest.TestCase):
    def test_results_compare_with_the_native_ones_of_the_same_age(self):
        samples = [Sample("native", 1, 1, "a", 0), Sample("full", 1, 1, "a", 0),
                   Sample("native", 1, 1, "b", 1), Sample("full", 1, 1, "a", 1), Sample("caller", 1, 1, "b", 1)]
        self.assertEqual(costs.differing(samples), ["full"])

    def test_results_that_vary_natively_do_not_compare(self):
        samples = [Sample("native", 1, 1, "a"), Sample("full", 1, 1, "c"), Sample("native", 1, 1, "b")]
        self.assertEqual(costs.differing(samples), [])

    def test_fewer_calls_do_not_compare(self):
        samples = [Sample("native", 1, 1, "a"), Sample("sanitizer 2026.4 all", 1, 1, "c", None)]
        self.assertEqual(costs.differing(samples), [])

    def test_what_the_loops_print(self):
        found = costs.read_loops("noise\nloop launch median 3612.5 min 3500.0 checksum 31000\n"
                                 "loop graph-launch failed: cudaGraphInstantiate(): operation not supported\n"
                                 "loop copy median 12")
        self.assertEqual(sorted(found), ["graph-launch", "launch"])
        self.assertEqual((found["launch"].median_ns, found["launch"].min_ns), (3612.5, 3500.0))
        self.assertEqual(found["launch"].checksum, "31000")
        self.assertEqual(found["graph-launch"].failed, "cudaGraphInstantiate(): operation not supported")


def bench(**given):
    args = argparse.Namespace(**{"budget": 100.0, "timeout": 20.0, "only": "*", "preload": Path("/none.so"),
                                 "build_dir": "/none", "sanitizer": None, "simulate": None, "arch": "sm_90", **given})
    return Bench(args, "/none/nvcc", time.monotonic())


class Complaints(unittest.TestCase):
    def test_why_compute_sanitizer_ended(self):
        self.assertEqual(costs.complaint("========= COMPUTE-SANITIZER\n========= Error: Device not supported\n"
                                         "========= Please see the documentation\n"), "Device not supported")
        self.assertEqual(costs.complaint("========= one\n========= two\n"), "========= one ========= two")


class Loops(unittest.TestCase):
    """Runs of a script in place of loops.cu."""

    def run_script(self, body):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        found = bench(build_dir=holder.name)
        found.program = Path(holder.name) / "loops"
        found.program.write_text(f"#!/bin/sh\n{body}\n")
        found.program.chmod(0o755)
        found.run_loops("native")
        self.assertTrue(all(len(found.rows[loop.name]) == 1 for loop in costs.LOOPS))
        return found.runs, {loop.name: found.rows[loop.name][0].failed for loop in costs.LOOPS}

    def test_loops_after_one_that_kills_the_process_have_a_run_of_their_own(self):
        runs, failed = self.run_script("for word; do case $word in copy:*) echo gone >&2; exit 3;; esac\n"
                                       "echo loop ${word%%:*} median 9 min 8 checksum 7; done")
        self.assertEqual(runs, 2)
        self.assertEqual(failed, {**dict.fromkeys(failed, ""), "copy": "exit 3: gone"})

    def test_a_process_that_dies_at_once_is_not_tried_again(self):
        runs, failed = self.run_script("echo gone >&2; exit 3")
        self.assertEqual(runs, 1)
        self.assertEqual(failed, dict.fromkeys(failed, "exit 3: gone"))


class Tables(unittest.TestCase):
    def setUp(self):
        self.bench = bench()
        self.bench.sanitizers = [costs.Sanitizer(Path("/s"), "2026.4")]
        self.bench.rows["launch"] = sequence(("native", 3600), ("caller", 3636), ("full", 3780), ("native", 3600),
                                             ("full", 3708), ("native", 3600), ("sanitizer 2026.4 all", 36000))
        self.bench.rows["graph-launch"] = [Sample(mode, failed="cudaGraphInstantiate: operation not supported")
                                           for mode in ("native", "full")]
        self.bench.rows["copy"] = [*sequence(("native", 900)), Sample("full", failed="still running after 30 s")]
        self.bench.rows["torch-async/train"] = sequence(("native", 2.1e6), ("caller", 2.1e6), ("full", 4.2e6))
        self.bench.outcomes = [("loops", "full", Outcome([], set())),
                               ("torch-async", "full", Outcome(["SC201", "SC201"], {"warning"}))]

    def test_a_row_for_each_loop_and_program_that_was_run(self):
        calls, steps = self.bench.tables()
        self.assertEqual(calls[0][1:], ["native", "none", "caller", "full", "sanitizer 2026.4 all",
                                        "sanitizer 2026.4 no"])
        self.assertEqual(calls[1:], [
            ["launch, 4 pointers", "3,600 ns", "-", "1.01", "1.04 (1.03–1.05)", "10.00", "-"],
            ["cudaMemcpyAsync, pinned 4 KiB to device", "900 ns", "-", "-", "n/a: still running after 30 s", "-", "-"],
            ["cudaGraphLaunch, 8 kernels", "n/a: cudaGraphInstantiate: operation not ", "-", "-", "-", "-", "-"]])
        self.assertEqual(steps[1:], [["PyTorch training step, cudaMallocAsync", "2,100 µs", "1.00", "2.00", "-",
                                      "SC201, 1 of 1 runs as allowed"]])

    def test_only_what_the_tool_did_is_a_fault(self):
        self.assertEqual(self.bench.faults(), ["copy (full): still running after 30 s"])
        self.bench.outcomes += [("torch", "full", Outcome(["SC103"], {"error"}, messages=["SC103 ×1: freed"])),
                                ("jax", "caller", Outcome([], set(), trouble="exit 139, not 0"))]
        self.bench.rows["launch"][1].checksum = "2"
        self.assertEqual(self.bench.faults(), [
            "torch, full: SC103", "torch, full: SC103 ×1: freed", "jax, caller: exit 139, not 0",
            "launch, caller: its results differ from the native ones", "copy (full): still running after 30 s"])

    def test_reasons_stand_in_full_below_the_tables(self):
        remarks = self.bench.remarks()
        self.assertIn("graph-launch (native, full): cudaGraphInstantiate: operation not supported", remarks)
        self.assertIn("loops preloaded: none, 1 of 1 runs as allowed", remarks)

    def test_markdown_and_json(self):
        self.bench.rows["launch"][3].failed = "a | b"
        page = gpu_check().markdown([("GPU", "H200")], bench=self.bench)
        self.assertIn("| launch, 4 pointers | 3,600 ns | - |", page)
        self.assertIn("- wrong: copy (full): still running after 30 s", page)
        widths = {line.count("|") - line.count("\\|") for line in page.splitlines() if line.startswith("| ")}
        self.assertEqual(widths, {8, 7})  # headings, rules and rows of two tables
        data = json.loads(json.dumps(self.bench.data([("GPU", "H200")])))
        self.assertEqual(data["rows"]["launch"]["native_ns"], 3600)
        self.assertEqual(len(data["rows"]["launch"]["samples"]), 7)
        self.assertEqual(data["faults"], ["copy (full): still running after 30 s"])


class Budget(unittest.TestCase):
    def test_what_is_not_started_is_named_and_saved(self):
        saved = []
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(Bench, "prepare"):
            spent = bench(budget=5.0, build_dir=folder)
            spent.run(lambda: saved.append(len(spent.skipped)))
        self.assertEqual(spent.skipped[:3], ["loops", "torch-async 1", "torch 1"])
        self.assertEqual(saved[-1], len(costs.ORDER))
        self.assertIn("skipped, past the budget of 5 s: loops; torch-async 1", "\n".join(spent.remarks()))
        self.assertEqual(spent.faults(), [])

    def test_a_stage_that_breaks_leaves_the_others(self):
        def broken(*_):
            raise KeyError("x")

        with tempfile.TemporaryDirectory() as folder, mock.patch.object(Bench, "prepare"), \
                mock.patch.object(Bench, "loops", broken), mock.patch.object(Bench, "steps"):
            found = bench(build_dir=folder).run(lambda: None)
        self.assertEqual(found.faults(), ["loops: KeyError('x')"])
        self.assertEqual(len(found.stages), 1 + len(costs.ORDER))


class Turns(unittest.TestCase):
    """Workers with a program of their own in place of a library's."""

    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = Path(holder.name)
        patch = mock.patch.object(costs, "BENCH", self.folder)
        patch.start()
        self.addCleanup(patch.stop)

    def worker(self, body):
        (self.folder / "steps.py").write_text(
            f"import sys; sys.path.insert(0, {str(HERE / 'bench')!r})\nfrom turns import take_turns\n{body}")
        worker = Worker(bench(build_dir=str(self.folder)).args, Program("p", "steps.py", []), "native", 0)
        self.addCleanup(worker.child.stdout.close)
        self.addCleanup(worker.kill)
        return worker

    def test_a_program_is_timed_when_told_to(self):
        worker = self.worker("count = [0]\n"
                             "def step(): count[0] += 1\n"
                             "print('library noise')\n"
                             "take_turns({'loop': lambda: (step, lambda: str(count[0]))})\n")
        self.assertEqual(worker.answer(20), "ready")
        worker.order("prepare loop 3")
        self.assertEqual(worker.answer(20), "prepared")
        first, second = worker.time("loop", 10, 20), worker.time("loop", 10, 20)
        self.assertEqual((first.checksum, first.position), ("18", 0))  # 3, then 5 and 10
        self.assertEqual((second.checksum, second.position), ("33", 1))
        self.assertGreaterEqual(first.median_ns, first.min_ns)
        self.assertIsNone(worker.end(20))
        self.assertEqual(worker.child.returncode, 0)

    def test_a_loop_that_fails_leaves_the_others(self):
        worker = self.worker("def bad(): raise ValueError('no such\\nallocator')\n"
                             "take_turns({'bad': bad, 'good': lambda: (lambda: None, lambda: '')})\n")
        worker.answer(20)
        worker.order("prepare bad 1")
        with self.assertRaisesRegex(Failed, "^ValueError: no such allocator$"):
            worker.answer(20)
        worker.order("prepare good 1")
        self.assertEqual(worker.answer(20), "prepared")
        self.assertEqual(worker.time("good", 1, 20).failed, "")
        worker.end(20)

    def test_a_program_that_cannot_start_says_why(self):
        worker = self.worker("import no_such_library\n")
        with self.assertRaisesRegex(Failed, "not run: no no_such_library"):
            worker.answer(20)
        self.assertEqual(worker.time("loop", 1, 20).failed, "not run: no no_such_library")

    def test_a_program_that_dies_or_hangs_is_lost(self):
        worker = self.worker("import os\ntake_turns({'loop': lambda: (lambda: os._exit(9), str)})\n")
        worker.answer(20)
        worker.order("prepare loop 0")
        worker.answer(20)
        self.assertRegex(worker.time("loop", 1, 20).failed, "^exit 9")
        worker = self.worker("import time\ntime.sleep(600)\n")
        with self.assertRaisesRegex(Failed, "no answer within 1 s"):
            worker.answer(1)
        self.assertIsNotNone(worker.child.returncode)


class Start(unittest.TestCase):
    def test_no_process_outlives_a_run(self):
        with tempfile.TemporaryDirectory() as folder:
            # The shell's child holds no pipe, so that the shell alone is waited for.
            child = "sleep 600 >&- 2>&- & echo $!"
            for script, timeout, expected in ((child, 20, 0), (f"{child}; wait", 1, None)):
                code, out, _ = start(["sh", "-c", script], dict(os.environ), folder, timeout)
                self.assertEqual(code, expected)
                self.assertFalse(alive(int(out)), script)

    def test_a_command_that_is_not_there(self):
        self.assertEqual(start(["/no/such"], {}, "/", 5), (127, "", "/no/such: No such file or directory"))


def alive(pid):
    """Whether a process runs; one that was killed may take a moment."""
    for _ in range(50):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return False
        if state == "Z":
            return False
        time.sleep(0.1)
    return True


if __name__ == "__main__":
    sys.exit(unittest.main())
