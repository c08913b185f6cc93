"""What is printed reads as PyFlink's print does; what is collected comes once per epoch."""

from __future__ import annotations

import io
import subprocess
import sys
from typing import Any

import pytest

from flinkish.common.typeinfo import TypeInformation, Types
from flinkish.common.types import Row, RowKind
from flinkish.connectors.results import (
    CELL_IS_FULL,
    CELL_LINES,
    NAMED,
    CollectSink,
    PrintSink,
    register_collector,
    unregister_collector,
)
from flinkish.core.sink import CommitContext, WriterSink
from flinkish.errors import InternalError


def context(epoch: int = 0, subtask: int = 0, job_id: str = "job") -> CommitContext:
    return CommitContext(job_id, "test", "sink", "sink", epoch, 1_000, subtask, 2)


def run(
    sink: WriterSink, values: list[Any], subtask: int = 0, parallelism: int = 1, epoch: int = 0, job_id: str = "job"
) -> int:
    writer = sink.create_writer()
    writer.open(subtask, parallelism)
    batches = [writer.write(values, None), writer.prepare_commit()]
    writer.close()
    return sink.create_committer().commit(iter(batches), context(epoch, subtask, job_id))


@pytest.mark.parametrize(
    ("identifier", "subtask", "parallelism", "line"),
    [(None, 0, 1, "x"), (None, 1, 2, "2> x"), ("id", 0, 1, "id> x"), ("id", 0, 2, "id:1> x")],
)
def test_lines_are_prefixed_as_in_flink(
    capsys: pytest.CaptureFixture[str], identifier: str | None, subtask: int, parallelism: int, line: str
) -> None:
    assert run(PrintSink(identifier), ["x"], subtask, parallelism) == 1
    assert capsys.readouterr().out == line + "\n"


def test_lines_go_to_the_output_of_the_process_also_if_the_program_has_replaced_its_own() -> None:
    program = """
import builtins, io, sys
from flinkish.common import Configuration
from flinkish.datastream import StreamExecutionEnvironment
env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict({"execution.target": "minicluster"}))
env.set_parallelism(1)
for notebook in (False, True):
    sys.stdout = io.StringIO()
    if notebook:
        builtins.__IPYTHON__ = True
    env.from_collection([notebook]).print()
    env.execute()
    print(repr(sys.stdout.getvalue()), file=sys.__stdout__)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines() == ["False", "''", r"'True\n'"]


@pytest.mark.parametrize(
    ("type_info", "value", "text"),
    [
        (None, None, "None"),
        (Types.PICKLED_BYTE_ARRAY(), ("a", 1.0, None), "('a', 1.0, None)"),
        (Types.PICKLED_BYTE_ARRAY(), Row("a", 1), "<Row('a', 1)>"),
        (Types.ROW([Types.STRING(), Types.INT()]), Row("a", None), "+I[a,None]"),
        (Types.ROW([Types.STRING()]), Row.of_kind(RowKind.DELETE, "a"), "-D[a]"),
        (Types.TUPLE([Types.STRING(), Types.INT()]), ("a", 1), "(a,1)"),
        (Types.TUPLE([Types.BOOLEAN(), Types.DOUBLE()]), (True, None), "(true,null)"),
        (Types.STRING(), "a", "a"),
        (Types.DOUBLE(), 1e10, "1.0E10"),
        (Types.DOUBLE(), 0.001, "0.001"),
        (Types.DOUBLE(), 123456.0, "123456.0"),
        (Types.DOUBLE(), -2.5e-7, "-2.5E-7"),
        (Types.LIST(Types.INT()), [1, 2], "[1, 2]"),
        (Types.MAP(Types.STRING(), Types.INT()), {"a": 1}, "{a=1}"),
    ],
)
def test_values_are_written_as_pyflink_prints_their_type(
    capsys: pytest.CaptureFixture[str], type_info: TypeInformation | None, value: object, text: str
) -> None:
    run(PrintSink(input_type=type_info), [value])
    assert capsys.readouterr().out == text + "\n"


def test_print_can_go_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    run(PrintSink(std_err=True), [1])
    assert capsys.readouterr() == ("", "1\n")


class Cell(io.StringIO):
    """The standard output of a cell of a notebook."""

    __module__ = "ipykernel.iostream"


@pytest.mark.parametrize(("kind", "shown"), [(Cell, CELL_LINES), (io.StringIO, CELL_LINES + 200)])
def test_a_cell_of_a_notebook_shows_the_first_lines_of_a_job_and_says_so_once(
    monkeypatch: pytest.MonkeyPatch, kind: type[io.StringIO], shown: int
) -> None:
    out = kind()
    monkeypatch.setattr(sys, "stdout", out)
    writer, committer = PrintSink().create_writer(), PrintSink().create_committer()
    for epoch in range(12):
        lines = writer.write(list(range(100 * epoch, 100 * epoch + 100)), None)
        assert committer.commit(iter([lines]), context(epoch)) == 100
    expected = [*map(str, range(shown)), *([CELL_IS_FULL] if kind is Cell else [])]
    assert out.getvalue().splitlines() == expected


def test_an_epoch_that_is_delivered_again_is_collected_once() -> None:
    found: list[Any] = []
    register_collector("job", "sink", found.extend)
    try:
        assert [run(CollectSink(), [1, 2], epoch=epoch) for epoch in (0, 0, 1)] == [2, 0, 2]
        assert run(CollectSink(), [3], subtask=1, epoch=0) == 1
    finally:
        unregister_collector("job", "sink")
    assert found == [1, 2, 1, 2, 3]


def test_a_callback_that_raises_gets_the_epoch_again() -> None:
    found: list[Any] = []

    def fail_once(values: list[Any]) -> None:
        found.append(values)
        if len(found) == 1:
            raise RuntimeError("once")

    register_collector("job", "sink", fail_once)
    try:
        with pytest.raises(RuntimeError, match="once"):
            run(CollectSink(), [1])
        run(CollectSink(), [1])
    finally:
        unregister_collector("job", "sink")
    assert found == [[1], [1]]


def test_jobs_whose_sinks_share_a_name_are_all_collected() -> None:
    found: list[Any] = []
    register_collector("shared", NAMED, found.extend)
    try:
        assert [run(CollectSink("shared"), [job_id], job_id=job_id) for job_id in ("a", "b", "a")] == [1, 1, 0]
    finally:
        unregister_collector("shared", NAMED)
    assert found == ["a", "b"]


def test_results_that_nobody_collects_are_an_error() -> None:
    with pytest.raises(InternalError, match="nobody collects"):
        run(CollectSink(), [1])


def test_what_the_terminal_cannot_show_is_printed_as_question_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(shown, encoding="ascii"))
    assert run(PrintSink(), ["caf\xe9", "\ud800", "tea"]) == 3
    assert shown.getvalue() == b"caf?\n?\ntea\n"
