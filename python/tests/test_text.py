"""Findings in words."""

from pytest_streamcheck.reports import Finding
from pytest_streamcheck.text import story

FACTS = {
    "rule": "SC201",
    "name": "pageable-async-copy",
    "level": "warning",
    "message": "it is staged",
    "help": "pin it",
    "events": [
        {
            "role": "copy",
            "api": "cudaLaunchKernel",
            "kernel": "saxpy(float*)",
            "stream": "stream 2",
            "stack": [
                {"function": "PyObject_Call", "module": "/usr/lib/libpython3.11.so.1.0"},
                {"function": "saxpy", "file": __file__, "line": 1, "module": "/x/_ext.so"},
                {"function": "ffi_call", "module": "/usr/lib/libffi.so.8"},
                {"function": None, "file": None, "line": None, "module": "/x/libk.so"},
            ],
        }
    ],
}


def test_a_finding_is_told_with_its_places():
    text = story(Finding(FACTS, {"pid": 0, "exe": "/opt/app", "rank": 3}))
    lines = text.splitlines()
    assert lines[:6] == [
        "SC201 pageable-async-copy: it is staged",
        "    level: warning",
        "    in process 0 (app), rank 3",
        "",
        "    copy: cudaLaunchKernel of saxpy(float*) on stream 2",
        lines[5],
    ]
    assert lines[5].endswith("test_text.py:1: in saxpy")
    assert lines[6].strip() == '"""Findings in words."""'
    assert lines[7:] == [
        "        libk.so: in ?",
        "",
        "    help: pin it",
        "    `streamcheck explain SC201` tells more",
    ]


def test_a_repeated_finding_says_so():
    again = Finding(dict(FACTS, count=4), {"pid": 0}, again=True)
    assert "    made again, 4 times so far; this was the first time:" in story(again)


def test_an_interpreters_frames_are_one():
    event = dict(FACTS["events"][0], stack=FACTS["events"][0]["stack"][:1])
    text = story(Finding(dict(FACTS, events=[event]), {"pid": 0}))
    assert "        by the Python interpreter" in text.splitlines()
    assert "PyObject_Call" not in text


def test_a_call_to_copy_stays_in_one_piece():
    call = "cudaStreamWaitEvent(stream_2, event)"
    for filling in range(40, 90):
        text = story(Finding(dict(FACTS, help="x " * (filling // 2) + call + "."), {"pid": 0}))
        assert any(call in line for line in text.splitlines()), text
