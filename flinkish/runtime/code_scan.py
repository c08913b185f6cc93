"""Which names the code of a user function mentions, its helpers included.

Used to find out whether a function registers processing-time timers: then epochs must go on without data. What cannot
be found out is answered in the safe direction by the caller.
"""

from __future__ import annotations

import types
from typing import Any

#: Functions looked into at the most.
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
    """Collect the names of a function's code; returns the functions and classes that it refers to."""
    codes = [function.__code__]
    for code in codes:  # grows while it is walked
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
