"""Names of PyFlink's that give or take objects of Java: there is no Java object behind anything in flinkish."""

from __future__ import annotations

from typing import NoReturn

from flinkish.errors import ProgramError


def no_java_object(call: str) -> NoReturn:
    """Raise ProgramError: nothing that the call could give exists."""
    raise ProgramError(
        f"{call} has no meaning here: there is no Java object",
        where="the Python API",
        expected="a program that uses only the Python API",
        hint="take the value from the Python object",
    )
