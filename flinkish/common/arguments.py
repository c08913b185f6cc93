"""Checks the arguments that user code passes to the API, at the call and not when the job runs.

Rule upheld here: a wrong argument raises an error that is both a ``ProgramError`` and what Python and PyFlink raise
(TypeError, ValueError), so that its message has the common form and code that was written for PyFlink still catches it.

Rule of every fast path: what the engine does instead of calling a method is right only as long as the method is
flinkish's own. Whoever takes such a path asks `runs_ours` or `stands_for` first, once per operator: a class of the
program may override the method, and so may an attribute of the object or a patch of our class.

`result_of_each` is for calls of user code while the job runs.
"""

from __future__ import annotations

import functools
import inspect
import types
from abc import ABCMeta
from collections.abc import Callable, Sequence
from typing import Any

from flinkish.errors import ArgumentTypeError, ArgumentValueError, ProgramError, TypeMismatchError, escaped

#: The package whose methods are ours, and the part of it that holds programs.
_OURS, _PROGRAMS = "flinkish", "flinkish.examples"


def runs_ours(subject: object, *methods: str) -> bool:
    """Whether these methods of an object (none: all that its classes define) are flinkish's own, so that the engine may
    do what they do without calling them. A method counts by the module that its code is written in, since wrappers copy
    the name of what they wrap."""
    return all(_definition(subject, name)[1] for name in methods or _all_methods(subject))


def stands_for(subject: object, fast: str, *slow: str) -> bool:
    """Whether the method ``fast`` of an object still does, or says, the same as its methods ``slow``: whoever has
    overridden one of these last has ``fast`` overridden as well, in the same class or after it."""
    place, ours = _definition(subject, fast)
    for name in slow:
        place_of_slow, slow_is_ours = _definition(subject, name)
        if place_of_slow < place or ours and not slow_is_ours:
            return False
    return True


def inherits(subject: object, kind: type, method: str) -> bool:
    """Whether an object has the method of ``kind``, a class of flinkish, as it is: neither another class, ours or the
    program's, nor the object itself overrides it. For methods that need not be called unless they do something."""
    place, ours = _definition(subject, method)
    return ours and type(subject).__mro__[place] in kind.__mro__


def form_for_lists(subject: Any, method: str, one_by_one: Callable[..., Any]) -> Callable[[list[Any]], Any]:
    """What does with a whole list what ``method`` of an object does with one value: its ``<method>_batch``, or
    ``one_by_one`` of its base class if the program has overridden ``method`` and not that."""
    if stands_for(subject, f"{method}_batch", method):
        return getattr(subject, f"{method}_batch")  # type: ignore[no-any-return]
    return lambda values: one_by_one(subject, values)


def own_methods(subject: object) -> list[str]:
    """The public methods of an object that are the program's own, for objects whose methods nobody would call."""
    return sorted(name for name in _all_methods(subject) if name[0] != "_" and not _definition(subject, name)[1])


def refuse_own_methods(subject: object, what: str, where: str, hint: str) -> None:
    """Raise ArgumentTypeError if the class of the program of an object has methods, which the engine would not call.
    ``what`` begins the message, for example "the rolling policy"."""
    names = own_methods(subject)
    if names:
        raise ArgumentTypeError(
            f"{what} is {kind_of(subject)}, whose {' and '.join(f'{name}()' for name in names)} would never be called",
            where=where,
            expected=f"one that flinkish has, since {what} is carried out by the engine",
            hint=hint,
        )


def _all_methods(subject: object) -> set[str]:
    """The names of the methods and properties of an object's classes, without special ones such as ``__init__``."""
    attributes = [getattr(subject, "__dict__", {}), *map(vars, type(subject).__mro__[:-1])]
    return {
        name
        for number, items in enumerate(attributes)
        for name, value in items.items()
        if not name.startswith("__") and (_code_of(value) is not None if number else _overrides(subject, name))
    }


def _overrides(subject: object, name: str) -> bool:
    """Whether an attribute of the object itself hides a method of its class."""
    return any(_code_of(vars(kind).get(name)) is not None for kind in type(subject).__mro__)


def _definition(subject: object, name: str) -> tuple[int, bool]:
    """Where an attribute of an object is defined (-1: by the object itself, else the position of the class in its
    order of look-up), and whether that is code of flinkish."""
    if type(subject).__getattribute__ is not object.__getattribute__:
        return -1, False
    if name in getattr(subject, "__dict__", ()):
        return -1, False
    for place, kind in enumerate(type(subject).__mro__):
        if name in vars(kind):
            return place, _is_ours(kind.__module__) and _is_our_code(vars(kind)[name])
    return len(type(subject).__mro__), False


