"""A value for each name that stored values may contain, and values of a program's classes.

The texts here, and the name of this module, stand in golden files: they never change, whatever is moved.
"""

from __future__ import annotations

import array
import builtins
import collections
import datetime as dt
import decimal
import enum
import fractions
import ipaddress
import pathlib
import types
import uuid
import zoneinfo
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytz

from flinkish import errors
from flinkish.common.accumulators import (
    Accumulator,
    AverageAccumulator,
    DoubleCounter,
    Histogram,
    IntCounter,
    ListAccumulator,
    LongCounter,
)
from flinkish.common.time import Duration, Instant, Time
from flinkish.common.typeinfo import ExternalTypeInfo, LocalTimeTypeInfo, SqlTimeTypeInfo, TypeInformation, Types
from flinkish.common.typeinfo.basic import BasicType
from flinkish.common.types import Row, RowKind
from flinkish.core.checkpointed_function import DeadLetter
from flinkish.core.functions import OutputTag
from flinkish.core.time import TimeDomain
from flinkish.core.window.window import CountWindow, GlobalWindow, TimeWindow
from flinkish.runtime.epoch.commit import CommitReport
from flinkish.runtime.epoch.steps import EpochReport
from flinkish.runtime.exchange.keys import ListKey, TupleKey
from flinkish.runtime.job.report import TaskPlace, TaskReport
from flinkish.runtime.state.saved.values import StoredState
from flinkish.runtime.state.state_rows import DeclaredState, StateRow
from flinkish.runtime.stored.classes import ProgramClasses

#: The program whose classes the values of `of_program` have.
PROGRAM = ProgramClasses(modules=frozenset({__name__}))


# ----------------------------------------------------------------------------------------------- classes of a program


class Money:
    """An object with attributes."""

    def __init__(self, amount: int) -> None:
        self.amount = amount


class Point(NamedTuple):
    """A tuple of a class of its own, made with arguments."""

    x: int
    y: int


class Colour(enum.Enum):
    """An enum."""

    RED = 1


class Rights(enum.Flag):
    """Flags."""

    READ = 1
    WRITE = 2


class Named:
    """An object that is made with named arguments."""

    def __new__(cls, **named: int) -> Named:
        """Keep the arguments."""
        made = super().__new__(cls)
        made.named = named
        return made

    named: dict[str, int]

    def __getnewargs_ex__(self) -> tuple[tuple[()], dict[str, int]]:
        return (), self.named


class Called:
    """An object that is reduced to a call with a class among its arguments."""

    def __init__(self, kind: type, amount: int) -> None:
        self.kind, self.amount = kind, amount

    def __reduce__(self) -> tuple[Any, ...]:
        return Called, (self.kind, self.amount)


class Counted:
    """An object that is reduced to a call with plain data."""

    def __init__(self, amount: int) -> None:
        self.amount = amount

    def __reduce__(self) -> tuple[Any, ...]:
        return Counted, (self.amount,)


