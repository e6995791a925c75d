"""The pytest plugin: ``pytest --streamcheck``.

pytest replaces itself by ``streamcheck run -- python -m pytest …``, before it has imported any
test. Inside, what each phase of a test (setup, call, teardown) adds to the reports fails it.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Dict, List, NoReturn, Optional, Tuple

import pytest

from .reports import Finding, NoReports, Reports
from .text import story

#: Set by ``streamcheck run`` for all processes below it.
RUN_ID = "STREAMCHECK_RUN_ID"
#: Hands the level that fails a test on from before ``streamcheck run`` to within it.
FAIL_ON = "PYTEST_STREAMCHECK_FAIL_ON"

LEVELS = ("error", "warning", "never")
#: The least level that fails a test, with the levels that it stands for.
FAILING = {"error": {"error"}, "warning": {"error", "warning"}, "never": set()}

MARKER = (
    "streamcheck(off=False, allow=()): with off=True no finding fails the test, with "
    'allow=["SC201", …] none of these rules'
)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("streamcheck", "misuse of CUDA streams and memory")
    group.addoption(
        "--streamcheck",
        action="store_true",
        help="run the tests under streamcheck, and fail those in which it finds something",
    )
    group.addoption(
        "--streamcheck-fail-on",
        choices=LEVELS,
        help="the least level of a finding that fails its test (default: as streamcheck is "
        "configured by STREAMCHECK_FAIL_ON or streamcheck.toml, else error)",
    )
    group.addoption(
        "--streamcheck-require-cuda",
        action="store_true",
        help="fail the session if no process made a CUDA call",
    )
    group.addoption(
        "--streamcheck-command",
        metavar="PATH",
        help="the streamcheck command (default: the one on the PATH)",
    )


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config):
    # Before output is captured and before a conftest.py is imported.
    options = early_config.known_args_namespace
    if _is_wanted(options) and RUN_ID not in os.environ and not _is_worker(options):
        _become_a_run(options)
    yield


def _is_wanted(options) -> bool:
    return options.streamcheck and not options.help and not options.version


def _is_worker(options) -> bool:
    """Whether this is a worker of pytest-xdist, and not a pytest that one of its tests runs."""
    return "PYTEST_XDIST_WORKER" in os.environ and "no:terminal" in (options.plugins or [])


def _become_a_run(options) -> NoReturn:
    command = options.streamcheck_command or "streamcheck"
    path = shutil.which(command)
    if path is None:
        if options.streamcheck_command:
            raise pytest.UsageError(f"--streamcheck-command: {command} is no program")
        raise pytest.UsageError(
            "--streamcheck: there is no command `streamcheck` on the PATH; install it, or say "
            "where it is with --streamcheck-command"
        )
    # The kernel's copy: `pytest`, `python -m pytest` and programs that call pytest.main()
    # are all started again as they were.
    words = Path("/proc/self/cmdline").read_bytes().split(b"\0")[:-1]
    words[0] = os.fsencode(sys.executable)
    environment = dict(os.environ)
    environment[FAIL_ON] = _fail_on(options)
    # The tests judge; the command only gathers.
    run = [path, "run", "--fail-on=never", "--require-cuda=off", "--", *words]
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execve(path, run, environment)
    except OSError as error:
        raise pytest.UsageError(f"--streamcheck: {path} cannot be started: {error.strerror}")


def _fail_on(options) -> str:
    if options.streamcheck_fail_on:
        return options.streamcheck_fail_on
    for variable in (FAIL_ON, "STREAMCHECK_FAIL_ON"):
        if os.environ.get(variable) in LEVELS:
            return os.environ[variable]
    return _fail_on_of_file() or "error"


def _fail_on_of_file() -> Optional[str]:
    """The level that ``streamcheck.toml`` sets, found as the command finds it."""
    here = Path.cwd()
    named = os.environ.get("STREAMCHECK_CONFIG")
    files = [here / named] if named else [up / "streamcheck.toml" for up in (here, *here.parents)]
    for file in files:
        if file.is_file():
            text = file.read_text(encoding="utf-8", errors="replace")
            line = re.search(r"^\s*fail-on\s*=\s*[\"'](error|warning|never)[\"']", text, re.M)
            return line.group(1) if line else None
    return None


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)
    if not _is_wanted(config.option):
        return
    if RUN_ID not in os.environ:
        raise pytest.UsageError(
            "--streamcheck: this worker was not started below `streamcheck run`; workers on "
            "other hosts are not checked"
        )
    if "libstreamcheck" not in Path("/proc/self/maps").read_text(errors="replace"):
        raise pytest.UsageError(
            f"--streamcheck: libstreamcheck.so is not loaded into {sys.executable}; a "
            "statically linked or set-user-ID program ignores LD_PRELOAD"
        )
    try:
        reports = Reports()
    except NoReports as error:
        raise pytest.UsageError(f"--streamcheck: {error}") from error
    config.pluginmanager.register(Judge(config, reports), "streamcheck-judge")


class Judge:
    """Fails what the findings came from."""

    def __init__(self, config: pytest.Config, reports: Reports) -> None:
        self._config = config
        self._reports = reports
        self._level = _fail_on(config.option)
        # What was found outside of tests, and where that was.
        self._outside: List[Tuple[str, str]] = []
        self._saw_cuda = False
        self._failed_outside = False
        self._pid = os.getpid()
        # Registered before a test is imported, so it comes after what tests register.
        atexit.register(self._at_exit)

    # Tests.

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> None:
        self._take_outside("before " + item.nodeid)

    # The last implementations of a phase run once it is over and has not failed; what
    # they raise is its failure, to `xfail`, `--pdb` and reports alike.

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        # A marker that makes no sense is named before the test runs.
        _allowed(item)
        self._judge(item)

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_call(self, item: pytest.Item) -> None:
        self._judge(item)

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        self._judge(item)

    def _judge(self, item: pytest.Item) -> None:
        failing, rest = self._split(item)
        if rest:
            item.add_report_section(_phase(item), "streamcheck", _stories(rest))
        if failing:
            pytest.fail(_stories(failing), pytrace=False)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo):
        outcome = yield
        # A phase that failed by itself has not been looked at yet.
        failing, rest = self._split(item)
        if failing or rest:
            report = outcome.get_result()
            report.sections.append(("streamcheck", _stories(failing + rest)))

    def _split(self, item: pytest.Item) -> Tuple[List[Finding], List[Finding]]:
        new = [finding for finding in self._reports.new() if finding.live]
        if not new:
            return [], []
        allowed = _allowed(item)
        failing, rest = [], []
        for finding in new:
            excused = allowed is None or finding.facts["rule"] in allowed
            fails = not excused and finding.facts["level"] in FAILING[self._level]
            (failing if fails else rest).append(finding)
        return failing, rest

    # What is no test's.

    @pytest.hookimpl(hookwrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector):
        yield
        self._take_outside(f"while collecting {collector.nodeid or '.'}")

    def _take_outside(self, where: str) -> None:
        for finding in self._reports.new():
            if finding.live and finding.facts["level"] in FAILING[self._level]:
                self._outside.append((where, story(finding)))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node) -> None:
        """pytest-xdist: a worker ended, and hands over what it knows."""
        told = getattr(node, "workeroutput", {}).get("streamcheck")
        if told:
            self._saw_cuda |= told["saw_cuda"]
            known = {text for _, text in self._outside}
            # Every worker collects everything.
            self._outside += [(w, text) for w, text in told["outside"] if text not in known]

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self._take_outside("at the session's end")
        self._saw_cuda |= self._reports.saw_cuda()
        output = getattr(self._config, "workeroutput", None)
        if output is not None:
            output["streamcheck"] = {"saw_cuda": self._saw_cuda, "outside": self._outside}
            return
        if self._outside or self._lacks_cuda():
            self._failed_outside = True
            if session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
                session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _lacks_cuda(self) -> bool:
        return bool(self._config.getoption("streamcheck_require_cuda")) and not self._saw_cuda

    def pytest_terminal_summary(self, terminalreporter) -> None:
        places: Dict[str, List[str]] = {}
        for where, text in self._outside:
            places.setdefault(where, []).append(text)
        if places:
            terminalreporter.section("streamcheck: findings outside of tests", red=True)
            for where, texts in places.items():
                terminalreporter.write_line(f"{where}:", bold=True)
                for text in texts:
                    terminalreporter.write_line(text)
        if self._lacks_cuda():
            terminalreporter.section("streamcheck: nothing was checked", red=True)
            terminalreporter.write_line(
                "no process made a CUDA call, and --streamcheck-require-cuda asks for one"
            )

    def pytest_report_header(self) -> str:
        return f"streamcheck: findings fail their tests from the level {self._level} up"

    def _at_exit(self) -> None:
        if os.getpid() != self._pid:
            return
        known = len(self._outside)
        self._take_outside("at the interpreter's exit")
        late = self._outside[known:]
        if not late:
            return
        for where, text in late:
            print(f"streamcheck: a finding {where}:\n{text}", file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
        # Nothing else can make the exit code of an interpreter that is ending one of failure.
        os._exit(pytest.ExitCode.TESTS_FAILED)


def _allowed(item: pytest.Item) -> Optional[set]:
    """The rules that the test's markers allow; ``None`` for all of them."""
    rules = set()
    for mark in item.iter_markers("streamcheck"):
        wrong = set(mark.kwargs) - {"off", "allow"}
        if mark.args or wrong:
            pytest.fail(f"the marker is {MARKER.split(':')[0]}, not {mark}", pytrace=False)
        if mark.kwargs.get("off"):
            return None
        allow = mark.kwargs.get("allow", ())
        for rule in [allow] if isinstance(allow, str) else allow:
            if not re.fullmatch(r"SC\d{3}", str(rule)):
                pytest.fail(
                    f"the marker streamcheck allows {rule!r}, which is no rule such as SC201",
                    pytrace=False,
                )
            rules.add(rule)
    return rules


def _phase(item: pytest.Item) -> str:
    words = os.environ.get("PYTEST_CURRENT_TEST", "").rsplit("(", 1)
    return words[-1].rstrip(")") if len(words) == 2 else "call"


def _stories(findings: List[Finding]) -> str:
    return "\n\n".join(story(finding) for finding in findings)
