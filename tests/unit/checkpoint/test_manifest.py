"""The manifest of a savepoint is read as it was written, or refused with the name of the file."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from flinkish.checkpoint.manifest import (
    VERSION_WITH_CHANGES,
    Manifest,
    Savepoint,
    StateContents,
    TableContents,
    TableVersion,
    write_manifest,
)
from flinkish.errors import SavepointError
from flinkish.runtime.state.state_rows import DeclaredState
from flinkish.storage.paths import joined

FULL = Manifest(
    job_id="ab" * 16,
    job_name="größte Aufgabe",
    epoch=17,
    time_ms=1_700_000_000_000,
    operators=("counts", "source"),
    sources={"source": '{"offset": 3}'},
    watermarks={"counts": -5},
    states=(DeclaredState("counts", "n", "value", "BIGINT", None, "STRING"),),
    state=TableVersion("../state", 42),
    contents=TableContents(42, (StateContents("counts", "n", "value", 2, str(-(2**70))),)),
)

WITH_CHANGES = replace(FULL, changes=TableVersion("../changes", 3), savepoint_version=VERSION_WITH_CHANGES)


def test_a_manifest_is_read_as_it_was_written(tmp_path: Path) -> None:
    for number, manifest in enumerate((FULL, WITH_CHANGES, Manifest("cd" * 16, "small", None, 0))):
        directory = tmp_path / f"chk-{number}"
        write_manifest(str(directory), manifest)
        assert Savepoint.open(str(directory)).manifest == manifest
        assert Savepoint.open(f"file://{directory}").manifest == manifest
        assert [path.name for path in directory.iterdir()] == [Manifest.NAME]
    content = json.loads((tmp_path / "chk-0" / Manifest.NAME).read_text())
    assert content["savepoint_version"] == 2 and "changes" not in content, "as it was before there were any changes"


@pytest.mark.parametrize(
    ("name", "manifest", "table", "changes"),
    [
        ("checkpoints/chk-17", WITH_CHANGES, "checkpoints/state", "checkpoints/changes"),
        ("checkpoints/chk-17", FULL, "checkpoints/state", None),
        ("savepoint-1", Manifest("", "", 1, 0), "savepoint-1/state", None),
    ],
)
def test_the_tables_are_where_the_manifest_says(
    tmp_path: Path, name: str, manifest: Manifest, table: str, changes: str | None
) -> None:
    directory = tmp_path / name
    write_manifest(str(directory), manifest)
    given = f"file://{directory}/"
    opened = Savepoint.open(given)
    assert (opened.given, opened.path, opened.table) == (given, str(directory), str(tmp_path / table))
    assert opened.changes == (None if changes is None else str(tmp_path / changes))
    assert opened.version == manifest.state.version, "there is no table yet of which it could be the newest"


def test_the_path_of_a_table_keeps_its_scheme() -> None:
    assert joined("s3://bucket/checkpoints/chk-3", "../state") == "s3://bucket/checkpoints/state"


def test_any_byte_that_has_changed_is_noticed(tmp_path: Path) -> None:
    file = Path(write_manifest(str(tmp_path), FULL))
    good = file.read_bytes()
    for place in range(len(good)):
        file.write_bytes(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])
        with pytest.raises(SavepointError, match=str(file)):
            Savepoint.open(str(tmp_path))
    for damage in (b"", good[:-1], good[: len(good) // 2], b"[]", b"\xff" * 10):
        file.write_bytes(damage)
        with pytest.raises(SavepointError, match=f"is damaged: .*{file}"):
            Savepoint.open(str(tmp_path))


def test_what_is_no_savepoint_is_told_apart_from_one_that_was_not_finished(tmp_path: Path) -> None:
    with pytest.raises(SavepointError, match="there is no savepoint at"):
        Savepoint.open(str(tmp_path / "nowhere"))
    with pytest.raises(SavepointError, match=f"is not complete.*{tmp_path / Manifest.NAME}"):
        Savepoint.open(str(tmp_path))


def test_another_version_is_refused(tmp_path: Path) -> None:
    file = Path(write_manifest(str(tmp_path), Manifest("", "", 1, 0, savepoint_version=3)))
    with pytest.raises(SavepointError, match="it has version 3, expected version 2 or 4"):
        Savepoint.open(str(tmp_path))
    file.write_text('{"version": 1, "savepoint_version": 1}')
    with pytest.raises(SavepointError, match="it has version 1, expected version 2 or 4"):
        Savepoint.open(str(tmp_path))
