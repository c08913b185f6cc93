"""The error of PyFlink's methods that return or take Java objects: nothing in flinkish is backed by one."""

from __future__ import annotations

from typing import NoReturn

from flinkish.errors import ProgramError


def no_java_object(call: str) -> NoReturn:
    """Raise ProgramError: the Java object that the call is about does not exist."""
    raise ProgramError(
        f"{call} has no meaning here: there is no Java object",
        where="the Python API",
        expected="a program that uses only the Python API",
        hint="take the value from the Python object",
    )
