"""Real runs of pytest below `streamcheck run`."""

import json
import sys

import pytest


def outcomes(result):
    return result.parseoutcomes()


MIXED = """
    import cuda

    def test_good():
        on = cuda.stream()
        cuda.fill(cuda.allocate(64, on), 64, on)

    def test_bad():
        cuda.race()

    def test_later():
        pass
"""


def test_a_finding_fails_the_test_it_came_from(run):
    result = run(MIXED)
    assert result.ret == 1
    assert outcomes(result) == {"passed": 2, "failed": 1}
    result.stdout.fnmatch_lines(
        [
            "SC101 use-before-alloc: cudaMemsetAsync on stream 3 uses 4,096 bytes *",
            "    allocation: cudaMallocAsync on stream 2 *",
            "    use: cudaMemsetAsync on stream 3 *",
            "    ordering: Nothing orders stream 3 after stream 2.",
            "    help: After cudaMallocAsync on stream 2 *",
            "FAILED test_it.py::test_bad*",
        ]
    )


def test_without_the_option_nothing_changes(run):
    result = run(MIXED, streamcheck=False)
    assert result.ret == 0
    assert outcomes(result) == {"passed": 3}
    assert "streamcheck:" not in result.stderr.str()


def test_help_needs_no_command(run):
    result = run(MIXED, "--help", "--streamcheck-command=/no/such")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["misuse of CUDA streams and memory:", "  --streamcheck  *"])


def test_setup_and_teardown_are_phases_too(run):
    result = run(
        """
        import cuda, pytest

        @pytest.fixture
        def racy():
            cuda.race()

        @pytest.fixture
        def racy_later():
            yield
            cuda.race()

        def test_setup(racy): pass
        def test_teardown(racy_later): pass
        def test_clean(): pass
        """
    )
    assert result.ret == 1
    assert outcomes(result) == {"passed": 2, "errors": 2}
    result.stdout.fnmatch_lines(
        ["*ERROR at setup of test_setup*", "SC101*", "*ERROR at teardown of test_teardown*", "SC101*"]
    )


def test_what_happens_again_fails_again(run):
    result = run(
        """
        import cuda, pytest

        @pytest.mark.parametrize("times", [1, 2])
        def test_race(times):
            for _ in range(times): cuda.race()
        def test_clean(): pass
        """
    )
    assert outcomes(result) == {"passed": 1, "failed": 2}
    result.stdout.fnmatch_lines(
        ["*_ test_race[[]2] _*", "SC101 *", "    made again, 3 times so far; this was the first time:"]
    )


def test_a_test_that_fails_by_itself_shows_its_findings(run):
    result = run(
        """
        import cuda

        def test_it():
            cuda.race()
            assert 1 == 2
        def test_next(): pass
        """
    )
    assert outcomes(result) == {"passed": 1, "failed": 1}
    result.stdout.fnmatch_lines(["*assert 1 == 2*", "*- streamcheck -*", "SC101 *"])


def test_expected_failures_and_exit_first(run):
    result = run(
        """
        import cuda, pytest

        @pytest.mark.xfail(strict=True)
        def test_expected():
            cuda.race()
        """
    )
    assert result.ret == 0
    assert outcomes(result) == {"xfailed": 1}
    result = run(MIXED, "-x")
    assert outcomes(result) == {"passed": 1, "failed": 1}


def test_markers_excuse(run):
    source = """
        import cuda, pytest

        @pytest.mark.streamcheck(off=True)
        def test_off():
            cuda.race()

        @pytest.mark.streamcheck(allow=["SC101"])
        def test_allowed():
            cuda.race()

        @pytest.mark.streamcheck(allow=["SC103"])
        def test_other_rule():
            cuda.race()

        @pytest.mark.streamcheck(allow=["SC1"])
        def test_no_rule():
            pass
        """
    result = run(source, "--strict-markers")
    assert result.ret == 1
    assert outcomes(result) == {"passed": 2, "failed": 1, "errors": 1}
    result.stdout.fnmatch_lines(["*allows 'SC1', which is no rule such as SC201*"])


WARNING = """
    import cuda

    def test_it():
        cuda.pageable_copy()
"""


def test_the_level_that_fails(run, pytester, monkeypatch):
    assert run(WARNING).ret == 0
    result = run(WARNING, "--streamcheck-fail-on=warning")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["SC201 pageable-async-copy:*", "    level: warning"])
    assert run(MIXED, "--streamcheck-fail-on=never").ret == 0
    pytester.path.joinpath("streamcheck.toml").write_text("fail-on = 'warning' # strict\n")
    assert run(WARNING).ret == 1
    monkeypatch.setenv("STREAMCHECK_FAIL_ON", "error")
    assert run(WARNING).ret == 0


def test_suppressions_and_baseline_hold(run, pytester, monkeypatch):
    pytester.path.joinpath("s.toml").write_text(
        '[[suppress]]\nrule = "SC101"\nfunction = "*"\nreason = "a test"\n'
    )
    monkeypatch.setenv("STREAMCHECK_SUPPRESSIONS", "s.toml")
    assert run(MIXED).ret == 0
    monkeypatch.delenv("STREAMCHECK_SUPPRESSIONS")
    monkeypatch.setenv("STREAMCHECK_JSON", "old.json")
    assert run(MIXED).ret == 1
    monkeypatch.delenv("STREAMCHECK_JSON")
    monkeypatch.setenv("STREAMCHECK_BASELINE", "old.json")
    assert run(MIXED).ret == 0


