"""Checks functions of the user, and turns key selectors and partitioners into the callables that the engine calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flinkish.common.arguments import check_methods_take, check_takes, inherits, kind_of
from flinkish.common.typeinfo import PickledBytesTypeInfo, TypeInformation, declared_type
from flinkish.core.functions import Function, KeySelector, Partitioner
from flinkish.errors import ArgumentTypeError, ProgramError
from flinkish.runtime.exchange.keys import TypedKeySelector

KeyFunction = Callable[[Any], Any]

_SELECTOR = "the key selector of key_by(), partition_custom() or a join"


def key_function(key_selector: KeySelector | KeyFunction, key_type: TypeInformation | None = None) -> KeyFunction:
    """The function value -> key of a key selector. It converts keys to ``key_type``, if there is one.

    Raises:
        ArgumentTypeError: ``key_selector`` is neither a KeySelector nor callable.
        ProgramError: ``key_selector`` is a KeySelector that overrides ``open`` or ``close``.
        TypeError: ``key_type`` is no type.
    """
    if isinstance(key_selector, KeySelector):
        select = _method(key_selector, KeySelector, "get_key")
    elif callable(key_selector):
        check_takes(key_selector, ("record",), "the key selector", _SELECTOR)
        select = key_selector
    else:
        raise ArgumentTypeError(
            f"Parameter key_selector should be type of KeySelector or a callable function, not {kind_of(key_selector)}",
            where=_SELECTOR,
            expected="a KeySelector or a callable",
            hint="write lambda record: record[0] for the first field; positions and names of fields are no selectors",
        )
    declared = declared_type(key_type)
    return select if isinstance(declared, PickledBytesTypeInfo) else TypedKeySelector(select, declared)


def partition_function(partitioner: Partitioner | Callable[[Any, int], int]) -> Callable[[Any, int], int]:
    """The function (key, number of partitions) -> partition of a partitioner.

    Raises:
        ArgumentTypeError: ``partitioner`` is neither a Partitioner nor callable.
        ProgramError: ``partitioner`` is a Partitioner that overrides ``open`` or ``close``.
    """
    if isinstance(partitioner, Partitioner):
        return _method(partitioner, Partitioner, "partition")
    if callable(partitioner):
        check_takes(partitioner, ("key", "number of subtasks"), "the partitioner", "partition_custom()")
        return partitioner
    raise ArgumentTypeError(
        f"Parameter partitioner should be type of Partitioner or a callable function, not {kind_of(partitioner)}",
        where="partition_custom()",
        expected="a Partitioner, or a callable (key, number of subtasks) -> subtask",
        hint="write lambda key, subtasks: ... % subtasks",
    )


def _method(function: Function, kind: type[Function], name: str) -> Callable[..., Any]:
    """The bound method ``name`` of the function. The function must not override ``open`` or ``close``: both ends of an
    edge call the method, and one of them is outside any operator that could open the function."""
    for lifecycle in ("open", "close"):
        if not inherits(function, kind, lifecycle):
            raise ProgramError(
                f"{type(function).__name__} overrides {lifecycle}()",
                where=f"the {kind.__name__} of a stream",
                expected=f"a {kind.__name__} that needs nothing but its {name}()",
                hint="prepare it in __init__, or compute the key in a map before key_by",
            )
    check_methods_take(function, kind, f"the {kind.__name__} of a stream")
    method: Callable[..., Any] = getattr(function, name)
    return method


def check_function(func: Any, kind: type[Function], where: str) -> None:
    """Raises ArgumentTypeError unless ``func`` is an instance of the function class ``kind``, or any callable that is
    not a function class, and can be called with what it will be called with."""
    no_instance = isinstance(func, type) and issubclass(func, Function)
    if no_instance or not (isinstance(func, kind) or callable(func)):
        name = kind.__name__
        raise ArgumentTypeError(
            f"The input must be a {name} or a callable function, not {kind_of(func)}",
            where=where,
            expected=f"a {name} or a callable",
            hint=f"make an instance: {func.__name__}()" if no_instance else f"wrap it into a lambda or a {name}",
        )
    if isinstance(func, kind):
        check_methods_take(func, kind, where)
        return
    (method,) = (vars(kind)[name] for name in kind.__abstractmethods__)
    code = method.__code__
    check_takes(func, code.co_varnames[1 : code.co_argcount], "the function", where)