def _code_of(attribute: Any) -> types.FunctionType | None:
    """The function of a method, a property or the like; None: it is none in Python."""
    if isinstance(attribute, (staticmethod, classmethod)):
        attribute = attribute.__func__
    elif isinstance(attribute, property):
        attribute = attribute.fget
    else:
        attribute = (
            getattr(attribute, "func", attribute) if type(attribute).__name__ == "cached_property" else attribute
        )
    return attribute if isinstance(attribute, types.FunctionType) else None


def _is_our_code(attribute: Any) -> bool:
    code = _code_of(attribute)
    return not callable(attribute) if code is None else _is_ours(code.__globals__.get("__name__"))


def _is_ours(module: Any) -> bool:
    name = str(module)
    return name.split(".")[0] == _OURS and not f"{name}.".startswith(f"{_PROGRAMS}.")


def result_of_each(function: Callable[[Any], Any], values: Sequence[Any], what: str, where: str = "") -> list[Any]:
    """What a function of the user returns for each value. `map` alone would take a StopIteration of the function for
    the end of the values, and drop the rest of them. ``what`` names the function in the error.

    Raises:
        ProgramError: the function has raised StopIteration.
    """
    # the name of the iterator: runtime/task/progress.py
    arriving = iter(values)
    results = list(map(function, arriving))
    if len(results) < len(values):
        raise ProgramError(
            f"{what} raised StopIteration for {values[len(results)]!r:.200}",
            where=where,
            expected="a result for each value",
            hint="give next() a default, or catch the exception",
        )
    return results


def check_made(made: Any, kind: type | tuple[type, ...], maker: Any, method: str) -> None:
    """Raise TypeMismatchError unless what a method of user code has made is of the kind that the engine uses, or has
    its methods. ``maker`` is the object whose method it is, or a function (``method`` then says what it is for)."""
    if not isinstance(made, kind) and not _has_methods_of(made, kind):
        kinds = kind if isinstance(kind, tuple) else (kind,)
        name = f"{type(maker).__name__}.{method}()" if hasattr(maker, method) else method
        raise TypeMismatchError(
            f"{name} returned {abbreviated(made)}" + ("" if made is None else f", {kind_of(made)}"),
            where=name + place_of(maker if not hasattr(maker, method) else getattr(maker, method)),
            expected=f"an instance of {' or '.join(each.__name__ for each in kinds)}",
            hint="make it there, and return it",
        )


def _has_methods_of(made: Any, kind: type | tuple[type, ...]) -> bool:
    """Whether an object has what a kind demands of its subclasses; without demands, all public methods."""
    for each in kind if isinstance(kind, tuple) else (kind,):
        demanded = getattr(each, "__abstractmethods__", None) or [name for name in vars(each) if name[0] != "_"]
        if not isinstance(made, type) and all(hasattr(made, name) for name in demanded):
            return True
    return False


def name_of(function: Any) -> str:
    """A function of user code as messages name it: its name, and where it is written."""
    while isinstance(function, functools.partial):
        function = function.func
    named = getattr(function, "__qualname__", None) or type(function).__qualname__
    return f"{named.replace('<locals>.', '')}{place_of(function)}"


def place_of(function: Any) -> str:
    """Where a function of user code is written, as the end of its name in messages; "" if that is not known.

    >>> place_of(len)
    ''
    """
    while isinstance(function, functools.partial):
        function = function.func
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return f" ({code.co_filename}:{code.co_firstlineno})" if isinstance(code, types.CodeType) else ""


def accepts(function: Any, count: int) -> bool | None:
    """Whether a callable of user code can be called with this number of arguments; None: that cannot be told without
    calling it, such as for a function in C, or one that says something else about itself.

    >>> accepts(lambda value: value, 1), accepts(lambda value: value, 2), accepts(len, 2)
    (True, False, None)
    """
    plain = function
    while isinstance(plain, functools.partial):
        plain = plain.func
    if isinstance(plain, types.MethodType):
        plain = plain.__func__
    if isinstance(plain, type):
        makes: Any = next((vars(kind)["__init__"] for kind in plain.__mro__ if "__init__" in vars(kind)), None)
        usual = type(plain) in (type, ABCMeta) and all("__new__" not in vars(kind) for kind in plain.__mro__[:-1])
        plain = makes if usual and plain is function else None
        return accepts(plain, count + 1) if isinstance(plain, types.FunctionType) else None
    if not isinstance(plain, types.FunctionType):
        calls: Any = inspect.getattr_static(type(plain), "__call__", None)
        return accepts(calls, count + 1) if isinstance(calls, types.FunctionType) and plain is function else None
    if hasattr(plain, "__signature__"):
        return None
    try:
        # not that of what a wrapper wraps, which may take other arguments
        inspect.signature(function, follow_wrapped=False).bind(*[None] * count)
    except TypeError:
        return False
    except ValueError:
        return None
    return True


