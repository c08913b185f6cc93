"""What changes between two runs of the program, or while it runs."""

from __future__ import annotations

import inspect
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import psutil  # type: ignore[import-untyped]

from flinkish.jobdir.waiting_epoch import open_waiting, skip_output
from flinkish.jobmanager.requests import ask
from flinkish.runtime.phases import Phase
from tests.integration.matrix.program import SINKS_OF, Cell, PlannedMishap
from tests.integration.matrix.records import RECORDS, golden, in_promised_order
from tests.integration.matrix.servers import Servers
from tests.integration.matrix.sessions import TIMEOUT_S, Sessions
from tests.integration.matrix.sinks import SINKS, contents_of_parts
from tests.support import faults
from tests.support.exactness import assert_exact
from tests.support.kafka_broker import END_TRANSACTION
from tests.support.local_cluster import kill_executor

TWO_EXECUTORS = "local-cluster[2,1,1024]"
ONE_EXECUTOR = "local-cluster[1,1,1024]"
KILLED_AT = (Phase.COMMITTABLES_WRITTEN, Phase.EPOCH_PREPARED, Phase.COMMIT_BEGUN, Phase.SINK_COMMITTED)


@dataclass(frozen=True)
class Change:
    """One kind of change.

    Args:
        happen: runs a program until everything has happened to it, but does not run it to its end. It may be called
            with ``servers`` as well.
        end: the master under which it is run to its end; None: it has come to its end already.
        masters: of the sessions that it leaves alive for the next program.
        sources: to which sources it can happen; empty: to all. ``sinks``: the same of sinks.
        missing: the ids of outputs that the sink does not have afterwards.
    """

    happen: Callable[..., None]
    end: str | None
    masters: tuple[str, ...] = ("local[2]",)
    sources: tuple[str, ...] = ()
    sinks: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    def fits(self, source: str, sink: str) -> bool:
        """Whether it can happen to a program with this source and this sink."""
        return source in (self.sources or (source,)) and sink in (self.sinks or (sink,))

    def run(self, cell: Cell, sessions: Sessions, servers: Servers | None = None) -> None:
        """Everything, to the end of the program."""
        if "servers" in inspect.signature(self.happen).parameters:
            self.happen(cell, sessions, servers=servers)
        else:
            self.happen(cell, sessions)
        if self.end is not None:
            sessions.of(self.end).run(cell)


def fail_in_a_subtask(cell: Cell, sessions: Sessions) -> None:
    """User code fails in subtask 1, when the other one has had its records."""
    sessions.of("local[4]").run_into(cell, PlannedMishap("raise"))


def fail_under_four_and_three_cores(cell: Cell, sessions: Sessions) -> None:
    """Two runs, each of which fails farther on."""
    sessions.of("local[4]").run_into(cell, PlannedMishap("raise", 0.3))
    sessions.of("local[3]").run_into(cell, PlannedMishap("raise", 0.6))


def fail_under_two_executors(cell: Cell, sessions: Sessions) -> None:
    """A run that fails on a cluster."""
    sessions.of(TWO_EXECUTORS).run_into(cell, PlannedMishap("raise"))


