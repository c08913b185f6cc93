"""State and what has changed since, in two tables: read together they are the state of the checkpoint, whatever was
appended and merged before, and whoever has died in between."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from flinkish.checkpoint.maintenance import own_session
from flinkish.checkpoint.manifest import VERSION_WITH_CHANGES, CheckpointDirectory, Manifest, Savepoint, TableVersion
from flinkish.checkpoint.plain_tables import rows_of_savepoint
from flinkish.checkpoint.rows import open_table, reading
from flinkish.checkpoint.table import CheckpointTable, Written, set_aside_if_damaged
from flinkish.checkpoint.writer import DRIVER_BYTES, ChangelogLedger, IncrementalWriter
from flinkish.delta.log import Appends
from flinkish.errors import SavepointError
from flinkish.jobdir.directory import JobDirectory
from flinkish.runtime.epoch.changelog_files import epoch_directory, write_changes, write_parts
from flinkish.runtime.state.changelog import Change, apply_changes, encode_changes
from flinkish.runtime.state.saved.texts import to_savepoint_row
from flinkish.runtime.state.state_rows import StateRow
from flinkish.runtime.stored.classes import NO_CLASSES
from flinkish.spark.data_files import FILE_SCHEMA, DataFile, RowsToFiles
from flinkish.spark.state import SAVEPOINT_ARROW, SAVEPOINT_SCHEMA
from flinkish.spark.worker import DeployedClasses

KEYS: list[Any] = ["a", "b", 1, True, 0, False, 7, ("a", 1), ("a", True), None, "half \ud83d", 10**5000]
#: The first ones differ from each other.
MAP_KEYS: list[Any] = ["a", 1, "\ud83d", "a, ", ("a", 1), 10**5000, None, "1", True, 10, ("a", True)]
NAMESPACES: list[Any] = [None, (0, 60)]
#: So large that no full checkpoint is written because of it.
LARGE = Written(0, 1_000_000, 1_000_000_000)


@dataclass
class Job:
    """The changes of a job without the job, and its state as a model."""

    spark: SparkSession
    folder: Path
    random: random.Random
    rows: dict[tuple[Any, ...], tuple[StateRow, ...]] = field(default_factory=dict)
    epoch: int = 0
    #: of an epoch
    least_changes: int = 0

    def __post_init__(self) -> None:
        self.session = own_session(self.spark)
        self.directory = CheckpointDirectory(str(self.folder / "checkpoints"))
        self.ledger = ChangelogLedger(JobDirectory(str(self.folder)))
        self.ledger.epoch_written(self.epoch, "spark")
        self.state, self.changes = (
            CheckpointTable(self.session, path, lambda: None) for path in (self.directory.table, self.directory.changes)
        )

    @property
    def writer(self) -> IncrementalWriter:
        """One that has changes converted here, or by Spark's tasks."""
        driver_bytes = self.random.choice([0, DRIVER_BYTES])
        return IncrementalWriter(self.session, self.state, self.changes, self.ledger, driver_bytes)

    def pass_an_epoch(self, in_list: bool | None = None) -> None:
        """Some entries get other rows, or none. ``in_list``: the list of parts has the changes itself; None: it is left
        to chance."""
        self.epoch += 1
        changes = [self._change() for _ in range(self.random.randrange(self.least_changes, 12))]
        # of one entry an epoch says one thing
        entries = {(c.uid, c.state, c.namespace, c.key, c.timer_ms, c.kind, c.map_key): c for c in changes}
        whole = {(c.state, c.namespace, c.key) for c in entries.values() if not c.map_key}
        entries = {e: c for e, c in entries.items() if not c.map_key or (c.state, c.namespace, c.key) not in whole}
        apply_changes(self.rows, entries.values())
        encoded = [encode_changes(self.epoch, entries.values())]
        if self.random.random() < 0.5 if in_list is None else in_list:
            write_parts(self.ledger.path, self.epoch, [], encoded)
        else:
            write_parts(self.ledger.path, self.epoch, [write_changes(self.ledger.path, self.epoch, encoded)])

    def _change(self) -> Change:
        chance = self.random
        key, namespace, kind = chance.choice(KEYS), chance.choice(NAMESPACES), chance.choice(["value", "map", "timer"])
        there = chance.random() < 0.7
        if kind == "timer":
            time_ms = chance.randrange(3)
            domain = chance.choice(["EVENT_TIME", "PROCESSING_TIME"])
            return Change("u", "__timers__/t", domain, namespace, key, time_ms, (time_ms,) if there else ())
        values: tuple[Any, ...] = (chance.randrange(100),)
        if kind == "map" and chance.random() < 0.7:
            map_key = chance.choice(MAP_KEYS)
            return Change("u", kind, kind, namespace, key, None, ((map_key, *values),) if there else (), (map_key,))
        if kind == "map":
            values = tuple((entry, chance.randrange(100)) for entry in chance.sample(MAP_KEYS[:6], chance.randrange(4)))
        return Change("u", kind, kind, namespace, key, None, values if there else ())

    def expected(self) -> list[tuple[str, ...]]:
        """The rows of the state as it is now."""
        return sorted(tuple(to_savepoint_row("u", row)) for rows in self.rows.values() for row in rows)

    def take_full(self) -> Manifest:
        """A checkpoint with all state."""
        self.changes.empty()
        rows = [tuple(row) for row in self.expected()]
        frame = self.session.createDataFrame(rows, SAVEPOINT_SCHEMA)

        def files(table: str) -> list[DataFile]:
            convert = RowsToFiles(iter, SAVEPOINT_ARROW, table, b"")
            return [DataFile(*file) for file in frame.coalesce(1).mapInArrow(convert, FILE_SCHEMA).collect()]

        written = self.state.overwrite(lambda: frame, files)
        return Manifest("job", "job", self.epoch, 0, state=TableVersion("../state", written.version))

    def take(self, base: Manifest) -> Manifest | None:
        """An incremental one; None: it has to be a full one."""
        changed = self.writer.changes(base, self.epoch, LARGE)
        if changed is None:
            return None
        if not changed.epochs:
            return replace(base, epoch=self.epoch)
        written = self.writer.append(base, changed, DeployedClasses.of(NO_CLASSES))
        if written is None:
            return None
        changes = TableVersion("../changes", written.version)
        return replace(base, epoch=self.epoch, changes=changes, savepoint_version=VERSION_WITH_CHANGES)

    def merge(self, base: Manifest) -> Manifest:
        """The same checkpoint, its changes merged into the state."""
        written = self.writer.merge(base)
        assert base.state.version is not None and self.state.is_only_change(written, base.state.version)
        return replace(base, state=TableVersion("../state", written.version), changes=None)

    def opened(self, manifest: Manifest) -> Savepoint:
        """A checkpoint as if it was open."""
        path, changes = self.directory.checkpoint(1), None if manifest.changes is None else self.directory.changes
        return Savepoint(path, path, manifest, self.directory.table, changes)

    def read_without_spark(self, manifest: Manifest) -> list[tuple[str, ...]]:
        """The rows of a checkpoint, as the minicluster reads them."""
        found = rows_of_savepoint(self.opened(manifest))
        return sorted(tuple(row) for columns, _ in found for row in columns.rows())

    def read(self, manifest: Manifest) -> list[tuple[str, ...]]:
        """The rows of a checkpoint."""
        return sorted(tuple(row) for row in open_table(self.spark, self.opened(manifest)).collect())


