"""Guard mode's part without a GPU: what it judges, its tables, and programs of its own in a real one's place.

    python3 -m unittest discover -s scripts/gpu
"""

import argparse
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import guarded
from costs import Sample
from guarded import Guard, Program, Row
from programs import Fixture, read_fixture
from runs import ROOT, Outcome
from test_costs import gpu_check


def row(expect=(), on=(), off=(), **given):
    return Row(Program("p", "p.py", [], expect, ("SC201",)), "sum 1", Outcome(list(off), set()),
               Outcome(list(on), set()), **given)


def sample(mode, median, checksum="1", failed=""):
    return Sample(mode, median, median, checksum, failed=failed)


class Judging(unittest.TestCase):
    def test_a_program_gets_what_it_must_in_guard_mode_and_nothing_out_of_it(self):
        self.assertFalse(row(on=("SC201",), off=("SC201",)).wrong())
        self.assertFalse(row(("SC108",), on=("SC108", "SC201")).wrong())
        self.assertTrue(row(("SC108",)).wrong())
        self.assertTrue(row(on=("SC108",)).wrong())
        self.assertTrue(row(("SC108",), on=("SC108",), off=("SC108",)).wrong())
        self.assertTrue(row(trouble="printed 'sum 2'").wrong())
        self.assertFalse(row(("SC108",), idle="not run: no torch").wrong())

    def test_a_finding_must_name_the_marked_line(self):
        with tempfile.TemporaryDirectory() as folder:
            script = Path(folder) / "early.py"
            script.write_text("import torch\nfirst = host[0]  # too early\n")
            at = lambda place: Outcome(["SC108"], {"error"}, messages=[f"SC108 ×1: read (use at {place})"])
            self.assertEqual(guarded.unnamed(script, "# too early", at("early.py:2 < early.py:9")), "")
            self.assertEqual(guarded.unnamed(script, "# too early", at("early.py:1")), "no SC108 names early.py:2")

    def test_every_mark_stands_in_its_program_once(self):
        for program in guarded.PROGRAMS:
            text = (guarded.FOLDER / program.script).read_text()
            if program.mark:
                self.assertEqual(text.count(program.mark), 1)

    def test_the_hosts_fixtures_run_in_guard_mode(self):
        fixtures = [read_fixture(source) for source in sorted((ROOT / "fixtures/host").glob("*.cu"))]
        self.assertGreater(len(fixtures), 50)
        for fixture in fixtures:
            wanted = {} if fixture.name.startswith("sc107") else {"STREAMCHECK_GUARD": "on"}
            env = fixture.env()
            env.pop("STREAMCHECK_LEVEL", None)
            self.assertEqual(env, wanted, fixture.name)


class Running(unittest.TestCase):
    """A script in a Python program's place, and no preload library to speak of."""

    def run_script(self, body, on, off=()):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        (Path(holder.name) / "p.py").write_text(body)
        outcomes = {"on": Outcome(list(on), set(), stdout="sum 1\n"), "off": Outcome(list(off), set(), stdout="sum 1\n")}

        def preloaded(_args, _command, env, _label):
            return outcomes["on" if env == guarded.ON else "off"]

        args = argparse.Namespace(build_dir=holder.name, timeout=20)
        with mock.patch.object(guarded, "FOLDER", Path(holder.name)), \
                mock.patch.object(guarded, "preloaded", preloaded):
            return guarded.run_program(args, Program("p", "p.py", []))

    def test_results_are_compared_with_the_native_ones(self):
        self.assertFalse(self.run_script("print('sum 1')", []).wrong())
        found = self.run_script("print('sum 2')", [])
        self.assertTrue(found.wrong())
        self.assertIn("printed 'sum 1' with guard on, natively 'sum 2'", found.trouble)

    def test_what_cannot_run_is_told_from_what_is_wrong(self):
        lacking = self.run_script("import no_such_library", [])
        self.assertEqual((lacking.idle, lacking.wrong()), ("not run: no no_such_library", False))
        broken = self.run_script("raise SystemExit(3)", [])
        self.assertEqual((broken.trouble, broken.wrong()), ("natively: exit 3", True))


class Costs(unittest.TestCase):
    def setUp(self):
        self.loops = {"beside": [sample("native", 100), sample("off", 110), sample("on", 220), sample("native", 100)]}

    def test_each_mode_is_a_ratio_to_native_and_guard_mode_to_being_preloaded(self):
        self.assertEqual(Guard([], [], self.loops, []).cost_table()[1][1:], ["100 ns", "1.10", "2.20", "2.00"])

    def test_what_the_tool_did_to_the_loops_is_a_fault(self):
        self.assertEqual(Guard([], [], self.loops, [("on", Outcome([], set()))]).faults(), [])
        self.loops["beside"][2].checksum = "2"
        outcomes = [("on", Outcome(["SC108"], {"error"}, messages=["SC108 ×9: read"]))]
        self.assertEqual(Guard([], [], self.loops, outcomes).faults(), [
            "loops, guard on: SC108", "loops, guard on: SC108 ×9: read",
            "beside, guard on: its results differ from the native ones"])

    def test_a_run_without_a_time_says_why(self):
        loops = {"beside": []}
        guarded.add_samples(loops, "native", "loop beside median 9 min 8 checksum 7", "")
        guarded.add_samples(loops, "on", "", "exit 139, not 0")
        self.assertEqual(Guard([], [], loops, []).faults(), ["beside, guard on: exit 139, not 0"])

    def test_tables(self):
        fixture = Fixture("sc108_x", Path("sc108_x.cu"), expect=["SC108"])
        guard = Guard([(fixture, {"static": Outcome(["SC108"], {"error"})})],
                      [row(("SC108",), on=("SC108",)), row(idle="not run: no cupy")], self.loops, [])
        page = gpu_check().markdown([("GPU", "H200")], guard=guard)
        self.assertIn("| sc108_x | - | SC108 | SC108 |", page)
        self.assertIn("| p | SC108, SC201 | SC108 | none | sum 1 |", page)
        self.assertIn("| p | none, SC201 | not run: no cupy | - | - |", page)
        self.assertIn("| write one half of a page while a copy reads the other, wait | 100 ns | 1.10 | 2.20 | 2.00 |", page)
        self.assertFalse(Guard([], [], {}, []))


if __name__ == "__main__":
    unittest.main()
