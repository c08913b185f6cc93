"""`flinkish prepared`: what a sink refuses is taken out of a prepared epoch, and is in a file before it is gone."""

from __future__ import annotations

import base64
import datetime
import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from flinkish.cli import main
from flinkish.common import Row, RowKind, Types
from flinkish.connectors.frame_sinks import FunctionSink
from flinkish.jobdir.directory import JobDirectory
from flinkish.jobdir.fencing import Liveness, last_claim
from flinkish.runtime.epoch.commit import batches_in_order
from flinkish.runtime.epoch.files import EpochFiles, PreparedEpoch, PreparedEpochs, TaskOutput
from flinkish.runtime.exchange.buffer import BufferHeader, BufferKind, decode, encode
from flinkish.runtime.job.deployment import JobDescriptor, VertexDescriptor, sink_of, sink_vertex
from flinkish.runtime.job.report import Row as TaskRow
from flinkish.runtime.operators.columns import ColumnWriter, batches_of
from flinkish.runtime.operators.source_and_sink import encode_committables
from flinkish.runtime.stored.classes import ProgramClasses
from flinkish.storage.sealed import sealed
from tests.support.job_files import put

JOB = JobDescriptor("0" * 32, "shop", (VertexDescriptor(0, "v", 0, (), 1, 1),), ())
#: the names of the two sinks
ROWS, TABLE = "0", "1"
LONG = "x" * 70_000


class Own:
    """A class of the program."""


def part(sink: str, subtask: int, sequence: int, values: list[Any], classes: ProgramClasses | None = None) -> TaskRow:
    """What a task hands over to a sink."""
    vertex = sink_vertex(int(sink))
    header = BufferHeader(BufferKind.COMMITTABLES, vertex, subtask, 0, "0/0", 0, sequence, len(values))
    payload = encode_committables(5, values, *([classes] if classes else []))
    return vertex, subtask, encode(header, payload)


def columns(*rows: tuple[Any, ...]) -> list[Any]:
    writer = ColumnWriter(FunctionSink(print), Types.ROW_NAMED(["k", "n"], [Types.STRING(), Types.LONG()]), "sink")
    return [*writer.write(list(rows), None), *writer.prepare_commit()]


