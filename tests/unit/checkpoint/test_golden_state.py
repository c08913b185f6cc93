"""What a release has stored of a job is restored: its directory, checkpoints and savepoints of every form."""

from __future__ import annotations

from pathlib import Path

import pytest

from flinkish.checkpoint.manifest import SAVEPOINT_VERSION, VERSION_WITH_CHANGES, VERSION_WITH_FILES, Savepoint
from flinkish.core.source import SourcePosition
from tests.golden.job import build, check_results, plain
from tests.golden.positions import SPLITS
from tests.golden.write import records_before, unpack
from tests.integration.engine.collecting import collecting


@pytest.mark.parametrize("archive", ["minicluster", "minicluster-4"])
def test_a_directory_of_a_release_goes_on(archive: str, tmp_path: Path) -> None:
    info = unpack(archive, tmp_path)
    assert list((tmp_path / "job" / "keyed-state").rglob("*.arrow"))
    with collecting() as collected:
        build(collected, tmp_path / "job", execution__target="minicluster", flinkish__job__restart=True).execute(
            "golden"
        )
        check_results(collected, info["records"])


@pytest.mark.parametrize(
    ("archive", "versions"),
    [
        *((name, {SAVEPOINT_VERSION}) for name in ("minicluster", "minicluster-4")),
        ("spark", {SAVEPOINT_VERSION, VERSION_WITH_CHANGES}),
    ],
)
def test_checkpoints_and_savepoints_of_a_release_are_restored(archive: str, versions: set[int], tmp_path: Path) -> None:
    unpack(archive, tmp_path)
    stored = [path.parent for path in sorted(tmp_path.rglob("manifest.json")) if path.parent.name != "written"]
    assert {Savepoint.open(str(path)).manifest.savepoint_version for path in stored} == versions
    for path in stored:
        with collecting() as collected:
            more = {"execution__target": "minicluster", "execution__state_recovery__path": path}
            build(collected, tmp_path / f"new-{path.name}", parallelism__default=3, **more).execute("golden")
            check_results(collected, records_before(path))


def test_a_savepoint_that_a_release_has_made_of_a_data_frame_is_restored(tmp_path: Path) -> None:
    unpack("spark", tmp_path)
    more = {"execution__target": "minicluster", "execution__state_recovery__path": tmp_path / "written"}
    with collecting() as collected:
        build(collected, tmp_path / "new", **more).execute("golden")
        sums = {(row[0], row[2]): row[1] for row in collected.rows["states"] if row[1] != "timer"}
    begun = {(row[0], row[2]): row[1] + (7 if row[0] == "u0" else 0) for row in plain()["states"] if row[1] != "timer"}
    assert sums == begun


def test_a_checkpoint_of_a_release_that_refers_to_files_with_splits_has_its_position(tmp_path: Path) -> None:
    unpack("splits", tmp_path)
    checkpoint = tmp_path / "checkpoints" / "chk-1"
    manifest = Savepoint.open(str(checkpoint)).manifest
    assert manifest.savepoint_version == VERSION_WITH_FILES
    position = SourcePosition.decode(manifest.sources["files"], "")
    assert position.ended == [f"part-{number:03}" for number in range(SPLITS - 2)]
    assert position.splits == [(f"part-{SPLITS - 2:03}", 3, 9, None), (f"part-{SPLITS - 1:03}", 0, 9, None)]
