"""An epoch is given up or committed, whichever is decided first; one that is planned and not prepared is taken out of
the query's log, and planned anew without loss."""

from __future__ import annotations

import threading
import zlib
from pathlib import Path

import pytest

from flinkish.errors import CorruptStateError
from flinkish.jobdir.directory import JobDirectory, QueryLocation
from flinkish.jobdir.query import QueryLog, check_query, late_batch
from flinkish.jobmanager.epoch_gate import EpochGate, StopQuery
from flinkish.jobmanager.giving_up import give_up_planned
from flinkish.runtime.epoch.files import PreparedEpochs, prepared_directory
from flinkish.runtime.epoch.planner import GivenUpPlan

OWN = '{"epoch":%s,"sources":{}}'


def write(query: Path, files: dict[str, str]) -> QueryLog:
    for name, text in files.items():
        path = query / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        (path.parent / f".{path.name}.crc").write_bytes(b"crc")
    return QueryLog(str(query))


def entry(epoch: int, *others: str) -> str:
    return "\n".join(["v1", '{"batchTimestampMs":1}', OWN % epoch, *others])


def left(query: Path) -> set[str]:
    """The files that are there; a checksum without its file, or the other way round, counts as one of its own."""
    names = {str(path.relative_to(query)) for path in query.rglob("*") if path.is_file()} - {"given-up.json"}
    files = {name for name in names if not name.endswith(".crc")}
    assert {str(Path(name).parent / f".{Path(name).name}.crc") for name in files} == names - files
    return files


LISTS = {f"sources/1/{name}": "v1" for name in ("0", "1", "2", "3")}


GIVEN_UP: dict[str, tuple[dict[str, str], int, set[str]]] = {
    "a later one": ({"offsets/4": entry(5), "offsets/5": entry(6)}, 5, {"offsets/4"}),
    "the first one": ({"offsets/0": entry(1)}, 0, set()),
    "files and Kafka": (
        {
            "offsets/4": entry(5, '{"logOffset":1}', '{"topic":{"0":3}}'),
            "offsets/5": entry(6, '{"logOffset":3}', '{"topic":{"0":4}}'),
            **LISTS,
            "sources/2/0": "v1",
        },
        5,
        {"offsets/4", "sources/1/0", "sources/1/1", "sources/2/0"},
    ),
    "a compacted list": (
        {
            "offsets/8": entry(9, '{"logOffset":8}'),
            "offsets/9": entry(10, '{"logOffset":9}'),
            "sources/1/8": "",
            "sources/1/9.compact": "",
        },
        9,
        {"offsets/8", "sources/1/8"},
    ),
    "the first files": (
        {"offsets/4": entry(5, "-"), "offsets/5": entry(6, '{"logOffset":0}'), "sources/1/0": ""},
        5,
        {"offsets/4"},
    ),
    "all files": ({"offsets/0": entry(1, '{"logOffset":0}'), "sources/1/0": ""}, 0, set()),
}


@pytest.mark.parametrize(("files", "batch", "stays"), GIVEN_UP.values(), ids=GIVEN_UP)
def test_the_entry_goes_and_so_do_the_lists_of_files_that_spark_has_made_for_it(
    tmp_path: Path, files: dict[str, str], batch: int, stays: set[str]
) -> None:
    log = write(tmp_path, files)
    assert log.can_be_planned_anew(batch)
    log.give_up(batch)
    assert left(tmp_path) == stays
    assert GivenUpPlan.read(str(tmp_path)) == GivenUpPlan({"epoch": batch + 1, "sources": {}}, batch)


@pytest.mark.parametrize(
    ("batch", "position", "record", "anew"),
    [
        (0, '{"reservoirVersion":3}', None, False),
        (1, '{"reservoirVersion":3}', None, True),
        (0, '{"topic":{"0":3}}', "sources/1/0", True),
        (0, "-", None, True),
    ],
    ids=["Delta at its beginning", "Delta later on", "Kafka, whose beginning is kept", "nothing to read yet"],
)
def test_a_first_epoch_stays_if_a_source_could_begin_elsewhere(
    tmp_path: Path, batch: int, position: str, record: str | None, anew: bool
) -> None:
    log = write(tmp_path, {f"offsets/{batch}": entry(1, position), **({record: "v1"} if record else {})})
    assert log.can_be_planned_anew(batch) is anew
    assert log.can_be_planned_anew(batch, begin_anew=[1])
    assert log.can_be_planned_anew(batch, begin_anew=[2]) is anew


def test_an_entry_that_is_damaged_is_not_given_up(tmp_path: Path) -> None:
    log = write(tmp_path, {"offsets/4": entry(5), "offsets/5": entry(6)[:-3]})
    with pytest.raises(CorruptStateError, match=r"offsets/5 is unreadable"):
        log.give_up(5)
    assert left(tmp_path) == {"offsets/4", "offsets/5"}