def rows_of_view(spark: SparkSession, checkpoints: str) -> list[tuple[str, ...]]:
    """What the view of docs/operations.md shows."""
    page = Path(__file__).parents[3] / "docs" / "operations.md"
    found = re.search(r"^CREATE OR REPLACE TEMPORARY VIEW current_state.*?(?=^```$)", page.read_text(), re.M | re.S)
    assert found is not None
    spark.sql(found[0].replace("/data/jobs/counts/checkpoints", checkpoints))
    return sorted(tuple(row) for row in spark.sql("SELECT * FROM current_state").collect())


def committed_by_flinkish(table: CheckpointTable, version: int | None) -> bool:
    """Whether a version was committed without Spark."""
    assert version is not None
    return any(a.get("commitInfo", {}).get("engineInfo") == "flinkish" for a in table.actions(version))


@pytest.mark.slow
def test_changes_that_are_appended_and_merged_at_any_time_give_the_state_of_each_checkpoint(
    spark: SparkSession, tmp_path: Path
) -> None:
    job = Job(spark, tmp_path, random.Random(11))
    job.pass_an_epoch()
    base = job.take_full()
    taken: list[tuple[Manifest, list[tuple[str, ...]]]] = [(base, job.expected())]
    for number in range(4):
        for _ in range(job.random.randrange(3) + 1):
            job.pass_an_epoch()
        checkpoint = job.take(base)
        assert checkpoint is not None
        taken.append((checkpoint, job.expected()))
        base = job.merge(checkpoint) if number in (0, 2) and checkpoint.changes is not None else checkpoint
        assert rows_of_view(spark, job.directory.path) == job.expected()
    assert sum(checkpoint.changes is not None for checkpoint, _ in taken) > 2
    assert {True, False} == {committed_by_flinkish(job.changes, version) for version in job.changes.versions()}
    read_without_spark = 0
    for checkpoint, expected in taken:
        assert job.read(checkpoint) == expected
        try:
            assert job.read_without_spark(checkpoint) == expected
            read_without_spark += 1
        except SavepointError as error:
            assert "only Delta itself can read the table of state" in str(error)
    assert read_without_spark >= 2, "those before the first merge"


