"""The findings of a pytest process and of the processes that it starts, as they are made.

Under ``streamcheck run`` each process writes a JSON report, ``PID.json``, into a private folder
at its first CUDA call, and replaces it at each new finding. Every pytest process, the workers of
pytest-xdist included, has a folder of its own below that one, named by its pid, for itself and
the processes it starts: so it knows whose findings are whose.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

#: The report of each process, as ``streamcheck run`` sets it.
TEMPLATE = "STREAMCHECK_JSON"
#: The folder of the whole run, for the pytest processes that a pytest process starts.
FOLDER = "PYTEST_STREAMCHECK_FOLDER"

# `12.json`; `12.json.12` and `12.json.12-2` of a process that ran several programs.
_REPORT = re.compile(r"(\d+)\.json(\.\d+(-\d+)?)?\Z")


class NoReports(Exception):
    """Why no findings can be had."""


@dataclass
class Finding:
    """A finding, as the report has it, and whose it is."""

    facts: Dict[str, Any]
    process: Dict[str, Any]
    #: Whether it was made before, by the same calls.
    again: bool = False

    @property
    def live(self) -> bool:
        """Whether it counts: neither suppressed nor in the baseline."""
        return self.facts.get("suppressed") is None and not self.facts.get("baseline")


class Reports:
    """What this process and those it starts report."""

    def __init__(self) -> None:
        template = os.environ.get(TEMPLATE, "")
        if not template.endswith("/%p.json"):
            raise NoReports(
                f"{TEMPLATE} is {template!r}, which is not what `streamcheck run` sets"
            )
        self._home = Path(template[: -len("/%p.json")].replace("%%", "%"))
        self._root = Path(os.environ.get(FOLDER) or self._home)
        # The preloaded library writes each new finding at once, and when it is asked to how
        # often each was made so far.
        self._update = getattr(ctypes.CDLL(None), "streamcheck_update_reports", None)
        self._claim()

    def _claim(self) -> None:
        """Gives this process its folder. Its first CUDA call may lie behind it, and its
        report then where the process that started it wanted it."""
        self._pid = os.getpid()
        self._own = self._root / str(self._pid)
        # How often each finding of each file was made, and the state of the file then.
        self._known: Dict[Path, Tuple[List[int], Tuple[int, int, int]]] = {}
        try:
            self._own.mkdir(exist_ok=True)
        except OSError as error:
            raise NoReports(f"{self._own} cannot be made: {error.strerror}") from error
        os.environ[FOLDER] = str(self._root)
        os.environ[TEMPLATE] = str(self._own).replace("%", "%%") + "/%p.json"

    def _files(self) -> Iterator[Tuple[Path, int]]:
        for folder in (self._home, self._own):
            try:
                names = sorted(os.listdir(folder))
            except OSError:
                continue
            for name in names:
                match = _REPORT.match(name)
                if not match:
                    continue
                pid = int(match.group(1))
                if pid == self._pid or (
                    folder == self._own and not (self._root / str(pid)).is_dir()
                ):
                    yield folder / name, pid

    def new(self) -> List[Finding]:
        """The findings that were made since the last call. One of this process may be one
        that was made before; of others it is not known when they repeat one."""
        if os.getpid() != self._pid:
            # A fork of a pytest process that goes on with the test, as pytest-forked makes.
            self._home = self._own
            self._claim()
        if self._update:
            self._update()
        found: List[Finding] = []
        for path, pid in self._files():
            known, state = self._known.get(path, ([], (0, 0, 0)))
            try:
                about = path.stat()
                now = (about.st_ino, about.st_mtime_ns, about.st_size)
                if now == state:
                    continue
                report = json.loads(path.read_text(encoding="utf-8"))
                findings = report["findings"]
                process = report["process"]
            except (OSError, ValueError, KeyError, TypeError):
                # Replaced as a whole, so it is there at the next look.
                continue
            counts = [facts.get("count", 1) for facts in findings]
            self._known[path] = (counts, now)
            for place, facts in enumerate(findings):
                again = place < len(known)
                if not again or (pid == self._pid and counts[place] > known[place]):
                    found.append(Finding(facts, process, again))
        return found

    def saw_cuda(self) -> bool:
        """Whether any of the processes made a CUDA call so far.

        A report is there from a process's first call on, but tells of operations only at a
        finding and at the end; a process that makes none may write an empty one at its end.
        """
        for path, pid in self._files():
            if os.path.isdir(f"/proc/{pid}"):
                return True
            try:
                report = json.loads(path.read_text(encoding="utf-8"))
                if report["summary"]["operations"] > 0:
                    return True
            except (OSError, ValueError, KeyError, TypeError):
                continue
        return False
