"""Reading stored files executes nothing, and makes no objects but data and those of the program's classes."""

from __future__ import annotations

import base64
import copyreg
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flinkish.errors import CorruptStateError, IncompatibleJobError, StoredClassError, UnsafeStateError
from flinkish.runtime.buffer import Buffer, BufferHeader, BufferKind
from flinkish.runtime.epoch_report import EpochReport
from flinkish.runtime.operators.sink_writer import decode_committables
from flinkish.runtime.program_classes import ProgramClasses
from flinkish.runtime.report import TaskReport
from flinkish.runtime.state.changelog import decode_changes
from flinkish.runtime.state.keyed_body import KeyedBody
from flinkish.runtime.state.restored_rows import decode_columns
from flinkish.runtime.state.savepoint_rows import SavepointRow, from_savepoint_row, from_text
from flinkish.runtime.state.stored_columns import stored_rows
from flinkish.runtime.state.stored_operator_states import decode_operator_states
from flinkish.runtime.stored_pickle import dumps, loads
from flinkish.runtime.task_header import TaskHeader
from flinkish.spark.moved_state import moved_in

VERSION = 2


class Cart:
    """A class of the program, of which only the class itself may be named."""

    def __init__(self) -> None:
        self.lines: list[int] = []


def made_by_function() -> Cart:
    return Cart()


@pytest.fixture(scope="module")
def program() -> ProgramClasses:
    return ProgramClasses.of_this_process()


def named(module: str, name: str, *arguments: str) -> bytes:
    """The pickle that calls what a name stands for."""
    texts = b"".join(pickle.dumps(text, 4)[11:-1] for text in arguments)
    body = pickle.SHORT_BINUNICODE + bytes([len(module)]) + module.encode()
    body += pickle.SHORT_BINUNICODE + bytes([len(name)]) + name.encode() + pickle.STACK_GLOBAL
    return pickle.PROTO + b"\x05" + body + pickle.MARK + texts + pickle.TUPLE + pickle.REDUCE + pickle.STOP


#: Each would leave a file behind if it ran, or is a step towards that.
GADGETS: dict[str, bytes] = {
    f"{module}.{name}": named(module, name, *arguments)
    for module, name, *arguments in [
        ("os", "system", "touch MARKER"),
        ("posix", "system", "touch MARKER"),
        ("subprocess", "Popen", "touch MARKER"),
        ("subprocess", "check_output", "touch MARKER"),
        ("builtins", "eval", "open('MARKER','w')"),
        ("builtins", "exec", "open('MARKER','w')"),
        ("builtins", "getattr", "a", "b"),
        ("builtins", "__import__", "os"),
        ("builtins", "open", "MARKER", "w"),
        ("builtins", "type", "x"),
        ("__builtin__", "eval", "open('MARKER','w')"),
        ("importlib", "import_module", "antigravity"),
        ("operator", "attrgetter", "system"),
        ("operator", "methodcaller", "system", "touch MARKER"),
        ("functools", "partial", "x"),
        ("types", "FunctionType", "x"),
        ("types", "CodeType", "x"),
        ("codecs", "decode", "x", "rot13"),
        ("pty", "spawn", "touch MARKER"),
        ("shutil", "rmtree", "MARKER"),
        ("runpy", "run_path", "MARKER"),
        ("datetime", "sys.modules", "x"),
        ("collections", "abc.sys.modules", "x"),
        ("pathlib", "os.system", "touch MARKER"),
        ("collections", "namedtuple", "x", "y"),
        ("pickle", "loads", "x"),
        ("pyspark.cloudpickle.cloudpickle", "_make_function", "x"),
        ("flinkish.runtime.stored_pickle", "loads_data", "x"),
        ("flinkish.runtime.stored_pickle", "importlib.import_module", "antigravity"),
        ("flinkish.common.types", "Row.of_kind", "x"),
        ("numpy", "load", "MARKER"),
        (__name__, "made_by_function"),
        (__name__, "subprocess.Popen", "touch MARKER"),
    ]
}
GADGETS["INST"] = b"(S'touch MARKER'\nios\nsystem\n."
GADGETS["GLOBAL"] = b"cos\nsystem\n(S'touch MARKER'\ntR."
GADGETS["object built without its class"] = b"ccopyreg\n_reconstructor\n(csubprocess\nPopen\nc__builtin__\nobject\nNtR."


def by_reference(name: str) -> bytes:
    """The pickle that asks the program for a class, as stored values do."""
    return named("flinkish.runtime.stored_pickle", "program_class", name)