def check_takes(function: Any, names: Sequence[str], what: str, where: str) -> None:
    """Raise ArgumentTypeError if a callable of user code cannot be called with the arguments of these names. ``what``
    names it in the message, such as "the key selector"."""
    if accepts(function, len(names)) is False:
        empty = inspect.Parameter.empty
        parameters = inspect.signature(function, follow_wrapped=False).parameters.values()
        shown = ", ".join(str(parameter.replace(annotation=empty)) for parameter in parameters)
        called = f"{len(names)} argument{'s' if len(names) != 1 else ''}"
        raise ArgumentTypeError(
            f"{what} cannot be called with {called}: its parameters are ({shown})",
            where=f"{where}, {name_of(function)}",
            expected=f"one that takes ({', '.join(names)})",
            hint="give the other parameters defaults, or bind them with functools.partial or a lambda"
            if names
            else "leave out its parameters",
        )


def check_methods_take(subject: Any, kind: type, where: str) -> None:
    """Raise ArgumentTypeError if a method that a class of the program overrides cannot be called with the arguments
    that the engine passes to it, which are those of the method of ``kind``."""
    for base in kind.__mro__[:-1]:
        for name, declared in vars(base).items():
            if name[0] != "_" and isinstance(declared, types.FunctionType) and not runs_ours(subject, name):
                code = declared.__code__
                names = code.co_varnames[1 : code.co_argcount]
                check_takes(getattr(subject, name, None), names, f"{type(subject).__name__}.{name}()", where)


def kind_of(value: Any) -> str:
    """Describe a value in messages, as a class or an instance, since the two are often mixed up."""
    if value is None:
        return "None"
    return f"the class {value.__name__}" if isinstance(value, type) else f"an instance of {type(value).__name__}"


def abbreviated(value: Any, length: int = 120) -> str:
    """The repr of a value for messages, in one line; the middle of a long one is left out. Never raises: a value whose
    repr fails, such as an integer with more digits than Python converts to text, is described by its type.

    >>> abbreviated("a"), abbreviated((1, 10**5000)), abbreviated(10**5000)
    ("'a'", '<a tuple without a text: ValueError>', '<an int of 16610 bits>')
    """
    try:
        text = repr(value)
    except Exception as error:
        if type(value) is int:
            return f"<an int of {value.bit_length()} bits>"
        return f"<a {type(value).__name__} without a text: {type(error).__name__}>"
    return escaped(text if len(text) <= length else f"{text[: length - 20]}...{text[-15:]}")


def check_instance(
    value: Any, kind: type | tuple[type, ...], what: str, where: str, hint: str, expected: str = ""
) -> None:
    """Raise ArgumentTypeError unless the value is an instance of ``kind``. ``what`` begins the message, which goes on
    with what the value is, for example "the trigger is" or "the input must be a MapFunction, not"."""
    if not isinstance(value, kind):
        kinds = kind if isinstance(kind, tuple) else (kind,)
        named = " or ".join(f"{'an' if each.__name__[0] in 'AEIOU' else 'a'} {each.__name__}" for each in kinds)
        if isinstance(value, type) and issubclass(value, kinds):
            hint = f"make an instance: {value.__name__}(...)"
        raise ArgumentTypeError(f"{what} {kind_of(value)}", where=where, expected=expected or named, hint=hint)


def check_at_least(value: Any, lowest: int, what: str, where: str, hint: str, unit: str = "") -> None:
    """Raise ArgumentValueError unless the value is a whole number of at least ``lowest``."""
    if not isinstance(value, int) or value < lowest:
        raise ArgumentValueError(
            f"{what} is {abbreviated(value)}{unit and ' '}{unit}",
            where=where,
            expected=f"a whole number of at least {lowest}{unit and ' '}{unit}",
            hint=hint,
        )
