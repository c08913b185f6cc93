"""The manifest of a savepoint is read as it was written, or refused with the name of the file."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from flinkish.checkpoint.manifest import (
    VERSION_WITH_CHANGES,
    Manifest,
    StateContents,
    TableContents,
    TableVersion,
    read_manifest,
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
        assert read_manifest(str(directory)) == manifest
        assert read_manifest(f"file://{directory}") == manifest
        assert [path.name for path in directory.iterdir()] == [Manifest.NAME]
    content = json.loads((tmp_path / "chk-0" / Manifest.NAME).read_text())
    assert content["savepoint_version"] == 2 and "changes" not in content, "as it was before there were any changes"


def test_the_table_is_found_from_the_manifest() -> None:
    assert WITH_CHANGES.changes_path("/job/checkpoints/chk-17") == "/job/checkpoints/changes"
    assert FULL.changes_path("/job/checkpoints/chk-17") is None
    assert FULL.table_path("/job/checkpoints/chk-17") == "/job/checkpoints/state"
    assert Manifest("", "", 1, 0).table_path("/savepoint-1") == "/savepoint-1/state"
    assert joined("s3://bucket/checkpoints/chk-3", "../state") == "s3://bucket/checkpoints/state"


def test_any_byte_that_has_changed_is_noticed(tmp_path: Path) -> None:
    file = Path(write_manifest(str(tmp_path), FULL))
    good = file.read_bytes()
    for place in range(len(good)):
        file.write_bytes(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])
        with pytest.raises(SavepointError, match=str(file)):
            read_manifest(str(tmp_path))
    for damage in (b"", good[:-1], good[: len(good) // 2], b"[]", b"\xff" * 10):
        file.write_bytes(damage)
        with pytest.raises(SavepointError, match=f"is damaged: .*{file}"):
            read_manifest(str(tmp_path))


def test_what_is_no_savepoint_is_told_apart_from_one_that_was_not_finished(tmp_path: Path) -> None:
    with pytest.raises(SavepointError, match="there is no savepoint at"):
        read_manifest(str(tmp_path / "nowhere"))
    with pytest.raises(SavepointError, match=f"is not complete.*{tmp_path / Manifest.NAME}"):
        read_manifest(str(tmp_path))


def test_another_version_is_refused(tmp_path: Path) -> None:
    file = Path(write_manifest(str(tmp_path), Manifest("", "", 1, 0, savepoint_version=3)))
    with pytest.raises(SavepointError, match="it has version 3, expected version 2 or 4"):
        read_manifest(str(tmp_path))
    file.write_text('{"version": 1, "savepoint_version": 1}')
    with pytest.raises(SavepointError, match="it has version 1, expected version 2 or 4"):
        read_manifest(str(tmp_path))
