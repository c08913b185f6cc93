"""The names of data in stored values, ``module:Qualified.Name``, and where the classes and functions are now.

Rule: a name is a text that stands in stored values for ever. It was a path when it was first stored; since then only
`NOW_IN` says where the class is, and no reader imports a text. What is no longer at its first path is moved on the
right side of that table alone.
"""

from __future__ import annotations

import builtins
import importlib
from collections.abc import Iterable, Mapping
from typing import Any

from flinkish import errors
from flinkish.errors import FlinkishError

#: Module in the names of flinkish's data -> the module where they are now; a row for one name goes before that of its
#: module. Windows and rows stay where they are: pickles of columns hold their classes by reference, as Python does it.
NOW_IN: dict[str, str] = {
    "flinkish.common.accumulators": "flinkish.common.accumulators",
    "flinkish.common.time": "flinkish.common.time",
    "flinkish.common.typeinfo.base": "flinkish.common.typeinfo.base",
    "flinkish.common.typeinfo.basic": "flinkish.common.typeinfo.basic",
    "flinkish.common.typeinfo.collections": "flinkish.common.typeinfo.collections",
    "flinkish.common.typeinfo.composite": "flinkish.common.typeinfo.composite",
    "flinkish.common.typeinfo.pickled": "flinkish.common.typeinfo.base",
    "flinkish.common.typeinfo.temporal": "flinkish.common.typeinfo.temporal",
    "flinkish.common.types": "flinkish.common.types",
    "flinkish.core.error_handling": "flinkish.core.checkpointed_function",
    "flinkish.core.output_tag": "flinkish.core.functions",
    "flinkish.core.time_domain": "flinkish.core.time",
    "flinkish.core.window.window": "flinkish.core.window.window",
    "flinkish.errors": "flinkish.errors",
    "flinkish.runtime.committing": "flinkish.runtime.epoch.commit",
    "flinkish.runtime.epoch_report": "flinkish.runtime.epoch.steps",
    "flinkish.runtime.list_keys": "flinkish.runtime.exchange.keys",
    "flinkish.runtime.report": "flinkish.runtime.job.report",
    "flinkish.runtime.state.declared_state": "flinkish.runtime.state.state_rows",
    "flinkish.runtime.state.state_rows": "flinkish.runtime.state.state_rows",
    "flinkish.runtime.state.stored_values": "flinkish.runtime.state.saved.values",
}


def _names(named: dict[str, str]) -> frozenset[str]:
    return frozenset(f"{module}:{name}" for module, names in named.items() for name in names.split())


def _kinds_of(module: Any, base: type) -> frozenset[str]:
    """The qualified names of the subclasses of ``base`` that a module holds."""
    return frozenset(
        kind.__qualname__ for kind in vars(module).values() if isinstance(kind, type) and issubclass(kind, base)
    )


#: Classes whose instances are made by calling the class with what it has been reduced to.
CALLED = _names(
    {
        "builtins": "bytearray complex range slice",
        "collections": "Counter OrderedDict defaultdict deque",
        "datetime": "date datetime time timedelta timezone",
        "decimal": "Decimal",
        "fractions": "Fraction",
        "ipaddress": "IPv4Address IPv4Interface IPv4Network IPv6Address IPv6Interface IPv6Network",
        "pathlib": "Path PosixPath PurePath PurePosixPath PureWindowsPath WindowsPath",
        "types": "EllipsisType NotImplementedType SimpleNamespace",
        "flinkish.core.window.window": "CountWindow GlobalWindow TimeWindow",
    }
) | _names({"builtins": " ".join(_kinds_of(builtins, BaseException))})

