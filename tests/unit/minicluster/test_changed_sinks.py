"""A program with other sinks goes on where an earlier one was stopped; and state that is older than what sinks hold."""

from __future__ import annotations

import copy
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from flinkish.common import WatermarkStrategy
from flinkish.common.serialization import Encoder
from flinkish.common.typeinfo import Types
from flinkish.connectors.file_system.sink import FileSink
from flinkish.connectors.jdbc.options import JdbcConnectionOptions
from flinkish.connectors.jdbc.sink import JdbcSink
from flinkish.core.sink import Sink
from flinkish.errors import FinalOperationError, IncompatibleJobError
from flinkish.minicluster import MiniCluster, StateStore
from flinkish.runtime.job.deployment import JobDescriptor
from flinkish.runtime.phases import ManualClock, Phase, set_hook

from .programs import environment, job_of, list_source

RECORDS = [(str(n),) for n in range(6)]
PER_EPOCH = 2


class Killed(BaseException):
    """The end of the first program."""


@pytest.fixture
def database(tmp_path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(tmp_path / "shop.db", isolation_level=None)
    for table in ("a", "b", "c"):
        connection.execute(f"CREATE TABLE {table} (n TEXT)")
    return connection


def in_table(database: sqlite3.Connection, table: str) -> list[str]:
    return [n for (n,) in database.execute(f"SELECT n FROM {table} ORDER BY rowid")]


def into_table(folder: Path, table: str) -> Sink:
    options = JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url(f"jdbc:sqlite:{folder / 'shop.db'}").build()
    return JdbcSink.sink(f"INSERT INTO {table} VALUES (?)", Types.ROW_NAMED(["n"], [Types.STRING()]), options)


def program(folder: Path, *sinks: tuple[str, str]) -> JobDescriptor:
    """Each sink, which is a table and a uid ("": a generated one), gets all records, marked with the table's name."""
    env = environment(1)
    records = env.from_source(list_source(RECORDS), WatermarkStrategy.no_watermarks(), "records").uid("records")
    for table, uid in sinks:
        marked = records.map(lambda record, table=table: (table + record[0],))
        added = marked.sink_to(into_table(folder, table))
        if uid:
            added.uid(uid)
    return job_of(env)


def run_until_the_first_sink_has_committed_an_epoch(job: JobDescriptor) -> StateStore:
    store = StateStore()

    def kill(phase: Phase, _: object) -> None:
        if phase is Phase.SINK_COMMITTED:
            raise Killed

    set_hook(kill)
    with pytest.raises(Killed):
        MiniCluster(job, ManualClock(), store, PER_EPOCH).run()
    set_hook(None)
    return store


@pytest.mark.parametrize(
    ("before", "after", "also_in_new"),
    [
        ("a:one b:two", "a:one b:two", []),
        ("a:one b:two", "c:new a:one b:two", RECORDS[PER_EPOCH:]),
        ("a:one b:two", "b:two a:one", []),
        ("a: b:", "a: b:", []),
        ("a: b:", "a: b: c:", RECORDS[PER_EPOCH:]),
        ("a: b:", "b: a:", []),
        ("a: b:", "c: a: b:", RECORDS[PER_EPOCH:]),
        ("a: b:two", "b:two a:", []),
    ],
    ids=[
        "the same",
        "added in front",
        "swapped",
        "without uids",
        "added behind without uids",
        "swapped without uids",
        "added in front without uids",
        "one moved",
    ],
)
def test_a_prepared_epoch_goes_to_the_sinks_that_it_was_prepared_for(
    tmp_path: Path, database: sqlite3.Connection, before: str, after: str, also_in_new: list[tuple[str]]
) -> None:
    store = run_until_the_first_sink_has_committed_an_epoch(program(tmp_path, *_sinks(before)))
    MiniCluster(program(tmp_path, *_sinks(after)), ManualClock(), store, PER_EPOCH).run()
    for table in ("a", "b"):
        assert in_table(database, table) == [table + n for (n,) in RECORDS]
    assert in_table(database, "c") == ["c" + n for (n,) in also_in_new]


@pytest.mark.parametrize(
    ("before", "after", "refused"),
    [
        ("a:one b:two", "a:one", "the sink 'two', which the program does not have.*this one has 'one'"),
        ("a:one b:two", "a:one b:renamed", "the sink 'two', which the program does not have.*'one', 'renamed'"),
        ("a:one b:two", "a:one b:", "the sink 'two'"),
        ("a: b:", "a:", "the sink 'sink-jdbcsink-.: SQLite [^']*, table b', .*uid of its own"),
        ("a: b:", "a:one b:", "the sink 'sink-jdbcsink-.: SQLite [^']*, table a', "),
    ],
    ids=["removed", "renamed", "without its uid", "removed without uids", "with a uid now"],
)
def test_a_prepared_epoch_without_its_sink_is_refused_by_name_until_the_earlier_program_has_committed_it(
    tmp_path: Path, database: sqlite3.Connection, before: str, after: str, refused: str
) -> None:
    earlier = program(tmp_path, *_sinks(before))
    store = run_until_the_first_sink_has_committed_an_epoch(earlier)
    with pytest.raises(IncompatibleJobError, match=f"epoch 0 is prepared.*{refused}"):
        MiniCluster(program(tmp_path, *_sinks(after)), ManualClock(), store, PER_EPOCH).run_epoch()
    assert in_table(database, "b") == in_table(database, "c") == [], "nothing was committed to another sink"
    MiniCluster(earlier, ManualClock(), store, PER_EPOCH).run_epoch()
    MiniCluster(program(tmp_path, *_sinks(after)), ManualClock(), store, PER_EPOCH).run()
    assert in_table(database, "a") == ["a" + n for (n,) in RECORDS]


def _sinks(text: str) -> list[tuple[str, str]]:
    return [(table, uid) for table, _, uid in (one.partition(":") for one in text.split())]


def _files_in(folder: Path) -> list[str]:
    return sorted(
        line for path in (folder / "out").rglob("[!.]*") if path.is_file() for line in path.read_text().split()
    )


def _into_files(folder: Path) -> Sink:
    return FileSink.for_row_format(str(folder / "out"), Encoder.simple_string_encoder()).build()


def _job_into(sink: Sink) -> JobDescriptor:
    env = environment(1)
    records = env.from_source(list_source(RECORDS), WatermarkStrategy.no_watermarks(), "records")
    records.sink_to(sink).uid("out")
    return job_of(env)


WITH_MEMORY = pytest.mark.parametrize(
    ("sink", "what_it_holds"),
    [
        (lambda folder: into_table(folder, "a"), lambda folder: in_table(sqlite3.connect(folder / "shop.db"), "a")),
        (_into_files, _files_in),
    ],
    ids=["jdbc", "files"],
)


@WITH_MEMORY
@pytest.mark.parametrize("epochs_since", [1, 2])
def test_state_that_was_put_back_from_an_older_copy_is_refused_before_an_epoch_is_prepared(
    tmp_path: Path,
    database: sqlite3.Connection,
    sink: Callable[[Path], Sink],
    what_it_holds: Callable[[Path], list[str]],
    epochs_since: int,
) -> None:
    job, store, clock = _job_into(sink(tmp_path)), StateStore(), ManualClock()
    MiniCluster(job, clock, store, PER_EPOCH).run(1)
    old = copy.deepcopy(store)
    MiniCluster(job, clock, store, PER_EPOCH).run(epochs_since)
    before, restored = what_it_holds(tmp_path), MiniCluster(job, clock, old, PER_EPOCH)
    for _ in range(2):
        with pytest.raises(
            FinalOperationError,
            match=f"the sink has epoch {epochs_since} of this job already, and the job is at epoch 1 only.*"
            r"sink 'out'.*put back the newest state.*or start from a savepoint or checkpoint \(-s\) in a new job dir",
        ):
            restored.run_epoch()
    assert old.prepared is None
    assert what_it_holds(tmp_path) == before
    # as the message says: in a directory of its own it is another job
    MiniCluster(replace(job, job_id="new"), clock, old, PER_EPOCH).run()
    assert len(what_it_holds(tmp_path)) == len(before) + len(RECORDS) - PER_EPOCH


@WITH_MEMORY
def test_the_newest_copy_goes_on_also_with_an_epoch_that_is_prepared_and_partly_committed(
    tmp_path: Path,
    database: sqlite3.Connection,
    sink: Callable[[Path], Sink],
    what_it_holds: Callable[[Path], list[str]],
) -> None:
    job = _job_into(sink(tmp_path))
    store = run_until_the_first_sink_has_committed_an_epoch(job)
    MiniCluster(job, ManualClock(), copy.deepcopy(store), PER_EPOCH).run()
    assert len(set(what_it_holds(tmp_path))) == len(what_it_holds(tmp_path)) == len(RECORDS)
