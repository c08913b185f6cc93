"""Counts what Python executes, which is the same however busy the machine is."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


def lines_executed(call: Callable[[], object]) -> int:
    """The number of lines that this thread executes in a call. A line counts again in each round of a loop, also of one
    inside of an expression; what functions written in C do does not count."""
    lines = 0

    def trace(frame: Any, event: str, argument: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return lines