#: Classes whose instances are made empty, and then get attributes or items.
MADE = _names(
    {
        "builtins": "object",
        "collections": "ChainMap UserDict UserList UserString",
        "uuid": "UUID",
        "flinkish.common.time": "Duration Instant Time",
        "flinkish.common.accumulators": (
            "AverageAccumulator DoubleCounter Histogram IntCounter ListAccumulator LongCounter"
        ),
        "flinkish.common.typeinfo.base": "TypeInformation",
        "flinkish.common.typeinfo.basic": "BasicTypeInfo InstantTypeInfo",
        "flinkish.common.typeinfo.collections": (
            "BasicArrayTypeInfo ListTypeInfo MapTypeInfo ObjectArrayTypeInfo PrimitiveArrayTypeInfo"
        ),
        "flinkish.common.typeinfo.composite": "ExternalTypeInfo RowTypeInfo TupleTypeInfo",
        "flinkish.common.typeinfo.pickled": "PickledBytesTypeInfo",
        "flinkish.common.typeinfo.temporal": (
            "DateTypeInfo LocalTimeTypeInfo SqlTimeTypeInfo TimeTypeInfo TimestampTypeInfo"
        ),
        "flinkish.core.error_handling": "DeadLetter",
        "flinkish.core.output_tag": "OutputTag",
        "flinkish.runtime.list_keys": "ListKey TupleKey",
        "flinkish.runtime.committing": "CommitReport",
        "flinkish.runtime.epoch_report": "EpochReport",
        "flinkish.runtime.report": "TaskPlace TaskReport",
        "flinkish.runtime.state.state_rows": "StateRow",
        "flinkish.runtime.state.declared_state": "DeclaredState",
        "flinkish.runtime.state.stored_values": "StoredState",
    }
)

ENUMS = _names(
    {
        "uuid": "SafeUUID",
        "flinkish.common.types": "RowKind",
        "flinkish.common.typeinfo.basic": "BasicType",
        "flinkish.common.typeinfo.temporal": "LocalTimeTypeInfo.TimeType",
        "flinkish.core.time_domain": "TimeDomain",
    }
)

#: Functions by which classes reduce their instances, and which only make data.
FUNCTIONS = _names(
    {
        "array": "_array_reconstructor",
        "flinkish.common.types": "_create_row",
        "flinkish.errors": "_rebuild",
        "pandas._libs.tslibs.nattype": "__nat_unpickle",
        "pandas._libs.tslibs.timedeltas": "_timedelta_unpickle",
        "pandas._libs.tslibs.timestamps": "_unpickle_timestamp",
        "pytz": "_UTC _p",
    }
)

#: What may be called by its name.
CALLABLE = CALLED | FUNCTIONS

#: Classes that a constructor may get as an argument, such as the factory of a ``defaultdict``.
ARGUMENTS = (
    _names(
        {
            "builtins": "bool bytes dict float frozenset int list set str tuple",
            "array": "array",
            "flinkish.errors": " ".join(_kinds_of(errors, FlinkishError)),
        }
    )
    | CALLED
    | MADE
)

#: All names of data; a test looks each of them up.
DATA_NAMES = ARGUMENTS | ENUMS | FUNCTIONS | {"flinkish.common.types:Row"}


class NamesOfData:
    """The names of data in both directions: for readers what each stands for, for writers the name of what they store.

    Args:
        names: the names, as they are stored.
        now_in: where they are now, as in `NOW_IN`; the others are where their names say.
    """

    def __init__(self, names: Iterable[str], now_in: Mapping[str, str]) -> None:
        self._places = {name: self._place(name, now_in) for name in names}
        self._names = {place: name for name, place in self._places.items()}
        #: the names that were asked for: id of the class or function -> itself, and its name
        self._found: dict[int, tuple[Any, str]] = {}

    @staticmethod
    def _place(name: str, now_in: Mapping[str, str]) -> str:
        module, _, path = name.partition(":")
        return now_in.get(name) or f"{now_in.get(module, module)}:{path}"

    def lookup(self, name: str) -> Any:
        """What a name of data stands for; its module is imported if need be."""
        module, _, path = self._places[name].partition(":")
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
        return found

    def name_of(self, found: Any) -> str | None:
        """The name of data that a class or function has; None if it is none, or just one in the same place."""
        known = self._found.get(id(found))
        if known is not None and known[0] is found:
            return known[1]
        place = f"{getattr(found, '__module__', None)}:{getattr(found, '__qualname__', None)}"
        # since Python 3.13 paths say that they are defined in a private module
        name = self._names.get(place.replace("pathlib._local:", "pathlib:"))
        if name is None or self.lookup(name) is not found:
            return None
        self._found[id(found)] = found, name
        return name


_OF_DATA = NamesOfData(DATA_NAMES, NOW_IN)
lookup, data_name = _OF_DATA.lookup, _OF_DATA.name_of