class Old(float):
    """A number that reduces itself as in pickle's first protocols."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        return super().__reduce_ex__(1)


def of_program() -> dict[str, Any]:
    """Constructor of `stored_names` -> a value that it makes."""
    return {
        "make": Money(3),
        "make of arguments": Point(1, 2),
        "make_with_names": Named(a=1),
        "call": Counted(2),
        "call_with_classes": Called(Money, 2),
        "reconstruct": Old(1.5),
        "member": Colour.RED,
        "member of flags": Rights.READ | Rights.WRITE,
        "zone": zoneinfo.ZoneInfo("Europe/Berlin"),
        "array": np.array([[1.5, 2.5]], "<f8"),
        "scalar": np.int64(7),
        "objects": np.array(["a", None], object),
    }


# --------------------------------------------------------------------------------------------------- names of data


def of_data() -> dict[str, Any]:
    """Name of data -> a value whose stored form contains it."""
    found: dict[str, Any] = {}
    for group in (_of_python(), _of_libraries(), _errors_of_python(), _of_flinkish(), _type_infos(), _errors()):
        found.update(group)
    return found


def _of_python() -> dict[str, Any]:
    day, moment = dt.date(2024, 2, 3), dt.datetime(2024, 2, 3, 4, 5, 6, 7)
    found: dict[str, Any] = {
        "array:_array_reconstructor": array.array("d", [1.5]),
        "array:array": array.array("q", [1, 2]),
        "builtins:bytearray": collections.defaultdict(bytearray),
        "builtins:complex": complex(1, 2),
        "builtins:object": object(),
        "builtins:range": range(1, 9, 2),
        "builtins:slice": slice(1, 9, 2),
        "collections:ChainMap": collections.ChainMap({"a": 1}, {"b": 2}),
        "collections:Counter": collections.Counter("aab"),
        "collections:OrderedDict": collections.OrderedDict(b=1, a=2),
        "collections:UserDict": collections.UserDict(a=1),
        "collections:UserList": collections.UserList([1]),
        "collections:UserString": collections.UserString("a"),
        "collections:defaultdict": collections.defaultdict(None, a=1),
        "collections:deque": collections.deque([1, 2], 3),
        "datetime:date": day,
        "datetime:datetime": moment,
        "datetime:time": moment.time(),
        "datetime:timedelta": dt.timedelta(1, 2, 3),
        "datetime:timezone": dt.timezone(dt.timedelta(hours=1), "here"),
        "decimal:Decimal": decimal.Decimal("1.50"),
        "fractions:Fraction": fractions.Fraction(1, 3),
        "types:EllipsisType": ...,
        "types:NotImplementedType": NotImplemented,
        "types:SimpleNamespace": types.SimpleNamespace(a=1),
        "uuid:SafeUUID": uuid.SafeUUID.safe,
        "uuid:UUID": uuid.UUID(int=7),
    }
    # each of these is stored as a class among arguments alone
    for kind in (bool, bytes, dict, float, frozenset, int, list, set, str, tuple):
        found[f"builtins:{kind.__name__}"] = collections.defaultdict(kind, a=kind())
    for version, address in ((4, "10.0.0.1"), (6, "fe80::1")):
        for name in ("Address", "Interface", "Network"):
            kind_of_address: Any = getattr(ipaddress, f"IPv{version}{name}")
            found[f"ipaddress:IPv{version}{name}"] = kind_of_address(address)
    for path in ("PosixPath", "PurePosixPath", "PureWindowsPath"):
        found[f"pathlib:{path}"] = getattr(pathlib, path)("a", "b")
    for path in ("Path", "PurePath", "WindowsPath"):
        found[f"pathlib:{path}"] = collections.defaultdict(getattr(pathlib, path))
    return found


def _of_libraries() -> dict[str, Any]:
    return {
        "pandas._libs.tslibs.nattype:__nat_unpickle": pd.NaT,
        "pandas._libs.tslibs.timedeltas:_timedelta_unpickle": pd.Timedelta(5, "s"),
        "pandas._libs.tslibs.timestamps:_unpickle_timestamp": pd.Timestamp("2024-02-03 04:05:06", tz="Europe/Berlin"),
        "pytz:_UTC": pytz.UTC,
        "pytz:_p": pytz.timezone("Europe/Berlin"),
    }


def _errors_of_python() -> dict[str, Any]:
    special: dict[str, tuple[Any, ...]] = {
        "UnicodeDecodeError": ("utf-8", b"a\xff", 1, 2, "bad"),
        "UnicodeEncodeError": ("ascii", "aé", 1, 2, "bad"),
        "UnicodeTranslateError": ("aé", 1, 2, "bad"),
        "BaseExceptionGroup": ("some", [ValueError("a"), KeyboardInterrupt()]),
        "ExceptionGroup": ("some", [ValueError("a")]),
    }
    kinds = {kind for kind in vars(builtins).values() if isinstance(kind, type) and issubclass(kind, BaseException)}
    return {f"builtins:{kind.__name__}": kind(*special.get(kind.__name__, ("bad",))) for kind in kinds}


def _filled(accumulator: Accumulator[Any, Any], value: Any) -> Accumulator[Any, Any]:
    accumulator.add(value)
    return accumulator


def _of_flinkish() -> dict[str, Any]:
    place = TaskPlace("host", "1", 2, 3, 0, 4, 5)
    task = TaskReport(1, 0, 10, 9, 5, splits=("a",), metrics={"n": 1.0}, place=place, work_ms=1.5)
    accumulators = "flinkish.common.accumulators"
    return {
        f"{accumulators}:AverageAccumulator": _filled(AverageAccumulator(), 1.5),
        f"{accumulators}:DoubleCounter": _filled(DoubleCounter(), 1.5),
        f"{accumulators}:Histogram": _filled(Histogram(), 3),
        f"{accumulators}:IntCounter": _filled(IntCounter(), 3),
        f"{accumulators}:ListAccumulator": _filled(ListAccumulator(), "a"),
        f"{accumulators}:LongCounter": _filled(LongCounter(), 3),
        "flinkish.common.time:Duration": Duration.of_millis(5),
        "flinkish.common.time:Instant": Instant.of_epoch_milli(5),
        "flinkish.common.time:Time": Time.seconds(5),
        "flinkish.common.typeinfo.basic:BasicType": BasicType.LONG,
        "flinkish.common.typeinfo.temporal:LocalTimeTypeInfo.TimeType": LocalTimeTypeInfo.TimeType.LOCAL_DATE,
        "flinkish.common.types:Row": Row(a=1, b="x"),
        "flinkish.common.types:RowKind": RowKind.DELETE,
        "flinkish.common.types:_create_row": Row.of_kind(RowKind.UPDATE_AFTER, 1, "x"),
        "flinkish.core.error_handling:DeadLetter": DeadLetter("x", "ValueError", "bad", "Trace", "parse", "k", 5, 3),
        "flinkish.core.output_tag:OutputTag": OutputTag("late", Types.STRING()),
        "flinkish.core.time_domain:TimeDomain": TimeDomain.EVENT_TIME,
        "flinkish.core.window.window:CountWindow": CountWindow(7),
        "flinkish.core.window.window:GlobalWindow": GlobalWindow(),
        "flinkish.core.window.window:TimeWindow": TimeWindow(0, 5),
        "flinkish.runtime.committing:CommitReport": CommitReport(1, 2, 3),
        "flinkish.runtime.epoch_report:EpochReport": EpochReport(3, 7, 10, 9, 5, False, tasks=(task,)),
        "flinkish.runtime.list_keys:ListKey": ListKey([1, "a"]),
        "flinkish.runtime.list_keys:TupleKey": TupleKey(("a", ListKey([1]))),
        "flinkish.runtime.report:TaskPlace": place,
        "flinkish.runtime.report:TaskReport": task,
        "flinkish.runtime.state.declared_state:DeclaredState": DeclaredState("u", "n", "value", "BIGINT"),
        "flinkish.runtime.state.state_rows:StateRow": StateRow("n", "value", TimeWindow(0, 5), "k", 1),
        "flinkish.runtime.state.stored_values:StoredState": StoredState("u", "n", "value", 3, 1, "bad"),
    }


def _type_infos() -> dict[str, Any]:
    longs, texts = Types.LONG(), Types.STRING()
    infos: dict[str, Any] = {
        # abstract classes have no instances, and those of one class hold another class, but each may be an argument
        "base:TypeInformation": collections.defaultdict(TypeInformation),
        "basic:BasicTypeInfo": longs,
        "basic:InstantTypeInfo": Types.INSTANT(),
        "collections:BasicArrayTypeInfo": Types.BASIC_ARRAY(texts),
        "collections:ListTypeInfo": Types.LIST(longs),
        "collections:MapTypeInfo": Types.MAP(texts, longs),
        "collections:ObjectArrayTypeInfo": Types.OBJECT_ARRAY(texts),
        "collections:PrimitiveArrayTypeInfo": Types.PRIMITIVE_ARRAY(longs),
        "composite:ExternalTypeInfo": ExternalTypeInfo(longs),
        "composite:RowTypeInfo": Types.ROW_NAMED(["a", "b"], [longs, texts]),
        "composite:TupleTypeInfo": Types.TUPLE([longs, texts]),
        "pickled:PickledBytesTypeInfo": Types.PICKLED_BYTE_ARRAY(),
        "temporal:DateTypeInfo": Types.SQL_DATE(),
        "temporal:LocalTimeTypeInfo": collections.defaultdict(LocalTimeTypeInfo),
        "temporal:SqlTimeTypeInfo": collections.defaultdict(SqlTimeTypeInfo),
        "temporal:TimeTypeInfo": Types.SQL_TIME(),
        "temporal:TimestampTypeInfo": Types.SQL_TIMESTAMP(),
    }
    return {f"flinkish.common.typeinfo.{name}": info for name, info in infos.items()}


def _errors() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, errors.FlinkishError):
            more = {"user_traceback": "Trace"} if issubclass(kind, errors.UserCodeError) else {}
            of_kind: Any = kind
            found[f"flinkish.errors:{kind.__name__}"] = of_kind("what", where="w", expected="e", hint="h", **more)
    found["flinkish.errors:_rebuild"] = errors.SavepointError("it is damaged", where="savepoint-1")
    return found


# ------------------------------------------------------------------------------------------------------- comparison


def content(value: Any) -> Any:
    """What a value consists of, in a form that can be compared: many of the classes have no equality of their own."""
    kind = type(value)
    if isinstance(value, np.ndarray):
        return kind, value.dtype.str, value.tolist()
    if value is pd.NaT or isinstance(value, dt.tzinfo):
        return kind, str(value)
    if isinstance(value, BaseException):
        return kind, [content(one) for one in value.args], content(vars(value))
    if kind is dict:
        return [(content(key), content(one)) for key, one in value.items()]
    if kind in (list, tuple):
        return [content(one) for one in value]
    if kind.__eq__ is object.__eq__ and hasattr(value, "__dict__"):
        return kind, content(vars(value))
    return kind if kind is object else (kind, value)
