"""Finds the names that the code of a user function mentions, including the code of its helpers.

This tells whether a function registers processing-time timers, in which case epochs must run even without data. Where
the scan cannot tell, the caller assumes the safe answer.
"""

from __future__ import annotations

import types
from typing import Any

#: The scan visits at most this many functions and classes.
MAX_FUNCTIONS = 500

_OWN = "flinkish"


def mentioned_names(user_object: Any) -> set[str]:
    """All attribute and global names in the methods of an object's class and in the functions that they refer to.

    >>> def helper(ctx): ctx.timer_service().register_event_time_timer(5)
    >>> def function(ctx): helper(ctx)
    >>> "register_event_time_timer" in mentioned_names(function)
    True
    """
    names: set[str] = set()
    seen: set[int] = set()
    stack: list[Any] = [user_object if isinstance(user_object, types.FunctionType) else type(user_object)]
    while stack and len(seen) < MAX_FUNCTIONS:
        item = stack.pop()
        if id(item) in seen or (getattr(item, "__module__", None) or "").split(".")[0] == _OWN:
            continue
        seen.add(id(item))
        if isinstance(item, type):
            stack.extend(base for base in item.__mro__[1:] if base is not object)
            stack.extend(vars(item).values())
        elif isinstance(item, (staticmethod, classmethod)):
            stack.append(item.__func__)
        elif isinstance(item, types.FunctionType):
            stack.extend(_referenced(item, names))
    return names


def _referenced(function: types.FunctionType, names: set[str]) -> list[Any]:
    """Add the names in a function's code to ``names``, and return the functions and classes that it refers to."""
    codes = [function.__code__]
    for code in codes:  # the list grows during the iteration
        names.update(code.co_names)
        codes.extend(constant for constant in code.co_consts if isinstance(constant, types.CodeType))
    globals_ = function.__globals__
    found = [globals_[name] for code in codes for name in code.co_names if name in globals_]
    found.extend(cell.cell_contents for cell in function.__closure__ or () if _is_filled(cell))
    return [item for item in found if isinstance(item, (types.FunctionType, type))]


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - an empty cell raises
    except ValueError:
        return False
    return True
