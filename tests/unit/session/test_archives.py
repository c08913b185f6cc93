"""Jobs that have ended are shown out of their archives."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flinkish.session.archives import Archives
from tests.unit.session.folders import JOB, OTHER, archive, line


def test_archives_of_all_directories_are_listed_and_answer_for_their_paths(tmp_path: Path) -> None:
    archive(tmp_path / "one", JOB, "CANCELED")
    archive(tmp_path / "two", OTHER, "FAILED")
    archives = Archives([str(tmp_path / "one"), str(tmp_path / "two"), str(tmp_path / "missing")])
    assert {one["jid"]: one["state"] for one in archives.refresh()} == {JOB: "CANCELED", OTHER: "FAILED"}
    assert json.loads(archives.answer(JOB, f"/jobs/{JOB}") or "")["state"] == "CANCELED"
    assert archives.answer(JOB, f"/jobs/{OTHER}") is None
    assert archives.answer("c" * 32, f"/jobs/{JOB}") is None
    for path in ("metrics", f"vertices/{OTHER}/subtasks/metrics", f"vertices/{OTHER}/watermarks"):
        assert archives.answer(JOB, f"/jobs/{JOB}/{path}") == "[]"


def test_a_new_archive_is_found_and_one_that_has_changed_is_read_again(tmp_path: Path) -> None:
    archives = Archives([str(tmp_path)])
    assert archives.refresh() == ()
    archive(tmp_path, JOB, "CANCELED")
    assert [one["state"] for one in archives.refresh()] == ["CANCELED"]
    archive(tmp_path, JOB, "FAILED")
    assert [one["state"] for one in archives.refresh()] == ["FAILED"]
    archive(tmp_path, JOB, "XAILED")
    assert [one["state"] for one in archives.refresh()] == ["XAILED"], "of the same size"
    (tmp_path / JOB).unlink()
    assert archives.refresh() == () and archives.answer(JOB, f"/jobs/{JOB}") is None


def _of(jobs: Any) -> str:
    return json.dumps({"archive": [{"path": "/jobs/overview", "json": json.dumps({"jobs": jobs})}]})


#: Name and content of a file that is no archive of the job of its name.
DAMAGED: list[tuple[str, str, str]] = [
    ("no JSON", JOB, "{"),
    ("other JSON", JOB, "[1]"),
    ("no list of jobs", JOB, '{"archive": []}'),
    ("two jobs", JOB, _of([line(JOB), line(OTHER)])),
    ("another job", JOB, _of([line(OTHER)])),
    ("a state that is no text", JOB, _of([{**line(JOB), "state": 1}])),
    ("times that are no numbers", JOB, _of([{**line(JOB), "end-time": "x"}])),
    ("a job without times", JOB, _of([{"jid": JOB, "state": "FINISHED"}])),
    ("another name", "notes.txt", _of([line(JOB)])),
    ("a name with a path", f".{JOB}", _of([line(JOB)])),
    ("nested beyond measure", JOB, "[" * 100_000),
]


@pytest.mark.parametrize(("name", "content"), [case[1:] for case in DAMAGED], ids=[case[0] for case in DAMAGED])
def test_what_is_no_archive_is_left_out(name: str, content: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    archive(tmp_path, "d" * 32)
    assert [one["jid"] for one in Archives([str(tmp_path)]).refresh()] == ["d" * 32]


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    make: Callable[[Path], None] = __import__("os").mkfifo
    make(tmp_path / JOB)
    assert Archives([str(tmp_path)]).refresh() == ()
