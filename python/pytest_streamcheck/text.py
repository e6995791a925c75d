"""A finding in words, from the JSON report's."""

from __future__ import annotations

import linecache
import os
import re
import textwrap
from typing import Any, Dict, List

from .reports import Finding

#: Frames that are shown of each call's stack.
FRAMES = 4

#: A space at which no line ends.
_GLUE = "\u00a0"

_INTERPRETER = re.compile(r"(lib)?python3?[\d.]*(\.so[\d.]*)?$|libffi\.|_ctypes\.|libc\.so")


def headline(finding: Finding) -> str:
    """One line: rule, name and what happened."""
    facts = finding.facts
    return f"{facts['rule']} {facts['name']}: {facts['message']}"


def story(finding: Finding) -> str:
    """The headline, the calls with their places, the order that exists, and what to add."""
    facts = finding.facts
    lines = [headline(finding)]
    if facts["level"] != "error":
        lines.append(f"    level: {facts['level']}")
    if finding.again:
        lines.append(f"    made again, {facts['count']} times so far; this was the first time:")
    process = finding.process
    if process.get("pid") != os.getpid():
        rank = process.get("rank")
        lines.append(
            f"    in process {process.get('pid')} ({os.path.basename(process.get('exe') or '?')})"
            + (f", rank {rank}" if rank is not None else "")
        )
    for event in facts["events"]:
        lines.append("")
        lines.append(f"    {event['role']}: {_call(event)}")
        lines.extend(_stack(event["stack"]))
    lines.append("")
    for title, text in (("ordering", facts.get("ordering")), ("help", facts["help"])):
        if text:
            lines.extend(_wrapped(f"{title}: {text}"))
    lines.append(f"    `streamcheck explain {facts['rule']}` tells more")
    return "\n".join(lines)


def _wrapped(text: str) -> List[str]:
    """The text in lines; calls that are to be copied stay in one piece."""
    glued = re.sub(r"\w\([^()]*\)", lambda call: call.group().replace(" ", _GLUE), text)
    lines = textwrap.wrap(glued, 96, initial_indent="    ", subsequent_indent="          ")
    return [line.replace(_GLUE, " ") for line in lines]


def _call(event: Dict[str, Any]) -> str:
    kernel = event.get("kernel")
    what = f"{event['api']} of {kernel}" if kernel else event["api"]
    stream = event.get("stream")
    return f"{what} on {stream}" if stream else what


def _stack(stack: List[Dict[str, Any]]) -> List[str]:
    lines: List[str] = []
    # What called the interpreter's C code is of interest, that code is not.
    told = [frame for frame in stack if not _is_interpreter(frame)]
    if stack and not told:
        return ["        by the Python interpreter"]
    for frame in told[:FRAMES]:
        function = frame.get("function") or "?"
        file, line = frame.get("file"), frame.get("line")
        if file and line:
            lines.append(f"        {_short(file)}:{line}: in {function}")
            source = linecache.getline(file, line).strip()
            if source:
                lines.append(f"            {source}")
        else:
            module = os.path.basename(frame.get("module") or "?")
            lines.append(f"        {module}: in {function}")
    return lines


def _is_interpreter(frame: Dict[str, Any]) -> bool:
    if (frame.get("file") or "").endswith((".py", ".pyx")):
        return False
    return bool(_INTERPRETER.match(os.path.basename(frame.get("module") or "")))


def _short(file: str) -> str:
    """Relative to the working directory, where it lies below it."""
    here = os.getcwd().rstrip("/") + "/"
    return file[len(here) :] if file.startswith(here) else file