CHILD = """
    import subprocess, sys

    def test_first(): pass

    def test_child():
        subprocess.run([sys.executable, "-c", "import cuda; cuda.race()"], check=True)

    def test_last(): pass
"""


def test_a_child_process_belongs_to_its_test(run):
    result = run(CHILD)
    assert result.ret == 1
    assert outcomes(result) == {"passed": 2, "failed": 1}
    result.stdout.fnmatch_lines(["FAILED test_it.py::test_child*"])
    result.stdout.re_match_lines([r"    in process \d+ \(python.*\)"])


def test_the_merged_report_holds_all_processes(run, pytester, monkeypatch):
    monkeypatch.setenv("STREAMCHECK_JSON", "all.json")
    source = CHILD + "\n    def test_own():\n        import cuda\n        cuda.race()\n"
    result = run(source)
    assert outcomes(result) == {"passed": 2, "failed": 2}
    report = json.loads(pytester.path.joinpath("all.json").read_text())
    assert report["summary"]["errors"] >= 1
    assert len(report["processes"]) == 2
    assert sum(finding["count"] for finding in report["findings"]) == 2


def test_findings_outside_of_tests_fail_the_session(run):
    result = run("import cuda\ncuda.race()\ndef test_it(): pass\n")
    assert result.ret == 1
    assert outcomes(result) == {"passed": 1}
    result.stdout.fnmatch_lines(
        [
            "*streamcheck: findings outside of tests*",
            "while collecting test_it.py:",
            "SC101 *",
        ]
    )


def test_findings_at_exit_fail_the_session(run):
    result = run("import atexit, cuda\natexit.register(cuda.race)\ndef test_it(): pass\n")
    assert result.ret == 1
    assert outcomes(result) == {"passed": 1}
    result.stderr.fnmatch_lines(
        ["streamcheck: a finding at the interpreter's exit:", "SC101 use-before-alloc:*"]
    )


def test_cuda_can_be_required(run):
    nothing = "def test_it(): pass\n"
    assert run(nothing).ret == 0
    result = run(nothing, "--streamcheck-require-cuda")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*no process made a CUDA call*"])
    quiet = "import cuda\ndef test_it(): cuda.stream()\n"
    assert run(quiet, "--streamcheck-require-cuda").ret == 0
    child = CHILD.replace("cuda.race", "cuda.stream")
    assert run(child, "--streamcheck-require-cuda").ret == 0


def test_a_missing_command_is_a_usage_error(run, monkeypatch):
    result = run(MIXED, "--streamcheck-command=/no/such")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["ERROR: --streamcheck-command: /no/such is no program"])
    monkeypatch.setenv("PATH", "/nowhere")
    result = run(MIXED)
    assert result.ret == 4
    assert result.stderr.str().splitlines() == [
        "ERROR: --streamcheck: there is no command `streamcheck` on the PATH; install it, or "
        "say where it is with --streamcheck-command"
    ]


def test_below_a_run_of_ones_own(run, pytester):
    run_own = ["streamcheck", "run", "--fail-on=warning", "--json=own.json", "--"]
    result = run(WARNING, before=run_own)
    assert result.ret == 1
    assert outcomes(result) == {"failed": 1}
    report = json.loads(pytester.path.joinpath("own.json").read_text())
    assert [finding["rule"] for finding in report["findings"]] == ["SC201"]


def test_started_by_a_program(run, pytester):
    run("def test_it(): pass", streamcheck=False)
    pytester.makepyfile(test_it=MIXED)
    pytester.makepyfile(
        start="import sys, pytest\nsys.exit(pytest.main(['-s', '--streamcheck', 'test_it.py']))"
    )
    result = pytester.run(sys.executable, "start.py")
    assert result.ret == 1
    assert outcomes(result) == {"passed": 2, "failed": 1}


def test_workers_of_xdist(run):
    pytest.importorskip("xdist")
    source = "import cuda\ncuda.race()\n" + "\n".join(
        f"def test_{number}():\n    {'cuda.race()' if number in (1, 4) else 'pass'}\n"
        for number in range(6)
    )
    source += (
        "def test_child():\n"
        "    import subprocess, sys\n"
        "    subprocess.run([sys.executable, '-c', 'import cuda; cuda.race()'], check=True)\n"
    )
    result = run(source, "-n2", "--streamcheck-require-cuda")
    assert result.ret == 1
    assert outcomes(result) == {"passed": 4, "failed": 3}
    failed = [line.split()[1] for line in result.outlines if line.startswith("FAILED ")]
    names = sorted(name.split("::")[1] for name in failed)
    assert names == ["test_1", "test_4", "test_child"]
    result.stdout.fnmatch_lines(["while collecting test_it.py:", "SC101 *"])
    assert "nothing was checked" not in result.stdout.str()


def test_workers_that_find_nothing_say_whether_they_saw_cuda(run):
    pytest.importorskip("xdist")
    quiet = "import cuda\ndef test_it(): cuda.stream()\n"
    assert run(quiet, "-n2", "--streamcheck-require-cuda").ret == 0
    assert run("def test_it(): pass", "-n2", "--streamcheck-require-cuda").ret == 1


def test_forked_tests(run):
    pytest.importorskip("pytest_forked")
    if run("def test_it(): pass", "--forked", streamcheck=False).ret != 0:
        pytest.skip("pytest-forked does not work with this pytest")
    result = run(MIXED, "--forked")
    assert result.ret == 1
    assert outcomes(result) == {"passed": 2, "failed": 1}
    result.stdout.fnmatch_lines(["FAILED test_it.py::test_bad*"])
