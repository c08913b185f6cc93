"""Checks the arguments that user code passes to the API, at the call and not when the job runs.

Rule upheld here: a wrong argument raises an error that is both a ``ProgramError`` and what Python and PyFlink raise
(TypeError, ValueError), so that its message has the common form and code that was written for PyFlink still catches it.

`result_of_each` is for calls of user code while the job runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from flinkish.errors import ArgumentTypeError, ArgumentValueError, ProgramError, escaped


def result_of_each(function: Callable[[Any], Any], values: Sequence[Any], what: str, where: str = "") -> list[Any]:
    """What a function of the user returns for each value. `map` alone would take a StopIteration of the function for
    the end of the values, and drop the rest of them. ``what`` names the function in the error.

    Raises:
        ProgramError: the function has raised StopIteration.
    """
    # the name of the iterator: runtime/task_progress.py
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