#: What is asked for is in a module of the program, but no class that the module has defined.
REFERENCES = {
    name: by_reference(name)
    for name in (
        "subprocess:Popen",
        "os:system",
        f"{__name__}:made_by_function",
        f"{__name__}:pickle.Unpickler",
        f"{__name__}:Path",
        f"{__name__}:Cart.__init__",
        f"{__name__}:Cart.__class__",
        f"{__name__}:Cart.__subclasses__",
        "__main__:__builtins__",
        "",
        ":",
    )
}

_HEADER = BufferHeader(BufferKind.TASK, 0, 0, 0, "", 0, 0, 0)

#: Every place where something stored is read.
READERS: dict[str, Callable[[bytes, ProgramClasses], Any]] = {
    "body": lambda data, classes: KeyedBody.decode(data, "", classes),
    "rows of a body": lambda data, classes: list(stored_rows(data, None, "", classes)),
    "header": lambda data, classes: TaskHeader.decode(data, "", classes),
    "operator state": lambda data, classes: decode_operator_states(data, None, "", classes),
    "changelog": lambda data, classes: decode_changes(data, "", classes),
    "rows of a savepoint on their way": lambda data, classes: decode_columns(b"\xf1\x03" + data[2:], classes),
    "moved state": lambda data, _: moved_in([Buffer(_HEADER, data)]),
    "output of a sink": decode_committables,
    "report of a task": lambda data, _: TaskReport.decode(data),
    "report of an epoch": lambda data, _: EpochReport.from_json({"tasks": [base64.b64encode(data).decode()]}),
    "text of a savepoint": lambda data, classes: from_text(_text(data), "", classes),
    "row of a savepoint": lambda data, classes: from_savepoint_row(
        SavepointRow("u", "s", "value", _text(data), "null", "1"), classes
    ),
}


#: of readers whose format is not of version 2
VERSIONS = dict.fromkeys(("body", "rows of a body", "header", "report of a task", "report of an epoch"), 3) | {
    "operator state": 4
}


def _text(data: bytes) -> str:
    return json.dumps({"$pickle": base64.b64encode(data[2:]).decode()})


@pytest.mark.parametrize("reader", READERS)
def test_reading_executes_nothing(
    reader: str, program: ProgramClasses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, gadget in GADGETS.items():
        with pytest.raises(UnsafeStateError, match="neither data nor a class|no stored value does"):
            READERS[reader](bytes((0xF1, VERSIONS.get(reader, 2))) + gadget, program)
        assert not list(tmp_path.iterdir()), name
    for name, gadget in REFERENCES.items():
        with pytest.raises(StoredClassError, match="is not in the program"):
            READERS[reader](bytes((0xF1, VERSIONS.get(reader, 2))) + gadget, program)
        assert not list(tmp_path.iterdir()), name


def test_the_gadgets_would_work_with_an_ordinary_unpickler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("os.system", "builtins.exec", "GLOBAL", "INST"):
        pickle.loads(GADGETS[name])
        (tmp_path / "MARKER").unlink()


def test_a_class_with_a_harmful_reduce_is_neither_stored_nor_read(program: ProgramClasses) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            import os

            return (os.system, ("touch MARKER",))

    with pytest.raises(StoredClassError, match="posix.system"):
        dumps(Evil(), VERSION, program)
    with pytest.raises(UnsafeStateError):
        loads(b"\xf1\x02" + pickle.dumps(Evil()), VERSION, "a value", "", program)


def test_an_extension_code_of_copyreg_is_no_way_around(program: ProgramClasses) -> None:
    copyreg.add_extension("os", "system", 0xFFFF)
    try:
        with pytest.raises(UnsafeStateError):
            loads(b"\xf1\x02\x80\x02\x83\xff\xff.", VERSION, "a value", "", program)
    finally:
        copyreg.remove_extension("os", "system", 0xFFFF)


def test_arrays_of_pointers_are_not_made_of_bytes() -> None:
    for layout in ("O", [("a", "O")], 7):
        data = pickle.dumps((layout, (1,), b"\0" * 8))[2:]
        forged = b"\xf1\x02\x80\x05" + b"cflinkish.runtime.stored_pickle\n_array\n" + data[:-1] + b"R."
        with pytest.raises(UnsafeStateError, match="not the layout|no stored value does"):
            loads(forged, VERSION, "a value")


def test_damage_and_other_versions_are_told_apart() -> None:
    whole = dumps({"a": 1}, VERSION)
    with pytest.raises(CorruptStateError, match=r"a value \(\d+ bytes\) cannot be decoded.*last completed checkpoint"):
        loads(whole[:-3], VERSION, "a value")
    with pytest.raises(IncompatibleJobError, match="a value has format version 3.*expected format version 2"):
        loads(b"\xf1\x03" + whole[2:], VERSION, "a value")
    with pytest.raises(IncompatibleJobError, match="may hold code.*a new job directory"):
        loads(pickle.dumps({"a": 1}), VERSION, "a value")