@pytest.mark.slow
def test_a_checkpoint_is_a_full_one_when_its_tables_are_not_those_of_the_last_one(
    spark: SparkSession, tmp_path: Path
) -> None:
    job = Job(spark, tmp_path, random.Random(3), least_changes=1)
    for _ in range(4):
        job.pass_an_epoch()
    base = job.take_full()
    job.pass_an_epoch()
    # a driver has died behind the commit of changes, and their checkpoint did not become whole
    assert job.take(base) is not None
    job.pass_an_epoch()
    first = job.take(base)
    assert first is not None and job.read(first) == job.expected(), "what is there is replaced"
    job.pass_an_epoch()
    assert job.take(first) is not None
    assert job.take(first) is None, "changes lie behind the last checkpoint"
    base = job.take_full()
    job.pass_an_epoch()
    second = job.take(base)
    assert second is not None
    merged = job.merge(second)
    assert job.take(second) is None, "the state is that of no checkpoint"
    assert job.read(second) == job.read(merged) == job.expected()
    job.pass_an_epoch()
    assert job.take(replace(merged, changes=second.changes)) is not None
    (tmp_path / "checkpoints" / "changes").rename(tmp_path / "checkpoints" / "changes-damaged-1")
    assert job.take(replace(merged, changes=second.changes)) is None, "a table that was damaged has been set aside"


@pytest.mark.nightly
def test_damaged_changes_are_never_read(spark: SparkSession, tmp_path: Path) -> None:
    job = Job(spark, tmp_path, random.Random(4), least_changes=1)
    base = job.take_full()
    for _ in range(6):
        job.pass_an_epoch()
    first = job.take(base)
    assert first is not None
    job.pass_an_epoch()
    checkpoint = job.take(first)
    assert checkpoint is not None and checkpoint.changes is not None
    assert committed_by_flinkish(job.changes, checkpoint.changes.version)
    files = list((tmp_path / "checkpoints" / "changes").glob("*.parquet"))
    assert len(files) == 2, "one by Spark, one by flinkish"
    for data in files:
        whole = data.read_bytes()
        place = len(whole) // 3
        for damaged in (whole[:place] + bytes([whole[place] ^ 255]) + whole[place + 1 :], whole[:-20], b""):
            data.write_bytes(damaged)
            with pytest.raises(SavepointError, match="cannot be read"), reading(spark, "checkpoint"):
                job.read(checkpoint)
        data.write_bytes(whole)
    log = tmp_path / "checkpoints" / "changes" / "_delta_log" / f"{checkpoint.changes.version:020d}.json"
    for text in ("", "{"):
        log.write_text(text)
        with pytest.raises(SavepointError, match=f"{log} is"):
            job.read(checkpoint)
    set_aside_if_damaged(job.directory.changes, 1, "job", lambda: None)
    assert not Path(job.directory.changes).exists()
    assert job.take(checkpoint) is None and job.read(job.take_full()) == job.expected()


@pytest.mark.parametrize(
    "damaged",
    [pytest.param("*.parquet", marks=pytest.mark.nightly), pytest.param("_parts.json", marks=pytest.mark.slow)],
)
def test_a_checkpoint_is_a_full_one_when_the_changelog_is_damaged(
    spark: SparkSession, tmp_path: Path, damaged: str
) -> None:
    job = Job(spark, tmp_path, random.Random(8), least_changes=1)
    base = job.take_full()
    job.pass_an_epoch()
    first = job.take(base)
    assert first is not None
    job.pass_an_epoch(in_list=damaged == "_parts.json")
    (file,) = Path(epoch_directory(job.ledger.path, job.epoch)).glob(damaged)
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    # converted by the driver, by Spark's tasks, and by Spark into a table that begins anew
    for last in (first, first, first, first, base):
        assert job.take(last) is None
    full = job.take_full()
    assert job.read(full) == job.expected()
    job.pass_an_epoch()
    following = job.take(full)
    assert following is not None and job.read(following) == job.expected()
    assert job.read(job.merge(following)) == job.expected()


@pytest.mark.nightly
def test_a_key_that_has_more_texts_than_can_be_told_ends_incremental_checkpoints(
    spark: SparkSession, tmp_path: Path
) -> None:
    job = Job(spark, tmp_path, random.Random(5))
    job.pass_an_epoch()
    base = job.take_full()
    job.epoch += 1
    change = Change("u", "value", "value", None, 2.5, None, (1,))
    write_parts(job.ledger.path, job.epoch, [write_changes(job.ledger.path, job.epoch, [encode_changes(2, [change])])])
    assert job.take(base) is None
    assert job.ledger.refused == "state 'value' has the key 2.5, which other keys equal that are written otherwise"
    apply_changes(job.rows, [change])
    assert job.read(job.take_full()) == job.expected()


@pytest.mark.nightly
def test_files_are_only_added_to_a_table_that_asks_nothing_more_of_its_writers(
    spark: SparkSession, tmp_path: Path
) -> None:
    job = Job(spark, tmp_path, random.Random(6), least_changes=1)
    base = job.take_full()
    job.pass_an_epoch()
    first = job.take(base)
    assert first is not None and first.changes is not None and first.changes.version is not None
    commits = Appends(job.changes.log)
    assert commits.base() == first.changes.version
    assert not commits.commit([], first.changes.version - 1), "another writer was first"
    spark.sql(f"ALTER TABLE delta.`{job.directory.changes}` ADD CONSTRAINT known CHECK (epoch > 0)")
    assert commits.base() is None
    assert Appends(job.changes.log).base() is None
    job.pass_an_epoch()
    second = job.take(first)
    assert second is not None and second.changes is not None
    assert not committed_by_flinkish(job.changes, second.changes.version)
    assert job.read(second) == job.expected()
