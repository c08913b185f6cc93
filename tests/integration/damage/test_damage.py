"""Damaged storage: recovered with the golden result, or refused with an error that names the file. Nothing else."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from flinkish.checkpoint.manifest import Savepoint
from flinkish.errors import FlinkishError, InternalError
from tests.integration.damage.harm import HARMS
from tests.integration.damage.prepared_job import PreparedJob

#: the file was not needed; another one is used in its place
UNHARMED = "goes on"
#: back to the last completed checkpoint, nothing repeated, and said so
RECOVERED = "goes on from the checkpoint"
REFUSED = "refused"


def newest(folder: Path, pattern: str) -> Path:
    """The file with the highest number in its name."""
    found = (path for path in folder.glob(pattern) if path.name.split(".")[0].isdigit())
    return max(found, key=lambda path: int(path.name.split(".")[0]))


def last_needed_of_log(job: PreparedJob) -> Path:
    """Of the table of checkpoints, while its log is not summed up yet: else only the last part of it is needed. A stop
    may have left a version behind that of the checkpoint."""
    log = job.checkpoints / "state/_delta_log"
    for path in (*log.glob("*.parquet"), log / "_last_checkpoint"):
        path.unlink()
    return log / f"{Savepoint.open(str(job.checkpoint)).manifest.state.version:020d}.json"


@dataclass(frozen=True)
class Kind:
    """``file``: which one is damaged; ``run``: what is done then; ``ends``: harm -> how that ends."""

    file: Callable[[PreparedJob], Path]
    run: Callable[[PreparedJob], None]
    ends: dict[str, str]


def every(end: str) -> dict[str, str]:
    return dict.fromkeys(HARMS, end)


def restore_checkpoint(job: PreparedJob) -> None:
    job.restore(job.checkpoint)


def restore_savepoint(job: PreparedJob) -> None:
    job.restore(job.savepoint)


KINDS: dict[str, Kind] = {
    "planned offsets": Kind(
        lambda job: newest(job.directory / "spark/offsets", "*"),
        PreparedJob.go_on,
        # of an epoch that was planned when the job was stopped, and that has not begun: it is planned again
        {**every(RECOVERED), "deleted": UNHARMED},
    ),
    "committed offsets": Kind(
        lambda job: job.directory / "spark/offsets" / newest(job.directory / "spark/commits", "*").name,
        PreparedJob.go_on,
        # without those of the checkpoint's own epoch it is not taken for granted that nothing came after it
        {**every(RECOVERED), "deleted": REFUSED},
    ),
    "spark commits": Kind(
        lambda job: newest(job.directory / "spark/commits", "*"),
        PreparedJob.go_on,
        # the epoch is run again: its sinks and its state know it
        {**every(RECOVERED), "deleted": UNHARMED},
    ),
    "spark metadata": Kind(lambda job: job.directory / "spark/metadata", PreparedJob.go_on, every(RECOVERED)),
    "spark state": Kind(
        lambda job: newest(job.directory / "spark/state/0/0", "*.delta"), PreparedJob.go_on, every(RECOVERED)
    ),
    "delta log": Kind(last_needed_of_log, restore_checkpoint, every(REFUSED)),
    "delta data": Kind(
        lambda job: max(job.checkpoints.glob("state/part-*.parquet"), key=lambda path: path.stat().st_mtime_ns),
        restore_checkpoint,
        every(REFUSED),
    ),
    "_last_checkpoint": Kind(
        lambda job: job.checkpoints / "state/_delta_log/_last_checkpoint", restore_checkpoint, every(UNHARMED)
    ),
    "savepoint manifest": Kind(lambda job: job.savepoint / "manifest.json", restore_savepoint, every(REFUSED)),
}


@pytest.fixture(scope="module")
def prepared(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> PreparedJob:
    made = PreparedJob(tmp_path_factory.mktemp("damage") / "prepared")
    made.prepare(spark)
    return made


def how_it_ends(
    job: PreparedJob, file: Path, harm: str, run: Callable[[PreparedJob], None], output: pytest.CaptureFixture[str]
) -> str:
    """Red unless the job goes on with the golden result, and says so if it went back, or is refused by name."""
    HARMS[harm](file)
    output.readouterr()
    try:
        run(job)
    except FlinkishError as error:
        message = str(error)
        assert not isinstance(error, InternalError), message
        # what a log with a flipped bit names may be a file that is not there
        named = file.name in message or (file.suffix == ".json" and "/state/part-" in message)
        assert named and str(job.folder) in message, message
        return REFUSED
    job.check_golden()
    if not (job.directory / "query-location.json").exists():
        return UNHARMED
    said = output.readouterr().err
    assert f"{file} is" in said and f"{RECOVERED} {job.checkpoint_before} of epoch {job.epochs - 1}" in said, said
    assert "nothing is repeated" in said, said
    return RECOVERED


#: test_fallback.py deletes a file of the state; other files are flipped that Spark or Delta reads in the same way. Most
#: of them are looked at before Spark starts, as the planned offsets are (unit tests: test_lists_of_read_files.py).
SLOW_TOO = [
    ("spark state", "deleted"),
    ("spark metadata", "flipped"),
    ("spark metadata", "deleted"),
    ("committed offsets", "flipped"),
    ("spark commits", "flipped"),
    ("_last_checkpoint", "flipped"),
]


#: The other harm of the same file ends in the same way, in the same place. The hint to the last checkpoint names no
#: files (unit tests: test_stored_files.py).
NIGHTLY = [("delta data", "flipped"), ("planned offsets", "deleted"), ("_last_checkpoint", "deleted")]


def kinds_and_harms() -> list[Any]:
    """Each kind with each harm; the ordinary run flips and deletes all but `SLOW_TOO` and `NIGHTLY`."""
    found = []
    for name, harm in itertools.product(KINDS, HARMS):
        slow = harm in ("truncated", "emptied") or (name, harm) in SLOW_TOO
        marks = [pytest.mark.slow] if slow else [pytest.mark.nightly] if (name, harm) in NIGHTLY else []
        found.append(pytest.param(name, harm, marks=marks))
    return found


@pytest.mark.parametrize(("name", "harm"), kinds_and_harms())
def test_damage_is_recovered_from_or_refused_by_name(
    prepared: PreparedJob, tmp_path: Path, name: str, harm: str, capsys: pytest.CaptureFixture[str]
) -> None:
    kind, job = KINDS[name], prepared.copy(tmp_path / "copy")
    assert how_it_ends(job, kind.file(job), harm, kind.run, capsys) == kind.ends[harm]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "harm"), [("delta log", "emptied"), ("delta data", "deleted")])
def test_a_job_that_is_well_replaces_a_damaged_table_of_checkpoints(
    prepared: PreparedJob, tmp_path: Path, name: str, harm: str
) -> None:
    job = prepared.copy(tmp_path / "copy")
    HARMS[harm](KINDS[name].file(job))
    job.run_and_stop(2)
    job.restore(job.checkpoint)
    job.check_golden()


#: The job directory's own files, and how it ends when they are deleted; any other damage is refused.
OWN_FILES = {
    "job.json": REFUSED,
    "query.json": REFUSED,
    "attempts.json": UNHARMED,
    "owner.json": UNHARMED,
    "states.json": UNHARMED,
}
#: Those that are refused, which is quick, and one job that goes on.
QUICK_OF_OWN = [*((name, "flipped") for name in OWN_FILES), ("job.json", "deleted"), ("query.json", "deleted")]
QUICK_OF_OWN += [("states.json", "deleted")]


@pytest.mark.parametrize(
    ("name", "harm"),
    [
        pytest.param(name, harm, marks=[] if (name, harm) in QUICK_OF_OWN else [pytest.mark.slow])
        for name, harm in itertools.product(OWN_FILES, HARMS)
    ],
)
def test_damage_of_the_job_directorys_own_files_is_harmless_or_refused_by_name(
    prepared: PreparedJob, tmp_path: Path, name: str, harm: str, capsys: pytest.CaptureFixture[str]
) -> None:
    job = prepared.copy(tmp_path / "copy")
    ended = how_it_ends(job, job.directory / name, harm, PreparedJob.go_on, capsys)
    assert ended == (OWN_FILES[name] if harm == "deleted" else REFUSED)


def snapshots(job: PreparedJob) -> list[Path]:
    return sorted(job.directory.glob("spark/state/0/*/*.snapshot"))


@pytest.fixture(scope="module")
def with_snapshots(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> PreparedJob:
    """Its state has been written as a whole meanwhile, as Spark does after ten epochs, once a minute."""
    made = PreparedJob(tmp_path_factory.mktemp("damage") / "with-snapshots")
    made.prepare(spark, lambda: len(snapshots(made)) >= 2, flinkish__epoch__interval="2 s")
    return made


#: Whether Spark itself gets over a damaged snapshot, by the one before it and the changes since: on by default.
REPAIR = "spark.sql.streaming.stateStore.autoSnapshotRepair.enabled"


@pytest.mark.slow
@pytest.mark.parametrize("repaired_by_spark", [True, False])
@pytest.mark.parametrize("harm", HARMS)
def test_damaged_snapshots_of_state_are_recovered_from(
    with_snapshots: PreparedJob,
    spark: SparkSession,
    tmp_path: Path,
    harm: str,
    repaired_by_spark: bool,
    capsys: pytest.CaptureFixture[str],
) -> None:
    job = with_snapshots.copy(tmp_path / "copy")
    newest_one = max(snapshots(job), key=lambda path: int(path.name.split(".")[0]))
    spark.conf.set(REPAIR, str(repaired_by_spark).lower())
    try:
        ended = how_it_ends(job, newest_one, harm, PreparedJob.go_on, capsys)
    finally:
        spark.conf.unset(REPAIR)
    # one that is not there was none to Spark; one without a byte it takes for something else than damage
    spark_gets_over_it = harm == "deleted" or (repaired_by_spark and harm != "emptied")
    assert ended == (UNHARMED if spark_gets_over_it else RECOVERED)


@pytest.fixture(scope="module")
def in_rocksdb(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> PreparedJob:
    made = PreparedJob(tmp_path_factory.mktemp("damage") / "in-rocksdb")
    made.prepare(spark, state__backend__type="rocksdb")
    return made


@pytest.mark.slow
@pytest.mark.parametrize("harm", HARMS)
def test_damaged_state_of_rocksdb_is_recovered_from(
    in_rocksdb: PreparedJob, tmp_path: Path, harm: str, capsys: pytest.CaptureFixture[str]
) -> None:
    job = in_rocksdb.copy(tmp_path / "copy")
    file = newest(job.directory / "spark/state/0/0", "*.changelog")
    ended = how_it_ends(job, file, harm, lambda job: job.go_on(state__backend__type="rocksdb"), capsys)
    assert ended == RECOVERED
