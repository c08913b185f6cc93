"""Reading stored files executes nothing, and makes no objects but data and those of the program's classes."""

from __future__ import annotations

import base64
import copyreg
import importlib
import json
import pickle
import sys
import sysconfig
import tracemalloc
import zlib
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from flinkish.errors import (
    CorruptStateError,
    IncompatibleJobError,
    SavepointError,
    StoredClassError,
    UnsafeStateError,
)
from flinkish.runtime.epoch.steps import EpochReport, ReportedFigures
from flinkish.runtime.exchange.buffer import Buffer, BufferHeader, BufferKind
from flinkish.runtime.job.report import TaskHeader, TaskReport
from flinkish.runtime.operators.source_and_sink import decode_committables
from flinkish.runtime.state.changelog import decode_changes
from flinkish.runtime.state.keyed_body import KeyedBody
from flinkish.runtime.state.saved.columns import stored_rows
from flinkish.runtime.state.saved.operator_states import decode_operator_states
from flinkish.runtime.state.saved.restore import decode_columns
from flinkish.runtime.state.saved.texts import SavepointRow, from_savepoint_row
from flinkish.runtime.stored.classes import ProgramClasses
from flinkish.runtime.stored.names import DATA_NAMES, lookup
from flinkish.runtime.stored.pickles import dumps, loads, loads_all
from flinkish.runtime.stored.texts import from_text
from flinkish.runtime.stored_names import CONSTRUCTORS, OWN
from flinkish.spark.state import moved_in
from tests.support.written_opcodes import called, name, own, text
from tests.unit.runtime.stored import former_values as former

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
    "report of an epoch": lambda data, _: EpochReport.from_stored(ReportedFigures(0, 0, 0, 0, 0, False, tasks=[data])),
    "text of a savepoint": lambda data, classes: from_text(_text(data), "", classes),
    "row of a savepoint": lambda data, classes: from_savepoint_row(
        SavepointRow("u", "s", "value", _text(data), "null", "1"), classes
    ),
}


#: of readers whose format is not of version 2
VERSIONS = dict.fromkeys(("body", "rows of a body", "header", "report of a task", "report of an epoch"), 3) | {
    "operator state": 4
}


#: Where the two ways of reading begin: the state of the job, and the texts of savepoints.
WAYS = ("body", "text of a savepoint")


def read(way: str, pickled: bytes, classes: ProgramClasses) -> Any:
    """Read the opcodes of a value, by one of `WAYS`."""
    return READERS[way](bytes((0xF1, VERSIONS.get(way, 2))) + pickle.PROTO + b"\x05" + pickled + pickle.STOP, classes)


def _text(data: bytes) -> str:
    return json.dumps({"$pickle": base64.b64encode(data[2:]).decode()})


