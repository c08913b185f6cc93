"""What a release has stored of a job is restored: its directory, checkpoints and savepoints of every form."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flinkish.core.source import SourcePosition
from flinkish.jobmanager.savepoints.manifest import read_manifest
from tests.golden.job import build, check_results
from tests.golden.write import unpack
from tests.integration.engine.collecting import collecting


def records_before(savepoint: Path) -> int:
    """The number of records that a savepoint or checkpoint is behind; each split has given as many as the other."""
    position = SourcePosition.decode(read_manifest(str(savepoint)).sources["events"], "")
    first, second = (split[1] for split in position.splits)
    assert first == second > 0 and not position.ended
    return first + second


def test_a_directory_of_a_release_goes_on(tmp_path: Path) -> None:
    info = unpack("minicluster", tmp_path)
    assert list((tmp_path / "job" / "keyed-state").rglob("*.arrow"))
    with collecting() as collected:
        build(collected, tmp_path / "job", execution__target="minicluster", flinkish__job__restart=True).execute(
            "golden"
        )
        check_results(collected, info["records"])


@pytest.mark.parametrize(
    ("archive", "version"),
    [("minicluster", 2)],
)
def test_checkpoints_and_savepoints_of_a_release_are_restored(archive: str, version: int, tmp_path: Path) -> None:
    unpack(archive, tmp_path)
    stored = [path.parent for path in sorted(tmp_path.rglob("manifest.json")) if path.parent.name != "written"]
    versions = [json.loads((path / "manifest.json").read_text())["savepoint_version"] for path in stored]
    assert len(stored) >= 3 and version in versions
    for path in stored:
        with collecting() as collected:
            more = {"execution__target": "minicluster", "execution__state_recovery__path": str(path)}
            build(collected, tmp_path / f"new-{path.name}", parallelism__default=3, **more).execute("golden")
            check_results(collected, records_before(path))
