"""What a savepoint or checkpoint holds, without Spark: listed, searched and compared; and the commands for it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flinkish.checkpoint.manifest import Savepoint, write_manifest
from flinkish.cli import main
from flinkish.errors import SavepointError
from flinkish.state import describe_savepoint
from flinkish.state.contents import Change, Entry, difference, entries, shown
from tests.golden.write import unpack

KEYS = 13


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The job directory of a release, with its savepoint beside it."""
    folder = tmp_path_factory.mktemp("stored")
    unpack("spark", folder)
    return folder


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs a command; gives what it prints."""

    def run(*arguments: Any) -> str:
        assert main(list(map(str, arguments))) == 0
        return capsys.readouterr().out

    return run


def test_a_job_directory_stands_for_its_latest_checkpoint_with_all_its_changes(stored: Path) -> None:
    found = describe_savepoint(str(stored / "job"))
    assert found.path == str(stored / "job" / "checkpoints" / "chk-3")
    assert (found.job_name, found.epoch, sorted(found.sources)) == ("golden", 5, ["events"])
    states = {(one.uid, one.state): one for one in found.states}
    seen, point = states["everything", "seen"], states["everything", "point"]
    assert (seen.kind, seen.rows, seen.keys, seen.type) == ("map", 40, KEYS, "BIGINT -> BIGINT")
    assert (point.kind, point.rows, point.key_type, point.type) == ("value", KEYS, None, "?")
    assert states["numbered", "count"].rows == 2 and "__watermark__" not in {state for _, state in states}


def test_a_savepoint_is_shown_as_a_table_in_text_and_in_notebooks(stored: Path, tmp_path: Path) -> None:
    shutil.copytree(stored / "savepoint", tmp_path / "savepoint")
    manifest = Savepoint.open(str(tmp_path / "savepoint")).manifest
    write_manifest(str(tmp_path / "savepoint"), manifest.__class__(**{**vars(manifest), "job_name": "<b>shop</b>"}))
    found = describe_savepoint(str(tmp_path / "savepoint"))
    lines = str(found).splitlines()
    assert lines[1].startswith("job: <b>shop</b> (") and lines[-1].startswith("windows     __window_contents__")
    html = found._repr_html_()
    assert "&lt;b&gt;shop" in html and "<b>" not in html
    assert "everything</td>" in html and "BIGINT -&gt; BIGINT" in html


def test_entries_are_found_by_key_however_it_is_typed(stored: Path) -> None:
    path = str(stored / "job")
    assert len(list(entries(path, "everything", "sum"))) == KEYS
    (found,) = entries(path, "everything", "sum", "u0")
    assert found == (Entry('"u0"', "null", None), "27")
    assert list(entries(path, "everything", "sum", '"u0"')) == [found]
    assert list(entries(path, "everything", "sum", "nobody")) == []
    (window,) = entries(path, "windows", "__window_contents__", "u0")
    assert window == (Entry('"u0"', '{"$tuple": [0, 16000]}', None), '{"$tuple": ["u0", 27, 3900]}')
    assert {entry.map_key: value for entry, value in entries(path, "everything", "seen", "u0")}["5"] == "1"
    with pytest.raises(SavepointError, match="no state 'nothing' of an operator with the uid 'everything'"):
        list(entries(path, "everything", "nothing"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, ""),
        ("null", ""),
        ('"u0"', "'u0'"),
        ('{"$tuple": ["a", 1]}', "('a', 1)"),
        ("[1, 2]", "[1, 2]"),
        ("no JSON", "no JSON"),
        ('{"$pickle": "' + "A" * 100 + '"}', '{"$pickle": "' + "A" * 37 + "..."),
    ],
)
def test_a_text_is_shown_as_the_value_that_it_stands_for(text: str | None, expected: str) -> None:
    assert shown(text) == expected


def test_two_checkpoints_differ_in_what_was_added_removed_and_changed(stored: Path) -> None:
    older, newer = (str(stored / "job" / "checkpoints" / f"chk-{number}") for number in (2, 3))
    found = {one.state: one for one in difference(older, newer, "everything")}
    timers, sums = found["__timers__/user-timers"], found["sum"]
    assert (timers.added, timers.removed, timers.changed, timers.same) == (10, 0, 0, 30)
    assert (sums.added, sums.removed, sums.changed, sums.same) == (0, 0, 9, 4)
    assert sums.changes[0] == Change(Entry('"u0"', "null", None), "22", "27") and sums.changes[0].kind == "changed"
    back = {one.state: one for one in difference(newer, older, limit=1)}
    assert (back["seen"].added, back["seen"].removed, len(back["seen"].changes)) == (0, 10, 1)
    assert back["count"].changed == 2
    assert all(one.is_equal for one in difference(older, older))


def test_the_commands_print_tables_and_json(stored: Path, command: Callable[..., str]) -> None:
    job, older = stored / "job", stored / "job" / "checkpoints" / "chk-2"
    assert "everything  sum " in command("state", "list", job)
    states = json.loads(command("state", "list", "--json", job))["states"]
    assert {"uid": "everything", "state": "sum", "kind": "value", "rows": KEYS}.items() <= states[-4].items()
    query = ("state", "query", job, "--uid", "windows", "--state", "__window_contents__")
    assert command(*query, "--key", "u0").splitlines()[1].split() == "'u0' (0, 16000) ('u0', 27, 3900)".split()
    assert "the first 2 entries" in command(*query, "--limit", 2)
    found = json.loads(command(*query, "--key", "u0", "--json"))
    value, window = {"$tuple": ["u0", 27, 3900]}, {"$tuple": [0, 16000]}
    assert found == {"entries": [{"key": "u0", "namespace": window, "map_key": None, "value": value}], "more": False}
    lines = command("state", "diff", older, job, "--uid", "everything", "--limit", 1).splitlines()
    assert "everything  sum                     0      0        9        4" in lines
    assert "everything.sum changed 'u0': 22 -> 27" in lines and "everything.sum and 8 more" in lines
    same = json.loads(command("state", "diff", "--json", older, older))
    assert same["equal"] and not json.loads(command("state", "diff", "--json", older, job))["equal"]


def test_a_directory_without_a_savepoint_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["state", "list", str(tmp_path)]) == 2
    assert "there is neither a savepoint nor a completed checkpoint" in capsys.readouterr().err