@pytest.mark.parametrize("reader", READERS)
def test_reading_executes_nothing(
    reader: str, program: ProgramClasses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for title, gadget in GADGETS.items():
        with pytest.raises(UnsafeStateError, match="neither data nor a class|no stored value does"):
            READERS[reader](bytes((0xF1, VERSIONS.get(reader, 2))) + gadget, program)
        assert not list(tmp_path.iterdir()), title
    for title, gadget in REFERENCES.items():
        with pytest.raises(StoredClassError, match="is not in the program"):
            READERS[reader](bytes((0xF1, VERSIONS.get(reader, 2))) + gadget, program)
        assert not list(tmp_path.iterdir()), title


def test_the_gadgets_would_work_with_an_ordinary_unpickler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for title in ("os.system", "builtins.exec", "GLOBAL", "INST"):
        pickle.loads(GADGETS[title])
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


#: The opcodes that set an attribute of what lies on the stack: of its ``__dict__``, and by ``setattr``.
ATTRIBUTES = [
    pickle.EMPTY_DICT + text("changed") + pickle.NEWTRUE + pickle.SETITEM + pickle.BUILD,
    pickle.NONE + pickle.EMPTY_DICT + text("changed") + pickle.NEWTRUE + pickle.SETITEM + pickle.TUPLE2 + pickle.BUILD,
    pickle.NONE + pickle.EMPTY_DICT + text("__name__") + text("x") + pickle.SETITEM + pickle.TUPLE2 + pickle.BUILD,
    pickle.NONE + pickle.EMPTY_DICT + text("__call__") + pickle.NONE + pickle.SETITEM + pickle.TUPLE2 + pickle.BUILD,
]


def class_of_the_program(of: str) -> bytes:
    return name("flinkish.runtime.stored_pickle:program_class") + text(of) + pickle.TUPLE1 + pickle.REDUCE


def everything_named() -> dict[str, Any]:
    """What the names in stored values stand for, and this module's class."""
    found: dict[str, Any] = {of: lookup(of) for of in DATA_NAMES}
    found.update({f"{OWN}:{each.__name__}": each for each in CONSTRUCTORS})
    return {**found, f"{__name__}:Cart": Cart}


def test_every_name_of_data_exists() -> None:
    assert all(map(callable, everything_named().values()))


def contents(found: dict[str, Any]) -> dict[str, dict[str, int]]:
    """The attributes of classes and functions, by identity."""
    return {
        of: {key: id(attribute) for key, attribute in vars(value).items()}
        for of, value in found.items()
        if hasattr(value, "__dict__")
    }


@pytest.mark.parametrize("way", WAYS)
def test_no_class_and_no_function_can_be_changed(way: str, program: ProgramClasses) -> None:
    named = everything_named()
    before = contents(named)
    for of in named:
        for push in (name(of), class_of_the_program(of)):
            for attributes in ATTRIBUTES:
                with pytest.raises((CorruptStateError, UnsafeStateError, StoredClassError, SavepointError)):
                    read(way, push + attributes, program)
    assert contents(named) == before


def test_members_and_zones_that_everybody_has_are_not_changed_by_texts(program: ProgramClasses) -> None:
    member = name("flinkish.runtime.stored_names:member") + text("flinkish.common.types:RowKind") + text("DELETE")
    zone = name("pytz:_UTC") + pickle.EMPTY_TUPLE + pickle.REDUCE
    for push in (member + pickle.TUPLE2 + pickle.REDUCE, zone):
        for attributes in ATTRIBUTES:
            with pytest.raises(UnsafeStateError, match="changes a .* that it has not made"):
                read("text of a savepoint", push + attributes, program)


@pytest.mark.parametrize("way", WAYS)
def test_a_name_that_is_no_text_is_refused_even_if_it_looks_like_one(way: str, program: ProgramClasses) -> None:
    """It could be equal to the name of a module of the program, and be split into another one."""
    empty = name("flinkish.runtime.stored_names:make") + text("collections:UserString") + text("")
    data = pickle.EMPTY_DICT + text("data") + text("json:JSONDecoder") + pickle.SETITEM + pickle.BUILD
    not_a_text = empty + pickle.TUPLE2 + pickle.REDUCE + data
    for constructor in ("make", "call"):
        call = name(f"flinkish.runtime.stored_names:{constructor}") + not_a_text + pickle.TUPLE1 + pickle.REDUCE
        with pytest.raises(UnsafeStateError, match="a UserString in place of the name of a class"):
            read(way, call, program)
    former = name("flinkish.runtime.stored_pickle:program_class") + not_a_text + pickle.TUPLE1 + pickle.REDUCE
    with pytest.raises(UnsafeStateError):
        read(way, former, program)


def test_modules_of_python_without_a_public_name_are_not_the_programs() -> None:
    data = sysconfig._get_sysconfigdata_name()  # type: ignore[attr-defined]
    importlib.import_module(data)
    assert data not in sys.stdlib_module_names
    assert data not in ProgramClasses.of_this_process().modules


def test_a_class_whose_instances_are_not_made_by_calls_is_not_called(program: ProgramClasses) -> None:
    for way in WAYS:
        with pytest.raises(UnsafeStateError, match="not made by calls"):
            read(way, own("call", f"{__name__}:Cart"), program)


def nested(levels: int, inner: bytes = pickle.NONE) -> bytes:
    return inner + pickle.TUPLE1 * levels


def doubled(times: int) -> bytes:
    """A list that holds a list twice, which holds a list twice, and so on."""
    opcodes = pickle.EMPTY_LIST + pickle.MEMOIZE
    for index in range(times):
        opcodes += pickle.POP + pickle.EMPTY_LIST + pickle.MEMOIZE + pickle.MARK
        opcodes += (pickle.BINGET + bytes([index])) * 2 + pickle.APPENDS
    return opcodes


RANGE = called("builtins:range", 10**11)
#: Texts of a few bytes up to 200 KB that took gigabytes or ended the process.
BOMBS = {
    "a deeply nested key": pickle.EMPTY_DICT + nested(100_000) + pickle.NONE + pickle.SETITEM,
    "a deeply nested member of a set": pickle.EMPTY_SET + pickle.MARK + nested(100_000) + pickle.ADDITEMS,
    "a place in the memo": pickle.NONE + pickle.LONG_BINPUT + b"\xff\xff\xff\x7f",
    "lists in lists": doubled(200),
    "zeros": called("builtins:bytearray", 10**11),
    "items of a range": called("collections:deque", RANGE),
    "counts of a range": called("collections:Counter", RANGE),
    "an exponent": called("fractions:Fraction", "1e999999999"),
    "an array without data": own("array", "<f8", (10**11,), b""),
    "an array of empty texts": own("array", "<U0", (10**11,), b""),
    "a text that is longer than the value": pickle.BINUNICODE8 + b"\xff" * 7 + b"\x7f",
}


@pytest.mark.parametrize(
    "bomb",
    [
        pytest.param(bomb, marks=pytest.mark.nightly if bomb == "a deeply nested member of a set" else ())
        for bomb in BOMBS
    ],
)
def test_what_a_text_of_a_savepoint_costs_is_bounded_by_its_size(bomb: str, program: ProgramClasses) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(UnsafeStateError):
            read("text of a savepoint", BOMBS[bomb], program)
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()


def test_nested_json_is_an_error_of_the_row() -> None:
    for depth in (2_000, 200_000):
        with pytest.raises(SavepointError, match="is not a value"):
            from_text('{"$tuple": [' * depth + "]}" * depth, "row 7")


def test_values_of_former_versions_are_read(program: ProgramClasses) -> None:
    """Written by the version before constructors had names: with classes as values of the unpickler."""
    classes = ProgramClasses(program.main, program.modules | {former.__name__}, former.FORMER_NAMES)
    expected = former.values()
    with_memo, joined = (zlib.decompress(base64.b64decode("".join(data.split()))) for data in (WITH_MEMO, JOINED))
    ends = list(accumulate(SIZES))
    each = [joined[start:end] for start, end in zip((0, *ends), ends)]
    for values in (
        loads(with_memo, 2, "a value", "", classes),
        from_text(_text(with_memo), "", classes),
        loads_all(each, classes=classes),
    ):
        assert list(map(type, values)) == list(map(type, expected))
        assert list(map(repr, values)) == list(map(repr, expected))


WITH_MEMO = """
eNqNU79r20AUtiyrMg6FUtKlhU4d7A6iHQKhUBKwTWjPKcXYzRTEWbpEhyWdcj9wXAg0Q9zlNl//x47tUjr23ck1LVms5Z5O33vv+7739LP5Jfj2y2+4
59x09fOLnJZzKrKIq1LSgkRCMk7SuKLJPCdGP6w4u+S4iJMcC2HWRvckEVJEqqQSwFiSyF7E/+W9OWUlWZo7Mza9W3MDjQKLFwb5up0ozkmZLI32h9Ox
UbPM363oR0ZL6YoiDzVX5tZkng7jghQzwoEa1Hm5S50+y5nirpD2x8OBWUGUPd41fUwvM5BS83CpO/I/YzwVf03pag8b7c0M0U+2Q0hYUbAyksuKCKP3
4oQTqBVztgB5H5B3Z2m+0OGYLRAtUzuOB4PhaDgZOg1fraKWUjSFYzp9NwCA81/71jkUipneS1iek0RSVtoWKbnAKpcpTaSt1p4pmktqP7VyKuydswm4
noNaLLID3e5nmJanuNpWbxW4EgC4Mdlb5AkMbQLMOYYR78cuiDlJoKHkKgFLILG7RWxOaO6lBj3qt+vt/H1kpO387B9zOIkWIJstNofRnQns7Fn9sjao
gQLrg356b62tmHhOliAsHEGMyLKmD6L0/r0BQAqYMVAcW6O2QoMSl0yY98do1ACR7RSms8Fuw7Xpd8LvXrOWYVc0iD/D72AV+tNJ3xnqWIYpSWiBc4gG
mwgwrdfRwSsHAq+DlFwpm9pD/sotHM4OdecTzhUZcu6s1N51DT/UIfCvcnINtydHP2oGJ8f12bD5JPoDyPyQKg==
"""
JOINED = """
eNrNVM9r1EAU3jQbE7YIHuqlas+7osEiIvTSwm4oOluRuGtPJcwm0+6wSWadH2wjFrqHrJcRhKH/o0ePHp0kzaJshe2hYC7zmHnfe9/3vUcurasvjeqT
O6cxTieYjV0qUo4T5DJOKIqCKQ4nMZL3p5ScUZgEYQwZU7LDEePMFSnmOhNy5BYXwV+gvSOSoiz3O/OLtrSKVAZM6YSCUpSGmTS9oS9G7qV1Fd0pjfcE
pzz3gQE2FvOi3fd129lBgpIRourWxJ6uQ6xLYiJo7kvT93oLv6D27T+h5uOzMWeFaRWv8Z1O6JjQiBWL0pYGlMYIFS3ndcuHy5YhSRKSujybIiY3g5Ai
XTCgZKbeASO/hWf/KGn7ZAZwGil5r+f1vYG38L+W8rdrLk0hcCSbw+GbntJ7LU29WsBm5Ra/rpM2QxLHKOSYpJpmhE6hiHmEQ66kMxI45ljfN2PMuNLD
N+AJMCArKjy/sYLTHUOcHsFp2bGZwCk7udAwYDBYdT6ocRakFGZyKyjPgKJQF+BUhNoH1a6fq0NJIwIPuk4F/bXPS6W7dalHf1hEkTvTtpDZ9SFbA+3u
cRkr0ABWtSTPauz2yiAKscEEZdrjvg4ByrQYLbuAvaxhWytT0VDp9ASFhROlfCuFKWFvD0C/UWn/UKOdSC9Dhagj1W3ZP4yNNVfXCj7rH5aS5nDQzf1K
0uO6uh2hECcwlnavCpRs7rqvXuRl2s6Ng7Mi9Ekg1QHmwr/W+mTJdrkIrY8wFsijVI9IGudVwc5qnq1NmcboXB3u/6weD+u5a66/Abn1/dk=
"""
SIZES = [135, 111, 155, 152, 115, 140, 37, 66, 56, 75, 60, 55, 62, 94, 39, 41, 40, 52]