def kill_driver(
    cell: Cell,
    sessions: Sessions,
    phases: tuple[Phase, ...] = KILLED_AT,
    master: str = "local[2]",
    first_epoch: int = 1,
) -> None:
    """A driver after the other is killed -9 with all its processes, while one of them is at a phase."""
    for number, phase in enumerate(phases):
        plan = sessions.of(master).plan
        # two kills in one epoch, then two in another
        faults.plan_fault(plan, phase, "wait", epoch=first_epoch + number // 2)
        sessions.of(master).begin(cell)
        sessions.of(master).wait_for(partial(faults.happened, plan), f"the phase '{phase.value}'")
        sessions.kill(master)


def lose_an_executor(cell: Cell, sessions: Sessions) -> None:
    """The executor in which subtask 1 stands still is killed -9, and the program comes to its end without it."""
    session, mishap, folder = sessions.of(TWO_EXECUTORS), PlannedMishap("hold"), Path(cell.folder)
    executors = set(session.executors())
    session.begin(cell, mishap)
    mark = mishap.mark(folder)
    worker = session.wait_for(lambda: mark.exists() and mark.read_text().strip(), "subtask 1 to stand still")
    (executor,) = executors & {process.pid for process in psutil.Process(int(worker)).parents()}
    kill_executor(session.process, executor)
    mishap.let_go(folder)
    session.end()


def upgrade(cell: Cell, sessions: Sessions, program: str, refused: str = "") -> None:
    """The driver is killed -9 in the middle of a commit, and the program that goes on in the same directory has other
    sinks. ``refused``: with what message, if so; then the first program goes on."""
    kill_driver(cell, sessions, (Phase.SINK_COMMITTED,))
    session, upgraded = sessions.of("local[2]"), replace(cell, program=program)
    if refused:
        session.is_refused(upgraded, refused)
    session.run(cell if refused else upgraded)
    if program == "added":
        texts = [path.read_text() for path in cell.added_place.rglob("[!.]*") if path.is_file()]
        lines = [line for text in texts for line in text.splitlines()]
        # all of its branch but the epochs up to the one that was prepared
        assert 0 < len(set(lines)) == len(lines) < RECORDS


def put_back(cell: Cell, sessions: Sessions) -> None:
    """The job directory is put back from a copy that is older than what the sinks hold; then, as the message says, the
    newest one is."""
    session, directory = sessions.of("local[2]"), cell.job_directory
    copy, newest = directory.with_name("copy"), directory.with_name("newest")
    session.run_into(cell, PlannedMishap("raise", 0.3))
    shutil.copytree(directory, copy)
    session.run(cell)
    directory.rename(newest)
    copy.rename(directory)
    session.is_refused(cell, "is older than its output, as one that was put back from a copy")
    shutil.rmtree(directory)
    newest.rename(directory)
    session.run(cell)


def break_commits_in_kafka(cell: Cell, sessions: Sessions, servers: Servers, broker_restarts: bool = False) -> None:
    """The driver is killed -9 when the request that ends a transaction has not reached the broker, or when its answer
    has not reached the client; then each is lost once more, and the driver lives."""
    gate = servers.kafka.gate
    assert gate is not None
    for where in ("request", "answer"):
        gate.close_at(END_TRANSACTION, where, stay_open=False)
        sessions.of("local[2]").begin(cell)
        sessions.of("local[2]").wait_for(gate.closed.is_set, f"the {where} to be lost")
        sessions.kill("local[2]")
        gate.open = True
        if broker_restarts:
            servers.kafka.kill()
            servers.kafka.start()
    for share, where in ((0.4, "request"), (0.7, "answer")):
        gate.close_at(END_TRANSACTION, where, stay_open=True)
        sessions.of("local[2]").run_into(cell, PlannedMishap("raise", share))
        assert gate.closed.is_set()


def share_a_prefix(cell: Cell, sessions: Sessions, servers: Servers) -> None:
    """While a killed driver has left a transaction open, another job with the same prefix and the same uids runs to its
    end."""
    gate = servers.kafka.gate
    assert gate is not None
    gate.close_at(END_TRANSACTION, "request", stay_open=False)
    sessions.of("local[2]").begin(cell)
    sessions.of("local[2]").wait_for(gate.closed.is_set, "the request to be lost")
    sessions.kill("local[2]")
    gate.open = True
    folder = Path(cell.folder) / "other"
    folder.mkdir()
    other = replace(cell, folder=str(folder), output_place=SINKS[cell.sink].make(folder / "output", servers))
    sessions.of("local[2]").run(other)
    assert_exact(golden(), in_promised_order(SINKS[cell.sink].read(other.output_place, servers)))


def maintain(cell: Cell, sessions: Sessions) -> None:
    """Between kills, files of the Delta table that is read or written are merged, old ones deleted, and it gets a
    column."""
    tables = [
        place for kind, place in ((cell.source, cell.input_place), (cell.sink, cell.output_place)) if kind == "delta"
    ]
    statements = [
        "OPTIMIZE delta.`{}`",
        "ALTER TABLE delta.`{}` ADD COLUMN more STRING",
        "VACUUM delta.`{}` RETAIN 0 HOURS",
    ]
    for number, (phase, statement) in enumerate(zip(KILLED_AT, ["", *statements], strict=True)):
        kill_driver(cell, sessions, (phase,), first_epoch=number)
        for table in tables if statement else ():
            # what is not read yet stays: a reader of the files that VACUUM deletes has lost them
            if "VACUUM" not in statement or table == cell.output_place:
                sessions.of("local[2]").sql(statement.format(table))


def give_up_epochs(cell: Cell, sessions: Sessions) -> None:
    """Epochs that were planned and not prepared: each start has other bounds."""
    phases = (Phase.PLANNED, Phase.SOURCES_READ, Phase.LEVEL_PROCESSED, Phase.STATE_WRITTEN)
    for number, phase in enumerate(phases):
        kill_driver(replace(cell, records_per_epoch=5 + 7 * number), sessions, (phase,), first_epoch=number)


#: What the sink refuses, and is skipped.
SKIPPED = "keyed/3/4"


def skip_what_is_refused(cell: Cell, sessions: Sessions, servers: Servers) -> None:
    """The sink refuses one of the outputs; it is taken out of its epoch."""
    constraint = f"ADD CONSTRAINT no_four CHECK (id <> '{SKIPPED}')"
    session, directory = sessions.of("local[2]"), str(cell.job_directory)
    if cell.sink == "jdbc":
        servers.postgres.query(cell.output_place, f"ALTER TABLE outputs {constraint}")
    else:
        columns = "lane STRING, id STRING, number BIGINT, life STRING, content STRING"
        session.sql(f"CREATE TABLE delta.`{cell.output_place}` ({columns}) USING delta")
        session.sql(f"ALTER TABLE delta.`{cell.output_place}` {constraint}")
    session.is_refused(cell, "no_four")
    waiting = open_waiting(directory)
    (record,) = [
        (subtask, record.number)
        for sink, subtask in waiting.counts()
        for record in waiting.records(sink, subtask)
        if sink == "sink of keyed" and SKIPPED in record.as_json(waiting.epoch)
    ]
    assert skip_output(directory, "sink of keyed", record[0], {record[1]}, str(Path(cell.folder) / "skipped")) == 1
    assert SKIPPED in (Path(cell.folder) / "skipped").read_text()


def restore_at_another_parallelism(cell: Cell, sessions: Sessions) -> None:
    """A savepoint is taken while epochs are short and checkpoints are taken all the time, then the job is stopped with
    another one, and goes on from it with three subtasks. A job that goes on from the first savepoint gives what follows
    its epoch, in both branches alike."""
    often = {"flinkish.epoch.interval": "200 ms", "execution.checkpointing.interval": "200 ms"}
    quick = replace(cell, records_per_epoch=1, settings={**often, "execution.checkpointing.dir": f"{cell.folder}/chk"})
    session = sessions.of("local[2]")
    session.begin(quick)
    session.wait_for(lambda: len(list(quick.job_directory.glob("spark*/commits/[0-9]*"))) > 3, "four epochs")
    first = ask(str(quick.job_directory), "savepoint", TIMEOUT_S, directory=f"{cell.folder}/savepoints")
    last = ask(str(quick.job_directory), "stop", TIMEOUT_S, directory=f"{cell.folder}/savepoints", drain=False)
    session.end()
    for number, (savepoint, place) in enumerate([(last, cell.output_place), (first, f"{cell.output_place}-first")]):
        folder = Path(cell.folder) / f"restored-{number}"
        folder.mkdir()
        restored = {"execution.state-recovery.path": savepoint, "parallelism.default": "3"}
        session.run(replace(cell, folder=str(folder), output_place=place, settings=restored))
    rest = {output.id for output in SINKS[cell.sink].read(f"{cell.output_place}-first", None)}
    sides = [{id_.partition("/")[2] for id_ in rest if id_.startswith(branch)} for branch in ("keyed", "rebalanced")]
    assert sides[0] == sides[1] and 0 < len(sides[0]) < RECORDS


def bundle_subtasks(cell: Cell, sessions: Sessions) -> None:
    """Subtasks share Spark tasks: the files of each subtask and epoch are those of the ordinary run."""
    session, files = sessions.of("local[2]"), []
    for partitions in (None, 1, 2, 3):
        folder = Path(cell.folder) / f"partitions-{partitions}"
        folder.mkdir()
        settings = {"parallelism.default": "4"} | ({"flinkish.spark.partitions": str(partitions)} if partitions else {})
        session.run(replace(cell, folder=str(folder), output_place=f"{folder}/output", settings=settings))
        files.append(contents_of_parts(folder / "output"))
    assert files[0] and files[1:] == files[:1] * 3


_REFUSED = dict.fromkeys(("removed", "renamed"), "which the program does not have")
UPGRADES = {
    program: Change(partial(upgrade, program=program, refused=_REFUSED.get(program, "")), None)
    for program in SINKS_OF
    if program != "first"
}

CHANGES = {
    "subtask": Change(fail_in_a_subtask, "local[3]", ("local[4]", "local[3]")),
    "driver": Change(kill_driver, "local[2]"),
    "executor": Change(lose_an_executor, None, (TWO_EXECUTORS,)),
    "cores": Change(fail_under_four_and_three_cores, "local[1]", ("local[4]", "local[3]", "local[1]")),
    "executors": Change(fail_under_two_executors, ONE_EXECUTOR, (TWO_EXECUTORS, ONE_EXECUTOR)),
    **UPGRADES,
    "put back": Change(put_back, None),
    "given up": Change(give_up_epochs, "local[2]"),
    "transactions": Change(break_commits_in_kafka, "local[2]", sinks=("kafka",)),
    "broker": Change(partial(break_commits_in_kafka, broker_restarts=True), "local[2]", sinks=("kafka",)),
    "prefix": Change(share_a_prefix, "local[2]", sinks=("kafka",)),
    "maintained source": Change(maintain, "local[2]", sources=("delta",)),
    "maintained sink": Change(maintain, "local[2]", sinks=("delta",)),
    "skipped": Change(skip_what_is_refused, "local[2]", sinks=("jdbc", "delta"), missing=(SKIPPED,)),
    "savepoint": Change(restore_at_another_parallelism, None, sources=("generator", "kafka"), sinks=("delta",)),
    "partitions": Change(bundle_subtasks, "local[2]", sinks=("files",)),
}