@pytest.mark.parametrize("size", [100, 512, 1300])
def test_a_position_that_has_changed_is_found_out_by_the_checksum_that_spark_keeps(tmp_path: Path, size: int) -> None:
    text = entry(6, "x" * size)
    log = write(tmp_path, {"offsets/5": text})
    parts = [text.encode()[begin : begin + 512] for begin in range(0, len(text), 512)]
    checksum = b"crc\0" + (512).to_bytes(4, "big") + b"".join(zlib.crc32(part).to_bytes(4, "big") for part in parts)
    (tmp_path / "offsets/.5.crc").write_bytes(checksum)
    assert log.positions(5)[1] == "x" * size
    (tmp_path / "offsets/5").write_text(text.replace('"epoch":6', '"epoch":7'))
    with pytest.raises(CorruptStateError, match=r"offsets/5 is not what was written \(its checksum differs\)"):
        log.positions(5)


def test_the_plan_that_was_given_up_last_is_kept_and_never_guessed(tmp_path: Path) -> None:
    folder, location = str(tmp_path), QueryLocation(str(tmp_path), 0)
    assert (GivenUpPlan.read(folder), late_batch(location)) == (None, None)
    for batch in (2, 3):
        GivenUpPlan({"epoch": batch + 1, "sources": {"a": {"next": batch - 1}}}, batch).write(folder)
    assert GivenUpPlan.read(folder) == GivenUpPlan({"epoch": 4, "sources": {"a": {"next": 2}}}, 3)
    assert late_batch(location) == 3
    path = tmp_path / "given-up.json"
    path.write_text(path.read_text().replace('"next": 2', '"next": 3'))
    with pytest.raises(CorruptStateError, match=f"the file .*given-up.json is damaged: .*{path}"):
        GivenUpPlan.read(folder)
    assert late_batch(location) is None


#: Files that a task of the failed run of an epoch leaves if it ends when the epoch was given up: those of a task that
#: was beginning, and of one that was at its end.
LATE = [".{}.delta.0b4d.tmp", "{}.delta"]


@pytest.mark.parametrize("name", LATE)
@pytest.mark.parametrize("batch", [0, 5])
def test_state_that_a_task_of_the_failed_run_writes_late_is_deleted_by_the_next_start(
    tmp_path: Path, name: str, batch: int
) -> None:
    directory = JobDirectory(str(tmp_path))
    directory.claim("job")
    location = QueryLocation(str(tmp_path / "spark"), 40)
    query, prepared = Path(location.path), PreparedEpochs(prepared_directory(location.path))
    kept = {f"offsets/{n}": entry(n + 1) for n in range(batch)} | {f"commits/{n}": "v1\n{}" for n in range(batch)}
    kept |= {f"state/0/1/{n + 1}.delta": "x" for n in range(batch)} | {"metadata": '{"id":"1"}'}
    write(query, {**kept, f"offsets/{batch}": entry(batch + 1)})

    def start() -> int:
        return give_up_planned(directory, location, prepared, check_query(location), {}, "job")

    assert start() == 39 + batch
    write(query, {"state/0/1/" + name.format(batch + 1): "late"})
    assert start() == 39 + batch
    assert left(query) == set(kept)
    assert (query / "state").exists() is bool(batch), "Spark plans no first batch beside a directory of state"


def test_state_without_a_plan_that_was_never_given_up_is_damage(tmp_path: Path) -> None:
    write(tmp_path, {"offsets/4": entry(5), "commits/4": "v1\n{}", "state/0/1/6.delta": "x"})
    with pytest.raises(CorruptStateError, match="offsets/5 is missing"):
        check_query(QueryLocation(str(tmp_path), 0))


def test_an_epoch_that_was_given_up_is_not_committed_and_none_follows_it() -> None:
    gate = EpochGate()
    gate.begin()
    assert gate.close() and gate.closed
    for move in (gate.go_through, gate.begin):
        with pytest.raises(StopQuery):
            move()


def test_an_epoch_whose_commit_has_begun_is_not_given_up_but_the_next_one_is() -> None:
    assert EpochGate().close(), "before the first epoch there is nothing to wait for"
    gate = EpochGate()
    gate.begin()
    gate.go_through()
    assert not gate.close() and not gate.closed
    gate.go_through()
    gate.begin()
    assert gate.close()


def test_of_two_threads_one_decides() -> None:
    for _ in range(300):
        gate, start, committed = EpochGate(), threading.Barrier(2), []

        def commit(gate: EpochGate = gate, start: threading.Barrier = start, done: list[int] = committed) -> None:
            start.wait()
            try:
                gate.go_through()
                done.append(1)
            except StopQuery:
                pass

        thread = threading.Thread(target=commit)
        thread.start()
        start.wait()
        given_up = gate.close()
        thread.join()
        assert given_up != bool(committed)
