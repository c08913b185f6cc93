"""Functions that read and write stored values in the workers, beside a job, know the classes of the program."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from flinkish.errors import StoredClassError
from flinkish.runtime.job.report import TaskHeader
from flinkish.runtime.state.changelog import Change, encode_changes
from flinkish.runtime.state.keyed_body import KeyedBody
from flinkish.runtime.state.operator_state import OperatorState
from flinkish.runtime.state.saved.columns import TaskBody
from flinkish.runtime.state.saved.operator_states import StoredOperatorStates
from flinkish.runtime.state.saved.texts import SavepointRow, to_savepoint_row
from flinkish.runtime.state.state_rows import StateRow
from flinkish.runtime.state.state_table import StateTable
from flinkish.runtime.stored.classes import NO_CLASSES, ProgramClasses
from flinkish.runtime.stored.texts import from_text, to_text
from flinkish.spark.changelog import ChangesToRows
from flinkish.spark.state import BodyToRows
from flinkish.spark.worker import DeployedClasses, WorkerFailure, typed_failure
from flinkish.state.rows import NativeToTexts, TextsToTyped


class Colour(enum.Enum):
    RED = 1


@dataclass(frozen=True)
class User:
    name: str
    colour: Colour


CLASSES = ProgramClasses.of_this_process()
KEY, VALUE = User("ann", Colour.RED), [Colour.RED]
ROW = to_savepoint_row("u", StateRow("s", "value", None, KEY, VALUE), CLASSES)


def keyed_body(key: Any, value: Any, classes: ProgramClasses) -> bytes:
    table = StateTable("s", "value")
    table.namespace(None)[key] = value
    inline = table.inline()
    assert inline is not None
    return KeyedBody({"s": inline}).encode("", classes)


def bodies() -> Any:
    operator = OperatorState()
    operator.put("s", VALUE)
    headers = [TaskHeader("u", 0, subtask, saved={"u": Colour.RED}).encode(CLASSES) for subtask in (0, 1)]
    operators = StoredOperatorStates({"u": operator}, classes=CLASSES).snapshot(0)
    stored = [TaskBody(keyed_body(KEY, VALUE, CLASSES), None).encode(), TaskBody(None, operators).encode()]
    return pa.RecordBatch.from_arrays([pa.array(headers), pa.array(stored)], names=["header", "body"])


def changes() -> Any:
    data = encode_changes(3, [Change("u", "s", "value", None, 7, None, (VALUE,))], CLASSES)
    return pa.RecordBatch.from_arrays([pa.array([data])], names=["changes"])


def texts(*columns: str) -> Any:
    values = ROW._asdict()
    return pa.RecordBatch.from_arrays([pa.array([values[name]]) for name in columns], names=list(columns))


def typed(deployed: DeployedClasses) -> Any:
    schema = pa.schema([("key", pa.string()), ("namespace", pa.string()), ("value", pa.string())])
    return TextsToTyped("value", schema, frozenset({"key", "value"}), deployed)


FUNCTIONS: dict[str, tuple[Callable[[DeployedClasses], Any], Callable[[], Any]]] = {
    "bodies": (lambda deployed: BodyToRows(deployed, "nowhere"), bodies),
    "changelog": (ChangesToRows, changes),
    "typed": (typed, lambda: texts(*SavepointRow._fields)),
    "native": (
        lambda deployed: NativeToTexts(("uid", "state", "key", "value"), {}, True, deployed),
        lambda: texts("uid", "state", "key", "value"),
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_objects_become_texts_and_texts_objects(name: str) -> None:
    function, batch = FUNCTIONS[name]
    found = [row for out in function(DeployedClasses.of(CLASSES))(iter([batch()])) for row in out.to_pylist()]
    assert to_text(VALUE, CLASSES) in [row["value"] for row in found]
    if name != "changelog":
        assert ROW.key in [row["key"] for row in found]


@pytest.mark.parametrize(
    "value", ["half \ud83d", 10**5000, ["\ude00", {"\ud83d": -(10**5000)}]], ids=["text", "int", "nested"]
)
@pytest.mark.parametrize("key", ["\ud83d", 10**5000, ("\ud83d" + "\ude00", 1)], ids=["text", "int", "tuple"])
def test_every_key_and_value_becomes_a_row_and_is_shown(key: Any, value: Any) -> None:
    body = TaskBody(keyed_body(key, value, NO_CLASSES), None).encode()
    header = TaskHeader("u", 0, 0, saved={}).encode(NO_CLASSES)
    stored = pa.RecordBatch.from_arrays([pa.array([header]), pa.array([body])], names=["header", "body"])
    deployed = DeployedClasses.of(NO_CLASSES)
    (rows,) = [batch for batch in BodyToRows(deployed, "nowhere")(iter([stored])) if "s" in batch["state"].to_pylist()]
    (row,) = rows.to_pylist()
    assert (from_text(row["key"]), from_text(row["value"])) == (key, value)
    (shown,) = [row for batch in typed(deployed)(iter([rows])) for row in batch.to_pylist()]
    assert (shown["key"], shown["value"]) == (row["key"], row["value"])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_class_that_is_not_the_programs_is_told_to_the_driver(name: str) -> None:
    function, batch = FUNCTIONS[name]
    deployed = DeployedClasses.of(NO_CLASSES)
    with pytest.raises(WorkerFailure) as failed:
        list(function(deployed)(iter([batch()])))
    error = typed_failure(str(failed.value), deployed.secret)
    assert error is not None
    assert "is not in the program" in str(error)
    assert isinstance(error, StoredClassError) or name == "native"