class Shop:
    """The directory of a job whose epoch 7 is prepared and not committed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.into = folder / "skipped.jsonl"
        structure = {"partitions": 1, "sources": [], "vertices": []}
        put(JobDirectory(str(folder)), "job.json", {"job_id": JOB.job_id, "name": "shop", "structure": structure})
        self.files = EpochFiles(f"{folder}/spark/prepared", f"{folder}/changelog")
        self.commits = folder / "spark/commits"
        self.commits.mkdir(parents=True)
        (self.commits / "6").touch()
        for epoch in (6, 7):
            self.prepare(epoch, [("a", epoch), ("b", -1)], [("c", LONG)])

    def prepare(self, epoch: int, *batches: list[Any], classes: ProgramClasses | None = None) -> None:
        """Prepare an epoch with these batches of rows for subtask 0, and with others for other targets."""
        rows = [part(ROWS, 0, n, values, classes) for n, values in enumerate(batches)]
        rows += [part(ROWS, 1, 0, [("d", 1)]), part(TABLE, 0, 0, columns(("e", 1), ("f", 2), ("g", 3)))]
        with TaskOutput(JOB, self.files).of_run(epoch) as output:
            rows = output.referenced(rows)
        content = {
            "version": PreparedEpoch.VERSION, "epoch": epoch, "time_ms": 99, "end_of_input": False, "fencing_token": 0,
            "reports": [base64.b64encode(b"report").decode()], "sinks": [ROWS, TABLE],
            "committables": [base64.b64encode(data).decode() for _, _, data in rows],
        }  # fmt: skip
        Path(self.files.prepared, f"{epoch}.json").write_bytes(sealed(content))

    def left(self, sink: str, subtask: int = 0, epoch: int = 7) -> list[Any]:
        """What the sink's committer is given when the epoch is committed."""
        prepared = PreparedEpochs(self.files.prepared).read(epoch)
        assert prepared is not None and prepared.time_ms == 99 and prepared.reports == (b"report",)
        headers = [(decode(data).header, data) for data in prepared.committables]
        buffers = [data for head, data in headers if (sink_of(head.vertex), head.subtask) == (int(sink), subtask)]
        return [value for batch in batches_in_order(buffers, self.files) for value in batch]

    def skipped(self) -> list[Any]:
        return [json.loads(line)["record"] for line in self.into.read_text().splitlines()]


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def prepared(shop: Shop, capsys: pytest.CaptureFixture[str], *arguments: str) -> list[Any]:
    assert main(["prepared", str(shop.folder), *arguments]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def is_refused(folder: Path, capsys: pytest.CaptureFixture[str], words: str, *arguments: str) -> None:
    assert main(["prepared", str(folder), *arguments]) == 2
    assert re.search(words, capsys.readouterr().err)


def test_the_waiting_epoch_is_counted_by_sink_and_subtask(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    assert prepared(shop, capsys) == [
        {"epoch": 7, "sink": ROWS, "subtask": 0, "records": 3},
        {"epoch": 7, "sink": ROWS, "subtask": 1, "records": 1},
        {"epoch": 7, "sink": TABLE, "subtask": 0, "records": 3},
    ]


def test_the_records_of_a_sink_are_shown_with_their_numbers(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    shown = prepared(shop, capsys, "--sink", ROWS, "--subtask", "0")
    assert [(line["number"], line["record"]) for line in shown] == [(1, ["a", 7]), (2, ["b", -1]), (3, ["c", LONG])]
    shown = prepared(shop, capsys, "--sink", TABLE)
    assert [(line["number"], line["record"]["k"]) for line in shown] == [(1, "e"), (2, "f"), (3, "g")]
    assert not (shop.folder / "owner.json").exists()


@pytest.mark.parametrize(
    ("numbers", "left"),
    [
        ("2", [("a", 7), ("c", LONG)]),
        ("3", [("a", 7), ("b", -1)]),
        ("1,3", [("b", -1)]),
        ("1-3", []),
        ("all", []),
    ],
)
def test_the_records_that_are_skipped_are_in_the_file_and_the_others_in_the_epoch(
    shop: Shop, capsys: pytest.CaptureFixture[str], numbers: str, left: list[Any]
) -> None:
    before = shop.left(ROWS)
    options = ("--sink", ROWS, "--subtask", "0", "--skip", numbers, "--into", str(shop.into))
    assert prepared(shop, capsys, *options) == [{"skipped": 3 - len(left), "into": str(shop.into)}]
    assert shop.left(ROWS) == left
    assert [tuple(row) for row in shop.skipped()] == [row for row in before if row not in left]
    # the others are as they were
    assert shop.left(ROWS, 1) == [("d", 1)]
    assert [row["k"] for batch in batches_of(shop.left(TABLE)) for row in batch.to_pylist()] == ["e", "f", "g"]
    assert len(shop.left(ROWS, epoch=6)) == 3


def test_all_subtasks_of_a_sink_can_be_skipped_at_once(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--sink", ROWS, "--skip", "all", "--into", str(shop.into))
    assert prepared(shop, capsys, *options)[0]["skipped"] == 4
    assert shop.left(ROWS) == shop.left(ROWS, 1) == []
    assert {line["sink"] for line in prepared(shop, capsys)} == {TABLE}


def test_single_rows_of_columns_can_be_skipped(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    prepared(shop, capsys, "--sink", TABLE, "--skip", "2", "--into", str(shop.into))
    assert [row for batch in batches_of(shop.left(TABLE)) for row in batch.to_pylist()] == [
        {"k": "e", "n": 1}, {"k": "g", "n": 3},
    ]  # fmt: skip
    assert shop.skipped() == [{"k": "f", "n": 2}]


def test_values_that_json_does_not_have_are_texts_in_the_file(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    values = (Decimal("1.50"), datetime.date(2024, 2, 29), b"\x00", None, {1: 2.5})
    shop.prepare(7, [values, Row.of_kind(RowKind.DELETE, "k"), Row(a="\ud83d")])
    prepared(shop, capsys, "--sink", ROWS, "--subtask", "0", "--skip", "all", "--into", str(shop.into))
    assert shop.skipped() == [
        ["1.50", "2024-02-29", {"base64": "AA=="}, None, {"1": 2.5}],
        {"kind": "-D", "row": ["k"]},
        {"a": "\ud83d"},
    ]


def test_records_of_the_programs_own_classes_are_kept_as_they_are_stored(
    shop: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    classes = ProgramClasses(modules=frozenset({__name__}))
    shop.prepare(7, [("a", 1)], [Own(), Own()], classes=classes)
    prepared(shop, capsys, "--sink", ROWS, "--subtask", "0", "--skip", "2", "--into", str(shop.into))
    assert shop.left(ROWS) == [("a", 1)]
    assert b"Own" in base64.b64decode(shop.skipped()[0]["stored"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--sink", ROWS, "--skip", "2"], "--into FILE"),
        (["--skip", "all", "--into", "FILE"], "--sink UID"),
        (["--sink", ROWS, "--skip", "two", "--into", "FILE"], "numbers and ranges such as 3,7-9"),
        (["--sink", ROWS, "--skip", "1", "--into", "FILE"], r"--subtask, one of \[0, 1\]"),
        (["--sink", ROWS, "--subtask", "0", "--skip", "9", "--into", "FILE"], r"no record 9 .*0/0 \(1-3\)"),
        (["--sink", "other", "--skip", "all", "--into", "FILE"], "nothing for the sink 'other'"),
    ],
)
def test_what_cannot_be_skipped_is_refused_and_changes_nothing(
    shop: Shop, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    whole = Path(shop.files.prepared, "7.json").read_bytes()
    arguments = [str(shop.into) if option == "FILE" else option for option in options]
    is_refused(shop.folder, capsys, message, *arguments)
    assert not shop.into.exists()
    assert Path(shop.files.prepared, "7.json").read_bytes() == whole


def test_a_running_job_an_epoch_that_is_committed_and_what_is_no_job_directory_are_left_alone(
    shop: Shop, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    running = JobDirectory(str(shop.folder))
    running.claim("shop")
    is_refused(shop.folder, capsys, "another driver", "--sink", ROWS, "--skip", "all", "--into", str(shop.into))
    assert len(shop.left(ROWS)) == 3
    running.release()
    (shop.commits / "7").touch()
    is_refused(shop.folder, capsys, "no epoch waits to be committed", "--sink", ROWS)
    is_refused(tmp_path_factory.mktemp("other"), capsys, "is not the directory of a job")


def test_whoever_skips_claims_the_directory_and_gives_it_back(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    prepared(shop, capsys, "--sink", TABLE, "--skip", "all", "--into", str(shop.into))
    claimed = last_claim(str(shop.folder))
    assert claimed is not None and claimed[1].job == "shop"
    assert JobDirectory(str(shop.folder)).owner_liveness() is Liveness.GONE
